//! Records from outcomes made by hand.

use super::*;
use crate::record::testing::header;
use crate::record::types::{BaseId, Entry, Owed};
use regatta_worker::units::{Nanoseconds, Share, numbers};

const CASE: &str = "cpu/flash:s64,d64";

fn measured(ns: f64) -> Outcome {
    Outcome::Measured(Measurement {
        device_ns: vec![Nanoseconds(ns)],
        ..Measurement::default()
    })
}

/// A run of one case with these outcomes, each with its invocation, in the file's order.
fn run(outcomes: Vec<(u32, Outcome)>) -> Run {
    let mut header = header();
    header.plan = vec![CaseId(CASE.to_owned())];
    let entries = outcomes.into_iter().map(|(invocation, outcome)| Entry {
        start: None,
        case: CaseId(CASE.to_owned()),
        invocation,
        outcome,
    });
    Run {
        entries: entries.collect(),
        ..Run::begun(header)
    }
}

fn reduced(run: &Run) -> CaseRecord {
    Side::from_run("run", run).cases[&CaseId(CASE.to_owned())].clone()
}

fn five() -> Vec<(u32, Outcome)> {
    (0..5).map(|n| (n, measured(f64::from(n) + 1.0))).collect()
}

#[test]
fn times_stand_in_the_order_of_invocations_whatever_the_files_is() {
    // A torn line of invocation 0, measured again: last in the file.
    let mut outcomes = five();
    outcomes.rotate_left(1);
    let record = reduced(&run(outcomes));
    assert_eq!(numbers(&record.device_ns), [1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn what_is_measured_in_some_invocations_alone_is_missing() {
    let refused = || Outcome::Unsupported {
        reason: "no workspace".to_owned(),
    };
    let mut some = five();
    some[1].1 = refused();
    some[4].1 = refused();
    let Status::Missing { reason } = reduced(&run(some)).status else {
        panic!("measured");
    };
    assert_eq!(reason, "unsupported in 2 of 5 invocations: no workspace");
    let none = (0..5).map(|n| (n, refused())).collect();
    assert!(matches!(
        reduced(&run(none)).status,
        Status::Unsupported { .. }
    ));
    let few = five().into_iter().take(4).collect();
    assert!(matches!(reduced(&run(few)).status, Status::Missing { .. }));
    let mut empty = five();
    empty[3].1 = Outcome::Measured(Measurement::default());
    let Status::Missing { reason } = reduced(&run(empty)).status else {
        panic!("measured");
    };
    assert_eq!(reason, "invocation 3 has no sample");
}

#[test]
fn a_part_of_what_is_owed_confirms_nothing() {
    let mut outcomes = five();
    outcomes.push((5, measured(9.0)));
    let mut run = run(outcomes);
    assert_eq!(
        reduced(&run).unconfirmed,
        None,
        "an older file owes nothing"
    );
    run.owed.push(Owed {
        base: BaseId {
            name: "s".to_owned(),
            sum: String::new(),
        },
        cases: vec![CaseId(CASE.to_owned())],
        fresh: 2,
    });
    let lost = reduced(&run).unconfirmed.unwrap();
    assert_eq!(
        lost.reason,
        "1 of 2 fresh invocations that it owes are in the file"
    );
    run.entries.push(Entry {
        start: None,
        case: CaseId(CASE.to_owned()),
        invocation: 6,
        outcome: Outcome::Failed {
            reason: "it died".to_owned(),
            fault: Fault::Crash,
            log: String::new(),
        },
    });
    let record = reduced(&run);
    assert_eq!(record.status, Status::Measured);
    assert_eq!(record.unconfirmed.unwrap().fault, Fault::Crash);
}

/// A run of one case whose invocations `lost` the machine was in, at ten times the time.
fn shaken(lost: &[u32]) -> Run {
    let mut outcomes = five();
    for number in lost {
        let Outcome::Measured(measurement) = &mut outcomes[*number as usize].1 else {
            panic!("measured");
        };
        measurement.device_ns = vec![Nanoseconds(10.0 * (f64::from(*number) + 1.0))];
        measurement.disturbed = vec![Disturbance::ForeignLoad { cores: 1.9, of: 2 }];
        measurement.first_call_disturbed = true;
    }
    run(outcomes)
}

#[test]
fn what_the_machine_was_in_is_kept_apart_from_what_is_judged() {
    let record = reduced(&shaken(&[1, 3]));
    assert_eq!(numbers(&record.device_ns), [1.0, 3.0, 5.0]);
    assert_eq!(record.first_call_ns.len(), 3);
    assert_eq!(record.status, Status::Measured);
    assert_eq!(record.quiet_invocations().collect::<Vec<_>>(), [0, 2, 4]);
    let lost: Vec<_> = record
        .disturbed
        .iter()
        .map(|of| (of.invocation, of.device_ns.0))
        .collect();
    assert_eq!(lost, [(1, 20.0), (3, 40.0)]);
    assert!(!record.is_disturbed(), "three quiet ones speak for it");
    assert_eq!(record.conditions.disturbed_by.len(), 1);
    assert!(reduced(&shaken(&[0, 1, 4])).is_disturbed());
    assert!(reduced(&shaken(&[0, 1, 2, 3, 4])).is_disturbed());
}

#[test]
fn fresh_invocations_that_the_machine_was_in_confirm_nothing() {
    let fresh = |lost: u32| {
        let mut outcomes = five();
        outcomes.extend((5..9).map(|number| {
            let mut outcome = measured(9.0);
            if let (Outcome::Measured(measurement), true) = (&mut outcome, number < 5 + lost) {
                measurement.disturbed = vec![Disturbance::Steal { share: Share(0.12) }];
            }
            (number, outcome)
        }));
        reduced(&run(outcomes))
    };
    let some = fresh(1);
    assert_eq!((some.confirm_ns.len(), &some.unconfirmed), (3, &None));
    assert!(!some.is_disturbed(), "the regular ones are quiet");
    assert_eq!(
        fresh(2).unconfirmed.unwrap().reason,
        "the machine was in 2 of its 4 fresh invocations: steal 12.0 %"
    );
}
