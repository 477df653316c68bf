//! Machine counters parsed from texts as Linux writes them.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::rc::Rc;

use super::*;
use crate::testing::hello;
use regatta_core::machine::DeviceState;
use regatta_worker::protocol::Measured;

const STAT: &str = "\
cpu  1639175 12851 169644 494005 5637 0 1197 1448 0 0
cpu0 802288 5581 78177 273141 1780 0 152 685 0 0
cpu1 836886 7269 91466 220863 3857 0 1044 763 0 0
intr 81227361 0 9
ctxt 1234
";

const TICK_NS: f64 = 1e7;

#[test]
fn cores_are_those_that_the_process_may_run_on() {
    let status = "Name:\tx\nCpus_allowed:\t13\nCpus_allowed_list:\t0-1,4\nMems_allowed:\t1\n";
    assert_eq!(allowed(status), Some(vec![0, 1, 4]));
    assert_eq!(allowed("Name:\tx\n"), None);
    let both = stat(STAT, &[0, 1], TICK_NS).unwrap();
    assert_eq!(both.steal_ns, Nanoseconds(1448.0 * TICK_NS));
    let one = stat(STAT, &[1], TICK_NS).unwrap();
    let busy = 836_886.0 + 7_269.0 + 91_466.0 + 1_044.0;
    assert_eq!(one.busy_ns, Nanoseconds(busy * TICK_NS));
    assert_eq!(stat(STAT, &[1, 2], TICK_NS), None, "one core is not listed");
    assert_eq!(stat(STAT, &[], TICK_NS), None);
    assert_eq!(stat("cpu0 1 2 3\n", &[0], TICK_NS), None);
}

#[test]
fn what_linux_says_is_read_or_unknown() {
    let text = "841 (a ) b) S 1 841 841 0 -1 4194560 1 2 3 4 11 22 33 44 20 0 3 0 99";
    assert_eq!(
        process_ticks(text),
        Some(110),
        "with children it waited for"
    );
    assert_eq!(run_delay("35413 9876543 12\n"), Some(9_876_543.0));
    for short in ["", "841 (a) S 1 2"] {
        assert_eq!((process_ticks(short), run_delay("")), (None, None));
    }
}

/// A machine of two cores, `seconds` after its start.
fn after(seconds: f64, busy: f64, own: f64) -> MachineCounters {
    let time = |seconds: f64| Nanoseconds(seconds * 1e9);
    MachineCounters {
        at_ns: time(seconds),
        cores: 2,
        stat: Some(CoreTimes {
            busy_ns: time(busy),
            steal_ns: time(seconds * 0.1),
        }),
        own_ns: Some(time(own)),
        waited_ns: Some(BTreeMap::from([(7, seconds * 1e9)])),
    }
}

#[test]
fn foreign_is_what_the_cores_did_less_what_was_ours() {
    let (before, began) = (after(10.0, 100.0, 50.0), after(11.0, 102.0, 51.0));
    let mut now = after(12.0, 104.0, 52.0);
    // A new thread waited since it started.
    now.waited_ns = Some(BTreeMap::from([(7, 11.5e9), (8, 0.25e9)]));
    let load = load_between(&before, &began, &now);
    let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
    assert_eq!(load.window_ns, Nanoseconds(2e9));
    for (load, expected) in [(load.foreign, 1.0), (load.steal, 0.1), (load.waited, 0.75)] {
        assert!(close(load, expected), "{load:?} {expected}");
    }
    // Rounding to ticks may give a negative load.
    let load = load_between(&before, &began, &after(12.0, 100.0, 52.0));
    assert_eq!(load.foreign, Some(0.0));
    // A process that its parent did not wait for took its time with it.
    let load = load_between(&before, &began, &after(12.0, 104.0, 49.0));
    assert_eq!(load.foreign, None);
}

#[test]
fn what_one_look_does_not_tell_is_unknown() {
    let (before, now) = (after(10.0, 1.0, 1.0), after(11.0, 2.0, 1.0));
    let blind = MachineCounters {
        stat: None,
        waited_ns: None,
        ..before.clone()
    };
    let load = load_between(&blind, &blind, &now);
    assert_eq!((load.foreign, load.steal), (None, None));
    assert_eq!(load.waited, None);
    // No time passed.
    assert_eq!(load_between(&now, &now, &now), MachineLoad::default());
}

#[test]
fn this_machine_tells_what_it_can() {
    let mut machine = MachineWatch::here();
    let before = machine.look();
    let now = machine.look();
    assert!(now.at_ns > before.at_ns);
    assert!(now.cores > 0 && now.stat.is_some());
}

#[test]
fn the_time_of_a_process_that_ended_is_in_that_of_the_one_that_waited_for_it() {
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let mut shell = Command::new("sh")
        .args(["-c", &format!("sh -c '{busy}'; echo ended; read end")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let words = shell.stdout.take().unwrap();
    BufReader::new(words).read_line(&mut line).unwrap();
    let alone = read(&format!("/proc/{}/stat", shell.id())).unwrap();
    let (all, alone) = (tree_with_ticks(shell.id()).1, process_ticks(&alone));
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert!(all >= Some(2), "{all:?} ticks");
    assert_eq!(all, alone, "it has no child left");
    assert_eq!(tree_with_ticks(shell.id()).1, None, "it has ended");
}

const MS: f64 = 1e6;

/// Two cores. The worker uses one of them, and other programs as many as `others` returns for each
/// millisecond. The worker's thread waits while they use more than one.
struct Fake {
    now: f64,
    /// The times of readings. Afterwards the clock advances only by `rest`.
    times: VecDeque<f64>,
    others: fn(f64) -> f64,
    rests: Rc<RefCell<Vec<Duration>>>,
}

impl Watch for Fake {
    fn look(&mut self) -> MachineCounters {
        self.now = self.times.pop_front().unwrap_or(self.now);
        let now = self.now as u32;
        let foreign: f64 = (0..now).map(|at| (self.others)(f64::from(at))).sum();
        let waited = (0..now).filter(|at| (self.others)(f64::from(*at)) > 1.0);
        MachineCounters {
            at_ns: Nanoseconds(self.now * MS),
            cores: 2,
            stat: Some(CoreTimes {
                busy_ns: Nanoseconds((self.now + foreign) * MS),
                steal_ns: Nanoseconds::ZERO,
            }),
            own_ns: Some(Nanoseconds(self.now * MS)),
            waited_ns: Some(BTreeMap::from([(1, waited.count() as f64 * MS)])),
        }
    }

    fn rest(&mut self, time: Duration) {
        self.now += time.as_secs_f64() * 1e3;
        self.rests.borrow_mut().push(time);
    }
}

/// A machine that is read at `times`, in ms, and the rests that are taken.
fn watched(times: &[f64], others: fn(f64) -> f64) -> (LoadLog, Rc<RefCell<Vec<Duration>>>) {
    let rests = Rc::default();
    let fake = Fake {
        now: 0.0,
        times: times.iter().copied().collect(),
        others,
        rests: Rc::clone(&rests),
    };
    (LoadLog::new(Some(Box::new(fake))), rests)
}

/// The load reported for the time between the last two of `times`, in milliseconds, and the rests
/// taken for it.
fn between(times: &[f64], others: fn(f64) -> f64) -> (MachineLoad, Vec<Duration>) {
    let (mut load, rests) = watched(times, others);
    let mut began = None;
    for _ in 1..times.len() {
        began = load.look();
    }
    let load = load.since(began.as_ref(), &hello("cpu", "abacus", &[]).device);
    (load.unwrap(), rests.take())
}

fn is_near(found: Option<f64>, wanted: f64) -> bool {
    found.is_some_and(|share| (share - wanted).abs() < 0.01)
}

#[test]
fn short_samples_are_looked_at_with_the_time_before_them() {
    let busy = |at: f64| if at >= 1300.0 { 1.5 } else { 0.0 };
    let (load, rests) = between(&[0.0, 600.0, 1200.0, 1300.0, 1310.0], busy);
    // Since 600, because 1200 is too close to the end.
    assert_eq!(load.window_ns, Nanoseconds(710.0 * MS));
    assert!(is_near(load.foreign, 15.0 / 710.0), "{load:?}");
    // Waits count during the samples only.
    assert!(is_near(load.waited, 1.0), "{load:?}");
    assert_eq!(rests, []);

    let (long, rests) = between(&[0.0, 1300.0, 2300.0], busy);
    assert_eq!(long.window_ns, Nanoseconds(1000.0 * MS));
    assert!(is_near(long.foreign, 1.5), "{long:?}");
    assert_eq!(rests, []);
}

#[test]
fn the_first_case_is_looked_at_with_the_time_after_it() {
    let (load, rests) = between(&[100.0, 110.0], |at| if at < 110.0 { 1.5 } else { 0.5 });
    assert_eq!(rests, [Duration::from_millis(490)]);
    assert_eq!(load.window_ns, Nanoseconds(500.0 * MS));
    assert!(is_near(load.foreign, 0.52), "{load:?}");
    assert!(is_near(load.waited, 1.0), "{load:?}");
}

#[test]
fn a_first_call_is_disturbed_by_what_ran_beside_it() {
    let disturbed = |times: &[f64], kind: &str| {
        let (mut load, _) = watched(times, |at| if at >= 1000.0 { 1.5 } else { 0.0 });
        let began = load.look();
        load.disturbed_since(began.as_ref(), &hello(kind, "abacus", &[]).device)
    };
    assert!(disturbed(&[1000.0, 2000.0], "cpu"));
    assert!(!disturbed(&[0.0, 900.0], "cpu"));
    assert!(!disturbed(&[1000.0, 2000.0], "cuda"));
    // Too short to measure, and this does not wait.
    assert!(!disturbed(&[1000.0, 1100.0], "cpu"));
}

/// The worker has one of two cores.
#[test]
fn others_delay_calls_where_no_core_is_free_by_no_more_than_they_have() {
    let delay = |others: fn(f64) -> f64, times: &[f64]| {
        let (mut load, _) = watched(times, others);
        let began = load.look();
        load.delay_since(began.as_ref(), &hello("cpu", "abacus", &[]).device)
    };
    let second = &[1000.0, 2000.0];
    assert_eq!(delay(|_| 0.0, second), Some(0.0));
    assert_eq!(delay(|_| 0.4, second), Some(0.0), "a core is free");
    assert_eq!(delay(|_| 0.6, second), Some(1.0));
    assert_eq!(delay(|_| 0.6, &[1000.0, 1100.0]), None);
}

#[test]
fn a_processors_counters_speak_of_it_alone_and_a_gpus_state_of_that() {
    let loaded = Measurement {
        load: Some(Box::new(MachineLoad {
            cores: 2,
            foreign: Some(1.5),
            ..MachineLoad::default()
        })),
        ..Measurement::default()
    };
    let shared = Measurement {
        samples: Measured {
            state: Some(DeviceState {
                other_processes: Some(1),
                ..DeviceState::default()
            }),
            ..Measured::default()
        },
        ..Measurement::default()
    };
    for (kind, found, wanted) in [
        ("cpu", &loaded, Some("foreign load 1.5 of 2 cores")),
        ("cpu", &shared, None),
        ("cuda", &loaded, None),
        ("cuda", &shared, Some("1 other process on the device")),
        ("cuda", &Measurement::default(), None),
    ] {
        let disturbances = disturbed(&hello(kind, "abacus", &[]).device, found);
        assert_eq!(
            disturbance::describe(&disturbances),
            wanted.unwrap_or_default()
        );
    }
}
