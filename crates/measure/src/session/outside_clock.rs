//! The harness's own clock: the time of a call, seen from outside of the worker.
//!
//! Code under test runs in the worker's process and can change each clock and each reply there. So
//! the harness has the worker make `n` calls, and times the request itself, less one of no calls.
//! Samples that lie far below the time of a call are refused. Time that the kernel says the worker
//! was ready and had no core is taken out, so other programs cannot make honest samples look too
//! short.
//!
//! If the worker can, the inputs change before each of these calls, and calls that were drawn are
//! checked: what was computed before, or is left out, gains nothing. The same request without the
//! calls tells what the changes take.

use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, Instant};

use super::call_time::{CallTime, Claim, MAX_CALLS, MIN_SPAN_NS, Requests};
use super::core_speed::CoreSpeeds;
use super::page_faults::PageFaults;
use super::task_times::{ENDED, page_faults, times, times_of_tasks, waits_of_harness};
use super::{CaseEnd, Fault, Session, failed, limit};
use crate::interference::{is_watched, on_processor};
use crate::worker::Conversation;
use regatta_core::record::{Measurement, median};
use regatta_worker::case::Case;
use regatta_worker::protocol::{
    Repeat, RepeatStep, ReplyBody, RequestBody, TensorError, VariantInfo,
};
use regatta_worker::tolerance::tolerable;
use regatta_worker::units::Nanoseconds;

/// Calls are repeated in the first invocation, and in each so many after it; and where samples lie
/// below what an invocation before them was bound by.
const EVERY: u32 = 5;

/// Requests without calls at first: other programs may delay one.
const AT_FIRST: u32 = 3;

/// A request of no calls takes no longer: what is above it counts as time of calls.
const MAX_REQUEST_NS: f64 = 1e6;

/// Calls of a CUDA graph, whose launch is then little beside them.
const IN_GRAPH: u32 = 16;

/// Changes of the inputs may take so long and so much for each byte: what is above it counts as
/// time of calls, or code under test could make changes slow in place of its clocks.
const CHANGE_NS: f64 = 1e5;
const CHANGE_NS_PER_BYTE: f64 = 0.5;

/// The changes of two requests may differ by this part of what they take.
const CHANGE_ERROR: f64 = 0.1;

/// A call is timed for so long before its samples are refused; the shortest time counts. A core whose
/// other hardware thread computes for somebody else is slow, and no counter of the kernel tells.
const MAX_TIME: Duration = Duration::from_secs(4);

/// Samples are refused after so many tries at the least.
const MIN_TRIES: u32 = 3;

/// Waits of several threads excuse samples from so many tries on, by the median of all.
const TRIES_OF_WAITS: usize = 5;

/// After so long, every second request has so many times as many calls: a core that waited for a
/// request is slow for its first milliseconds, and beside other programs so are threads that the
/// first call wakes. Requests on several threads stay short.
const SHORT_TIME: Duration = Duration::from_millis(250);
const LONGER: u32 = 8;

/// Requests for calls on several threads come one right after the other, so many at a time and for so
/// long, and the shortest counts. A thread that slept wakes on the core of the one that waits for it,
/// and Linux may leave both there for a tenth of a second: matrix products of 0.4 ms took 12 ms each.
/// One that still spins is left on its core. Beside other programs, few requests have all cores.
const IN_A_ROW: u32 = 8;
const ROW_TIME: Duration = Duration::from_millis(200);

/// Other programs excuse no samples on one thread where so many requests waited for their core for no
/// more than this part of their time, and it was as fast as ever: work of the harness's own is timed
/// on it before and after.
const UNDISTURBED_TRIES: usize = 8;
const MAX_WAITED: f64 = 0.05;

/// After so long it counts whether other programs began after the samples, and on one thread whether
/// they disturbed these.
const LATER: Duration = Duration::from_secs(1);

/// Page faults are excused up to this part of a request's time. The worker says how many its samples
/// had, so code under test could hide some.
const MAX_EXCUSED: f64 = 0.2;

/// Child processes did a part of a call's work from this share of its time on.
const SHARE_OF_CHILDREN: f64 = 0.1;

impl Session<'_> {
    /// Times work of the harness's own on these cores, and keeps the shortest times of all.
    fn look_at(&mut self, cores: &[u32]) -> CoreSpeeds {
        let now = CoreSpeeds::now(cores);
        self.state.fastest = mem::take(&mut self.state.fastest).faster(&now);
        now
    }

    /// True if one of the cores is slower than it once was.
    fn are_slower(&mut self) -> bool {
        let now = self.look_at(&self.state.cores.clone());
        self.state.fastest.are_slower(&now)
    }

    /// Refuses samples that are shorter than calls can have been.
    pub(super) fn bound(
        &mut self,
        worker: &mut dyn Conversation,
        invocation: u32,
        (case, variant): (&Case, &VariantInfo),
        measurement: &Measurement,
    ) -> Result<(), CaseEnd> {
        let samples = &measurement.samples;
        let Some(device_ns) = median(&samples.device_ns) else {
            return Ok(());
        };
        let before = self.state.shortest.get(&case.id()).copied();
        let is_cpu = on_processor(&worker.hello().device);
        let one_thread = samples.threads.iter().all(|threads| *threads == 1);
        // Other programs may run on a machine that is not watched.
        let disturbed = !measurement.disturbed.is_empty() || !is_watched();
        let claim = Claim {
            device_ns: device_ns.0,
            fast_ns: fast_of(&samples.device_ns),
            one_thread,
            is_cpu,
        };
        let is_excused = excuses(disturbed, one_thread, 0, Duration::ZERO);
        let is_below = before.is_some_and(|shortest| !claim.is_possible(shortest, is_excused));
        let is_due = invocation.is_multiple_of(EVERY) || is_below;
        if !is_due || !worker.hello().repeats || samples.graph {
            return Ok(());
        }
        let device = worker.hello().device.clone();
        let began_at = self.state.load.look_for(&device);
        if is_cpu {
            self.look_at(&self.state.cores.clone());
        }
        let host_ns = median(&samples.host_ns).unwrap_or_default();
        let graph = !is_cpu && host_ns > device_ns;
        let faults = PageFaults::beyond(&samples.page_faults);
        let cores = self.state.cores.iter().map(|core| Some(*core));
        let others: Vec<_> = cores.filter(|_| is_cpu && one_thread).collect();
        // Each core, as they differ; where the samples were taken first.
        let mut cores = others.into_iter().cycle();
        let is_native = case.problem.native().is_some();
        let changes = is_cpu && is_native && self.suite.settings.input_sets > 1;
        let mut request = Repeat {
            calls: if graph { IN_GRAPH } else { 1 },
            core: samples.core,
            graph,
            step: if changes {
                RepeatStep::ChangeAndCall
            } else {
                RepeatStep::Call
            },
        };
        // A thing that is made once, in the first call or change, is in no time.
        if changes && self.span(worker, request, &faults, false)?.is_none() {
            request.step = RepeatStep::Call;
        }
        let in_a_row = if one_thread { 1 } else { IN_A_ROW };
        let first = self.enough_calls(worker, &mut request, in_a_row, &faults)?;
        let Some(first) = first else {
            return Ok(());
        };
        let bytes = case.problem.bytes(&self.suite.operators);
        let most_change_ns = CHANGE_NS + CHANGE_NS_PER_BYTE * bytes.unwrap_or_default();
        let mut short = Requests::new(request.calls, first);
        let mut long = short.with_more_calls(LONGER);
        let (mut of_none, mut no_waits) = (Vec::new(), Vec::new());
        let (mut shortest, began) = (CallTime::MAX, Instant::now());
        let mut attempts = 0;
        // The speed of each request's core, where that waited for none.
        let mut speeds = Vec::new();
        let mut began_later;
        let is_bounded = loop {
            let is_long = attempts % 2 == 1 && long.calls <= MAX_CALLS;
            let tried = if is_long && one_thread && began.elapsed() >= SHORT_TIME {
                &mut long
            } else {
                &mut short
            };
            request.calls = tried.calls;
            if attempts > 0 {
                request.core = cores.next().flatten();
                let row = (request, in_a_row);
                let (speed, waited) = (self.look_at(request.core.as_slice()), waits(worker));
                if let Some(span) = self.shortest_of(worker, row, &faults, one_thread)? {
                    tried.of_calls = tried.of_calls.shorter(span);
                    let waited = waits(worker).saturating_sub(waited).as_nanos() as f64;
                    if request.core.is_some() && waited <= MAX_WAITED * span.wall_ns {
                        speeds.push(speed.slower(&self.look_at(request.core.as_slice())));
                    }
                }
            }
            attempts += 1;
            // Calls take no less than the shortest request of theirs, and all else what it takes as
            // a rule: from its shortest times too little would be taken out.
            let calls = f64::from(request.calls);
            let empty = Repeat {
                calls: 0,
                ..request
            };
            let changed = Repeat {
                step: RepeatStep::Change,
                ..request
            };
            let changes = request.step == RepeatStep::ChangeAndCall;
            let requests = if attempts == 1 { AT_FIRST } else { 1 };
            for _ in 0..requests {
                of_none.extend(self.span(worker, empty, &faults, attempts > 1)?);
            }
            let overhead = CallTime::median(&of_none).at_most(MAX_REQUEST_NS, 1.0);
            // Another program delayed those before, or requests of no calls are slow.
            if tried.are_too_few(overhead) {
                short = tried.with_more_calls(4);
                long = short.with_more_calls(LONGER);
                continue;
            }
            let both = tried.of_calls.less(overhead).per_call(calls);
            let mut a_call = both;
            if changes {
                for _ in 0..requests {
                    let change = self.span(worker, changed, &faults, attempts > 1)?;
                    tried.of_changes.extend(change);
                }
                let change = CallTime::median(&tried.of_changes);
                let change = change.less(overhead).per_call(calls);
                let change = change.at_most(most_change_ns, 1.0 + CHANGE_ERROR);
                a_call = both.less(change);
                // Without changes a call takes no longer, and nothing is taken out.
                if change.is_large_part_of(both) {
                    let step = RepeatStep::Call;
                    let span = self.span(worker, Repeat { step, ..request }, &faults, true)?;
                    tried.unchanged = tried.unchanged.shorter(span.unwrap_or(CallTime::MAX));
                    a_call = a_call.longer(tried.unchanged.less(overhead).per_call(calls));
                }
            }
            if !claim.is_possible(a_call, false) {
                let delay = self.state.load.delay_since(began_at.as_ref(), &device);
                let least = (1.0 - delay.unwrap_or(1.0)) * a_call.wall_ns;
                a_call.no_waits_ns = a_call.no_waits_ns.max(least);
            }
            no_waits.push(a_call.no_waits_ns);
            shortest = shortest.shorter(a_call);
            // In one request threads may have waited for each other.
            let are_enough = no_waits.len() >= TRIES_OF_WAITS || began.elapsed() >= MAX_TIME;
            let usual = median(&no_waits).filter(|_| are_enough);
            shortest.no_waits_ns = usual.unwrap_or(f64::MAX);
            // Programs that began after the samples, and cores that are slower now, slow these calls
            // alone.
            began_later = began.elapsed() >= LATER
                && (self.state.load.disturbed_since(began_at.as_ref(), &device)
                    || is_cpu && self.are_slower());
            let is_excused = excuses(
                disturbed || began_later,
                one_thread,
                self.state.fastest.not_slower(&speeds),
                began.elapsed(),
            );
            if claim.is_possible(shortest, is_excused) {
                break true;
            }
            if began.elapsed() >= MAX_TIME && attempts >= MIN_TRIES {
                break false;
            }
        };
        if is_bounded {
            let kept = self.state.shortest.entry(case.id()).or_insert(shortest);
            // Threads that share a core may have made calls far too long in an earlier invocation.
            let is_better = if one_thread {
                kept.wall_ns < shortest.wall_ns
            } else {
                shortest.wall_ns < kept.wall_ns
            };
            if is_better {
                *kept = shortest;
            }
            return self.check_repeated(worker, request, (case, variant));
        }
        let shortest = Nanoseconds(shortest.wall_ns);
        let beside = if disturbed || began_later {
            "Other programs disturb this machine: measure again without them. If this stays, the"
        } else {
            "The"
        };
        Err(failed(
            Fault::Other,
            format!(
                "unusable samples: they say {device_ns} a call, and by a clock outside of the \
                 worker a call takes {shortest} at least, each of {attempts} times. {beside} function \
                 changes a clock or what its worker replies, computes less in calls that are \
                 timed, or leaves work for earlier or later. Compute all in each call, wait for it \
                 there, and leave clocks as they are"
            ),
        )
        .into())
    }

    /// Holds results of calls that were repeated to the tolerances.
    fn check_repeated(
        &self,
        worker: &mut dyn Conversation,
        request: Repeat,
        (case, variant): (&Case, &VariantInfo),
    ) -> Result<(), CaseEnd> {
        if request.step == RepeatStep::Call {
            return Ok(());
        }
        let step = RepeatStep::Check;
        let Some(errors) = self.repeated(worker, Repeat { step, ..request })? else {
            return Ok(());
        };
        let Some(problem) = case.problem.native() else {
            return Ok(());
        };
        let tf32 = variant.tf32 && problem.dtype == regatta_worker::case::Dtype::F32;
        for &(tensor, direction) in problem.results() {
            let error = errors.get(tensor).and_then(|error| error.relative_l2);
            tolerable(problem.dtype, tf32, direction, error).map_err(|reason| {
                let words = "wrong result in a call that the harness timed";
                failed(Fault::WrongResult, format!("{words}: {tensor}: {reason}"))
            })?;
        }
        Ok(())
    }

    /// Raises the number of calls until they take [`MIN_SPAN_NS`], and returns the time of these.
    /// `None`: the worker cannot repeat these.
    fn enough_calls(
        &self,
        worker: &mut dyn Conversation,
        request: &mut Repeat,
        in_a_row: u32,
        faults: &PageFaults,
    ) -> Result<Option<CallTime>, CaseEnd> {
        loop {
            let span = self.shortest_of(worker, (*request, in_a_row), faults, false)?;
            if span.is_none_or(|span| span.wall_ns >= MIN_SPAN_NS) || request.calls >= MAX_CALLS {
                return Ok(span);
            }
            request.calls *= 4;
        }
    }

    /// Times so many requests in a row, and returns the shortest. `None`: the worker cannot repeat these.
    fn shortest_of(
        &self,
        worker: &mut dyn Conversation,
        (request, in_a_row): (Repeat, u32),
        faults: &PageFaults,
        settles: bool,
    ) -> Result<Option<CallTime>, CaseEnd> {
        let began = Instant::now();
        let mut shortest = self.span(worker, request, faults, settles)?;
        for _ in 1..in_a_row {
            if shortest.is_some() && began.elapsed() < ROW_TIME {
                let span = self.span(worker, request, faults, settles)?;
                shortest = shortest.zip(span).map(|(one, other)| one.shorter(other));
            }
        }
        Ok(shortest)
    }

    /// Times a request, without page faults that its calls made and the samples did not. A wait of
    /// the main thread does not count as a wait where other threads and children of the worker
    /// computed: they may have had its core. Where it `settles`, threads that spin for a while after
    /// calls may end that first.
    fn span(
        &self,
        worker: &mut dyn Conversation,
        request: Repeat,
        faults: &PageFaults,
        settles: bool,
    ) -> Result<Option<CallTime>, CaseEnd> {
        let process = worker.process();
        // A GPU's work is on no thread, and a process that uses one has many to read.
        let is_cpu = on_processor(&worker.hello().device);
        let with_tasks = process.filter(|_| is_cpu);
        let tasks = || with_tasks.map(|process| times_of_tasks(process, settles));
        let tasks = || tasks().unwrap_or_default();
        let page_faults = || process.map_or(0, page_faults);
        let (tasks_before, faults_before) = (tasks(), page_faults());
        // From before the first reading of waits to after the last: no wait is in them alone.
        let began = Instant::now();
        let waited_before = waits(worker);
        let reply = self.repeated(worker, request)?;
        let waited = waits(worker).saturating_sub(waited_before);
        let wall = began.elapsed();
        let cores = self.state.cores.len().max(1) as u32;
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
                ENDED if computed > Duration::ZERO => (computed / cores, wall),
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
        let faults = faults.excused_ns(new_faults, request.calls);
        let less_faults = |time: Duration| ns(time) - faults.min(MAX_EXCUSED * ns(time));
        Ok(reply.map(|_| CallTime {
            wall_ns: less_faults(wall),
            busiest_ns: less_faults(busiest),
            on_others_ns: ns(on_others),
            no_waits_ns: less_faults(no_waits),
        }))
    }

    /// The errors in a reply. `None`: the worker cannot repeat these.
    fn repeated(
        &self,
        worker: &mut dyn Conversation,
        request: Repeat,
    ) -> Result<Option<BTreeMap<String, TensorError>>, CaseEnd> {
        let request = RequestBody::Repeat(request);
        match worker.ask(request, limit(&self.suite.settings))? {
            ReplyBody::Repeated { errors } => Ok(Some(errors)),
            ReplyBody::Unsupported { .. } => Ok(None),
            other => Err(super::no_answer(other).into()),
        }
    }
}

/// True where other programs explain that requests took longer than the samples.
fn excuses(disturbed: bool, one_thread: bool, on_fast_cores: usize, time: Duration) -> bool {
    disturbed && (!one_thread || (on_fast_cores < UNDISTURBED_TRIES && time >= LATER))
}

/// The time in which the worker's main thread, or one of the harness's, was ready and had no core.
fn waits(worker: &dyn Conversation) -> Duration {
    let process = worker.process();
    let process = process.map(|process| times(&format!("/proc/{process}")).waited);
    process.unwrap_or_default() + waits_of_harness(worker.reader())
}

/// The time than which a tenth of these is shorter.
fn fast_of(times: &[Nanoseconds]) -> f64 {
    let mut times: Vec<f64> = times.iter().map(|time| time.0).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 10).copied().unwrap_or_default()
}

/// Puts the waits for a core back into the times of a call whose work child processes did: its
/// process waited while these computed.
pub(super) fn keep_waits_for_children(measurement: &mut Measurement, children: Duration) {
    let samples = &mut measurement.samples;
    let total: f64 = samples.device_ns.iter().map(|time| time.0).sum();
    let waits = samples.waited_ns.iter();
    let waited: f64 = waits.map(|time| time.0).sum();
    if children.as_nanos() as f64 <= SHARE_OF_CHILDREN * (total + waited) {
        return;
    }
    let on_one_thread = |place: usize| samples.threads.get(place) == Some(&1);
    for place in 0..samples.waited_ns.len() {
        if on_one_thread(place) {
            samples.device_ns[place] += samples.waited_ns[place];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of half the time were possible beside other programs, while requests on fast cores
    /// showed the whole.
    #[test]
    fn requests_on_fast_cores_leave_other_programs_no_part() {
        assert!(excuses(true, true, UNDISTURBED_TRIES - 1, LATER));
        assert!(!excuses(true, true, UNDISTURBED_TRIES, LATER));
        assert!(!excuses(true, true, 0, LATER / 2), "more requests may do");
        assert!(!excuses(false, true, 0, LATER));
        assert!(excuses(true, false, UNDISTURBED_TRIES, Duration::ZERO));
    }
}
