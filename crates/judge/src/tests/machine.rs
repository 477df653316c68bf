//! Times that the machine was in.

use super::*;
use crate::testing::disturbed;
use regatta_core::machine::Structure;

/// Ten times slower on ground that was never quiet.
fn loaded() -> CaseRecord {
    disturbed(timed(&[]), 5, 1000.0)
}

#[test]
fn a_disturbed_head_is_not_judged_and_the_load_is_named() {
    let base = side("base", vec![(A, around(100.0)), (B, around(200.0))]);
    let head = side("head", vec![(A, loaded()), (B, loaded())]);
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    assert_eq!(
        judgement.verdict.reasons,
        [
            "2 cases are not judged because of the machine: foreign load 1.9 of 2 cores in 5 of 5 \
          invocations; measure again when nothing else runs on these cores"
        ],
        "and nothing else is a reason"
    );
    assert!(batch(&judgement).is_none());
    assert_eq!(judgement.common_shift, None);
    let row = row(&judgement, A);
    assert_eq!((row.word, row.looks_worse), (Word::Inconclusive, false));
    let reason = row.reason.as_deref().unwrap();
    assert!(
        reason.contains("foreign load 1.9 of 2 cores in 5 of 5"),
        "{reason}"
    );
    let shown = row.head.as_ref().unwrap();
    assert_eq!(shown.median_ns, Nanoseconds(1000.0), "the times are kept");
    assert!(
        judgement
            .notes
            .iter()
            .any(|note| note.contains("10 invocations of 2 cases"))
    );
}

#[test]
fn a_disturbed_base_is_held_against_nothing() {
    let base = side("base", vec![(A, loaded()), (B, around(200.0))]);
    let head = side("head", vec![(A, around(100.0)), (B, around(200.0))]);
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    let reason = &judgement.verdict.reasons[0];
    assert!(
        reason.starts_with("the base's times of 1 case are the machine's"),
        "{reason}"
    );
    assert_eq!(row(&judgement, B).word, Word::Same);
}

#[test]
fn few_disturbed_invocations_are_left_out_and_the_others_judged() {
    let base = side("base", vec![(A, around(100.0))]);
    let head = side("head", vec![(A, disturbed(around(100.0), 2, 1000.0))]);
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::Passed);
    assert_eq!(row(&judgement, A).word, Word::Same);
    let slow = side("head", vec![(A, disturbed(around(300.0), 2, 100.0))]);
    assert_eq!(outcome(&against(&slow, &base)), VerdictOutcome::Failed);
}

#[test]
fn what_is_beyond_doubt_is_worse_on_any_ground() {
    let base = side("base", vec![(A, around(100.0)), (B, around(200.0))]);
    let head = side("head", vec![(A, loaded()), (B, around(400.0))]);
    assert_eq!(outcome(&against(&head, &base)), VerdictOutcome::Failed);
    let head = side("head", vec![(A, loaded()), (B, failed("wrong"))]);
    let judgement = against(&head, &base);
    assert_eq!(
        judgement.verdict.reasons.len(),
        2,
        "{:?}",
        judgement.verdict
    );
}

#[test]
fn a_disturbed_run_alone_is_no_baseline() {
    let head = side("head", vec![(A, loaded())]);
    let judgement = judge(&head, None, &plain());
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    assert_eq!(row(&judgement, A).word, Word::Measured);
}

#[test]
fn threads_that_found_no_core_are_no_change_of_structure() {
    let counted = |mut record: CaseRecord, threads| {
        let counts = [
            ("threads".to_owned(), threads),
            ("tasks".to_owned(), 2 * threads),
        ]
        .into();
        let structure = Structure {
            counts,
            ..Structure::default()
        };
        record.structure = Some(structure.into());
        record
    };
    let base = side("base", vec![(A, counted(around(100.0), 2))]);
    let changes = |head| {
        let judgement = against(&side("head", vec![(A, counted(head, 1))]), &base);
        row(&judgement, A).structure.as_ref().unwrap().len()
    };
    assert_eq!(changes(around(100.0)), 2);
    assert_eq!(changes(loaded()), 1, "tasks follow from the code");
}
