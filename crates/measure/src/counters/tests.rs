//! Counters from texts as Linux writes them.

use super::*;

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
    assert_eq!(stat(STAT, &[1, 2], TICK_NS), None, "one core is not told");
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
    let text = "some avg10=0.74 avg60=0.88 avg300=2.04 total=5231961\n\
                full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
    assert_eq!(pressed(text), Some(Nanoseconds(5_231_961_000.0)));
    assert_eq!(load("0.55 0.63 1.27 1/85 841\n"), Some(0.55));
    for short in ["", "841 (a) S 1 2", "full avg10=0.00 total=7\n"] {
        assert_eq!((process_ticks(short), pressed(short)), (None, None));
    }
    assert_eq!((run_delay(""), load("")), (None, None));
}

/// A machine of two cores after so many seconds.
fn after(seconds: f64, busy: f64, own: f64) -> Counters {
    let time = |seconds: f64| Nanoseconds(seconds * 1e9);
    Counters {
        at_ns: time(seconds),
        cores: 2,
        stat: Some(Stat {
            busy_ns: time(busy),
            steal_ns: time(seconds * 0.1),
        }),
        own_ns: Some(time(own)),
        waited_ns: Some(BTreeMap::from([(7, seconds * 1e9)])),
        pressed_ns: Some(time(seconds * 0.5)),
        load: Some(3.5),
    }
}

#[test]
fn foreign_is_what_the_cores_did_less_what_was_ours() {
    let (before, began) = (after(10.0, 100.0, 50.0), after(11.0, 102.0, 51.0));
    let mut now = after(12.0, 104.0, 52.0);
    // A thread that is new waited since it began.
    now.waited_ns = Some(BTreeMap::from([(7, 11.5e9), (8, 0.25e9)]));
    let found = ground(&before, &began, &now);
    let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
    assert_eq!(found.window_ns, Nanoseconds(2e9));
    for (found, expected) in [
        (found.foreign, 1.0),
        (found.own, 1.0),
        (found.steal, 0.1),
        (found.waited, 0.75),
    ] {
        assert!(close(found, expected), "{found:?} {expected}");
    }
    assert_eq!((found.pressure, found.load), (Some(Share(0.5)), Some(3.5)));
    // Rounding of ticks may leave less than nothing.
    let found = ground(&before, &began, &after(12.0, 100.0, 52.0));
    assert_eq!(found.foreign, Some(0.0));
}

#[test]
fn what_one_look_does_not_tell_is_unknown() {
    let (before, now) = (after(10.0, 1.0, 1.0), after(11.0, 2.0, 1.0));
    let blind = Counters {
        stat: None,
        waited_ns: None,
        pressed_ns: None,
        ..before.clone()
    };
    let found = ground(&blind, &blind, &now);
    assert_eq!((found.foreign, found.steal), (None, None));
    assert_eq!((found.waited, found.pressure), (None, None));
    // No time passed.
    assert_eq!(ground(&now, &now, &now), Ground::default());
}

#[test]
fn this_machine_tells_what_it_can() {
    let mut machine = Machine::here();
    let before = machine.look().unwrap();
    let now = machine.look().unwrap();
    assert!(now.at_ns > before.at_ns);
    assert!(now.own_ns >= before.own_ns);
}
