//! What is told of made-up judgements.

use super::by_axes;
use crate::fixture;
use regatta_judge::judgement::{ExpectationResult, Held, Judgement, Row, Word};
use regatta_worker::attention::CaseId;
use regatta_worker::units::Nanoseconds;

/// A judgement of these cases: an id, its ratio and its word.
fn judged(cases: impl IntoIterator<Item = (String, f64, Word)>) -> Judgement {
    let mut judgement = fixture::failed().judgement;
    let compared = judgement.rows.iter().find(|row| row.change.is_some());
    let like = Row {
        findings: Vec::new(),
        ..compared.unwrap().clone()
    };
    judgement.expectations.clear();
    judgement.rows = cases
        .into_iter()
        .map(|(id, ratio, word)| {
            let mut row = like.clone();
            row.case = CaseId(id);
            row.word = word;
            row.base.as_mut().unwrap().median_ns = Nanoseconds(1e6);
            row.head.as_mut().unwrap().median_ns = Nanoseconds(1e6 * ratio);
            row
        })
        .collect();
    judgement
}

/// A thousand cases by number: half of them of head_dim 32 and causal.
fn thousand(of: impl Fn(usize, bool) -> (f64, Word)) -> Judgement {
    judged((0..2_000).map(|i| {
        let (narrow, causal) = (i % 2 == 0, i / 2 % 2 == 0);
        let id = format!(
            "cpu/flash:s{},d{}{}",
            64 * (1 + i / 4),
            if narrow { 32 } else { 64 },
            if causal { ",causal" } else { "" },
        );
        let (ratio, word) = of(i, narrow && causal);
        (id, ratio, word)
    }))
}

#[test]
fn nearly_all_of_two_axes_are_told_by_them() {
    let judgement = thousand(|i, both| match both && i != 400 {
        true => (2.1 + 0.3 * (i % 7) as f64 / 6.0, Word::Regressed),
        false => (1.0, Word::Same),
    });
    assert_eq!(
        by_axes(&judgement),
        "499 of 500 cases with head_dim 32 and causal are 2.10x to 2.40x slower; nothing else \
         moved."
    );
}

#[test]
fn one_case_goes_by_its_name() {
    let judgement = thousand(|i, _| match i == 7 {
        true => (1.123, Word::Regressed),
        false => (1.0, Word::Same),
    });
    assert_eq!(
        by_axes(&judgement),
        "cpu/flash:s128,d64 is 12.3 % slower; nothing else moved."
    );
}

#[test]
fn all_of_a_variant_beyond_a_length_are_told_so() {
    let cases = (0..24).map(|i| {
        let (variant, seq) = (["flash", "naive"][i % 2], 64 << (i / 2 % 6));
        let id = format!("cpu/{variant}:s{seq},d{}", 32 << (i / 12));
        match i % 2 == 0 && seq >= 512 {
            true => (id, 0.5, Word::Improved),
            false => (id, 1.0, Word::Inconclusive),
        }
    });
    assert_eq!(
        by_axes(&judged(cases)),
        "All 6 cases of cpu/flash with seq ≥ 512 are 2.00x faster; of the others, \
         18 inconclusive."
    );
}

#[test]
fn what_has_no_axis_in_common_is_counted_and_nothing_is_claimed() {
    let judgement = thousand(|i, _| match i % 97 == 5 {
        true => (1.2, Word::Regressed),
        false => (1.0, Word::Same),
    });
    let told = by_axes(&judgement);
    assert!(
        told.starts_with("21 of 2000 cases are 20.0 % slower, which no axes set apart"),
        "{told}"
    );
}

#[test]
fn nothing_moved_is_said_and_nothing_compared_is_silence() {
    let judgement = thousand(|_, _| (1.0, Word::Same));
    assert_eq!(by_axes(&judgement), "Nothing moved in 2000 cases.");
    assert_eq!(by_axes(&fixture::passed().judgement), "");
    assert_eq!(by_axes(&fixture::empty().judgement), "");
}

#[test]
fn failures_and_ids_of_no_case_are_told_and_stay_text() {
    let told = by_axes(&fixture::incomplete().judgement);
    assert!(told.contains("were not measured"), "{told}");
    let told = by_axes(&fixture::failed().judgement);
    assert!(told.contains("1 of 2 expectations is broken"), "{told}");
    assert!(!told.contains('\u{1b}') && !told.contains('\n'));
}

#[test]
fn a_second_group_is_told_after_the_first() {
    let judgement = thousand(|i, both| match (both, i % 4 == 3 && i / 4 < 100) {
        (true, _) => (2.0, Word::Regressed),
        (_, true) => (1.5, Word::Regressed),
        _ => (1.0, Word::Same),
    });
    assert_eq!(
        by_axes(&judgement),
        "All 500 cases with head_dim 32 and causal are 2.00x slower; all 100 cases with \
         seq ≤ 6400, head_dim 64 and mask full are 50.0 % slower; nothing else moved."
    );
}

#[test]
fn all_but_one_value_of_an_axis_are_told_so() {
    let cases = (0..18).map(|i| {
        let direction = ["", ",bwd", ",both"][i % 3];
        let id = format!("cpu/flash:s{},d32{direction}", 64 * (1 + i / 3));
        match i % 3 {
            0 => (id, 1.0, Word::Same),
            _ => (id, 1.15, Word::Regressed),
        }
    });
    assert_eq!(
        by_axes(&judged(cases)),
        "All 12 cases with direction other than forward are 15.0 % slower; nothing else moved."
    );
}

#[test]
fn broken_expectations_are_told_by_the_axes_of_their_cases() {
    let cases = (0..12).map(|i| {
        (
            format!("cpu/flash:s{},d{}", 64 << (i / 2), 32 << (i % 2)),
            1.0,
            Word::Same,
        )
    });
    let mut judgement = judged(cases);
    let like = fixture::failed().judgement.expectations.remove(0);
    let of_case = |row: &Row| ExpectationResult {
        case: row.case.clone(),
        held: match row.case.0.contains("d64") {
            true => Held::Broken,
            false => Held::Yes,
        },
        ..like.clone()
    };
    judgement.expectations = judgement.rows.iter().map(of_case).collect();
    assert_eq!(
        by_axes(&judgement),
        "All 6 expectations with head_dim 64 are broken; nothing else moved."
    );
}
