//! The processor's time as a witness, of sides that were measured in turn.

use super::*;
use regatta_core::record::header::{Turn, TurnSide};
use regatta_core::record::testing::disturbed;
use regatta_worker::units::quantities;

/// Times of five invocations, a percent apart at the most.
fn times(ns: f64) -> Vec<Nanoseconds> {
    quantities([0.99, 1.01, 1.0, 0.995, 1.005].map(|f| f * ns))
}

/// A case that takes `wall`, and `cpu` of its processor.
fn case(wall: f64, cpu: f64) -> CaseRecord {
    CaseRecord {
        cpu_ns: times(cpu),
        ..around(wall)
    }
}

/// The same, of which the machine was in every invocation.
fn shaken(cpu: f64) -> CaseRecord {
    let mut record = disturbed(timed(&[]), 5, 700.0);
    for (one, cpu) in record.disturbed.iter_mut().zip(times(cpu)) {
        one.cpu_ns = Some(cpu);
    }
    record
}

/// Judges two sides that were measured in turn.
fn judged(base: CaseRecord, head: CaseRecord, processor: bool) -> Judgement {
    let side = |record, of| {
        let mut side = side("a", vec![(A, record)]);
        side.header.rules.policy.processor = processor;
        side.header.turn = Some(Turn {
            pair: "one".to_owned(),
            side: of,
            of: Vec::new(),
            stands_in: Default::default(),
        });
        side
    };
    against(&side(head, TurnSide::Head), &side(base, TurnSide::Base))
}

#[test]
fn it_speaks_unasked_only_where_others_were_on_the_cores() {
    let quiet = judged(case(100.0, 100.0), case(100.0, 150.0), false);
    assert_eq!(outcome(&quiet), VerdictOutcome::Passed);
    assert!(row(&quiet, A).metrics.is_empty());
    let loaded = judged(shaken(100.0), shaken(150.0), false);
    assert_eq!(outcome(&loaded), VerdictOutcome::Failed);
    assert_eq!(row(&loaded, A).metrics[0].metric, Metric::Processor);
}

#[test]
fn it_cannot_let_pass_what_was_not_seen_on_the_wall() {
    for cpu in [100.0, 70.0] {
        let judgement = judged(shaken(100.0), shaken(cpu), false);
        assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    }
}

#[test]
fn where_it_is_asked_for_both_clocks_must_hold() {
    let hidden = judged(case(100.0, 100.0), case(100.0, 150.0), true);
    assert_eq!(outcome(&hidden), VerdictOutcome::Failed);
    let own = &row(&hidden, A).metrics[0];
    assert_eq!((own.metric, own.word), (Metric::Processor, Word::Regressed));
    let waits = judged(case(100.0, 100.0), case(150.0, 100.0), true);
    assert_eq!(outcome(&waits), VerdictOutcome::Failed);
    let own = &row(&waits, A).metrics[0];
    assert_eq!((own.word, own.reason.as_deref()), (Word::Same, None));
    let same = judged(case(100.0, 100.0), case(100.0, 100.0), true);
    assert_eq!(outcome(&same), VerdictOutcome::Passed);
}
