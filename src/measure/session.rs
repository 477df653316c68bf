//! Runs a schedule: starts workers, has cases prepared and timed, and hands on what
//! came of each, whatever it is.

use std::time::Duration;

use super::occupancy;
use super::preflight::variant_of;
use super::schedule::Block;
use super::verify::{self, Verifier};
use crate::attention::Case;
use crate::record::types::{Entry, Measurement, Outcome};
use crate::suite::Suite;
use crate::suite::count::Count;
use crate::worker::host::{Conversation, HostError};
use crate::worker::protocol::{Cache, Census, Counter, Measure, Prepare, ReplyBody, RequestBody};

/// Releasing memory, and saying goodbye, must not take longer.
const RELEASE_LIMIT: Duration = Duration::from_secs(60);

/// Modules loaded during one steady call, as both a structure and an activity name it.
const MODULE_LOADS: &str = "module_loads";

/// Starts workers.
pub trait Launcher {
    /// Starts the worker of this name and has it introduce itself.
    ///
    /// # Errors
    /// When it does not come up.
    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, HostError>;
}

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

/// Everything a schedule is run with.
pub struct Session<'a> {
    suite: &'a Suite,
    launcher: &'a mut dyn Launcher,
    verifier: Verifier,
}

impl<'a> Session<'a> {
    /// A session over the cases of a suite.
    pub fn new(suite: &'a Suite, launcher: &'a mut dyn Launcher) -> Session<'a> {
        Session {
            suite,
            launcher,
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
            for case in &block.cases {
                observer.case(case);
                let entry = Entry {
                    case: case.id(),
                    invocation: block.invocation,
                    outcome: self.outcome(&mut worker, block, case),
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
    fn outcome(&mut self, worker: &mut Worker, block: &Block, case: &Case) -> Outcome {
        let mut conversation = match std::mem::replace(worker, Worker::Absent) {
            Worker::Up(conversation) => conversation,
            Worker::Absent => match self.launcher.start(&block.worker) {
                Ok(conversation) => conversation,
                Err(error) => {
                    let outcome = lost(&error);
                    *worker = Worker::Down(Box::new(outcome.clone()));
                    return outcome;
                }
            },
            Worker::Down(outcome) => {
                *worker = Worker::Down(outcome.clone());
                return *outcome;
            }
        };
        match self.measure(conversation.as_mut(), case, block.invocation == 0) {
            Ok(outcome) => {
                *worker = Worker::Up(conversation);
                outcome
            }
            Err(error) => lost(&error),
        }
    }

    fn measure(
        &mut self,
        worker: &mut dyn Conversation,
        case: &Case,
        census: bool,
    ) -> Result<Outcome, HostError> {
        if let Some(reason) = &worker.hello().absent {
            let reason = reason.clone();
            return Ok(Outcome::Unsupported { reason });
        }
        let settings = &self.suite.settings;
        let limit = Duration::from_secs(settings.timeout_s.into());
        let prepare = Prepare {
            variant: case.variant.name.clone(),
            problem: case.problem.clone(),
            params: self.suite.params_for(case),
            seed: settings.seed,
            counters: match census {
                true => counters(self.suite, case),
                false => Vec::new(),
            },
        };
        let variant = match variant_of(case, worker.hello()) {
            Ok(variant) => variant.clone(),
            Err(error) => return Ok(failed(error.to_string())),
        };
        if let Some(reason) = variant.refusal(&case.problem) {
            return Ok(Outcome::Unsupported { reason });
        }
        let prepared = match worker.ask(RequestBody::Prepare(prepare), limit)? {
            ReplyBody::Prepared(prepared) => prepared,
            ReplyBody::Unsupported { reason } => return Ok(Outcome::Unsupported { reason }),
            ReplyBody::Failed { reason } => return Ok(failed(reason)),
            other => return Ok(out_of_turn(&other)),
        };
        let checked = self
            .verifier
            .check(&case.problem, settings.seed, &variant, &prepared);
        let errors = match checked {
            Ok(errors) => errors,
            Err(reason) => {
                worker.ask(RequestBody::Release, RELEASE_LIMIT)?;
                return Ok(failed(reason));
            }
        };
        let timed = match settings.structure_only {
            true => Ok(Measurement::default()),
            false => timed(worker, case, self.suite, limit)?,
        };
        let outcome = match timed {
            Err(outcome) => outcome,
            Ok(measurement) => {
                let counted = match census {
                    true => counted(worker, limit)?,
                    false => None,
                };
                let (structure, activity) = counted.map_or((None, None), |counted| {
                    (Some(counted.structure), counted.activity.map(Box::new))
                });
                Outcome::Measured(Measurement {
                    first_call_ns: prepared.first_call_ns,
                    several: prepared.problems > 1,
                    effective: prepared.effective,
                    errors,
                    structure,
                    activity,
                    ..measurement
                })
            }
        };
        worker.ask(RequestBody::Release, RELEASE_LIMIT)?;
        Ok(outcome)
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

fn timed(
    worker: &mut dyn Conversation,
    case: &Case,
    suite: &Suite,
    limit: Duration,
) -> Result<Result<Measurement, Outcome>, HostError> {
    let settings = &suite.settings;
    let measure = Measure {
        warmup: settings.warmup,
        samples: settings.samples,
        min_samples: settings.min_samples,
        budget_ms: settings.budget_ms,
        cache: match settings.cache.as_str() {
            "hot" => Cache::Hot,
            _ => Cache::Cold,
        },
        graph: settings.graph,
        calls_per_sample: settings.calls_per_sample,
    };
    let limit = limit + Duration::from_millis(settings.budget_ms);
    let measured = match worker.ask(RequestBody::Measure(measure.clone()), limit)? {
        ReplyBody::Measured(measured) => measured,
        ReplyBody::Unsupported { reason } => return Ok(Err(Outcome::Unsupported { reason })),
        ReplyBody::Failed { reason } => return Ok(Err(failed(reason))),
        other => return Ok(Err(out_of_turn(&other))),
    };
    if let Err(reason) = verify::as_asked(&measure, &measured) {
        return Ok(Err(failed(reason)));
    }
    if let Err(reason) = verify::samples(&case.problem, &worker.hello().device, &measured) {
        return Ok(Err(failed(format!("unusable samples: {reason}"))));
    }
    Ok(Ok(Measurement {
        device_ns: measured.device_ns,
        host_ns: measured.host_ns,
        clock_mhz: measured.clock_mhz,
        peak_bytes: measured.peak_bytes,
        state: measured.state.map(Box::new),
        synchronised: measured.synchronised,
        ..Measurement::default()
    }))
}

/// What one call does. A worker that cannot count loses nothing by it.
fn counted(worker: &mut dyn Conversation, limit: Duration) -> Result<Option<Census>, HostError> {
    match worker.ask(RequestBody::Census, limit)? {
        ReplyBody::Census(mut census) => {
            occupancy::complete(&mut census.structure, &worker.hello().device);
            // The only one of its figures that is exact; the others stay with it.
            let activity = census.activity.as_ref();
            if let Some(&loads) = activity.and_then(|of| of.calls.get(MODULE_LOADS)) {
                let counts = &mut census.structure.counts;
                counts.entry(MODULE_LOADS.to_owned()).or_insert(loads);
            }
            Ok(Some(census))
        }
        _ => Ok(None),
    }
}

fn failed(reason: String) -> Outcome {
    Outcome::Failed {
        reason,
        log: String::new(),
    }
}

fn out_of_turn(reply: &ReplyBody) -> Outcome {
    let text = serde_json::to_string(reply).unwrap_or_default();
    let start: String = text.chars().take(120).collect();
    failed(format!("the worker answered out of turn: {start}"))
}

fn lost(error: &HostError) -> Outcome {
    Outcome::Failed {
        reason: error.to_string(),
        log: error.log().to_owned(),
    }
}
