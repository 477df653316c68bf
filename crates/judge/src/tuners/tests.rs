//! Of tuners that choose alike, otherwise, and now this, now that.

use super::*;
use crate::judgement::{Cause, VerdictOutcome};
use crate::testing::{around, side, timed};
use crate::{Options, judge};
use regatta_core::record::types::Tuned;

const CASE: &str = "fake/tuned:s32,d16";
const FLOOR: Share = Share(0.02);

/// A record whose invocations have these choices of a block, in order.
fn chose(mut record: CaseRecord, blocks: &[i64], pinnable: bool) -> CaseRecord {
    for (number, &block) in (0..).zip(blocks) {
        let value = ParamValue::Int(block);
        let tuned = [("BLOCK_M".to_owned(), Tuned { value, pinnable })];
        regatta_core::record::choices::add(&mut record.choices, number, &tuned.into());
    }
    let last = blocks.last().map(|block| ParamValue::Int(*block));
    let effective = last.map(|block| ("BLOCK_M".to_owned(), block));
    record.effective = effective.into_iter().collect::<BTreeMap<_, _>>().into();
    record
}

#[test]
fn a_tuner_that_chose_otherwise_is_the_first_cause_and_told_with_what_would_decide() {
    let base = side("s", vec![(CASE, chose(around(100.0), &[128; 5], true))]);
    let head = side("head", vec![(CASE, chose(around(200.0), &[64; 5], true))]);
    let judgement = judge(&head, Some(&base), &Options::default());
    let row = &judgement.rows[0];
    assert_eq!(row.word, Word::Regressed);
    assert_eq!(row.findings[0].cause, Cause::TunerChose);
    assert_eq!(
        row.findings[0].to_string(),
        "tuner-chose: the tuner chose BLOCK_M 128 → 64"
    );
    assert!(
        row.findings
            .iter()
            .all(|f| f.cause != Cause::ParameterChanged)
    );
    assert_eq!(judgement.verdict.outcome, VerdictOutcome::Failed);
    let told = "in 1 case the tuner chose otherwise, first fake/tuned:s32,d16: BLOCK_M 128 → 64; \
                what tells its choice from the code: pin it on both sides: --set \
                fake/tuned.BLOCK_M=128";
    assert!(
        judgement
            .verdict
            .reasons
            .iter()
            .any(|reason| reason == told),
        "{judgement:#?}"
    );
}

#[test]
fn a_choice_that_is_pinned_to_the_bases_is_no_change() {
    let base = side("s", vec![(CASE, chose(around(100.0), &[128; 5], true))]);
    let mut pinned = chose(around(200.0), &[128; 5], true);
    pinned.choices.clear();
    let judgement = judge(
        &side("head", vec![(CASE, pinned)]),
        Some(&base),
        &Options::default(),
    );
    let row = &judgement.rows[0];
    assert_eq!((row.word, row.tuner.as_ref()), (Word::Regressed, None));
    assert!(row.findings.iter().all(|f| f.cause != Cause::TunerChose));
}

#[test]
fn times_that_lie_apart_by_what_was_chosen_are_not_judged() {
    let base = side("s", vec![(CASE, chose(around(100.0), &[128; 5], false))]);
    let mixed = timed(&[100.0, 130.0, 100.5, 131.0, 99.5]);
    let mixed = chose(mixed, &[128, 64, 128, 64, 128], false);
    let told = unsteady(&mixed, "");
    assert_eq!(
        told.as_deref(),
        Some("the tuner chose BLOCK_M 128 in 3 of 5 invocations, 64 in 2")
    );
    let head = side("head", vec![(CASE, mixed)]);
    let judgement = judge(&head, Some(&base), &Options::default());
    let row = &judgement.rows[0];
    assert_eq!(row.word, Word::Inconclusive);
    assert!(!row.open, "more invocations would be mixed as well");
    assert_eq!(judgement.verdict.outcome, VerdictOutcome::NotJudged);
    assert_eq!(
        judgement.verdict.reasons,
        [
            "1 case is not judged, since a tuner chose now this, now that and the times lie apart \
             by it, first fake/tuned:s32,d16: the tuner chose BLOCK_M 128 in 3 of 5 invocations, \
             64 in 2; nothing pins it: fake/tuned has no parameter to ask for BLOCK_M by"
        ]
    );
    // The same with the sides changed: a base of several times is nothing to be held against.
    let judgement = judge(&base, Some(&head), &Options::default());
    assert_eq!(judgement.verdict.outcome, VerdictOutcome::NotJudged);
    assert!(judgement.verdict.reasons[0].contains("3 of 5 invocations of the base"));
}

#[test]
fn candidates_that_are_as_good_change_nothing() {
    let base = side("s", vec![(CASE, chose(around(100.0), &[128; 5], true))]);
    let flips = chose(around(100.0), &[128, 64, 128, 64, 128], true);
    let head = side("head", vec![(CASE, flips.clone())]);
    let judgement = judge(&head, Some(&base), &Options::default());
    assert_eq!(judgement.rows[0].word, Word::Same);
    assert_eq!(judgement.verdict.outcome, VerdictOutcome::Passed);
    let notes = judgement.notes.join("\n");
    assert!(
        notes.contains("1 case whose tuner does not choose alike"),
        "{notes}"
    );
    // And one that is slower whatever was chosen is slower.
    let slow = chose(around(200.0), &[128, 64, 128, 64, 128], true);
    let judgement = judge(
        &side("head", vec![(CASE, slow)]),
        Some(&base),
        &Options::default(),
    );
    assert_eq!(judgement.rows[0].word, Word::Regressed);
    assert!(!several_times(&flips, FLOOR));
}

/// The slowest of five is the odd one as often as not.
#[test]
fn one_odd_invocation_is_no_second_time() {
    let odd = timed(&[100.0, 100.5, 99.5, 103.0, 99.8]);
    let odd = chose(odd, &[128, 128, 128, 64, 128], true);
    assert!(!several_times(&odd, FLOOR));
    let base = side("s", vec![(CASE, chose(around(100.0), &[128; 5], true))]);
    let judgement = judge(
        &side("head", vec![(CASE, odd)]),
        Some(&base),
        &Options::default(),
    );
    assert_eq!(judgement.verdict.outcome, VerdictOutcome::Passed);
    let notes = judgement.notes.join("\n");
    assert!(notes.contains("not shown to depend on it"), "{notes}");
    // Two of them say something.
    let two = timed(&[100.0, 100.5, 103.2, 103.0, 99.8]);
    let two = chose(two, &[128, 128, 64, 64, 128], true);
    assert!(several_times(&two, FLOOR));
}

#[test]
fn structure_that_was_counted_of_another_choice_is_compared_by_chance() {
    let steady = chose(around(100.0), &[128; 5], true);
    let other = chose(around(100.0), &[64; 5], true);
    let first = chose(around(100.0), &[128, 64, 64], true);
    let second = chose(around(100.0), &[64, 128, 64], true);
    assert!(!counted_otherwise(&steady, &other), "no chance in that");
    assert!(!counted_otherwise(&steady, &first), "the same was counted");
    assert!(counted_otherwise(&steady, &second));
    assert!(
        !counted_otherwise(&around(1.0), &second),
        "nothing is known of the base"
    );
}

#[test]
fn more_choices_than_are_told_are_counted() {
    let blocks = [16, 32, 64, 128, 256];
    let told = unsteady(&chose(around(100.0), &blocks, true), " of the base");
    assert_eq!(
        told.as_deref(),
        Some(
            "the tuner chose BLOCK_M 16 in 1 of 5 invocations of the base, 32 in 1, 64 in 1, and \
             others in 2 more ways"
        )
    );
}

/// What a baseline is after a session was added to it.
fn with_session(newest: CaseRecord, before: CaseRecord) -> CaseRecord {
    let [newest, before] = [newest, before].map(|record| side("s", vec![(CASE, record)]));
    let joined = regatta_core::record::baseline::joined(&newest, &before);
    joined.cases.into_values().next().unwrap()
}

#[test]
fn sessions_in_which_a_tuner_chose_otherwise_are_several_times() {
    let [large, small] = [(100.0, 128), (130.0, 64)];
    let [newest, before] = [large, small].map(|(ns, of)| chose(around(ns), &[of; 5], true));
    let base = with_session(newest, before);
    let told = unsteady(&base, " of the base");
    assert_eq!(
        told.as_deref(),
        Some(
            "the tuner chose BLOCK_M 128 in 5 of 10 invocations of the base in 2 sessions, 64 in 5"
        )
    );
    let head = side("head", vec![(CASE, chose(around(130.0), &[64; 5], true))]);
    let base = side("s", vec![(CASE, base)]);
    let judgement = judge(&head, Some(&base), &Options::default());
    assert_eq!(judgement.rows[0].word, Word::Inconclusive);
    assert_eq!(judgement.verdict.outcome, VerdictOutcome::NotJudged);
    let reason = &judgement.verdict.reasons[0];
    assert!(reason.contains("in 2 sessions"), "{reason}");
}

#[test]
fn sessions_of_candidates_that_are_as_good_are_told_and_judged() {
    let [newest, before] = [128, 64].map(|of| chose(around(100.0), &[of; 5], true));
    let base = with_session(newest.clone(), before);
    let other = chose(around(100.0), &[64; 5], true);
    assert!(counted_otherwise(&base, &other), "it may be chance");
    assert!(!counted_otherwise(&newest, &other));
    let judgement = judge(
        &side("head", vec![(CASE, other)]),
        Some(&side("s", vec![(CASE, base)])),
        &Options::default(),
    );
    assert_eq!(judgement.rows[0].word, Word::Same);
    let notes = judgement.notes.join("\n");
    assert!(notes.contains("of the base in 2 sessions"), "{notes}");
}
