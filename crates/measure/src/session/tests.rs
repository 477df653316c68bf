//! Sessions with workers that are a list of answers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;
use crate::interference::{CoreTimes, MachineCounters};
use crate::schedule::Block;
use crate::schedule::Lane;
use crate::testing::{self, variant};
use regatta_core::record::{Disturbance, PairSide};
use regatta_core::suite;
use regatta_core::suite::Metric;
use regatta_worker::protocol::RequestBody;
use regatta_worker::protocol::{
    Census, Checked, Hello, Measured, PROBES, Repeat, RepeatStep, TensorError,
};
use regatta_worker::units::Nanoseconds;

/// Too large for the harness to compute, so made-up probes pass.
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

fn suite() -> Suite {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, SUITE).unwrap();
    suite::load(path.to_str().unwrap()).unwrap()
}

/// A scripted worker's reactions, by kind of request. A kind without an entry gets a correct
/// answer.
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

/// Every request to any worker with its time limit, and every start.
type Log = Arc<Mutex<Vec<(String, Duration)>>>;

struct Scripted {
    hello: Hello,
    answers: Answers,
    log: Log,
    seed: u64,
    bound: Bound,
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
    ReplyBody::Prepared(testing::prepared(errors(relative_l2), probes()))
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
        self.log.lock().unwrap().push((asked.to_owned(), limit));
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
            RequestBody::Repeat(Repeat { calls, step, .. }) => {
                let bound = &mut self.bound;
                let call = match step {
                    RepeatStep::Call => bound.call,
                    RepeatStep::ChangeAndCall => CHANGE + bound.call,
                    RepeatStep::Change => CHANGE,
                    RepeatStep::Check => return Ok(repeated(errors(bound.error))),
                };
                let busy = if calls == 0 { bound.busy } else { 0 };
                let has_calls = calls > 0 && step != RepeatStep::Change;
                let mut slowness = 1;
                if let Some(left) = &mut bound.slow {
                    slowness = if has_calls && *left > 0 { 3 } else { 1 };
                    *left = if has_calls { left.saturating_sub(1) } else { 2 };
                }
                let delay = match &mut bound.delayed {
                    Some(_) if !has_calls => {
                        Duration::from_millis(1) + calls * Duration::from_micros(300)
                    }
                    Some(left @ 1..) => {
                        *left -= 1;
                        Duration::from_millis(5)
                    }
                    _ => Duration::ZERO,
                };
                let time = slowness * calls * call + delay;
                let end = Instant::now() + time;
                std::thread::scope(|scope| {
                    for _ in 0..busy {
                        scope.spawn(|| while Instant::now() < end {});
                    }
                    std::thread::sleep(time);
                });
                repeated(BTreeMap::new())
            }
            _ => ReplyBody::Census(Census::default()),
        })
    }

    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn process(&self) -> Option<u32> {
        (self.bound.busy > 0).then(std::process::id)
    }
}

/// The time that a change of the inputs takes.
const CHANGE: Duration = Duration::from_micros(50);

fn repeated(errors: BTreeMap<String, TensorError>) -> ReplyBody {
    ReplyBody::Repeated { errors }
}

/// Samples, and the calls by which the harness's clock bounds them.
#[derive(Clone, Copy)]
struct Bound {
    /// The time of a call by the samples, and by the harness's clock.
    claim: Duration,
    call: Duration,
    /// The error in repeated calls.
    error: f64,
    invocation: u32,
    /// The time of a call in an earlier invocation.
    before: Option<Duration>,
    /// Requests that are delayed at first: those for calls by 5 ms, those without calls by 1 ms,
    /// and changes by 0.3 ms.
    delayed: Option<u32>,
    /// Threads that compute, and wait for cores, during a request for one call.
    busy: usize,
    /// On several threads, requests for calls are slow at first, if one follows the other. A
    /// request without calls lets threads sleep, and the next ones are slow again.
    slow: Option<u32>,
    /// True if other programs disturbed the samples.
    disturbed: bool,
}

const HONEST: Duration = Duration::from_millis(4);

const BOUND: Bound = Bound {
    claim: HONEST,
    call: HONEST,
    error: 1e-7,
    invocation: 0,
    before: None,
    delayed: None,
    busy: 0,
    slow: None,
    disturbed: false,
};

/// The outcome if the samples are refused, and the number of requests.
fn bound_by(bound: Bound) -> (Result<(), Outcome>, usize) {
    let log: Log = Arc::default();
    let mut worker = Scripted {
        hello: Hello {
            repeats: true,
            ..hello()
        },
        answers: Answers::new(),
        log: log.clone(),
        seed: 0,
        bound,
    };
    let suite = suite();
    let mut launcher = Starts {
        answers: Answers::new(),
        log: log.clone(),
    };
    let (mut state, mut spent) = (SessionState::new(None), TimeSpent::default());
    // Leaves the speed of this machine's cores out.
    state.cores.clear();
    let case = &suite.cases[0];
    if let Some(before) = bound.before {
        let shortest = call_time::CallTime::MAX.at_most(before.as_nanos() as f64, 1.0);
        state.shortest.insert(case.id(), shortest);
    }
    let mut session = Session {
        suite: &suite,
        launcher: &mut launcher,
        state: &mut state,
        spent: &mut spent,
    };
    let ReplyBody::Measured(mut samples) = measured(4, None) else {
        unreachable!()
    };
    samples.device_ns = vec![Nanoseconds(bound.claim.as_nanos() as f64); 4];
    if bound.slow.is_some() {
        samples.threads = vec![2; 4];
    }
    let others = Disturbance::ForeignLoad { cores: 1.0, of: 2 };
    let measurement = Measurement {
        samples: samples.kept(),
        disturbed: Vec::from_iter(bound.disturbed.then_some(others)),
        ..Measurement::default()
    };
    let variant = worker.hello.variants[0].clone();
    let of_case = (case, &variant);
    let bound = session.bound(&mut worker, bound.invocation, of_case, &measurement);
    let bound = bound.map_err(|end| match end {
        CaseEnd::Outcome(outcome) => *outcome,
        CaseEnd::Lost(error) => panic!("{error}"),
    });
    let requests = log.lock().unwrap().len();
    (bound, requests)
}

#[test]
fn samples_that_are_shorter_than_calls_by_the_harness_s_clock_are_refused() {
    // The first call; then one call (four if that is short), none, changes alone, and the check.
    // Calls are repeated if other tests delay them.
    let (bound, requests) = bound_by(BOUND);
    assert_eq!(bound, Ok(()));
    assert!(requests >= 5, "{requests}");
    let later = bound_by(Bound {
        invocation: 3,
        before: Some(HONEST),
        ..BOUND
    });
    assert_eq!(later, (Ok(()), 0), "not in each invocation");
    let long = 3 * HONEST;
    let (refused, _) = bound_by(Bound {
        call: long,
        invocation: 3,
        before: Some(long),
        ..BOUND
    });
    assert!(refused.is_err(), "faster than in the first");
    let (refused, _) = bound_by(Bound {
        error: 1e-3,
        ..BOUND
    });
    let refused = refused.unwrap_err();
    let words = "wrong result in a call that the harness timed";
    assert!(refused.reason().unwrap().starts_with(words), "{refused:?}");
    let (refused, requests) = bound_by(Bound {
        call: long,
        invocation: 5,
        ..BOUND
    });
    let refused = refused.unwrap_err();
    let words = "they say 4.00 ms a call";
    assert!(refused.reason().unwrap().contains(words), "{refused:?}");
    assert!(requests >= 3 * 24, "the shortest of many: {requests}");
}

/// Other programs delay the first requests, so that a request of one call takes as long as one
/// without calls.
#[test]
fn delays_of_the_first_requests_hide_no_calls() {
    let (refused, _) = bound_by(Bound {
        claim: Duration::from_micros(50),
        call: Duration::from_micros(500),
        delayed: Some(2),
        ..BOUND
    });
    assert!(refused.is_err());
}

/// Code under test can know that it was not called, and delay replies without calls too.
#[test]
fn late_replies_to_requests_without_calls_hide_no_calls() {
    let (refused, _) = bound_by(Bound {
        claim: Duration::from_micros(250),
        call: Duration::from_micros(500),
        delayed: Some(0),
        ..BOUND
    });
    assert!(refused.is_err());
}

/// Threads of a library wait for cores while the calling thread waits for the device. These waits
/// are not part of its time.
#[test]
fn waits_of_other_threads_do_not_shorten_few_calls() {
    let (bound, _) = bound_by(Bound { busy: 8, ..BOUND });
    assert_eq!(bound, Ok(()));
}

/// Threads of a matrix product slept between requests and then shared one core for a tenth of a
/// second.
#[test]
fn threads_that_wake_refuse_no_samples() {
    let (bound, _) = bound_by(Bound {
        slow: Some(2),
        ..BOUND
    });
    assert_eq!(bound, Ok(()));
    let (refused, _) = bound_by(Bound {
        slow: Some(2),
        call: 2 * HONEST,
        ..BOUND
    });
    assert!(refused.is_err());
}

/// No core's speed is known here, so the requests may have been disturbed as well.
#[test]
fn other_programs_explain_a_part_of_a_call() {
    let beside = Bound {
        call: HONEST * 7 / 5,
        disturbed: true,
        ..BOUND
    };
    assert_eq!(bound_by(beside).0, Ok(()));
    let (refused, _) = bound_by(Bound {
        disturbed: false,
        ..beside
    });
    assert!(refused.is_err());
}

/// Starts workers. The first gives `answers`, later ones correct replies.
struct Starts {
    answers: Answers,
    log: Log,
}

impl Launcher for Starts {
    fn start(&mut self, _: &str) -> Result<Box<dyn Conversation>, WorkerError> {
        let start = ("start".to_owned(), Duration::ZERO);
        self.log.lock().unwrap().push(start);
        Ok(Box::new(Scripted {
            hello: hello(),
            answers: std::mem::take(&mut self.answers),
            log: self.log.clone(),
            seed: 0,
            bound: BOUND,
        }))
    }
}

struct Silent;
impl Observer for Silent {}

/// The outcomes of both cases if the first worker gives `answers`, and the requests to it.
fn ran(answers: Answers) -> (Vec<Outcome>, Vec<String>, Vec<Duration>) {
    let (entries, log) = kept(answers);
    let outcomes = entries.into_iter().map(|entry| entry.outcome).collect();
    let (asked, limits) = log.lock().unwrap().iter().cloned().unzip();
    (outcomes, asked, limits)
}

/// The entries of both cases, and all requests.
fn kept(answers: Answers) -> (Vec<Entry>, Log) {
    kept_on(answers, None)
}

/// The same on a machine that `watch` looks at.
fn kept_on(answers: Answers, watch: Option<Box<dyn Watch>>) -> (Vec<Entry>, Log) {
    let mut suite = suite();
    (suite.settings.seed, suite.settings.min_samples) = (5, 2);
    let log = Log::default();
    let mut starts = Starts {
        answers,
        log: log.clone(),
    };
    let lane = Lane {
        side: PairSide::Head,
        worker: "mine".to_owned(),
        cases: suite.cases.iter().cloned().map(Some).collect(),
    };
    let mut entries = Vec::new();
    let keep = |entry: &Entry| {
        entries.push(entry.clone());
        Ok::<(), Infallible>(())
    };
    let (mut state, mut spent) = (SessionState::new(watch), TimeSpent::default());
    let session = Session {
        suite: &suite,
        launcher: &mut starts,
        state: &mut state,
        spent: &mut spent,
    };
    let keep = Box::new(keep);
    let mut sides = RunningSides {
        head: RunningSide { session, keep },
        base: None,
    };
    let block = Block {
        invocation: 0,
        lanes: vec![lane],
    };
    run(&[block], &mut sides, &mut Silent).unwrap();
    drop(sides);
    (entries, log)
}

fn only(asked: &'static str, reaction: Reaction) -> Answers {
    BTreeMap::from([(asked, reaction)])
}

/// The first case's fault and reason. A correct worker measures the second case.
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
        let measurement = outcomes[0].measured().unwrap();
        assert_eq!(measurement.samples.input_sets, sets);
        assert_eq!(measurement.errors["out"], 1e-7);
        let after = measurement.errors_after.get("out");
        assert_eq!(after, (sets == 3).then_some(&1e-7));
        let each = ["prepare", "measure", "census", "release"];
        let wanted: Vec<&str> = ["start"].into_iter().chain(each).chain(each).collect();
        assert_eq!(asked, wanted);
        // The suite's time limit holds for releasing too.
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
    // A case that fails while it is measured is released too.
    let (_, asked, _) = ran(only("measure", reply(failed())));
    assert_eq!(asked[..4], ["start", "prepare", "measure", "release"]);
}

/// The case's results stay, and the worker is replaced.
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
    assert_eq!(kept.chars().count(), MAX_REASON + 1);
    assert!(kept.ends_with('…'));
}

/// A machine of two cores that is looked at once a second. Other programs use one and a half cores
/// in second number `loaded`.
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
        panic!("this test must not wait for quiet");
    }
}

/// The machine is looked at before and after the first call of a case, and before and after its
/// samples.
#[test]
fn what_other_programs_disturb_says_so_and_is_not_taken_again() {
    let clean = kept(Answers::new());
    let asked = |log: &Log| -> Vec<String> {
        let log = log.lock().unwrap();
        log.iter().map(|(asked, _)| asked.clone()).collect()
    };
    let neither = [(false, false); 2];
    for (loaded, wanted) in [
        (0, neither),
        (1, [(true, false), (false, false)]),
        (2, neither),
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
        let disturbed = entries.iter().map(|entry| {
            let measurement = entry.outcome.measured().unwrap();
            (
                measurement.first_call_disturbed,
                !measurement.disturbed.is_empty(),
            )
        });
        assert_eq!(disturbed.collect::<Vec<_>>(), wanted, "second {loaded}");
    }
}

/// A worker of a pair that takes turns. Its samples take the nanoseconds in `pair.each`, and each
/// request is logged with its side.
struct InTurns {
    hello: Hello,
    pair: Pair,
    taken: usize,
    every: usize,
    samples: usize,
    ends: bool,
}

impl InTurns {
    fn turn(&mut self) -> ReplyBody {
        let each = &self.pair.each;
        let time = |at: usize| Nanoseconds(each[at % each.len()]);
        let next = self.taken + self.every;
        let device_ns: Vec<Nanoseconds> = (self.taken..next).map(time).collect();
        self.taken = next;
        if self.ends || next >= self.samples {
            ReplyBody::Measured(Measured {
                device_ns: (0..next).map(time).collect(),
                ..Measured::default()
            })
        } else {
            ReplyBody::Paused { device_ns }
        }
    }
}

impl Conversation for InTurns {
    fn ask(&mut self, body: RequestBody, _: Duration) -> Result<ReplyBody, WorkerError> {
        let last = matches!(body, RequestBody::Resume { last: true });
        let mark = if last { " last" } else { "" };
        let line = format!("{} {}{mark}", self.pair.side, body.name());
        self.pair.log.lock().unwrap().push(line);
        Ok(match body {
            RequestBody::Prepare(_) if self.pair.crowded > 0 => ReplyBody::Unavailable {
                reason: "out of memory".to_owned(),
            },
            RequestBody::Prepare(_) => {
                let mut reply = prepared(1e-7);
                if let ReplyBody::Prepared(prepared) = &mut reply {
                    let tuned = self.pair.tunes.then(|| "block".to_owned());
                    prepared.tuned.extend(tuned);
                }
                reply
            }
            RequestBody::Measure(measure) => {
                self.every = measure.pause_every as usize;
                self.samples = measure.samples as usize;
                if self.every == 0 {
                    return Ok(measured(4, None));
                }
                self.turn()
            }
            RequestBody::Resume { last } => {
                self.ends = last;
                self.turn()
            }
            RequestBody::Release => ReplyBody::Released { files: Vec::new() },
            _ => ReplyBody::Census(Census::default()),
        })
    }

    fn hello(&self) -> &Hello {
        &self.hello
    }
}

/// Starts workers of a pair. While `crowded` is not 0, a worker that starts beside others has no
/// memory.
#[derive(Clone)]
struct Pair {
    side: &'static str,
    each: Vec<f64>,
    crowded: u32,
    tunes: bool,
    log: Arc<Mutex<Vec<String>>>,
}

impl Launcher for Pair {
    fn start(&mut self, _: &str) -> Result<Box<dyn Conversation>, WorkerError> {
        let pair = self.clone();
        self.crowded = self.crowded.saturating_sub(1);
        Ok(Box::new(InTurns {
            hello: hello(),
            pair,
            taken: 0,
            every: 0,
            samples: 0,
            ends: false,
        }))
    }
}

/// Runs a pair, and returns the requests and the entries of base and head.
fn ran_in_turns(
    each: [Vec<f64>; 2],
    samples: (u32, u32),
    crowded: u32,
) -> (Vec<String>, [Vec<Entry>; 2]) {
    ran_abreast(each, samples, crowded, (1, false))
}

/// Runs several pairs at the same time. If `tunes`, a tuner makes a choice in their workers.
fn ran_abreast(
    each: [Vec<f64>; 2],
    (min_samples, samples): (u32, u32),
    crowded: u32,
    (invocations, tunes): (u32, bool),
) -> (Vec<String>, [Vec<Entry>; 2]) {
    let mut suite = suite();
    suite.cases.truncate(1);
    (suite.settings.min_samples, suite.settings.samples) = (min_samples, samples);
    let log = Arc::new(Mutex::new(Vec::new()));
    let [base, head] = each;
    let pair = |side, each, crowded| Pair {
        side,
        each,
        crowded,
        tunes,
        log: log.clone(),
    };
    let mut launchers = [pair("base", base, 0), pair("head", head, crowded)];
    let mut states = [None, None].map(SessionState::new);
    let mut spent = [TimeSpent::default(); 2];
    let entries = [(); 2].map(|()| Mutex::new(Vec::new()));
    let lanes = [PairSide::Base, PairSide::Head].map(|side| Lane {
        side,
        worker: "mine".to_owned(),
        cases: suite.cases.iter().cloned().map(Some).collect(),
    });
    let sides = launchers.iter_mut().zip(&mut states).zip(&mut spent);
    let mut sides = sides
        .zip(&entries)
        .map(|(((launcher, state), spent), entries)| {
            let keep = |entry: &Entry| {
                entries.lock().unwrap().push(entry.clone());
                Ok::<(), Infallible>(())
            };
            RunningSide {
                session: Session {
                    suite: &suite,
                    launcher,
                    state,
                    spent,
                },
                keep: Box::new(keep),
            }
        });
    let (base, head) = (sides.next(), sides.next().unwrap());
    drop(sides);
    let lanes = lanes.to_vec();
    let blocks = (0..invocations).map(|invocation| Block {
        invocation,
        lanes: lanes.clone(),
    });
    let blocks: Vec<Block> = blocks.collect();
    run(&blocks, &mut RunningSides { head, base }, &mut Silent).unwrap();
    let log = log.lock().unwrap().clone();
    (log, entries.map(|entries| entries.into_inner().unwrap()))
}

fn only_measured(entries: &[Entry]) -> &Measurement {
    let [entry] = entries else {
        panic!("{entries:?}");
    };
    entry.outcome.measured().unwrap()
}

#[test]
fn a_pair_swaps_places_each_turn_until_its_own_error_is_small() {
    let (log, [base, head]) = ran_in_turns([vec![1e6], vec![1.1e6]], (2, 8), 0);
    let mut turns = log.clone();
    turns.retain(|line| !line.contains("prepare"));
    assert_eq!(
        turns[..8].join(", "),
        "base measure, head measure, head resume, base resume, base resume, head resume, \
         head resume last, base resume last"
    );
    let (base, head) = (only_measured(&base), only_measured(&head));
    assert_eq!(base.samples.device_ns.len(), 8);
    assert_eq!(head.samples.device_ns.len(), 8);
    assert!(base.ratios.is_empty());
    let ratio = head.ratios[&Metric::Device];
    assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
}

#[test]
fn samples_of_one_side_end_once_their_error_is_small() {
    let wide: Vec<f64> = (0..40).map(|at| 1e6 * f64::from(1 + at % 2)).collect();
    for (times, taken) in [(vec![1e6], 20), (wide, 40)] {
        // The head has no memory beside the base, so the two run one after the other.
        let (_, [base, head]) = ran_in_turns([times.clone(), times], (2, 40), 1);
        for side in [&base, &head] {
            let measured = only_measured(side);
            assert_eq!(measured.samples.device_ns.len(), taken);
            assert!(measured.ratios.is_empty());
        }
    }
}

#[test]
fn noise_within_a_pair_takes_more_samples_and_what_both_share_none() {
    let noise = (0..24).map(|at| 1e6 * (1.0 + 0.1 * f64::from(at * 7 % 10)));
    let noise: Vec<f64> = noise.collect();
    let (_, [shared, _]) = ran_in_turns([noise.clone(), noise.clone()], (2, 8), 0);
    assert_eq!(only_measured(&shared).samples.device_ns.len(), 8);
    let reversed = noise.iter().rev().copied().collect();
    let (log, _) = ran_in_turns([noise, reversed], (2, 8), 0);
    let turns = log.iter().filter(|line| line.contains("base resume"));
    assert!(turns.count() > 4, "{log:?}");
}

#[test]
fn a_pair_whose_error_is_small_takes_half_of_forty_samples() {
    for (min_samples, taken) in [(5, 20), (24, 24)] {
        let (_, [base, _]) = ran_in_turns([vec![1e6], vec![1.1e6]], (min_samples, 40), 0);
        assert_eq!(only_measured(&base).samples.device_ns.len(), taken);
    }
}

#[test]
fn sides_for_which_there_is_no_room_together_are_measured_one_after_the_other() {
    let (log, [base, head]) = ran_in_turns([vec![1e6], vec![1.1e6]], (2, 8), 1);
    assert!(log.iter().all(|line| !line.contains("resume")), "{log:?}");
    for entries in [base, head] {
        assert!(only_measured(&entries).ratios.is_empty());
    }
}

#[test]
fn pairs_that_are_up_together_prepare_before_any_is_measured() {
    let (log, [base, head]) = ran_abreast([vec![1e6], vec![1.1e6]], (2, 8), 0, (3, false));
    let lines_with = |what: &str| -> Vec<usize> {
        let lines = log.iter().enumerate();
        lines
            .filter(|(_, line)| line.contains(what))
            .map(|(at, _)| at)
            .collect()
    };
    let (prepared, measured) = (lines_with("prepare"), lines_with("measure"));
    assert_eq!((prepared.len(), measured.len()), (6, 6), "{log:?}");
    assert!(prepared.iter().max() < measured.iter().min(), "{log:?}");
    for (number, (base, head)) in base.iter().zip(&head).enumerate() {
        assert_eq!([base.invocation, head.invocation], [number as u32; 2]);
        let head = head.outcome.measured().unwrap();
        assert!((head.ratios[&Metric::Device] - 1.1).abs() < 1e-9);
    }
}

#[test]
fn pairs_for_which_there_is_no_room_together_are_measured_one_after_the_other() {
    let (log, [_, head]) = ran_abreast([vec![1e6], vec![1.1e6]], (2, 8), 1, (2, false));
    let prepared = log.iter().filter(|line| line.contains("prepare")).count();
    assert_eq!(prepared, 4 + 4, "{log:?}");
    assert_eq!(head.len(), 2);
    for entry in &head {
        assert!(!only_measured(std::slice::from_ref(entry)).ratios.is_empty());
    }
}

#[test]
fn pairs_in_which_a_tuner_chooses_are_prepared_one_after_the_other() {
    let (log, [base, head]) = ran_abreast([vec![1e6], vec![1.1e6]], (2, 8), 0, (4, true));
    let kinds = log.iter().filter_map(|line| line.split(' ').nth(1));
    let kinds: Vec<&str> = kinds
        .filter(|kind| ["prepare", "release"].contains(kind))
        .collect();
    let pair = ["prepare", "prepare", "release", "release"];
    let together = ["prepare"; 8];
    assert_eq!(kinds, [&together[..], &pair.repeat(4)].concat(), "{log:?}");
    assert_eq!((base.len(), head.len()), (4, 4));
}
