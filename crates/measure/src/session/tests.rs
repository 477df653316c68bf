//! Sessions with workers that are a list of answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;

use super::*;
use crate::interference::{CoreTimes, MachineCounters};
use crate::testing::{self, variant};
use regatta_core::record::header::TurnSide;
use regatta_core::suite;
use regatta_worker::protocol::{Census, Checked, Hello, Measured, PROBES, Prepared, TensorError};
use regatta_worker::units::Nanoseconds;

/// Too large for the harness to compute, so that made-up probes pass.
const SUITE: &str = r#"
description = "two cases"
[measure]
invocations = 1
samples = 4
timeout_s = 7
[workers]
mine = ["unused"]
[[sweep]]
variants = ["mine/a", "mine/b"]
seq = 4096
head_dim = 64
"#;

/// What a worker answers to requests of a kind; without an entry it is right.
type Answers = BTreeMap<&'static str, Reaction>;

#[derive(Clone)]
enum Reaction {
    Reply(Box<ReplyBody>),
    Fails(fn(&'static str, Duration) -> WorkerError),
}

const DIES: Reaction = Reaction::Fails(|_, _| {
    WorkerError::new("", WorkerFailure::Crashed("killed by SIGSEGV".to_owned()))
});

const HANGS: Reaction =
    Reaction::Fails(|asked, limit| WorkerError::new("", WorkerFailure::TimedOut { asked, limit }));

/// Everything that was asked of any worker, with its limit, and every start.
type Log = Rc<RefCell<Vec<(String, Duration)>>>;

struct Scripted {
    hello: Hello,
    answers: Answers,
    log: Log,
    seed: u64,
}

fn hello() -> Hello {
    Hello {
        variants: ["a", "b"].map(variant).into(),
        ..testing::hello("cpu", "abacus", &[])
    }
}

fn errors(relative_l2: f64) -> BTreeMap<String, TensorError> {
    let error = TensorError {
        relative_l2: Some(relative_l2),
        max_abs: Some(relative_l2),
    };
    BTreeMap::from([("out".to_owned(), error)])
}

fn probes() -> BTreeMap<String, Vec<Option<f64>>> {
    BTreeMap::from([("out".to_owned(), vec![Some(0.5); PROBES])])
}

fn prepared(relative_l2: f64) -> ReplyBody {
    ReplyBody::Prepared(Prepared {
        tuned: Vec::new(),
        first_call_parts: None,
        effective: BTreeMap::new(),
        errors: errors(relative_l2),
        probes: probes(),
        draw: None,
        first_call_ns: Nanoseconds(1e9),
        problems: 1,
    })
}

fn measured(samples: usize, checked: Option<(u64, f64)>) -> ReplyBody {
    ReplyBody::Measured(Measured {
        device_ns: vec![Nanoseconds(1e9); samples],
        input_sets: if checked.is_some() { 3 } else { 1 },
        checked: checked.map(|(seed, error)| Checked {
            seed,
            errors: errors(error),
            probes: probes(),
            ..Checked::default()
        }),
        ..Measured::default()
    })
}

fn reply(reply: ReplyBody) -> Reaction {
    Reaction::Reply(Box::new(reply))
}

impl Conversation for Scripted {
    fn ask(&mut self, body: RequestBody, limit: Duration) -> Result<ReplyBody, WorkerError> {
        let asked = body.name();
        self.log.borrow_mut().push((asked.to_owned(), limit));
        if let RequestBody::Prepare(request) = &body {
            self.seed = request.seed;
            assert_eq!(request.input_sets, 3, "suites ask for three sets");
        }
        match self.answers.get(asked) {
            Some(Reaction::Reply(reply)) => return Ok((**reply).clone()),
            Some(Reaction::Fails(error)) => return Err(error(asked, limit)),
            None => {}
        }
        Ok(match body {
            RequestBody::Prepare(_) => prepared(1e-7),
            RequestBody::Measure(_) => measured(4, Some((self.seed + 1, 1e-7))),
            RequestBody::Release => ReplyBody::Released { files: Vec::new() },
            _ => ReplyBody::Census(Census::default()),
        })
    }

    fn hello(&self) -> &Hello {
        &self.hello
    }
}

/// Starts workers, the first with these answers and later ones right.
struct Starts {
    answers: Answers,
    log: Log,
}

impl Launcher for Starts {
    fn start(&mut self, _: &str) -> Result<Box<dyn Conversation>, WorkerError> {
        self.log
            .borrow_mut()
            .push(("start".to_owned(), Duration::ZERO));
        Ok(Box::new(Scripted {
            hello: hello(),
            answers: std::mem::take(&mut self.answers),
            log: self.log.clone(),
            seed: 0,
        }))
    }
}

struct Silent;
impl Observer for Silent {}

/// What becomes of both cases where the first worker answers so, and what was asked.
fn ran(answers: Answers) -> (Vec<Outcome>, Vec<String>, Vec<Duration>) {
    let (entries, log) = kept(answers);
    let outcomes = entries.into_iter().map(|entry| entry.outcome).collect();
    let (asked, limits) = log.borrow().iter().cloned().unzip();
    (outcomes, asked, limits)
}

/// The entries of both cases, and what was asked.
fn kept(answers: Answers) -> (Vec<Entry>, Log) {
    kept_on(answers, None)
}

/// The same on a machine that is watched.
fn kept_on(answers: Answers, watch: Option<Box<dyn Watch>>) -> (Vec<Entry>, Log) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, SUITE).unwrap();
    let mut suite = suite::load(path.to_str().unwrap()).unwrap();
    (suite.settings.seed, suite.settings.min_samples) = (5, 2);
    let log = Log::default();
    let mut starts = Starts {
        answers,
        log: log.clone(),
    };
    let block = WorkerBlock {
        side: TurnSide::Head,
        worker: "mine".to_owned(),
        invocation: 0,
        cases: suite.cases.clone(),
    };
    let mut entries = Vec::new();
    let mut keep = |entry: &Entry| {
        entries.push(entry.clone());
        Ok::<(), Infallible>(())
    };
    let mut session = Session {
        suite: &suite,
        launcher: &mut starts,
        state: &mut SessionState::new(watch),
        spent: &mut TimeSpent::default(),
    };
    session.run(&block, &mut Silent, &mut keep).unwrap();
    (entries, log)
}

fn only(asked: &'static str, reaction: Reaction) -> Answers {
    BTreeMap::from([(asked, reaction)])
}

/// The first case's fault and reason; the second was measured by a right worker.
fn fault(answers: Answers) -> (Fault, String) {
    let (outcomes, ..) = ran(answers);
    match &outcomes[0] {
        Outcome::Failed { fault, reason, .. } => (*fault, reason.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_results_of_one_set_and_of_several_are_kept_as_they_were_checked() {
    let one = only("measure", reply(measured(4, None)));
    for (answers, sets) in [(Answers::new(), 3), (one, 1)] {
        let (outcomes, asked, limits) = ran(answers);
        let Outcome::Measured(measurement) = &outcomes[0] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(measurement.samples.input_sets, sets);
        assert_eq!(measurement.errors["out"], 1e-7);
        let after = measurement.errors_after.get("out");
        assert_eq!(after, (sets == 3).then_some(&1e-7));
        let each = ["prepare", "measure", "census", "release"];
        let wanted: Vec<&str> = ["start"].into_iter().chain(each).chain(each).collect();
        assert_eq!(asked, wanted);
        // Releasing has the time limit of the suite.
        assert_eq!(limits[4], Duration::from_secs(7));
    }
}

#[test]
fn each_failure_is_of_its_fault() {
    let failed = || ReplyBody::Failed {
        reason: "out of memory".to_owned(),
    };
    let late = |seed, error| measured(4, Some((seed, error)));
    #[rustfmt::skip]
    let answers = [
        ("prepare", prepared(0.5), Fault::WrongResult, "wrong result: out"),
        ("measure", late(6, 0.5), Fault::WrongResult, "wrong result after timing: out"),
        ("measure", late(5, 1e-7), Fault::Other, ""),
        ("measure", measured(1, Some((6, 1e-7))), Fault::Other, "unusable samples: 1 samples; at least 2"),
        ("measure", measured(500, Some((6, 1e-7))), Fault::Other, "unusable samples: 500 samples;"),
        ("measure", failed(), Fault::Failed, "out of memory"),
        ("measure", ReplyBody::Bye, Fault::Other, "the worker answered out of turn"),
    ];
    for (asked, body, of, says) in answers {
        let (found, reason) = fault(only(asked, reply(body)));
        assert_eq!(found, of, "{reason}");
        assert!(reason.contains(says), "{reason}");
    }
    for asked in ["prepare", "measure", "census"] {
        assert_eq!(fault(only(asked, DIES)).0, Fault::Crash);
        assert_eq!(fault(only(asked, HANGS)).0, Fault::Hang);
    }
    // A case that fails in measuring is released too.
    let (_, asked, _) = ran(only("measure", reply(failed())));
    assert_eq!(asked[..4], ["start", "prepare", "measure", "release"]);
}

/// What was found of the case stays, and the worker is replaced.
#[test]
fn a_failing_release_masks_nothing_and_discards_nothing() {
    let failed = reply(ReplyBody::Failed {
        reason: "still in use".to_owned(),
    });
    for release in [DIES, HANGS, failed] {
        let (outcomes, asked, _) = ran(only("release", release.clone()));
        for outcome in &outcomes {
            assert!(matches!(outcome, Outcome::Measured(_)), "{outcome:?}");
        }
        assert_eq!(asked.iter().filter(|asked| *asked == "start").count(), 2);

        let mut answers = only("release", release);
        answers.insert("prepare", reply(prepared(0.5)));
        let (found, reason) = fault(answers.clone());
        assert_eq!(found, Fault::WrongResult, "{reason}");
        let (outcomes, asked, _) = ran(answers);
        assert!(matches!(outcomes[1], Outcome::Measured(_)));
        assert_eq!(asked[..4], ["start", "prepare", "release", "start"]);
    }
}

#[test]
fn words_without_end_are_not_kept_whole() {
    let reason = "no ".repeat(1 << 20);
    let (_, kept) = fault(only("prepare", reply(ReplyBody::Failed { reason })));
    assert_eq!(kept.chars().count(), LONGEST_REASON + 1);
    assert!(kept.ends_with('…'));
}

/// A machine of two cores that is looked at once a second; others have one and a half of them in
/// the seconds of this number.
struct Seconds {
    looked: u32,
    loaded: u32,
    foreign: f64,
}

impl Watch for Seconds {
    fn look(&mut self) -> MachineCounters {
        self.foreign += if self.looked == self.loaded { 1.5 } else { 0.0 };
        self.looked += 1;
        let time = |seconds: f64| Nanoseconds(seconds * 1e9);
        let now = f64::from(self.looked);
        MachineCounters {
            at_ns: time(now),
            cores: 2,
            stat: Some(CoreTimes {
                busy_ns: time(now + self.foreign),
                steal_ns: Nanoseconds::ZERO,
            }),
            own_ns: Some(time(now)),
            ..MachineCounters::default()
        }
    }

    fn rest(&mut self, _: Duration) {
        panic!("nobody waits for quiet");
    }
}

/// A case is looked at before and after its first call, and before and after its samples.
#[test]
fn what_other_programs_disturb_says_so_and_is_not_taken_again() {
    let clean = kept(Answers::new());
    let asked = |log: &Log| -> Vec<String> {
        let log = log.borrow();
        log.iter().map(|(asked, _)| asked.clone()).collect()
    };
    let none = [(false, false); 2];
    for (loaded, wanted) in [
        (0, none),
        (1, [(true, false), (false, false)]),
        (2, none),
        (3, [(false, true), (false, false)]),
        (5, [(false, false), (true, false)]),
        (7, [(false, false), (false, true)]),
    ] {
        let watch = Seconds {
            looked: 0,
            loaded,
            foreign: 0.0,
        };
        let (entries, log) = kept_on(Answers::new(), Some(Box::new(watch)));
        assert_eq!(asked(&log), asked(&clean.1));
        let found = entries.iter().map(|entry| match &entry.outcome {
            Outcome::Measured(one) => (one.first_call_disturbed, !one.disturbed.is_empty()),
            other => panic!("{other:?}"),
        });
        assert_eq!(found.collect::<Vec<_>>(), wanted, "second {loaded}");
    }
}
