//! Load: what other programs did to the machine around a case's samples.

use std::collections::VecDeque;
use std::time::Duration;

use crate::counters::{Counters, Watch, ground};
use regatta_core::record::disturbance::Ground;
use regatta_core::record::disturbance::{self, Disturbance};
use regatta_core::record::types::Measurement;
use regatta_worker::protocol::{Device, DeviceKind};

/// The machine counts in ticks of 10 ms: over less than this, they tell little. Where samples
/// took less, the time before them is looked at too.
const LEAST: Duration = Duration::from_millis(500);

/// Who looks at the machine, and what was seen lately.
pub(super) struct Load {
    watch: Box<dyn Watch>,
    looks: VecDeque<Counters>,
}

impl Load {
    pub(super) fn new(watch: Box<dyn Watch>) -> Load {
        Load {
            watch,
            looks: VecDeque::new(),
        }
    }

    /// Looks, and forgets what lies further back than will be asked for.
    pub(super) fn look(&mut self) -> Option<Counters> {
        let now = self.watch.look()?;
        let old = |look: &Counters| now.at_ns - look.at_ns >= LEAST.into();
        while self.looks.get(1).is_some_and(old) {
            self.looks.pop_front();
        }
        self.looks.push_back(now.clone());
        Some(now)
    }

    /// What the processor did since a look, and for so long before as it takes to tell, where
    /// the worker runs on it.
    pub(super) fn since(&mut self, began: Option<&Counters>, device: &Device) -> Option<Ground> {
        let began = began.filter(|_| on_processor(device))?;
        let now = self.look()?;
        let long = |look: &&Counters| now.at_ns - look.at_ns >= LEAST.into();
        if let Some(before) = self.looks.iter().rev().find(long) {
            return Some(ground(before, began, &now));
        }
        // The first case of all: what comes after is as good as what came before.
        let first = self.looks.front()?.clone();
        let short = now.at_ns - first.at_ns;
        self.watch.rest(Duration::from_nanos(
            (LEAST.as_nanos() as f64 - short.0).max(0.0) as u64,
        ));
        let waited = ground(&first, began, &now).waited;
        let later = self.look()?;
        Some(Ground {
            waited,
            ..ground(&first, &first, &later)
        })
    }

    /// True where other programs disturbed what has passed since a look.
    pub(super) fn disturbed_since(&mut self, began: Option<&Counters>, device: &Device) -> bool {
        let ground = began.filter(|_| on_processor(device)).and_then(|began| {
            let now = self.look()?;
            let long = |look: &&Counters| now.at_ns - look.at_ns >= LEAST.into();
            let before = self.looks.iter().rev().find(long)?;
            Some(ground(before, began, &now))
        });
        ground.is_some_and(|ground| !disturbance::of_processor(&ground).is_empty())
    }
}

fn on_processor(device: &Device) -> bool {
    device.known_kind() == Some(DeviceKind::Cpu)
}

/// What of other programs disturbed these samples.
pub(super) fn disturbed(device: &Device, found: &Measurement) -> Vec<Disturbance> {
    match on_processor(device) {
        true => {
            let ground = found.ground.as_deref();
            ground.map(disturbance::of_processor).unwrap_or_default()
        }
        false => {
            let state = found.state.as_deref();
            state.map(disturbance::of_gpu).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use super::*;
    use crate::counters::Stat;
    use crate::testing::hello;
    use regatta_core::machine::DeviceState;
    use regatta_worker::units::Nanoseconds;

    const MS: f64 = 1e6;

    /// Two cores, of which the worker has one, and others as many as `others` says of a
    /// millisecond. The worker's thread waits while they have more than one.
    struct Fake {
        now: f64,
        /// When it is looked at; then, wherever it rested to.
        times: VecDeque<f64>,
        others: fn(f64) -> f64,
        rests: Rc<RefCell<Vec<Duration>>>,
    }

    impl Watch for Fake {
        fn look(&mut self) -> Option<Counters> {
            self.now = self.times.pop_front().unwrap_or(self.now);
            let now = self.now as u32;
            let foreign: f64 = (0..now).map(|at| (self.others)(f64::from(at))).sum();
            let waited = (0..now).filter(|at| (self.others)(f64::from(*at)) > 1.0);
            Some(Counters {
                at_ns: Nanoseconds(self.now * MS),
                cores: 2,
                stat: Some(Stat {
                    busy_ns: Nanoseconds((self.now + foreign) * MS),
                    steal_ns: Nanoseconds::ZERO,
                }),
                own_ns: Some(Nanoseconds(self.now * MS)),
                waited_ns: Some(BTreeMap::from([(1, waited.count() as f64 * MS)])),
                ..Counters::default()
            })
        }

        fn rest(&mut self, time: Duration) {
            self.now += time.as_secs_f64() * 1e3;
            self.rests.borrow_mut().push(time);
        }
    }

    /// What is told of the time between the last two of these looks, in milliseconds, and what
    /// was rested for it.
    fn between(times: &[f64], others: fn(f64) -> f64) -> (Ground, Vec<Duration>) {
        let rests = Rc::default();
        let mut load = Load::new(Box::new(Fake {
            now: 0.0,
            times: times.iter().copied().collect(),
            others,
            rests: Rc::clone(&rests),
        }));
        let mut began = None;
        for _ in 1..times.len() {
            began = load.look();
        }
        let found = load.since(began.as_ref(), &hello("cpu", "abacus", &[]).device);
        (found.unwrap(), rests.take())
    }

    fn is_near(found: Option<f64>, wanted: f64) -> bool {
        found.is_some_and(|found| (found - wanted).abs() < 0.01)
    }

    #[test]
    fn short_samples_are_looked_at_with_the_time_before_them() {
        let busy = |at: f64| if at >= 1300.0 { 1.5 } else { 0.0 };
        let (ground, rests) = between(&[0.0, 600.0, 1200.0, 1300.0, 1310.0], busy);
        // Since 600: 1200 is too short before the end.
        assert_eq!(ground.window_ns, Nanoseconds(710.0 * MS));
        assert!(is_near(ground.foreign, 15.0 / 710.0), "{ground:?}");
        // What was waited is of the samples alone.
        assert!(is_near(ground.waited, 1.0), "{ground:?}");
        assert_eq!(rests, []);

        let (long, rests) = between(&[0.0, 1300.0, 2300.0], busy);
        assert_eq!(long.window_ns, Nanoseconds(1000.0 * MS));
        assert!(is_near(long.foreign, 1.5), "{long:?}");
        assert_eq!(rests, []);
    }

    #[test]
    fn the_first_case_is_looked_at_with_the_time_after_it() {
        let (ground, rests) = between(&[100.0, 110.0], |at| if at < 110.0 { 1.5 } else { 0.5 });
        assert_eq!(rests, [Duration::from_millis(490)]);
        assert_eq!(ground.window_ns, Nanoseconds(500.0 * MS));
        assert!(is_near(ground.foreign, 0.52), "{ground:?}");
        assert!(is_near(ground.waited, 1.0), "{ground:?}");
    }

    #[test]
    fn a_first_call_is_disturbed_by_what_ran_beside_it() {
        let disturbed = |times: &[f64], kind: &str| {
            let mut load = Load::new(Box::new(Fake {
                now: 0.0,
                times: times.iter().copied().collect(),
                others: |at| if at >= 1000.0 { 1.5 } else { 0.0 },
                rests: Rc::default(),
            }));
            let began = load.look();
            load.disturbed_since(began.as_ref(), &hello(kind, "abacus", &[]).device)
        };
        assert!(disturbed(&[1000.0, 2000.0], "cpu"));
        assert!(!disturbed(&[0.0, 900.0], "cpu"));
        assert!(!disturbed(&[1000.0, 2000.0], "cuda"));
        // Too short to tell, and none waits for it.
        assert!(!disturbed(&[1000.0, 1100.0], "cpu"));
    }

    #[test]
    fn a_processors_counters_speak_of_it_alone_and_a_gpus_state_of_that() {
        let loaded = Measurement {
            ground: Some(Box::new(Ground {
                cores: 2,
                foreign: Some(1.5),
                ..Ground::default()
            })),
            ..Measurement::default()
        };
        let shared = Measurement {
            state: Some(Box::new(DeviceState {
                other_processes: Some(1),
                ..DeviceState::default()
            })),
            ..Measurement::default()
        };
        for (kind, found, wanted) in [
            ("cpu", &loaded, Some("foreign load 1.5 of 2 cores")),
            ("cpu", &shared, None),
            ("cuda", &loaded, None),
            ("cuda", &shared, Some("1 other process on the device")),
            ("cuda", &Measurement::default(), None),
        ] {
            let told = disturbed(&hello(kind, "abacus", &[]).device, found);
            assert_eq!(disturbance::told(&told), wanted.unwrap_or_default());
        }
    }
}
