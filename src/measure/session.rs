//! Runs a schedule: starts workers, has cases prepared and timed, and hands on what
//! came of each, whatever it is.

mod outcome;

use std::time::Duration;

use self::outcome::{
    clipped, failed, fault_of, lost, out_of_turn, out_of_turn_text, start_of, unsupported,
};
use super::known::Known;
use super::laps::{Clock, Laps};
use super::launcher::Launcher;
use super::occupancy;
use super::preflight::variant_of;
use super::schedule::Block;
use super::verify::{self, AskedAfter, Verifier};
use crate::attention::Case;
use crate::machine::{ASKED_OF_CUDA, CENSUS};
use crate::record::spent::Phase;
use crate::record::types::{Entry, Fault, Measurement, Outcome, Start};
use crate::suite::Suite;
use crate::suite::count::Count;
use crate::worker::host::{Conversation, HostError};
use crate::worker::protocol::{
    Census, Counter, Measure, Prepare, ReplyBody, RequestBody, VariantInfo,
};

/// Is told what happens.
pub trait Observer {
    /// An invocation of a worker begins.
    fn block(&mut self, _block: &Block) {}
    /// A case begins.
    fn case(&mut self, _case: &Case) {}
    /// A case ended.
    fn done(&mut self, _entry: &Entry) {}
}

/// The worker of a block.
enum Worker {
    /// To be started for the next case.
    Absent,
    /// Started.
    Up(Box<dyn Conversation>),
    /// It could not be started; so ends every case that is left.
    Down(Box<Outcome>),
}

/// What a worker was brought to, and so what it has to be let off.
enum Asked {
    /// It holds no case.
    Nothing,
    /// It holds one.
    Prepared,
}

/// Everything a schedule is run with.
pub struct Session<'a> {
    suite: &'a Suite,
    launcher: &'a mut dyn Launcher,
    clock: &'a dyn Clock,
    known: &'a mut Known,
    verifier: Verifier,
}

impl<'a> Session<'a> {
    /// A session over the cases of a suite; `clock` tells what each phase of them takes,
    /// `known` what results of this run were held to float64.
    pub fn new(
        suite: &'a Suite,
        launcher: &'a mut dyn Launcher,
        clock: &'a dyn Clock,
        known: &'a mut Known,
    ) -> Session<'a> {
        Session {
            suite,
            launcher,
            clock,
            known,
            verifier: Verifier::default(),
        }
    }

    /// Runs blocks in order, handing each entry to `keep` as soon as it is there.
    ///
    /// # Errors
    /// Whatever `keep` fails with; nothing a worker does is an error here.
    pub fn run<E>(
        &mut self,
        blocks: &[Block],
        observer: &mut dyn Observer,
        keep: &mut dyn FnMut(&Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        for block in blocks {
            observer.block(block);
            let mut worker = Worker::Absent;
            let last = block.cases.len().saturating_sub(1);
            for (place, case) in block.cases.iter().enumerate() {
                observer.case(case);
                let mut laps = Laps::begin(self.clock);
                let (outcome, start) = self.outcome(&mut worker, block, case, &mut laps);
                // Before its last case is kept, whose line then tells what that took.
                if place == last && matches!(worker, Worker::Up(_)) {
                    worker = Worker::Absent;
                    laps.end(Phase::Ending);
                }
                let entry = Entry {
                    case: case.id(),
                    invocation: block.invocation,
                    outcome,
                    spent: laps.stretch(),
                    start,
                };
                keep(&entry)?;
                observer.done(&entry);
            }
        }
        Ok(())
    }

    /// What comes of one case; a worker that is lost over it is started anew for
    /// the next one. One that does not come up again is not tried a third time: with a
    /// device gone, each start would take its time and fail alike.
    fn outcome(
        &mut self,
        worker: &mut Worker,
        block: &Block,
        case: &Case,
        laps: &mut Laps<'_>,
    ) -> (Outcome, Option<Start>) {
        let mut first = true;
        let mut conversation = match std::mem::replace(worker, Worker::Absent) {
            Worker::Up(conversation) => {
                first = false;
                conversation
            }
            Worker::Absent => {
                let started = self.launcher.start(&block.worker);
                laps.end(Phase::Starting);
                match started {
                    Ok(conversation) => conversation,
                    Err(error) => {
                        // Whatever it died of: this case was never put to it.
                        let outcome = lost(&error, Fault::Refused);
                        *worker = Worker::Down(Box::new(outcome.clone()));
                        return (outcome, None);
                    }
                }
            }
            Worker::Down(outcome) => {
                *worker = Worker::Down(outcome.clone());
                return (*outcome, None);
            }
        };
        let start = start_of(conversation.origin(), first);
        let mut asked = Asked::Nothing;
        let outcome = self.measure(
            conversation.as_mut(),
            case,
            block.invocation == 0,
            &mut asked,
            laps,
        );
        let lives = match (&outcome, asked) {
            (Err(_), _) => false,
            (Ok(_), Asked::Nothing) => true,
            (Ok(_), Asked::Prepared) => {
                let released = self.released(conversation.as_mut());
                laps.end(Phase::Releasing);
                released
            }
        };
        if lives {
            *worker = Worker::Up(conversation);
        } else {
            drop(conversation);
            laps.end(Phase::Ending);
        }
        let outcome = outcome.unwrap_or_else(|error| lost(&error, fault_of(&error)));
        (outcome, start)
    }

    /// Has the worker let go of its case. Whatever comes of it, what was found of the case
    /// stays; but a worker that does not let go is not used for the next one.
    fn released(&self, worker: &mut dyn Conversation) -> bool {
        let reply = worker.ask(RequestBody::Release, self.limit());
        matches!(reply, Ok(ReplyBody::Released))
    }

    /// How long a worker may take over a request that times nothing.
    fn limit(&self) -> Duration {
        Duration::from_secs(self.suite.settings.timeout_s.into())
    }

    fn measure(
        &mut self,
        worker: &mut dyn Conversation,
        case: &Case,
        census: bool,
        asked: &mut Asked,
        laps: &mut Laps<'_>,
    ) -> Result<Outcome, HostError> {
        if let Some(reason) = &worker.hello().absent {
            return Ok(unsupported(reason.clone()));
        }
        let settings = &self.suite.settings;
        let limit = self.limit();
        let prepare = Prepare {
            known: self.known.before(&case.id()),
            variant: case.variant.name.clone(),
            problem: case.problem.clone(),
            params: self.suite.params_for(case),
            seed: settings.seed,
            counters: match census {
                true => counters(self.suite, case),
                false => Vec::new(),
            },
            input_sets: match settings.structure_only {
                true => 1,
                false => settings.input_sets,
            },
        };
        let variant = match variant_of(case, worker.hello()) {
            Ok(variant) => variant.clone(),
            Err(error) => return Ok(failed(Fault::Refused, error.to_string())),
        };
        if let Some(reason) = variant.refusal(&case.problem) {
            return Ok(unsupported(reason));
        }
        let reply = worker.ask(RequestBody::Prepare(prepare), limit);
        laps.end(Phase::Preparing);
        let mut prepared = match reply? {
            ReplyBody::Prepared(prepared) => prepared,
            ReplyBody::Unsupported { reason } => return Ok(unsupported(reason)),
            ReplyBody::Failed { reason } => return Ok(failed(Fault::Other, reason)),
            other => return Ok(out_of_turn(&other)),
        };
        *asked = Asked::Prepared;
        self.known.complete(&case.id(), &mut prepared);
        let checked = self
            .verifier
            .check(&case.problem, settings.seed, &variant, &prepared);
        laps.end(Phase::Checking);
        let errors = match checked {
            Ok(errors) => errors,
            Err(rejected) => return Ok(rejected.into()),
        };
        self.known.held(&case.id(), &prepared);
        let timed = match settings.structure_only {
            true => Ok(Measurement::default()),
            false => self.timed(worker, case, &variant, prepared.problems > 1, laps)?,
        };
        let measurement = match timed {
            Ok(measurement) => measurement,
            Err(outcome) => return Ok(outcome),
        };
        let counted = match census {
            true => {
                let counted = counted(worker, limit);
                laps.end(Phase::Census);
                Some(counted?)
            }
            false => None,
        };
        let (structure, activity) = counted.map_or((None, None), |counted| {
            (Some(counted.structure), counted.activity.map(Box::new))
        });
        Ok(Outcome::Measured(Measurement {
            first_call_ns: prepared.first_call_ns,
            several: prepared.problems > 1,
            effective: prepared.effective,
            errors,
            structure,
            activity,
            ..measurement
        }))
    }

    fn timed(
        &mut self,
        worker: &mut dyn Conversation,
        case: &Case,
        variant: &VariantInfo,
        several: bool,
        laps: &mut Laps<'_>,
    ) -> Result<Result<Measurement, Outcome>, HostError> {
        let settings = &self.suite.settings;
        let measure = Measure {
            known: self.known.after(&case.id()),
            warmup: settings.warmup,
            samples: settings.samples,
            min_samples: settings.min_samples,
            budget_ms: settings.budget_ms,
            cache: settings.cache,
            graph: settings.graph,
            calls_per_sample: settings.calls_per_sample,
        };
        let limit = self.limit() + Duration::from_millis(settings.budget_ms);
        let reply = worker.ask(RequestBody::Measure(measure.clone()), limit);
        laps.end(Phase::Measuring);
        let mut measured = match reply? {
            ReplyBody::Measured(measured) => measured,
            ReplyBody::Unsupported { reason } => return Ok(Err(unsupported(reason))),
            ReplyBody::Failed { reason } => return Ok(Err(failed(Fault::Other, reason))),
            other => return Ok(Err(out_of_turn(&other))),
        };
        if let Err(reason) = verify::as_asked(&measure, &measured) {
            return Ok(Err(failed(Fault::Other, reason)));
        }
        self.known.complete_after(&case.id(), &mut measured);
        // Before the times: those of a wrong result are of no interest.
        let asked = AskedAfter {
            seed: settings.seed,
            input_sets: settings.input_sets,
            several,
        };
        let after = self
            .verifier
            .check_after(&case.problem, asked, variant, &measured);
        laps.end(Phase::CheckingAfter);
        let errors_after = match after {
            Ok(errors) => errors,
            Err(rejected) => return Ok(Err(rejected.into())),
        };
        self.known.held_after(&case.id(), &measured);
        let device = &worker.hello().device;
        if let Err(reason) = verify::samples(&case.problem, device, &measure, &measured) {
            let reason = format!("unusable samples: {reason}");
            return Ok(Err(failed(Fault::Other, reason)));
        }
        Ok(Ok(Measurement {
            device_ns: measured.device_ns,
            host_ns: measured.host_ns,
            clock_mhz: measured.clock_mhz,
            peak_bytes: measured.peak_bytes,
            state: measured.state.map(Box::new),
            synchronised: measured.synchronised,
            input_sets: measured.input_sets,
            input_sets_reason: measured.input_sets_reason.map(clipped),
            errors_after,
            ..Measurement::default()
        }))
    }
}

/// What the census is to count in this case.
fn counters(suite: &Suite, case: &Case) -> Vec<Counter> {
    let counts = suite.counts.iter().filter(|count| count.selects(case));
    let counter = |count: &Count| Counter {
        name: count.name.clone(),
        functions: count.functions.clone(),
    };
    counts.map(counter).collect()
}

/// What one call does. A worker that cannot count loses nothing by it but that; the reason is
/// kept, because what is not counted is not 0.
fn counted(worker: &mut dyn Conversation, limit: Duration) -> Result<Census, HostError> {
    let reason = match worker.ask(RequestBody::Census, limit)? {
        ReplyBody::Census(mut census) => {
            occupancy::complete(&mut census.structure, &worker.hello().device);
            // What was asked of CUDA is exact; the activity's other figures stay with it.
            let calls = census.activity.as_ref().map(|activity| &activity.calls);
            for (call, count) in ASKED_OF_CUDA {
                if let Some(&number) = calls.and_then(|calls| calls.get(call)) {
                    let counts = &mut census.structure.counts;
                    counts.entry(count.to_owned()).or_insert(number);
                }
            }
            return Ok(census);
        }
        ReplyBody::Unsupported { reason } => reason,
        ReplyBody::Failed { reason } => format!("the census failed: {reason}"),
        other => out_of_turn_text(&other),
    };
    let mut census = Census::default();
    census.structure.uncounted.insert(CENSUS.to_owned(), reason);
    Ok(census)
}

#[cfg(test)]
mod tests;
