//! The harness's own clock: the time of a call, measured from outside of the worker.
//!
//! Code under test runs in the worker's process and can change every clock and every reply there.
//! So the harness asks the worker for `n` calls, times that request itself, and subtracts the time
//! of a request without calls. It refuses samples that are far shorter than the resulting time of a
//! call. Time in which the kernel says that the worker was ready and had no core is subtracted too,
//! so that other programs cannot make honest samples look too short.
//!
//! If the worker supports it, the inputs change before each of these calls, and the results of
//! randomly drawn calls are checked. Results that were computed in advance, or skipped, then gain
//! nothing. The same request without the calls measures the time of the changes.

use std::mem;
use std::time::{Duration, Instant};

use super::call_time::{CallTime, Claim, MAX_CALLS, Requests};
use super::core_speed::CoreSpeeds;
use super::page_faults::PageFaults;
use super::request_clock::RequestClock;
use super::{CaseEnd, Fault, Session, SessionState, failed, limit};
use crate::interference::{MachineCounters, is_watched, on_processor};
use crate::worker::Conversation;
use regatta_core::record::{Measurement, median};
use regatta_worker::case::{Case, Dtype};
use regatta_worker::protocol::{Device, Measured, Repeat, RepeatStep, VariantInfo};
use regatta_worker::tolerance::tolerable;
use regatta_worker::units::Nanoseconds;

/// The outside clock checks the samples of every `EVERY`th invocation, from the first on. It also
/// checks any invocation whose samples are shorter than an earlier invocation's time of a call
/// allows.
const EVERY: u32 = 5;

/// Requests without calls in the first attempt, since other programs may delay one. Later attempts
/// make one each.
const AT_FIRST: u32 = 3;

/// The overhead that is subtracted from a request is at most this. If a request without calls takes
/// longer, the rest counts as time of the calls.
const MAX_REQUEST_NS: f64 = 1e6;

/// Calls in a CUDA graph, so that the graph's launch is short beside them.
const IN_GRAPH: u32 = 16;

/// The time that a change of the inputs may take: a constant, plus an amount for each byte.
/// Anything above it counts as time of the calls; otherwise code under test could slow the changes
/// down in place of its clocks.
const CHANGE_NS: f64 = 1e5;
const CHANGE_NS_PER_BYTE: f64 = 0.5;

/// The time of the same changes may differ between two requests by this part.
const CHANGE_ERROR: f64 = 0.1;

/// The time for which calls are measured before their samples are refused. The shortest call
/// counts. A core whose other hardware thread computes for another virtual machine is slow, and no
/// kernel counter shows that.
const MAX_TIME: Duration = Duration::from_secs(4);

/// The minimum number of attempts before samples are refused.
const MIN_TRIES: usize = 3;

/// From this many attempts on, the median of all attempts says how much waits of several threads
/// excuse.
const TRIES_OF_WAITS: usize = 5;

/// After this time, every second request is a long one. A core that waited for a request is slow
/// for the first milliseconds of it, and so are the threads that the first call wakes if other
/// programs run. Requests on several threads stay short.
const SHORT_TIME: Duration = Duration::from_millis(250);

/// After this many requests that hardly waited for a core ([`MAX_WAITED`]) on a core at full speed,
/// other programs no longer excuse samples on one thread that are too short. The harness times work
/// of its own before and after each request to know the core's speed.
const UNDISTURBED_TRIES: usize = 8;
const MAX_WAITED: f64 = 0.05;

/// After this time, programs that started after the samples count as a disturbance, and samples on
/// one thread may be excused at all.
const LATER: Duration = Duration::from_secs(1);

/// Child processes did part of a call's work if they used at least this share of its time.
const SHARE_OF_CHILDREN: f64 = 0.1;

impl Session<'_> {
    /// Refuses samples that are shorter than the calls can have been.
    pub(super) fn bound(
        &mut self,
        worker: &mut dyn Conversation,
        invocation: u32,
        (case, variant): (&Case, &VariantInfo),
        measurement: &Measurement,
    ) -> Result<(), CaseEnd> {
        let samples = &measurement.samples;
        let device = worker.hello().device.clone();
        let Some(claim) = Claim::by(samples, on_processor(&device)) else {
            return Ok(());
        };
        let before = self.state.shortest.get(&case.id()).copied();
        // A machine that is not watched may have other programs running.
        let disturbed = !measurement.disturbed.is_empty() || !is_watched();
        let is_excused = excuses(disturbed, claim.one_thread, 0, Duration::ZERO);
        let is_below = before.is_some_and(|shortest| !claim.is_possible(shortest, is_excused));
        let is_due = invocation.is_multiple_of(EVERY) || is_below;
        if !is_due || !worker.hello().repeats || samples.graph {
            return Ok(());
        }
        let bytes = case.problem.bytes(&self.suite.operators);
        let changes =
            claim.is_cpu && case.problem.native().is_some() && self.suite.settings.input_sets > 1;
        let began_at = self.state.load.look_for(&device);
        let mut clock = OutsideClock {
            clock: RequestClock {
                worker,
                limit: limit(&self.suite.settings),
                cores: self.state.cores.len().max(1) as u32,
                faults: PageFaults::beyond(&samples.page_faults),
                one_thread: claim.one_thread,
            },
            request: first_request(samples, &claim, changes),
            requests: Requests::short_and_long(1, CallTime::MAX),
            max_change_ns: CHANGE_NS + CHANGE_NS_PER_BYTE * bytes.unwrap_or_default(),
            state: &mut *self.state,
            claim,
            disturbed,
            began_later: false,
            device,
            began_at,
            began: Instant::now(),
            attempts: 0,
            of_none: Vec::new(),
            no_waits: Vec::new(),
            speeds: Vec::new(),
            shortest: CallTime::MAX,
        };
        if !clock.can_repeat()? {
            return Ok(());
        }
        if !clock.finds_samples_possible()? {
            return Err(failed(Fault::Other, clock.refusal()).into());
        }
        clock.keep_shortest(case);
        clock.check_repeated(case, variant)
    }
}

/// A request of one call, or of [`IN_GRAPH`] calls in a graph, on the core of the samples and, as
/// there, with changing inputs if `changes`.
fn first_request(samples: &Measured, claim: &Claim, changes: bool) -> Repeat {
    let host_ns = median(&samples.host_ns).unwrap_or_default();
    let graph = !claim.is_cpu && host_ns.0 > claim.device_ns;
    Repeat {
        calls: if graph { IN_GRAPH } else { 1 },
        core: samples.core,
        graph,
        step: if changes {
            RepeatStep::ChangeAndCall
        } else {
            RepeatStep::Call
        },
    }
}

/// Checks the samples of one case by the harness's clock: times requests until the samples prove
/// possible.
struct OutsideClock<'a> {
    state: &'a mut SessionState,
    clock: RequestClock<'a>,
    claim: Claim,
    /// Other programs disturbed the samples, as far as is known.
    disturbed: bool,
    /// Other programs started after the samples, or a core has become slower since.
    began_later: bool,
    device: Device,
    /// Counters of the machine before the first request.
    began_at: Option<MachineCounters>,
    /// The start of the first attempt.
    began: Instant,
    attempts: usize,
    request: Repeat,
    /// Short requests, then long ones.
    requests: [Requests; 2],
    /// A change of the inputs is charged at most this time.
    max_change_ns: f64,
    /// Times of requests without calls.
    of_none: Vec<CallTime>,
    /// The time of a call without waits, for each attempt.
    no_waits: Vec<f64>,
    /// Speeds of the cores of requests that hardly waited for their core.
    speeds: Vec<CoreSpeeds>,
    /// The shortest time of a call so far.
    shortest: CallTime,
}

impl OutsideClock<'_> {
    /// Finds a number of calls that takes long enough. Returns false if the worker cannot repeat
    /// calls.
    fn can_repeat(&mut self) -> Result<bool, CaseEnd> {
        if self.claim.is_cpu {
            self.look_at(&self.state.cores.clone());
        }
        // The first change and the first call are not timed, because they may build something once.
        if self.changes() && self.clock.span(self.request, false)?.is_none() {
            self.request.step = RepeatStep::Call;
        }
        let Some(first) = self.clock.enough_calls(&mut self.request)? else {
            return Ok(false);
        };
        self.requests = Requests::short_and_long(self.request.calls, first);
        self.began = Instant::now();
        Ok(true)
    }

    /// Times calls until the samples prove possible. Returns false if they do not within
    /// [`MAX_TIME`].
    fn finds_samples_possible(&mut self) -> Result<bool, CaseEnd> {
        loop {
            let call = self.attempt()?;
            let Some(call) = call else { continue };
            if self.are_possible(call) {
                return Ok(true);
            }
            if self.began.elapsed() >= MAX_TIME && self.attempts >= MIN_TRIES {
                return Ok(false);
            }
        }
    }

    /// Times a call. Returns `None` if the request had too few calls, and asks for more next time.
    ///
    /// A call takes no less than its shortest request allows. Overhead and changes count by their
    /// medians: with their shortest times, too little would be subtracted.
    fn attempt(&mut self) -> Result<Option<CallTime>, CaseEnd> {
        let is_long = self.attempts % 2 == 1
            && self.requests[1].calls <= MAX_CALLS
            && self.claim.one_thread
            && self.began.elapsed() >= SHORT_TIME;
        let tried = usize::from(is_long);
        self.request.calls = self.requests[tried].calls;
        if self.attempts > 0 {
            self.time_calls(tried)?;
        }
        self.attempts += 1;
        let of_none = self.times_of(Repeat {
            calls: 0,
            ..self.request
        })?;
        self.of_none.extend(of_none);
        let overhead = CallTime::median(&self.of_none).at_most(MAX_REQUEST_NS, 1.0);
        let requests = &self.requests[tried];
        // Other programs delayed earlier requests, or requests without calls are slow.
        if requests.are_too_few(overhead) {
            let calls = requests.calls.saturating_mul(4);
            self.requests = Requests::short_and_long(calls, CallTime::MAX);
            return Ok(None);
        }
        let call = requests.of_calls.less(overhead).per_call(requests.calls);
        if self.changes() {
            return self.without_changes(call, overhead, tried).map(Some);
        }
        Ok(Some(call))
    }

    /// Times calls on the next core, since cores differ in speed, and keeps the shortest time.
    fn time_calls(&mut self, tried: usize) -> Result<(), CaseEnd> {
        let cores = &self.state.cores;
        let next = (self.attempts - 1) % cores.len().max(1);
        let turns = self.claim.is_cpu && self.claim.one_thread;
        self.request.core = cores.get(next).copied().filter(|_| turns);
        let core = self.request.core;
        let (speed, waited) = (self.look_at(core.as_slice()), self.clock.waits());
        let span = self.clock.shortest(self.request, self.claim.one_thread)?;
        let Some(span) = span else { return Ok(()) };
        let of_calls = &mut self.requests[tried].of_calls;
        *of_calls = of_calls.shorter(span);
        let waited = self.clock.waits().saturating_sub(waited).as_nanos() as f64;
        if core.is_some() && waited <= MAX_WAITED * span.wall_ns {
            let after = self.look_at(core.as_slice());
            self.speeds.push(speed.slower(&after));
        }
        Ok(())
    }

    /// The times of a request: of several in the first attempt, of one later.
    fn times_of(&mut self, request: Repeat) -> Result<Vec<CallTime>, CaseEnd> {
        let is_first = self.attempts == 1;
        let times = if is_first { AT_FIRST } else { 1 };
        let mut spans = Vec::new();
        for _ in 0..times {
            spans.extend(self.clock.span(request, !is_first)?);
        }
        Ok(spans)
    }

    /// The time of a call less the time of changing its inputs.
    fn without_changes(
        &mut self,
        call: CallTime,
        overhead: CallTime,
        tried: usize,
    ) -> Result<CallTime, CaseEnd> {
        let step = RepeatStep::Change;
        let of_changes = self.times_of(Repeat {
            step,
            ..self.request
        })?;
        let requests = &mut self.requests[tried];
        requests.of_changes.extend(of_changes);
        let change = CallTime::median(&requests.of_changes).less(overhead);
        let change = change.per_call(requests.calls);
        let change = change.at_most(self.max_change_ns, 1.0 + CHANGE_ERROR);
        let rest = call.less(change);
        if !change.is_large_part_of(call) {
            return Ok(rest);
        }
        // The changes take a large part of the time, so their error matters. A call takes at least
        // as long as one without changes, from which nothing has to be subtracted.
        let step = RepeatStep::Call;
        let unchanged = Repeat {
            step,
            ..self.request
        };
        let span = self.clock.span(unchanged, true)?.unwrap_or(CallTime::MAX);
        requests.unchanged = requests.unchanged.shorter(span);
        let unchanged = requests.unchanged.less(overhead).per_call(requests.calls);
        Ok(rest.longer(unchanged))
    }

    /// Adds the time of a call, and returns whether all times so far allow the samples.
    fn are_possible(&mut self, mut call: CallTime) -> bool {
        let (began_at, device) = (self.began_at.as_ref(), &self.device);
        let load = &mut self.state.load;
        if !self.claim.is_possible(call, false) {
            let delay = load.delay_since(began_at, device);
            let least = (1.0 - delay.unwrap_or(1.0)) * call.wall_ns;
            call.no_waits_ns = call.no_waits_ns.max(least);
        }
        self.no_waits.push(call.no_waits_ns);
        self.shortest = self.shortest.shorter(call);
        let time = self.began.elapsed();
        // In a single request, threads may have waited for each other.
        let are_enough = self.no_waits.len() >= TRIES_OF_WAITS || time >= MAX_TIME;
        let usual = median(&self.no_waits).filter(|_| are_enough);
        self.shortest.no_waits_ns = usual.unwrap_or(f64::MAX);
        // Programs that started after the samples, and cores that have become slower, delay only
        // these calls, not the samples.
        self.began_later = time >= LATER
            && (load.disturbed_since(began_at, device) || self.claim.is_cpu && self.are_slower());
        let is_excused = excuses(
            self.disturbed || self.began_later,
            self.claim.one_thread,
            self.state.fastest.not_slower(&self.speeds),
            self.began.elapsed(),
        );
        self.claim.is_possible(self.shortest, is_excused)
    }

    /// True if the inputs change before each call.
    fn changes(&self) -> bool {
        self.request.step == RepeatStep::ChangeAndCall
    }

    /// Measures the speed of these cores, and updates the fastest speed of each.
    fn look_at(&mut self, cores: &[u32]) -> CoreSpeeds {
        let now = CoreSpeeds::now(cores);
        self.state.fastest = mem::take(&mut self.state.fastest).faster(&now);
        now
    }

    /// True if one of the cores is slower now than its fastest so far.
    fn are_slower(&mut self) -> bool {
        let now = self.look_at(&self.state.cores.clone());
        self.state.fastest.are_slower(&now)
    }

    /// Keeps the time of a call for later invocations: the longest on one thread. On several
    /// threads it keeps the shortest, because threads that shared a core may have made an earlier
    /// invocation's calls far too long.
    fn keep_shortest(&mut self, case: &Case) {
        let shortest = self.shortest;
        let kept = self.state.shortest.entry(case.id()).or_insert(shortest);
        let is_better = if self.claim.one_thread {
            kept.wall_ns < shortest.wall_ns
        } else {
            shortest.wall_ns < kept.wall_ns
        };
        if is_better {
            *kept = shortest;
        }
    }

    /// The reason for which the samples are refused.
    fn refusal(&self) -> String {
        let (attempts, shortest) = (self.attempts, Nanoseconds(self.shortest.wall_ns));
        let device_ns = Nanoseconds(self.claim.device_ns);
        let beside = if self.disturbed || self.began_later {
            "Other programs disturb this machine: measure again without them. If this stays, the"
        } else {
            "The"
        };
        format!(
            "unusable samples: they say {device_ns} a call, and by a clock outside of the worker a \
             call takes {shortest} at least, each of {attempts} times. {beside} function changes a \
             clock or what its worker replies, computes less in calls that are timed, or leaves \
             work for earlier or later. Compute all in each call, wait for it there, and leave \
             clocks as they are"
        )
    }

    /// Compares the results of repeated calls with the tolerances.
    fn check_repeated(&mut self, case: &Case, variant: &VariantInfo) -> Result<(), CaseEnd> {
        if !self.changes() {
            return Ok(());
        }
        let step = RepeatStep::Check;
        let check = Repeat {
            step,
            ..self.request
        };
        let (Some(errors), Some(problem)) = (self.clock.repeated(check)?, case.problem.native())
        else {
            return Ok(());
        };
        let tf32 = variant.tf32 && problem.dtype == Dtype::F32;
        for &(tensor, direction) in problem.results() {
            let error = errors.get(tensor).and_then(|error| error.relative_l2);
            tolerable(problem.dtype, tf32, direction, error).map_err(|reason| {
                let words = "wrong result in a call that the harness timed";
                failed(Fault::WrongResult, format!("{words}: {tensor}: {reason}"))
            })?;
        }
        Ok(())
    }
}

/// True if other programs can explain that requests took longer than the samples.
fn excuses(disturbed: bool, one_thread: bool, on_fast_cores: usize, time: Duration) -> bool {
    disturbed && (!one_thread || (on_fast_cores < UNDISTURBED_TRIES && time >= LATER))
}

/// Adds the waits for a core back to the times of calls whose work child processes did: the main
/// process waited while they computed.
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

    /// Samples of half the time were once accepted beside other programs, although requests on fast
    /// cores showed the whole time.
    #[test]
    fn requests_on_fast_cores_leave_other_programs_no_part() {
        assert!(excuses(true, true, UNDISTURBED_TRIES - 1, LATER));
        assert!(!excuses(true, true, UNDISTURBED_TRIES, LATER));
        assert!(!excuses(true, true, 0, LATER / 2), "more requests may do");
        assert!(!excuses(false, true, 0, LATER));
        assert!(excuses(true, false, UNDISTURBED_TRIES, Duration::ZERO));
    }
}
