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

/// On several threads, up to `IN_A_ROW` requests follow each other without a pause, for at most
/// `ROW_TIME`, and the shortest counts. A thread that slept wakes on the core of the thread that
/// waits for it, and Linux may leave both there for a tenth of a second: matrix products of 0.4 ms
/// took 12 ms each. A thread that still spins stays on its core. Beside other programs, few
/// requests have all cores.
const IN_A_ROW: u32 = 8;
const ROW_TIME: Duration = Duration::from_millis(200);

/// Page faults excuse at most this part of a request's time. The worker reports how many its
/// samples had, so code under test could hide some.
const MAX_EXCUSED: f64 = 0.2;

/// Times requests to one worker for calls of the case that it has prepared.
pub(super) struct RequestClock<'a> {
    pub(super) worker: &'a mut dyn Conversation,
    /// The time limit of a reply.
    pub(super) limit: Duration,
    /// The number of cores that the worker may use.
    pub(super) cores: u32,
    /// Page faults of the samples.
    pub(super) faults: PageFaults,
    /// True if each sample ran on one thread.
    pub(super) one_thread: bool,
}

impl RequestClock<'_> {
    /// Raises the number of calls until a request takes [`MIN_SPAN_NS`], and returns its time.
    /// Returns `None` if the worker cannot repeat calls.
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

    /// Times a request, on several threads a few in a row, and returns the shortest time. Returns
    /// `None` if the worker cannot repeat calls.
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

    /// Times a request, and subtracts page faults that its calls had and the samples had not. A
    /// wait of the main thread is not subtracted as far as other threads and children of the worker
    /// computed meanwhile: they may have taken its core. If `settles`, waits first for threads that
    /// spin for a while after calls.
    pub(super) fn span(
        &mut self,
        request: Repeat,
        settles: bool,
    ) -> Result<Option<CallTime>, CaseEnd> {
        let process = self.worker.process();
        // GPU work runs on no thread of the process, and a process that uses a GPU has many threads
        // to read.
        let is_cpu = on_processor(&self.worker.hello().device);
        let with_tasks = process.filter(|_| is_cpu);
        let tasks = || with_tasks.map(|process| times_of_tasks(process, settles));
        let tasks = || tasks().unwrap_or_default();
        let page_faults = || process.map_or(0, page_faults);
        let (tasks_before, faults_before) = (tasks(), page_faults());
        // Starts before the first reading of waits and ends after the last, so every wait is within
        // the wall time.
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
                // The kernel counts CPU time of running threads late; it would seem to belong to
                // ended ones.
                ENDED if !all_asleep => continue,
                // They may have computed at the same time, and waited all the while.
                ENDED if computed > Duration::ZERO => (computed / self.cores, wall),
                // A thread that still runs does other work than the calls.
                _ if times.runs => (computed, Duration::ZERO),
                _ => (computed, times.waited.saturating_sub(before.waited)),
            };
            if Some(task) != process {
                on_others += computed;
            }
            // CPU time of a running thread is counted late, so some may be from before the request.
            busiest = busiest.max(longest.min(wall));
            no_waits = no_waits.saturating_sub(waited);
        }
        // Several threads may wait at the same time, and while the worker computes.
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

    /// Repeats calls, and returns the errors of the reply. Returns `None` if the worker cannot
    /// repeat calls.
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
