//! Runs a schedule: starts workers, has cases prepared and timed, and passes on the outcome of each
//! case.

mod abreast;
mod call_time;
mod census;
mod compared;
mod core_speed;
mod declared;
mod lane;
mod outside_clock;
mod page_faults;
mod request_clock;
mod sides;
mod task_times;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use self::abreast::EndingWorkers;
pub use self::abreast::run;
use self::census::{counters, counts_structure, tuned};
pub use self::declared::{DeclaredResults, REFERENCE_PREFIX, reference_worker};
pub use self::lane::{RunningSide, RunningSides};
use self::turns::ENOUGH;
use super::interference::{LoadLog, MachineCounters, Watch, allowed_cores, disturbed};
use super::laps::TimeSpent;
use super::preflight::variant_of;
use super::verify::{self, AskedResult, Rejected, Verifier};
use crate::worker::host::others_on_gpu;
use crate::worker::{Conversation, Launcher, WorkerError, WorkerFailure};
use regatta_core::record::{Compared, Entry, Fault, Measurement, Outcome, Start};
use regatta_core::suite::{Settings, Suite};
use regatta_worker::case::{Case, CaseId};
use regatta_worker::inputs::mixed;
use regatta_worker::operator::{DeclaredProblem, Operands, Operator, Problem};
use regatta_worker::protocol::{Device, Hello, Measure, Prepare, Prepared, ReplyBody, VariantInfo};
use regatta_worker::units::Nanoseconds;

/// Receives the events of a session.
pub trait Observer {
    /// The cases of these invocations follow.
    fn invocations(&mut self, _numbers: RangeInclusive<u32>) {}
    /// A case begins.
    fn case(&mut self, _case: &Case) {}
    /// A case ended.
    fn done(&mut self, _entry: &Entry) {}
    /// A closing message, once everything is measured.
    fn summary(&self) -> Option<String> {
        None
    }
}

/// The state that a session keeps from one block to the next.
#[derive(Default)]
pub struct SessionState {
    verifier: Verifier,
    declared: DeclaredResults,
    load: LoadLog,
    /// Files that workers loaded.
    pub(super) loaded: BTreeSet<PathBuf>,
    /// The total time of each case so far.
    taken: BTreeMap<CaseId, Nanoseconds>,
    /// The time of a call of each case by the harness's clock.
    shortest: BTreeMap<CaseId, call_time::CallTime>,
    /// True once two workers could not be up at the same time.
    one_at_a_time: bool,
    /// Workers that have finished their cases and are ending.
    ending: EndingWorkers,
    /// Names of workers in which a tuner made a choice.
    tuning: BTreeSet<String>,
    /// Cores that this process may use.
    cores: Vec<u32>,
    /// The fastest speed that each core showed.
    fastest: core_speed::CoreSpeeds,
}

impl SessionState {
    /// The state at the start of a session. Samples that other programs disturbed are marked, as
    /// far as `watch` sees the machine's load.
    pub fn new(watch: Option<Box<dyn Watch>>) -> SessionState {
        SessionState {
            load: LoadLog::new(watch),
            cores: allowed_cores(),
            ..SessionState::default()
        }
    }

    /// The core on which both sides of a pair take their samples; each invocation draws another
    /// one.
    fn core(&self, case: &Case, invocation: u32) -> Option<u32> {
        let cores = u64::try_from(self.cores.len())
            .ok()
            .filter(|count| *count > 0)?;
        let drawn = draw(0, invocation, &case.problem) % cores;
        self.cores.get(usize::try_from(drawn).ok()?).copied()
    }

    /// True if processes of this worker prepare cases one after the other: only one may be up, or a
    /// tuner runs in them, which would choose by times that other processes disturb.
    pub(crate) fn prepares_apart(&self, worker: &str) -> bool {
        self.one_at_a_time || self.tuning.contains(worker)
    }

    /// The share of `cases` in the time that all cases took so far.
    pub fn part_of(&self, cases: &[CaseId]) -> f64 {
        let all: f64 = self.taken.values().map(|taken| taken.0).sum();
        let these = cases.iter().filter_map(|case| self.taken.get(case));
        if all > 0.0 {
            these.map(|taken| taken.0).sum::<f64>() / all
        } else {
            1.0
        }
    }
}

/// The context in which a block runs.
pub struct Session<'a> {
    /// The suite whose cases run.
    pub suite: &'a Suite,
    /// Starts workers.
    pub launcher: &'a mut dyn Launcher,
    /// The state from earlier blocks.
    pub state: &'a mut SessionState,
    /// The time spent on workers and cases is added here.
    pub spent: &'a mut TimeSpent,
}

/// A case and the request to prepare it.
struct Asked {
    prepare: Prepare,
    variant: VariantInfo,
}

/// A case that its worker has prepared, and whose first results are correct.
struct Ready {
    variant: VariantInfo,
    asked: AskedResult,
    /// The data of a declared operator, and the folder of its results.
    declared: Option<Box<(Operands, PathBuf)>>,
    prepared: Prepared,
    errors: BTreeMap<String, f64>,
    first_call_disturbed: bool,
    /// The comparison of a script call's results.
    compared: Option<Compared>,
}

impl Session<'_> {
    /// Adds to the time of a case.
    fn spend(&mut self, case: &Case, taken: Nanoseconds) {
        self.spent.cases += taken;
        *self.state.taken.entry(case.id()).or_default() += taken;
    }

    /// The declared operator of a case, and its problem.
    fn declared<'c>(&self, case: &'c Case) -> Option<(&Operator, &'c DeclaredProblem)> {
        let problem = case.problem.declared()?;
        Some((self.suite.operators.get(&problem.operator)?, problem))
    }

    /// Compares results of a declared operator with its reference, if it has one.
    fn check_declared(
        &mut self,
        case: &Case,
        (operands, results): &(Operands, PathBuf),
        seed: u64,
        after_timing: bool,
    ) -> Result<BTreeMap<String, f64>, Rejected> {
        let suite = self.suite;
        let operator = case.problem.declared();
        let Some(operator) = operator.and_then(|one| suite.operators.get(&one.operator)) else {
            return Ok(BTreeMap::new());
        };
        let limit = limit(&suite.settings);
        self.state.declared.check(
            self.launcher,
            operator,
            (operands, seed, results),
            limit,
            after_timing,
        )
    }

    /// The request for a case to be prepared.
    fn prepare_request(
        &mut self,
        worker: &dyn Conversation,
        case: &Case,
        (block, invocation): (usize, u32),
    ) -> Result<Asked, CaseEnd> {
        if let Some(reason) = &worker.hello().absent {
            return Err(unsupported(reason.clone()).into());
        }
        let (operands, results) = match self.declared(case) {
            None => (None, None),
            Some((operator, problem)) => {
                let unusable = |reason| failed(Fault::Other, reason);
                let operands = operator.operands(problem);
                let operands = operands.map_err(|(key, why)| unusable(format!("{key}: {why}")))?;
                let folder = self.state.declared.folder(block).map_err(unusable)?;
                (Some(Box::new(operands)), Some(folder))
            }
        };
        let settings = &self.suite.settings;
        let prepare = Prepare {
            variant: case.variant.name.clone(),
            problem: case.problem.clone(),
            operands,
            results,
            params: self.suite.params_for(case),
            seed: settings.seed,
            counters: if counts_structure(invocation, settings.invocations) {
                counters(self.suite, case)
            } else {
                Vec::new()
            },
            input_sets: if settings.structure_only || case.problem.is_call() {
                1
            } else {
                settings.input_sets
            },
            draw: Some(draw(settings.seed, invocation, &case.problem)),
        };
        if case.problem.is_call() {
            let variant = VariantInfo {
                name: prepare.variant.clone(),
                ..VariantInfo::default()
            };
            return Ok(Asked { prepare, variant });
        }
        let variant = variant_of(case, worker.hello())
            .map_err(|error| failed(Fault::Refused, error.to_string()))?
            .clone();
        if let Some(reason) = variant.refusal(&case.problem) {
            return Err(unsupported(reason).into());
        }
        Ok(Asked { prepare, variant })
    }

    /// Checks the results of the first call. `began` has the machine's counters when the request
    /// was sent.
    fn prepared(
        &mut self,
        hello: &Hello,
        case: &Case,
        asked: Asked,
        reply: ReplyBody,
        began: Option<&MachineCounters>,
    ) -> Result<Ready, CaseEnd> {
        let first_call_disturbed = self.state.load.disturbed_since(began, &hello.device);
        let prepared = match reply {
            ReplyBody::Prepared(prepared) => prepared,
            other => return Err(no_answer(other).into()),
        };
        let (settings, variant) = (&self.suite.settings, asked.variant);
        let Prepare {
            operands, results, ..
        } = &asked.prepare;
        let declared = operands.as_deref().cloned().zip(results.clone());
        let asked = AskedResult {
            seed: settings.seed,
            draw: asked.prepare.draw,
            input_sets: settings.input_sets,
            checks_after: hello.repeats,
            several: prepared.problems > 1,
        };
        let checked = match (case.problem.native(), &declared) {
            (Some(problem), _) => {
                let verifier = &mut self.state.verifier;
                verifier.check(problem, asked, &variant, &prepared)
            }
            (None, None) => verify::first_call(asked, &prepared).map(|()| BTreeMap::new()),
            (None, Some(declared)) => verify::first_call(asked, &prepared)
                .and_then(|()| self.check_declared(case, declared, asked.seed, false)),
        };
        let mut errors = checked.map_err(Outcome::from)?;
        let is_call = case.problem.is_call();
        if is_call {
            // A benchmark may have a reference of its own, such as `verify_W`.
            let own = prepared.errors.iter();
            errors.extend(own.filter_map(|(name, error)| Some((name.clone(), error.relative_l2?))));
        }
        let unchecked = is_call && errors.is_empty();
        Ok(Ready {
            variant,
            asked,
            declared: declared.map(Box::new),
            prepared,
            errors,
            first_call_disturbed,
            compared: unchecked.then(|| {
                let reason = "no base is beside them; `compare`, or `gate` with --base, has one";
                Compared::Nothing(reason.to_owned())
            }),
        })
    }

    /// The request for samples. In a pair, each worker pauses between turns. A single worker pauses
    /// if its samples may suffice before it has as many as the suite asks for.
    fn measure_request(
        &self,
        worker: &dyn Conversation,
        (case, invocation): (&Case, u32),
        in_turns: bool,
    ) -> Measure {
        let settings = &self.suite.settings;
        let most = if in_turns { MAX_IN_TURNS } else { 1 };
        Measure {
            warmup: settings.warmup,
            samples: most * settings.samples,
            min_samples: settings.min_samples,
            budget_ms: u64::from(most) * settings.budget_ms,
            cache: settings.cache_on(worker.hello().device.known_kind()),
            graph: settings.graph,
            core: in_turns
                .then(|| self.state.core(case, invocation))
                .flatten(),
            pause_every: if in_turns {
                TURN_SAMPLES.min(settings.samples.div_ceil(4)).max(1)
            } else if settings.samples > ENOUGH {
                ENOUGH / 2
            } else {
                0
            },
        }
    }

    /// Checks that the samples are those that were asked for, and the results of the last call
    /// against float64. `began` has the machine's counters when the first request was sent.
    fn checked(
        &mut self,
        device: &Device,
        (case, ready): (&Case, &Ready),
        (measure, reply): (&Measure, ReplyBody),
        began: Option<&MachineCounters>,
    ) -> Result<Measurement, CaseEnd> {
        let load = self.state.load.since(began, device);
        let mut measured = match reply {
            ReplyBody::Measured(measured) => measured,
            other => return Err(no_answer(other).into()),
        };
        verify::as_asked(measure, &measured).map_err(|reason| failed(Fault::Other, reason))?;
        // Checked before the times, since times of a wrong result do not matter.
        let after = match (case.problem.native(), ready.declared.as_deref()) {
            (Some(problem), _) => {
                let verifier = &mut self.state.verifier;
                verifier.check_after(problem, ready.asked, &ready.variant, &measured)
            }
            (None, None) => Ok(BTreeMap::new()),
            (None, Some(declared)) => match verify::last_call(ready.asked, &measured) {
                Err(rejected) => Err(rejected),
                Ok(None) => Err(Rejected::unusable(
                    "the worker did not say which inputs its last call had",
                )),
                Ok(Some(checked)) => self.check_declared(case, declared, checked.seed, true),
            },
        };
        let errors_after = after.map_err(Outcome::from)?;
        let cost = verify::Cost::new(&case.problem, &self.suite.operators);
        verify::samples(&cost, device, measure, &measured)
            .map_err(|reason| failed(Fault::Other, format!("unusable samples: {reason}")))?;
        if let Some(others) = measured
            .state
            .as_mut()
            .and_then(|s| s.other_processes.as_mut())
        {
            // Processes of this run are idle.
            *others = others.saturating_sub(others_on_gpu());
        }
        measured.input_sets_reason = measured.input_sets_reason.map(clipped);
        measured.checked = None;
        let mut measurement = Measurement {
            samples: measured.kept(),
            load: load.map(Box::new),
            errors_after,
            ..Measurement::default()
        };
        measurement.disturbed = disturbed(device, &measurement);
        Ok(measurement)
    }
}

/// Adds what the preparation of the case reported.
fn completed(ready: Ready, measurement: Measurement) -> Measurement {
    let prepared = ready.prepared;
    Measurement {
        tuned: tuned(&prepared, &ready.variant),
        first_call_ns: prepared.first_call_ns,
        first_call_parts: prepared.first_call_parts,
        first_call_disturbed: ready.first_call_disturbed,
        several: prepared.problems > 1,
        effective: prepared.effective,
        errors: ready.errors,
        compared: ready.compared,
        ..measurement
    }
}

/// Samples in a turn; less if a quarter of all samples is less.
const TURN_SAMPLES: u32 = 4;

/// A pair takes up to this many times the samples and the budget of the suite, as long as its own
/// error is not small beside the threshold.
const MAX_IN_TURNS: u32 = 3;

/// The time limit of requests that time nothing.
fn limit(settings: &Settings) -> Duration {
    Duration::from_secs(settings.timeout_s.into())
}

/// The seed from which a worker draws the results that it checks. It differs between invocations
/// and is the same for all variants of a problem. It has 53 bits, which every JSON reader
/// represents exactly.
fn draw(seed: u64, invocation: u32, problem: &Problem) -> u64 {
    let id = problem.same_values().to_string();
    let mixed_in = |z: u64, byte: u8| mixed(z.wrapping_add(byte.into()));
    let bytes = invocation.to_le_bytes().into_iter().chain(id.into_bytes());
    bytes.fold(mixed(seed), mixed_in) >> 11
}

/// The reason for which a case has no measurement.
enum CaseEnd {
    /// The worker gave no answer, and is gone.
    Lost(WorkerError),
    /// The worker answered, and is still up.
    Outcome(Box<Outcome>),
}

impl From<WorkerError> for CaseEnd {
    fn from(error: WorkerError) -> CaseEnd {
        CaseEnd::Lost(error)
    }
}

impl From<Outcome> for CaseEnd {
    fn from(outcome: Outcome) -> CaseEnd {
        CaseEnd::Outcome(Box::new(outcome))
    }
}

/// Characters that are kept of a worker's reason. A run file is read whole, and a reader needs no
/// more.
const MAX_REASON: usize = 4_000;

impl From<Rejected> for Outcome {
    fn from(rejected: Rejected) -> Outcome {
        failed(rejected.fault, rejected.reason)
    }
}

/// An outcome for a variant that does not support the case.
fn unsupported(reason: String) -> Outcome {
    Outcome::unsupported(clipped(reason))
}

/// An outcome for a case that should have worked.
fn failed(fault: Fault, reason: String) -> Outcome {
    Outcome::failed(clipped(reason), fault)
}

/// The outcome of a case whose worker declined it, or sent a reply of another kind.
fn no_answer(reply: ReplyBody) -> Outcome {
    match reply {
        ReplyBody::Unsupported { reason } => unsupported(reason),
        ReplyBody::Failed { reason } => failed(Fault::Failed, reason),
        ReplyBody::Unavailable { reason } => failed(Fault::Unavailable, reason),
        other => failed(Fault::Other, out_of_turn_text(&other)),
    }
}

/// A message that quotes a reply of the wrong kind.
fn out_of_turn_text(reply: &ReplyBody) -> String {
    let text = serde_json::to_string(reply).unwrap_or_default();
    let start: String = text.chars().take(120).collect();
    format!("the worker answered out of turn: {start}")
}

/// The way a process was started. The reason for a start is kept with its `first` case only.
fn start_of(start: Option<&Start>, first: bool) -> Option<Start> {
    let mut start = start?.clone();
    start.because = start.because.filter(|_| first).map(clipped);
    Some(start)
}

/// The outcome of a case whose worker gave no answer.
fn worker_lost(error: &WorkerError, fault: Fault) -> Outcome {
    Outcome::Failed {
        reason: clipped(error.to_string()),
        fault,
        log: error.log.clone(),
    }
}

/// Cuts a worker's text to [`MAX_REASON`] characters.
fn clipped(mut words: String) -> String {
    if let Some((end, _)) = words.char_indices().nth(MAX_REASON) {
        words.truncate(end);
        words.push('…');
    }
    words
}

/// The fault of a case whose worker gave no answer.
fn fault_of(error: &WorkerError) -> Fault {
    match &error.failure {
        WorkerFailure::Crashed(_) => Fault::Crash,
        WorkerFailure::TimedOut { .. } => Fault::Hang,
        WorkerFailure::Garbage { .. } => Fault::Other,
        WorkerFailure::NotStarted { .. }
        | WorkerFailure::NotForked(_)
        | WorkerFailure::Refused(_)
        | WorkerFailure::Unavailable(_) => Fault::Refused,
    }
}

#[cfg(test)]
mod tests;
