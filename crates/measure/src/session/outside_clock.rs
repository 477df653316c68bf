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
const MIN_TRIES: usize = 3;

/// Waits of several threads excuse samples from so many tries on, by the median of all.
const TRIES_OF_WAITS: usize = 5;

/// After so long, every second request has so many times as many calls: a core that waited for a
/// request is slow for its first milliseconds, and beside other programs so are threads that the
/// first call wakes. Requests on several threads stay short.
const SHORT_TIME: Duration = Duration::from_millis(250);

/// Other programs excuse no samples on one thread where so many requests waited for their core for no
/// more than this part of their time, and it was as fast as ever: work of the harness's own is timed
/// on it before and after.
const UNDISTURBED_TRIES: usize = 8;
const MAX_WAITED: f64 = 0.05;

/// After so long it counts whether other programs began after the samples, and on one thread whether
/// they disturbed these.
const LATER: Duration = Duration::from_secs(1);

/// Child processes did a part of a call's work from this share of its time on.
const SHARE_OF_CHILDREN: f64 = 0.1;

impl Session<'_> {
    /// Refuses samples that are shorter than calls can have been.
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
        // Other programs may run on a machine that is not watched.
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

/// One call, or as many as a graph holds: on the core of the samples, and with inputs that change as
/// theirs did.
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

/// The harness's clock over the samples of one case: it times requests until these show the samples to
/// be possible.
struct OutsideClock<'a> {
    state: &'a mut SessionState,
    clock: RequestClock<'a>,
    claim: Claim,
    /// Other programs disturbed the samples, as far as is known.
    disturbed: bool,
    /// They began after the samples, or a core is slower since then.
    began_later: bool,
    device: Device,
    /// The machine before the first request.
    began_at: Option<MachineCounters>,
    /// The time of the first attempt.
    began: Instant,
    attempts: usize,
    request: Repeat,
    /// Requests of few calls, and of more.
    requests: [Requests; 2],
    /// Changes of the inputs take so long at the most.
    max_change_ns: f64,
    /// The times of requests without calls.
    of_none: Vec<CallTime>,
    /// The time of a call without waits, by each attempt.
    no_waits: Vec<f64>,
    /// The speed of each request's core, where that waited for none.
    speeds: Vec<CoreSpeeds>,
    /// The shortest time of a call.
    shortest: CallTime,
}

impl OutsideClock<'_> {
    /// Finds the number of calls that take long enough. False: the worker cannot repeat these.
    fn can_repeat(&mut self) -> Result<bool, CaseEnd> {
        if self.claim.is_cpu {
            self.look_at(&self.state.cores.clone());
        }
        // A thing that is made once, in the first call or change, is in no time.
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

    /// Times calls until their samples are possible; false where they are not after so long.
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

    /// Times a call. `None`: too few of them were asked for.
    ///
    /// Calls take no less than the shortest request of theirs, and all else what it takes as a rule:
    /// from its shortest times too little would be taken out.
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
        // Another program delayed those before, or requests of no calls are slow.
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

    /// Times calls on the next core, as cores differ, and keeps the shortest time.
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

    /// The times of a request, which is made more often at first.
    fn times_of(&mut self, request: Repeat) -> Result<Vec<CallTime>, CaseEnd> {
        let is_first = self.attempts == 1;
        let times = if is_first { AT_FIRST } else { 1 };
        let mut spans = Vec::new();
        for _ in 0..times {
            spans.extend(self.clock.span(request, !is_first)?);
        }
        Ok(spans)
    }

    /// The time of a call without that of the change of its inputs.
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
        // Without changes a call takes no longer, and nothing is taken out.
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

    /// Takes in the time of a call, and says whether the samples are possible by all of them.
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
        // In one request threads may have waited for each other.
        let are_enough = self.no_waits.len() >= TRIES_OF_WAITS || time >= MAX_TIME;
        let usual = median(&self.no_waits).filter(|_| are_enough);
        self.shortest.no_waits_ns = usual.unwrap_or(f64::MAX);
        // Programs that began after the samples, and cores that are slower now, slow these calls
        // alone.
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

    /// True where inputs change before each call.
    fn changes(&self) -> bool {
        self.request.step == RepeatStep::ChangeAndCall
    }

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

    /// Keeps the time of a call for later invocations. On several threads the shortest counts: threads
    /// that shared a core may have made calls of an earlier invocation far too long.
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

    /// The reason to refuse the samples.
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

    /// Holds results of calls that were repeated to the tolerances.
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

/// True where other programs explain that requests took longer than the samples.
fn excuses(disturbed: bool, one_thread: bool, on_fast_cores: usize, time: Duration) -> bool {
    disturbed && (!one_thread || (on_fast_cores < UNDISTURBED_TRIES && time >= LATER))
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
