//! Checks a worker against `docs/PROTOCOL.md`, and reports violations.

use std::time::Duration;

use super::verify::{self, AskedResult, Verifier};
use crate::worker::{Conversation, WorkerError};
use regatta_worker::case::VariantId;
use regatta_worker::operator::{Native, Operators, Problem, examples};
use regatta_worker::protocol::{
    Cache, DeviceKind, Hello, Measure, Measured, Prepare, Repeat, ReplyBody, RequestBody,
    VariantInfo,
};
use regatta_worker::units::Bytes;

/// The time limit of a request, enough for small problems.
const LIMIT: Duration = Duration::from_secs(60);

/// The results that workers are asked for. Parameters stay automatic, so a call is one problem.
const ASKED: AskedResult = AskedResult {
    seed: 42,
    draw: Some(7),
    checks_after: false,
    input_sets: 3,
    several: false,
};

/// A check that was made, with its result.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// The name of the check.
    pub name: String,
    /// The result.
    pub result: CheckResult,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "result", content = "detail", rename_all = "lowercase")]
pub enum CheckResult {
    /// The worker follows the protocol.
    Passed,
    /// The worker reports that it does not support this, which the protocol permits.
    Unsupported(String),
    /// The worker violates the protocol.
    Failed(String),
}

/// Checks a worker that has just introduced itself.
///
/// # Errors
/// The worker was lost. `checks` has the checks made until then.
pub fn check(worker: &mut dyn Conversation, checks: &mut Vec<Check>) -> Result<(), WorkerError> {
    let hello = worker.hello().clone();
    let mut conformance = Conformance {
        worker,
        verifier: Verifier::default(),
        checks,
    };
    conformance.check_hello(&hello);
    for variant in &hello.variants {
        for (place, problem) in examples(variant).into_iter().enumerate() {
            conformance.check_problem(&hello, variant, problem, place == 0)?;
        }
    }
    let unknown = prepare("no-such-variant", Problem::example(), 1);
    let name = "an unknown variant is answered and survived";
    conformance.check_reply(name, unknown, |reply| {
        is_failure(reply) || matches!(reply, ReplyBody::Unsupported { .. })
    })?;
    let name = "measure without a prepared case fails";
    conformance.check_reply(name, RequestBody::Measure(measure()), is_failure)?;
    conformance.check_reply("shutdown is answered", RequestBody::Shutdown, |reply| {
        matches!(reply, ReplyBody::Bye)
    })
}

fn is_failure(reply: &ReplyBody) -> bool {
    matches!(reply, ReplyBody::Failed { .. })
}

struct Conformance<'a> {
    worker: &'a mut dyn Conversation,
    verifier: Verifier,
    checks: &'a mut Vec<Check>,
}

impl Conformance<'_> {
    fn push(&mut self, name: impl Into<String>, result: CheckResult) {
        let name = name.into();
        self.checks.push(Check { name, result });
    }

    fn hold(&mut self, name: impl Into<String>, result: Result<(), String>) {
        self.push(
            name,
            result.map_or_else(CheckResult::Failed, |()| CheckResult::Passed),
        );
    }

    /// Sends a request, and checks that the reply is of the right kind.
    fn check_reply(
        &mut self,
        name: impl Into<String>,
        body: RequestBody,
        fits: fn(&ReplyBody) -> bool,
    ) -> Result<(), WorkerError> {
        let reply = self.worker.ask(body, LIMIT)?;
        let fits = if fits(&reply) {
            Ok(())
        } else {
            Err(unexpected(&reply))
        };
        self.hold(name, fits);
        Ok(())
    }

    fn check_hello(&mut self, hello: &Hello) {
        self.hold("hello", Ok(()));
        let lists = match (&hello.absent, hello.variants.is_empty()) {
            (Some(reason), _) => CheckResult::Unsupported(reason.clone()),
            (None, true) => CheckResult::Failed("no variant".to_owned()),
            (None, false) => CheckResult::Passed,
        };
        self.push("hello lists variants", lists);
        for variant in &hello.variants {
            let id = format!("{}/{}", hello.worker, variant.name);
            let name = format!("{id} is a name that ids can hold, with dtypes and directions");
            let sound = match id.parse::<VariantId>() {
                Err(error) => Err(error.to_string()),
                Ok(_) if variant.dtypes.is_empty() => Err("no dtype".to_owned()),
                Ok(_) if variant.directions.is_empty() && variant.arguments.is_none() => {
                    Err("no direction".to_owned())
                }
                Ok(_) => Ok(()),
            };
            self.hold(name, sound);
        }
        let kind = hello.device.kind.as_str();
        let known = if hello.absent.is_some() || hello.device.known_kind().is_some() {
            Ok(())
        } else {
            Err(format!("{kind:?} is not one of {}", DeviceKind::names()))
        };
        self.hold("hello says what kind of device it is", known);
        let memory = match hello.device.memory_bytes {
            Bytes(0) => Err("memory_bytes is 0: no case would fit".to_owned()),
            bytes => bytes.objection("memory_bytes").map_or(Ok(()), Err),
        };
        self.hold("hello says how much memory a case may use", memory);
    }

    fn check_problem(
        &mut self,
        hello: &Hello,
        variant: &VariantInfo,
        problem: Native,
        first: bool,
    ) -> Result<(), WorkerError> {
        let id = format!("{}/{}:{problem}", hello.worker, variant.name);
        let name = format!("{id}: right, and found right by regatta's own float64");
        let asked_problem = Problem::from(problem.clone());
        let request = prepare(&variant.name, asked_problem.clone(), ASKED.seed);
        let prepared = match self.worker.ask(request, LIMIT)? {
            ReplyBody::Prepared(prepared) => prepared,
            ReplyBody::Unsupported { reason } => {
                self.push(name, CheckResult::Unsupported(reason));
                return Ok(());
            }
            other => {
                self.hold(name, Err(unexpected(&other)));
                return Ok(());
            }
        };
        let checked = self.verifier.check(&problem, ASKED, variant, &prepared);
        self.hold(name, checked.map(drop).map_err(|rejected| rejected.reason));
        let asked = measure();
        let timed = match self
            .worker
            .ask(RequestBody::Measure(asked.clone()), LIMIT)?
        {
            ReplyBody::Measured(measured) => {
                let after = self.after_timing(variant, &problem, &measured);
                self.push(
                    format!("{id}: right after timing, on inputs that changed"),
                    after,
                );
                let cost = verify::Cost::new(&asked_problem, &Operators::new());
                verify::samples(&cost, &hello.device, &asked, &measured)
            }
            other => Err(unexpected(&other)),
        };
        self.hold(format!("{id}: timed"), timed);
        if first {
            self.check_turns(&id, &asked)?;
            self.check_repeats(&id, hello.repeats)?;
        }
        let census = RequestBody::Census {
            metrics: Vec::new(),
        };
        self.check_reply(format!("{id}: census is answered"), census, |reply| {
            matches!(reply, ReplyBody::Census(_)) || is_failure(reply)
        })?;
        self.check_reply(format!("{id}: released"), RequestBody::Release, |reply| {
            matches!(reply, ReplyBody::Released { .. })
        })?;
        let other_seed = prepare(&variant.name, asked_problem, ASKED.seed + 100);
        if let ReplyBody::Prepared(again) = self.worker.ask(other_seed, LIMIT)? {
            let differ = if prepared.probes == again.probes {
                Err("the results are the same".to_owned())
            } else {
                Ok(())
            };
            self.hold(format!("{id}: another seed makes other inputs"), differ);
            self.worker.ask(RequestBody::Release, LIMIT)?;
        }
        Ok(())
    }

    /// Checks that the worker pauses, as it must if the sides of a pair take turns.
    fn check_turns(&mut self, id: &str, asked: &Measure) -> Result<(), WorkerError> {
        let request = Measure {
            pause_every: 2,
            ..asked.clone()
        };
        let mut reply = self.worker.ask(RequestBody::Measure(request), LIMIT)?;
        let mut turns = 0;
        while let ReplyBody::Paused { device_ns } = &reply
            && device_ns.len() == 2
            && turns < 2
        {
            turns += 1;
            let last = turns == 2;
            reply = self.worker.ask(RequestBody::Resume { last }, LIMIT)?;
        }
        let result = match &reply {
            ReplyBody::Measured(_) if turns == 0 => CheckResult::Unsupported(
                "it takes all samples at once: a pair is one process after the other".to_owned(),
            ),
            ReplyBody::Measured(measured) if turns == 2 && measured.device_ns.len() >= 5 => {
                CheckResult::Passed
            }
            other => CheckResult::Failed(unexpected(other)),
        };
        self.push(format!("{id}: takes turns"), result);
        Ok(())
    }

    /// Checks that the worker repeats calls for the harness's clock.
    fn check_repeats(&mut self, id: &str, repeats: bool) -> Result<(), WorkerError> {
        let result = if repeats {
            let request = RequestBody::Repeat(Repeat {
                calls: 3,
                ..Repeat::default()
            });
            match self.worker.ask(request, LIMIT)? {
                ReplyBody::Repeated { .. } => CheckResult::Passed,
                ReplyBody::Unsupported { reason } => CheckResult::Unsupported(reason),
                other => CheckResult::Failed(unexpected(&other)),
            }
        } else {
            CheckResult::Unsupported(
                "its hello has no `repeats`, so no clock outside of the worker bounds its times"
                    .to_owned(),
            )
        };
        self.push(format!("{id}: repeats calls"), result);
        Ok(())
    }

    /// Checks that samples were taken on several sets of inputs, and that the result of the last
    /// call is right.
    fn after_timing(
        &mut self,
        variant: &VariantInfo,
        problem: &Native,
        measured: &Measured,
    ) -> CheckResult {
        match self.verifier.check_after(problem, ASKED, variant, measured) {
            Err(rejected) => CheckResult::Failed(rejected.reason),
            Ok(_) if measured.checked.is_none() => CheckResult::Unsupported(
                "it does not check the last timed call: a result that it keeps would pass for one \
                 that it computes"
                    .to_owned(),
            ),
            Ok(_) => match (measured.input_sets, &measured.input_sets_reason) {
                (1, Some(reason)) => CheckResult::Unsupported(reason.clone()),
                _ => CheckResult::Passed,
            },
        }
    }
}

fn prepare(variant: &str, problem: Problem, seed: u64) -> RequestBody {
    RequestBody::Prepare(Prepare {
        input_sets: ASKED.input_sets,
        draw: ASKED.draw,
        ..Prepare::new(variant, problem, seed)
    })
}

fn measure() -> Measure {
    Measure {
        warmup: 1,
        samples: 5,
        min_samples: 2,
        budget_ms: 1000,
        cache: Cache::Hot,
        ..Measure::default()
    }
}

fn unexpected(reply: &ReplyBody) -> String {
    let text = serde_json::to_string(reply).unwrap_or_default();
    let start: String = text.chars().take(160).collect();
    format!("answered {start}")
}
