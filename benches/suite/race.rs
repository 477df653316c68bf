//! Cases in worker processes: prepared and checked once, timed as often as asked.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use regatta::attention::{Case, CaseId};
use regatta::measure::launcher::Launcher;
use regatta::measure::preflight::variant_of;
use regatta::measure::verify::{self, Verifier};
use regatta::measure::workers::Processes;
use regatta::suite::{Suite, WorkerCommand};
use regatta::units::Nanoseconds;
use regatta::worker::host::{Conversation, HostError};
use regatta::worker::protocol::{Measure, Prepare, ReplyBody, RequestBody};

/// The executable whose workers are meant: this one is not regatta.
const REGATTA: &str = env!("CARGO_BIN_EXE_regatta");

/// Workers that regatta serves itself.
const OWN: [&str; 2] = ["cpu", "cuda"];

/// Calls asked for in one request, so that a request stays within its limit.
const CALLS_AT_ONCE: u64 = 256;

/// Why a case gives no time.
#[derive(Debug)]
pub enum Stopped {
    /// The variant does not do this, in its own words.
    Unsupported(String),
    /// It should, but did not.
    Failed {
        /// What happened.
        reason: String,
        /// The last lines its worker printed.
        log: String,
    },
}

impl Stopped {
    fn failed(reason: impl Into<String>) -> Stopped {
        Stopped::Failed {
            reason: reason.into(),
            log: String::new(),
        }
    }
}

impl From<HostError> for Stopped {
    fn from(error: HostError) -> Stopped {
        Stopped::Failed {
            reason: error.to_string(),
            log: error.log().to_owned(),
        }
    }
}

/// The workers of a suite, each started once, for its first case.
pub struct Race<'a> {
    suite: &'a Suite,
    processes: Processes,
    up: BTreeMap<String, Box<dyn Conversation>>,
    /// Those that could not be started: each further case fails alike.
    down: BTreeMap<String, String>,
    verifier: Verifier,
    prepared: Option<CaseId>,
}

impl<'a> Race<'a> {
    /// Finds the commands of the suite's workers; starts none.
    ///
    /// # Errors
    /// A worker or an environment that nobody declared.
    pub fn new(suite: &'a Suite) -> Result<Race<'a>> {
        let mut known = suite.clone();
        for worker in OWN {
            let serve = [REGATTA, "worker", "serve", worker].map(str::to_owned);
            let command = WorkerCommand(serve.to_vec());
            known.workers.entry(worker.to_owned()).or_insert(command);
        }
        let names = |case: &Case| case.variant.worker_name();
        let workers: Vec<String> = suite.cases.iter().map(names).collect();
        let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suite-logs");
        Ok(Race {
            suite,
            processes: Processes::find(workers.iter(), &known, None, logs)?,
            up: BTreeMap::new(),
            down: BTreeMap::new(),
            verifier: Verifier::default(),
            prepared: None,
        })
    }

    /// Prepares a case, unless it is already, and holds its result to float64. Apart
    /// from [`time`](Race::time), because criterion plans its samples by how long that
    /// takes.
    ///
    /// # Errors
    /// Why it cannot be timed; a worker that is lost over it is started anew for the
    /// next case.
    pub fn ready(&mut self, case: &Case) -> Result<(), Stopped> {
        if self.prepared == Some(case.id()) {
            return Ok(());
        }
        self.prepared = None;
        let name = case.variant.worker_name();
        let mut worker = match self.up.remove(&name) {
            Some(worker) => worker,
            None => self.started(&name)?,
        };
        let stopped = self.prepare(worker.as_mut(), case)?;
        self.up.insert(name, worker);
        if let Some(stopped) = stopped {
            return Err(stopped);
        }
        self.prepared = Some(case.id());
        Ok(())
    }

    /// Device time of so many calls together of the case that is ready.
    ///
    /// # Errors
    /// As [`ready`](Race::ready).
    pub fn time(&mut self, case: &Case, calls: u64) -> Result<Nanoseconds, Stopped> {
        let name = case.variant.worker_name();
        let Some(mut worker) = self.up.remove(&name) else {
            return Err(Stopped::failed(format!("worker {name} is gone")));
        };
        let timed = self.calls(worker.as_mut(), case, calls)?;
        self.up.insert(name, worker);
        timed
    }

    /// Has the worker forget a case, so that two never hold memory together.
    pub fn release(&mut self, case: &Case) {
        self.prepared = None;
        let name = case.variant.worker_name();
        if let Some(mut worker) = self.up.remove(&name) {
            // One that does not let go is of no use to the next case either.
            if worker.ask(RequestBody::Release, self.limit()).is_ok() {
                self.up.insert(name, worker);
            }
        }
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.suite.settings.timeout_s.into())
    }

    fn started(&mut self, name: &str) -> Result<Box<dyn Conversation>, Stopped> {
        if let Some(reason) = self.down.get(name) {
            return Err(Stopped::failed(reason));
        }
        let started = self.processes.start(name);
        Ok(started.inspect_err(|error| {
            self.down.insert(name.to_owned(), error.to_string());
        })?)
    }

    /// Prepares a case; `Some` is why it cannot be timed. The worker lives on.
    fn prepare(
        &mut self,
        worker: &mut dyn Conversation,
        case: &Case,
    ) -> Result<Option<Stopped>, HostError> {
        if let Some(reason) = &worker.hello().absent {
            return Ok(Some(Stopped::Unsupported(reason.clone())));
        }
        let variant = match variant_of(case, worker.hello()) {
            Ok(variant) => variant.clone(),
            Err(error) => return Ok(Some(Stopped::failed(error.to_string()))),
        };
        if let Some(reason) = variant.refusal(&case.problem) {
            return Ok(Some(Stopped::Unsupported(reason)));
        }
        let seed = self.suite.settings.seed;
        let prepare = Prepare {
            known: Default::default(),
            variant: case.variant.name.clone(),
            problem: case.problem.clone(),
            params: self.suite.params_for(case),
            seed,
            counters: Vec::new(),
            input_sets: 1,
        };
        let prepared = match worker.ask(RequestBody::Prepare(prepare), self.limit())? {
            ReplyBody::Prepared(prepared) => prepared,
            ReplyBody::Unsupported { reason } => return Ok(Some(Stopped::Unsupported(reason))),
            ReplyBody::Failed { reason } => return Ok(Some(Stopped::failed(reason))),
            other => return Ok(Some(out_of_turn(&other))),
        };
        let checked = self
            .verifier
            .check(&case.problem, seed, &variant, &prepared);
        Ok(checked
            .err()
            .map(|rejected| Stopped::failed(rejected.reason)))
    }

    fn calls(
        &self,
        worker: &mut dyn Conversation,
        case: &Case,
        calls: u64,
    ) -> Result<Result<Nanoseconds, Stopped>, HostError> {
        let mut total = Nanoseconds::ZERO;
        let mut left = calls;
        while left > 0 {
            let samples = left.min(CALLS_AT_ONCE);
            left -= samples;
            let measure = Measure {
                known: Default::default(),
                // Criterion has its own warm-up, through here.
                warmup: 0,
                samples: samples as u32,
                min_samples: samples as u32,
                budget_ms: 0,
                cache: self.suite.settings.cache,
                graph: self.suite.settings.graph,
                calls_per_sample: self.suite.settings.calls_per_sample,
            };
            let request = RequestBody::Measure(measure.clone());
            let measured = match worker.ask(request, self.limit())? {
                ReplyBody::Measured(measured) => measured,
                ReplyBody::Failed { reason } | ReplyBody::Unsupported { reason } => {
                    return Ok(Err(Stopped::failed(reason)));
                }
                other => return Ok(Err(out_of_turn(&other))),
            };
            let device = &worker.hello().device;
            if let Err(reason) = verify::samples(&case.problem, device, &measure, &measured) {
                return Ok(Err(Stopped::failed(format!("unusable samples: {reason}"))));
            }
            total += measured.device_ns.iter().copied().sum();
        }
        Ok(Ok(total))
    }
}

fn out_of_turn(reply: &ReplyBody) -> Stopped {
    let text = serde_json::to_string(reply).unwrap_or_default();
    let start: String = text.chars().take(120).collect();
    Stopped::failed(format!("the worker answered out of turn: {start}"))
}
