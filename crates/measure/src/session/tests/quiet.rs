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
fn on(foreign: f64, busy_s: f64, change: fn(&mut Suite)) -> (Vec<Measurement>, usize) {
    let watch = |clock| -> Box<dyn Watch> {
        Box::new(Shared {
            clock,
            foreign,
            busy_s,
        })
    };
    let (entries, log, _) = kept_on(Answers::new(), change, watch);
    let found = entries.into_iter().map(|entry| match entry.outcome {
        Outcome::Measured(measurement) => measurement,
        other => panic!("{other:?}"),
    });
    let asked = log.borrow();
    let asked = asked.iter().filter(|(asked, _)| asked == "measure").count();
    (found.collect(), asked)
}

#[test]
fn samples_from_quiet_ground_are_taken_once() {
    let (found, asked) = on(0.05, 1e9, |_| {});
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
    let (found, asked) = on(1.9, 0.45, |_| {});
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
    let (found, asked) = on(1.9, 1e9, |_| {});
    assert_eq!(asked, 2 * (1 + 2), "two more tries of each case");
    for measurement in &found {
        assert!(!measurement.disturbed.is_empty());
        assert_eq!(measurement.again.as_ref().unwrap().tries, 2);
        assert_eq!(measurement.device_ns.len(), 4, "the samples are kept");
    }
    assert!(found[1].first_call_disturbed);
    // Waiting is bounded: five seconds for one more try, of which the run has six.
    let (found, asked) = on(1.9, 1e9, |suite| suite.settings.remeasure_s = 6);
    assert_eq!(asked, 2 + 2);
    assert_eq!(found[1].again, None);
    for none in [
        |suite: &mut Suite| suite.settings.remeasure = 0,
        |suite: &mut Suite| suite.settings.remeasure_s = 0,
        |suite: &mut Suite| suite.settings.ground = GroundRule::Any,
    ] {
        assert_eq!(on(1.9, 1e9, none).1, 2);
    }
}

#[test]
fn each_kind_of_worker_is_disturbed_by_what_it_runs_on() {
    let crowded = Ground {
        cores: 2,
        foreign: Some(1.9),
        ..Ground::default()
    };
    let state = DeviceState {
        other_processes: Some(1),
        ..DeviceState::default()
    };
    let shared = Measurement {
        state: Some(Box::new(state)),
        ..Measurement::default()
    };
    let found =
        |kind: &str, ground| disturbed(&testing::hello(kind, "x", &[]).device, ground, &shared);
    let crowd = found("cpu", Some(&crowded));
    assert!(
        matches!(crowd[..], [Disturbance::ForeignLoad { .. }]),
        "{crowd:?}"
    );
    let processes = [Disturbance::SharedDevice { processes: 1 }];
    assert_eq!(found("cuda", Some(&crowded)), processes);
    assert_eq!(found("cpu", None), [], "nobody looked");
}
