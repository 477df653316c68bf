//! Runs a schedule: starts workers, has cases prepared and timed, and hands on what
//! came of each, whatever it is.

mod census;
mod load;
mod outcome;

use std::collections::BTreeSet;
use std::time::Duration;

use self::census::{Counted, Question, counters, of_invocation, tuned};
use self::load::{Load, disturbed};
use self::outcome::{clipped, failed, fault_of, lost, out_of_turn, start_of, unsupported};
use super::counters::{Unwatched, Watch};
use super::laps::{Clock, Laps, Spent};
use super::preflight::variant_of;
use super::schedule::Block;
use super::verify::{self, AskedAfter, Verifier};
use super::worker::launch::Launcher;
use crate::worker::host::{Conversation, HostError};
use regatta_core::record::types::{Entry, Fault, Measurement, Outcome, Start};
use regatta_core::suite::Suite;
use regatta_worker::attention::{Case, CaseId};
use regatta_worker::protocol::{Measure, Prepare, ReplyBody, RequestBody, VariantInfo};

/// Is told what happens.
pub trait Observer {
    /// An invocation of a worker begins.
    fn block(&mut self, _block: &Block) {}
    /// A case begins.
    fn case(&mut self, _case: &Case) {}
    /// A case ended.
    fn done(&mut self, _entry: &Entry) {}
    /// What is to be said once all is measured.
    fn summary(&self) -> Option<String> {
        None
    }
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
    detailed: &'a mut BTreeSet<CaseId>,
    /// What was spent on workers and cases.
    pub spent: Spent,
    verifier: Verifier,
    load: Load,
}

impl<'a> Session<'a> {
    /// A session over the cases of a suite; `clock` tells what each phase of them takes,
    /// `detailed` has the cases whose single operations this run has looked at.
    pub fn new(
        suite: &'a Suite,
        launcher: &'a mut dyn Launcher,
        clock: &'a dyn Clock,
        detailed: &'a mut BTreeSet<CaseId>,
    ) -> Session<'a> {
        Session {
            suite,
            launcher,
            clock,
            detailed,
            spent: Spent::default(),
            verifier: Verifier::default(),
            load: Load::new(Box::new(Unwatched)),
        }
    }

    /// The same, with somebody who looks at the machine: samples that other programs disturbed
    /// say so.
    pub fn watched_by(self, watch: Box<dyn Watch>) -> Session<'a> {
        Session {
            load: Load::new(watch),
            ..self
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
                if place == last && matches!(worker, Worker::Up(_)) {
                    worker = Worker::Absent;
                    self.spent.workers += laps.end();
                }
                let entry = Entry {
                    case: case.id(),
                    invocation: block.invocation,
                    outcome,
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
                self.spent.workers += laps.end();
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
        let outcome = self.measure(conversation.as_mut(), case, block.invocation, &mut asked);
        let lives = match (&outcome, asked) {
            (Err(_), _) => false,
            (Ok(_), Asked::Nothing) => true,
            (Ok(_), Asked::Prepared) => self.released(conversation.as_mut()),
        };
        self.spent.cases += laps.end();
        if lives {
            *worker = Worker::Up(conversation);
        } else {
            drop(conversation);
            self.spent.workers += laps.end();
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
        invocation: u32,
        asked: &mut Asked,
    ) -> Result<Outcome, HostError> {
        if let Some(reason) = &worker.hello().absent {
            return Ok(unsupported(reason.clone()));
        }
        let settings = &self.suite.settings;
        let limit = self.limit();
        let prepare = Prepare {
            variant: case.variant.name.clone(),
            problem: case.problem.clone(),
            params: self.suite.params_for(case),
            seed: settings.seed,
            counters: match invocation {
                0 => counters(self.suite, case),
                _ => Vec::new(),
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
        let began = self.load.look();
        let reply = worker.ask(RequestBody::Prepare(prepare), limit);
        let device = &worker.hello().device;
        let first_call_disturbed = self.load.disturbed_since(began.as_ref(), device);
        let prepared = match reply? {
            ReplyBody::Prepared(prepared) => prepared,
            ReplyBody::Unsupported { reason } => return Ok(unsupported(reason)),
            ReplyBody::Failed { reason } => return Ok(failed(Fault::Other, reason)),
            other => return Ok(out_of_turn(&other)),
        };
        *asked = Asked::Prepared;
        let checked = self
            .verifier
            .check(&case.problem, settings.seed, &variant, &prepared);
        let errors = match checked {
            Ok(errors) => errors,
            Err(rejected) => return Ok(rejected.into()),
        };
        let timed = match settings.structure_only {
            true => Ok(Measurement::default()),
            false => self.timed(worker, case, &variant, prepared.problems > 1)?,
        };
        let measurement = match timed {
            Ok(measurement) => measurement,
            Err(outcome) => return Ok(outcome),
        };
        let question = Question {
            case: &case.id(),
            invocation,
            instructions: settings.instructions,
            limit,
        };
        let counted = of_invocation(worker, self.detailed, &question);
        let Counted {
            structure,
            activity,
            division,
            counters,
        } = counted?;
        Ok(Outcome::Measured(Measurement {
            tuned: tuned(&prepared, &variant),
            first_call_ns: prepared.first_call_ns,
            first_call_parts: prepared.first_call_parts,
            first_call_disturbed,
            several: prepared.problems > 1,
            effective: prepared.effective,
            errors,
            structure,
            activity,
            division,
            counters,
            ..measurement
        }))
    }

    fn timed(
        &mut self,
        worker: &mut dyn Conversation,
        case: &Case,
        variant: &VariantInfo,
        several: bool,
    ) -> Result<Result<Measurement, Outcome>, HostError> {
        let settings = &self.suite.settings;
        let measure = Measure {
            warmup: settings.warmup,
            samples: settings.samples,
            min_samples: settings.min_samples,
            budget_ms: settings.budget_ms,
            cache: settings.cache,
            graph: settings.graph,
        };
        let limit = self.limit() + Duration::from_millis(settings.budget_ms);
        let began = self.load.look();
        let reply = worker.ask(RequestBody::Measure(measure.clone()), limit);
        let ground = self.load.since(began.as_ref(), &worker.hello().device);
        let measured = match reply? {
            ReplyBody::Measured(measured) => measured,
            ReplyBody::Unsupported { reason } => return Ok(Err(unsupported(reason))),
            ReplyBody::Failed { reason } => return Ok(Err(failed(Fault::Other, reason))),
            other => return Ok(Err(out_of_turn(&other))),
        };
        if let Err(reason) = verify::as_asked(&measure, &measured) {
            return Ok(Err(failed(Fault::Other, reason)));
        }
        // Before the times: those of a wrong result are of no interest.
        let asked = AskedAfter {
            seed: settings.seed,
            input_sets: settings.input_sets,
            several,
        };
        let after = self
            .verifier
            .check_after(&case.problem, asked, variant, &measured);
        let errors_after = match after {
            Ok(errors) => errors,
            Err(rejected) => return Ok(Err(rejected.into())),
        };
        let device = &worker.hello().device;
        if let Err(reason) = verify::samples(&case.problem, device, &measure, &measured) {
            let reason = format!("unusable samples: {reason}");
            return Ok(Err(failed(Fault::Other, reason)));
        }
        let mut found = Measurement {
            device_ns: measured.device_ns,
            host_ns: measured.host_ns,
            host_reference_ns: measured.host_reference_ns,
            cpu_ns: measured.cpu_ns,
            preempted: measured.preempted,
            ground: ground.map(Box::new),
            clock_mhz: measured.clock_mhz,
            peak_bytes: measured.peak_bytes,
            state: measured.state.map(Box::new),
            synchronised: measured.synchronised,
            input_sets: measured.input_sets,
            input_sets_reason: measured.input_sets_reason.map(clipped),
            errors_after,
            ..Measurement::default()
        };
        found.disturbed = disturbed(device, &found);
        Ok(Ok(found))
    }
}

#[cfg(test)]
mod tests;
