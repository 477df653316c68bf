//! The harness's clock around requests for calls.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::call_time::{CallTime, MAX_CALLS, MIN_SPAN_NS};
use super::page_faults::PageFaults;
use super::task_times::{ENDED, page_faults, times, times_of_tasks, waits_of_harness};
use super::{CaseEnd, no_answer};
use crate::interference::on_processor;
use crate::worker::Conversation;
use regatta_worker::protocol::{Repeat, ReplyBody, RequestBody, TensorError};

/// Requests for calls on several threads come one right after the other, so many at a time and for so
/// long, and the shortest counts. A thread that slept wakes on the core of the one that waits for it,
/// and Linux may leave both there for a tenth of a second: matrix products of 0.4 ms took 12 ms each.
/// One that still spins is left on its core. Beside other programs, few requests have all cores.
const IN_A_ROW: u32 = 8;
const ROW_TIME: Duration = Duration::from_millis(200);

/// Page faults are excused up to this part of a request's time. The worker says how many its samples
/// had, so code under test could hide some.
const MAX_EXCUSED: f64 = 0.2;

/// Times requests of one worker for calls of the case that it prepared.
pub(super) struct RequestClock<'a> {
    pub(super) worker: &'a mut dyn Conversation,
    /// The time that a reply may take.
    pub(super) limit: Duration,
    /// The number of cores that the worker may use.
    pub(super) cores: u32,
    /// The page faults of its samples.
    pub(super) faults: PageFaults,
    /// Each of its samples ran on one thread.
    pub(super) one_thread: bool,
}

impl RequestClock<'_> {
    /// Raises the number of calls until they take [`MIN_SPAN_NS`], and returns the time of these.
    /// `None`: the worker cannot repeat these.
    pub(super) fn enough_calls(
        &mut self,
        request: &mut Repeat,
    ) -> Result<Option<CallTime>, CaseEnd> {
        loop {
            let span = self.shortest(*request, false)?;
            if span.is_none_or(|span| span.wall_ns >= MIN_SPAN_NS) || request.calls >= MAX_CALLS {
                return Ok(span);
            }
            request.calls *= 4;
        }
    }

    /// Times a request, on several threads some in a row, and returns the shortest. `None`: the worker
    /// cannot repeat these.
    pub(super) fn shortest(
        &mut self,
        request: Repeat,
        settles: bool,
    ) -> Result<Option<CallTime>, CaseEnd> {
        let in_a_row = if self.one_thread { 1 } else { IN_A_ROW };
        let began = Instant::now();
        let mut shortest = self.span(request, settles)?;
        for _ in 1..in_a_row {
            if shortest.is_some() && began.elapsed() < ROW_TIME {
                let span = self.span(request, settles)?;
                shortest = shortest.zip(span).map(|(one, other)| one.shorter(other));
            }
        }
        Ok(shortest)
    }

    /// Times a request, without page faults that its calls made and the samples did not. A wait of
    /// the main thread does not count as a wait where other threads and children of the worker
    /// computed: they may have had its core. Where it `settles`, threads that spin for a while after
    /// calls may end that first.
    pub(super) fn span(
        &mut self,
        request: Repeat,
        settles: bool,
    ) -> Result<Option<CallTime>, CaseEnd> {
        let process = self.worker.process();
        // A GPU's work is on no thread, and a process that uses one has many to read.
        let is_cpu = on_processor(&self.worker.hello().device);
        let with_tasks = process.filter(|_| is_cpu);
        let tasks = || with_tasks.map(|process| times_of_tasks(process, settles));
        let tasks = || tasks().unwrap_or_default();
        let page_faults = || process.map_or(0, page_faults);
        let (tasks_before, faults_before) = (tasks(), page_faults());
        // From before the first reading of waits to after the last: no wait is in them alone.
        let began = Instant::now();
        let waited_before = self.waits();
        let reply = self.repeated(request)?;
        let waited = self.waits().saturating_sub(waited_before);
        let wall = began.elapsed();
        let (mut no_waits, mut busiest, mut on_others) = (wall, Duration::ZERO, Duration::ZERO);
        let tasks_after = tasks();
        let all_asleep = tasks_after.values().all(|times| !times.runs);
        for (task, times) in tasks_after {
            let before = tasks_before.get(&task).copied().unwrap_or_default();
            let computed = times.computed.saturating_sub(before.computed);
            let (longest, waited) = match task {
                // CPU time of threads that run is counted late, and would seem to be theirs.
                ENDED if !all_asleep => continue,
                // They may have computed at the same time, and waited all the time.
                ENDED if computed > Duration::ZERO => (computed / self.cores, wall),
                // It does not work for calls alone.
                _ if times.runs => (computed, Duration::ZERO),
                _ => (computed, times.waited.saturating_sub(before.waited)),
            };
            if Some(task) != process {
                on_others += computed;
            }
            // CPU time of a thread that runs is counted late: some may be from before the request.
            busiest = busiest.max(longest.min(wall));
            no_waits = no_waits.saturating_sub(waited);
        }
        // Waits of several threads may be at the same time, and while the worker computes.
        let wall = wall
            .saturating_sub(waited.saturating_sub(on_others))
            .max(busiest);
        let ns = |time: Duration| time.as_nanos() as f64;
        let new_faults = page_faults().saturating_sub(faults_before);
        let faults = self.faults.excused_ns(new_faults, request.calls);
        let less_faults = |time: Duration| ns(time) - faults.min(MAX_EXCUSED * ns(time));
        Ok(reply.map(|_| CallTime {
            wall_ns: less_faults(wall),
            busiest_ns: less_faults(busiest),
            on_others_ns: ns(on_others),
            no_waits_ns: less_faults(no_waits),
        }))
    }

    /// The errors in a reply. `None`: the worker cannot repeat these.
    pub(super) fn repeated(
        &mut self,
        request: Repeat,
    ) -> Result<Option<BTreeMap<String, TensorError>>, CaseEnd> {
        let request = RequestBody::Repeat(request);
        match self.worker.ask(request, self.limit)? {
            ReplyBody::Repeated { errors } => Ok(Some(errors)),
            ReplyBody::Unsupported { .. } => Ok(None),
            other => Err(no_answer(other).into()),
        }
    }

    /// The time in which the worker's main thread, or one of the harness's, was ready and had no core.
    pub(super) fn waits(&self) -> Duration {
        let process = self.worker.process();
        let process = process.map(|process| times(&format!("/proc/{process}")).waited);
        process.unwrap_or_default() + waits_of_harness(self.worker.reader())
    }
}
