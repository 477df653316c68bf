//! Samples that the machine was in, on a machine that is as busy as told.

use super::*;
use crate::counters::{Counters, Stat};
use crate::session::quiet::disturbed;
use regatta_core::machine::DeviceState;
use regatta_core::record::types::{Disturbance, Ground};
use regatta_core::suite::GroundRule;

/// Two cores, of which others have `foreign` for the first `busy_s` seconds; the worker's
/// thread waits for half of that.
struct Shared {
    clock: Hand,
    foreign: f64,
    busy_s: f64,
}

impl Watch for Shared {
    fn look(&mut self) -> Option<Counters> {
        let now = self.clock.now();
        let busy = now.0.min(self.busy_s * 1e9) * self.foreign;
        Some(Counters {
            at_ns: now,
            cores: 2,
            stat: Some(Stat {
                busy_ns: Nanoseconds(busy),
                steal_ns: Nanoseconds::ZERO,
            }),
            own_ns: Some(Nanoseconds::ZERO),
            waited_ns: Some(BTreeMap::from([(7, busy / 2.0)])),
            ..Counters::default()
        })
    }

    fn rest(&mut self, time: Duration) {
        self.clock.passes(time.as_nanos() as f64);
    }
}

/// What becomes of both cases, and how often samples were asked for.
fn on(
    foreign: f64,
    busy_s: f64,
    change: impl FnOnce(&mut Suite),
    answers: Answers,
) -> (Vec<Measurement>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, SUITE).unwrap();
    let mut suite = suite::load(path.to_str().unwrap()).unwrap();
    change(&mut suite);
    let (log, clock) = (Log::default(), Hand::default());
    let mut starts = Starts {
        answers,
        log: log.clone(),
        clock: clock.clone(),
    };
    let block = Block {
        worker: "mine".to_owned(),
        invocation: 0,
        cases: suite.cases.clone(),
    };
    let mut found = Vec::new();
    let mut keep = |entry: &Entry| {
        match &entry.outcome {
            Outcome::Measured(measurement) => found.push(measurement.clone()),
            other => panic!("{other:?}"),
        }
        Ok::<(), Infallible>(())
    };
    let watch = Shared {
        clock: clock.clone(),
        foreign,
        busy_s,
    };
    Session::new(&suite, &mut starts, &clock, &mut BTreeSet::new())
        .watched_by(Box::new(watch))
        .run(&[block], &mut Silent, &mut keep)
        .unwrap();
    let asked = log.borrow();
    let asked = asked.iter().filter(|(asked, _)| asked == "measure").count();
    (found, asked)
}

#[test]
fn samples_from_quiet_ground_are_taken_once() {
    let (found, asked) = on(0.05, 1e9, |_| {}, Answers::new());
    assert_eq!(asked, 2);
    for measurement in found {
        assert_eq!((measurement.disturbed, measurement.again), (vec![], None));
        let ground = measurement.ground.unwrap();
        assert!((ground.foreign.unwrap() - 0.05).abs() < 1e-6, "{ground:?}");
        assert_eq!(ground.steal, Some(0.0));
        assert_eq!(ground.pressure, None, "what is not told is unknown");
    }
}

#[test]
fn samples_that_the_machine_was_in_are_taken_again_once_it_is_quiet() {
    let (found, asked) = on(1.9, 0.45, |_| {}, Answers::new());
    assert_eq!(asked, 3);
    assert_eq!(found[0].disturbed, []);
    let again = found[0].again.clone().unwrap();
    assert_eq!(again.tries, 1);
    let [Disturbance::ForeignLoad { cores, of: 2 }] = again.by[..] else {
        panic!("{again:?}");
    };
    assert!(cores > 1.5, "{cores}");
    assert_eq!(found[1].again, None);
}

#[test]
fn ground_that_is_never_quiet_is_told_after_so_many_tries() {
    let (found, asked) = on(1.9, 1e9, |_| {}, Answers::new());
    assert_eq!(asked, 2 * (1 + 2), "two more tries of each case");
    for measurement in &found {
        assert!(!measurement.disturbed.is_empty());
        assert_eq!(measurement.again.as_ref().unwrap().tries, 2);
        assert_eq!(measurement.device_ns.len(), 4, "the samples are kept");
    }
    assert!(found[1].first_call_disturbed);
    // Waiting is bounded: five seconds for one more try, of which the run has six.
    let short = |suite: &mut Suite| suite.settings.remeasure_s = 6;
    let (found, asked) = on(1.9, 1e9, short, Answers::new());
    assert_eq!(asked, 2 + 2);
    assert_eq!(found[1].again, None);
    for none in [
        |suite: &mut Suite| suite.settings.remeasure = 0,
        |suite: &mut Suite| suite.settings.remeasure_s = 0,
        |suite: &mut Suite| suite.settings.ground = GroundRule::Any,
    ] {
        assert_eq!(on(1.9, 1e9, none, Answers::new()).1, 2);
    }
}

#[test]
fn each_kind_of_worker_is_disturbed_by_what_it_runs_on() {
    let device = |kind: &str| testing::hello(kind, "abacus", &[]).device;
    let crowded = Ground {
        cores: 2,
        foreign: Some(1.9),
        ..Ground::default()
    };
    let shared = Measurement {
        state: Some(Box::new(DeviceState {
            other_processes: Some(1),
            ..DeviceState::default()
        })),
        ..Measurement::default()
    };
    let found = |kind: &str| disturbed(&device(kind), Some(&crowded), &shared);
    assert!(matches!(
        found("cpu")[..],
        [Disturbance::ForeignLoad { .. }]
    ));
    assert_eq!(found("cuda"), [Disturbance::SharedDevice { processes: 1 }]);
    assert_eq!(
        disturbed(&device("cpu"), None, &shared),
        [],
        "nobody looked"
    );
}
