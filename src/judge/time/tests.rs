use proptest::prelude::*;

use super::*;
use crate::judge::floor::floor;
use crate::judge::testing::{around, confirmed as with_fresh, timed};
use crate::suite::rules::Policy;
use crate::units::{Nanoseconds, numbers, quantities};

const FLOOR: Share = Share(0.05);

fn one(base: &CaseRecord, head: &CaseRecord) -> Compared {
    compare(&[(base, head)], FLOOR).2.remove(0)
}

fn word(base: &[f64], head: &[f64]) -> Word {
    one(&timed(base), &timed(head)).word
}

#[test]
fn five_clear_invocations_a_side_are_called_without_confirmation() {
    let slower = one(&around(100.0), &around(120.0));
    assert_eq!(slower.word, Word::Regressed);
    assert!((slower.change.ratio.0 - 1.2).abs() < 0.01);
    assert_eq!(slower.change.stage, Stage::Screen);
    assert_eq!(one(&around(120.0), &around(100.0)).word, Word::Improved);
}

#[test]
fn a_real_change_below_the_floor_is_same() {
    let compared = one(&around(100.0), &around(102.5));
    assert!(compared.change.p.0 < 0.01);
    assert_eq!(compared.word, Word::Same);
}

#[test]
fn same_needs_the_whole_interval_and_three_invocations_a_side() {
    assert_eq!(
        word(&[100.0, 101.0, 99.0], &[100.5, 99.5, 100.0]),
        Word::Same
    );
    let two = one(&timed(&[100.0, 101.0]), &timed(&[100.0, 101.0]));
    assert_eq!(two.word, Word::Inconclusive);
    assert!(two.reason.unwrap().contains("too few"));
    let wide = one(
        &timed(&[90.0, 95.0, 100.0, 105.0, 110.0]),
        &timed(&[91.0, 96.0, 101.0, 106.0, 111.0]),
    );
    assert_eq!(wide.word, Word::Inconclusive);
    assert!(wide.reason.unwrap().contains("the floor is 5.0 %"));
}

#[test]
fn a_suspicion_without_fresh_invocations_stays_open() {
    // One pair overlaps: p = 4/252, above 0.01 and below 0.05.
    let base = timed(&[100.0, 101.0, 102.0, 103.0, 110.0]);
    let head = timed(&[109.0, 115.0, 116.0, 117.0, 118.0]);
    let compared = one(&base, &head);
    assert_eq!(compared.word, Word::Inconclusive);
    assert!(suspicious(&compared.change, false, FLOOR));
    assert!(compared.reason.unwrap().contains("suspected"));
}

#[test]
fn four_a_side_must_not_overlap_and_clear_the_floor() {
    let base = [100.0, 101.0, 102.0, 103.0];
    assert_eq!(word(&base, &[110.0, 111.0, 112.0, 113.0]), Word::Regressed);
    // Apart, but the interval reaches below the floor.
    assert_eq!(
        word(&base, &[105.0, 111.0, 112.0, 113.0]),
        Word::Inconclusive
    );
}

#[test]
fn three_a_side_call_only_a_factor_of_two() {
    let base = [100.0, 101.0, 102.0];
    assert_eq!(word(&base, &[150.0, 151.0, 152.0]), Word::Inconclusive);
    assert_eq!(word(&base, &[204.0, 210.0, 300.0]), Word::Regressed);
    assert_eq!(word(&[204.0, 210.0, 300.0], &base), Word::Improved);
    assert_eq!(word(&base, &[190.0, 210.0, 300.0]), Word::Inconclusive);
}

#[test]
fn two_a_side_call_only_many_times() {
    let base = [100.0, 101.0];
    assert_eq!(word(&base, &[10_000.0, 10_100.0]), Word::Regressed);
    assert_eq!(word(&base, &[403.0, 500.0]), Word::Inconclusive);
    assert_eq!(word(&[10_000.0, 10_100.0], &base), Word::Improved);
}

#[test]
fn one_invocation_calls_nothing_and_says_what_would_do() {
    let compared = one(&timed(&[100.0]), &timed(&[10_000.0, 10_100.0]));
    assert_eq!(compared.word, Word::Inconclusive);
    assert!(compared.looks_worse);
    let reason = compared.reason.unwrap();
    assert!(reason.contains("2 against 1 invocations cannot decide; 5 a side could"));
    assert!(compared.change.smallest_effect.0.is_infinite());
    // But the gate will look again.
    assert!(suspicious(&compared.change, false, FLOOR));
}

#[test]
fn fresh_invocations_decide_alone() {
    let confirmed = one(&around(100.0), &with_fresh(120.0, 115.0));
    assert_eq!(confirmed.word, Word::Regressed);
    assert_eq!(confirmed.change.stage, Stage::Confirm);
    assert!((confirmed.change.ratio.0 - 1.15).abs() < 0.01);

    let withdrawn = one(&around(100.0), &with_fresh(120.0, 100.5));
    assert_eq!(withdrawn.word, Word::Same);
    let reason = withdrawn.reason.unwrap();
    assert_eq!(
        reason,
        "suspected at 20.0 % slower, but 0.4 % slower on 10 fresh invocations"
    );

    let open = one(&around(100.0), &with_fresh(120.0, 104.5));
    assert_eq!(open.word, Word::Inconclusive);
}

#[test]
fn fresh_invocations_of_the_base_are_used_where_there_are_any() {
    let mut base = with_fresh(100.0, 120.0);
    let head = with_fresh(120.0, 120.5);
    assert_eq!(one(&base, &head).word, Word::Same);
    base.confirm_ns.clear();
    assert_eq!(one(&base, &head).word, Word::Regressed);
}

#[test]
fn holm_counts_all_cases_with_fresh_invocations() {
    // Eight of ten fresh ones are slower, two lie among the base's: enough alone, not
    // among ten.
    let base = around(100.0);
    let mut suspect = around(120.0);
    suspect.confirm_ns = [around(110.0).device_ns, around(110.5).device_ns].concat();
    (suspect.confirm_ns[0], suspect.confirm_ns[5]) = (Nanoseconds(100.0), Nanoseconds(100.0));
    assert_eq!(one(&base, &suspect).word, Word::Regressed);
    let mut quiet = around(100.0);
    quiet.confirm_ns = [around(100.0).device_ns, around(100.1).device_ns].concat();
    let mut pairs = vec![(&base, &quiet); 9];
    pairs.push((&base, &suspect));
    let last = compare(&pairs, FLOOR).2.pop().unwrap();
    assert_eq!(last.word, Word::Inconclusive, "{last:?}");
    // Sides that do not overlap at all are called, however many there are: else a gate
    // would be the blinder the more it broke.
    let mut apart = suspect.clone();
    (apart.confirm_ns[0], apart.confirm_ns[5]) = (Nanoseconds(110.0), Nanoseconds(110.0));
    let pairs = vec![(&base, &apart); 500];
    let words: Vec<Word> = compare(&pairs, FLOOR).2.iter().map(|c| c.word).collect();
    assert_eq!(words, vec![Word::Regressed; 500]);
}

#[test]
fn a_common_shift_within_the_floor_is_divided_out() {
    let (base, head, odd) = (around(100.0), around(103.0), around(107.0));
    let mut pairs = vec![(&base, &head); 9];
    pairs.push((&base, &odd));
    let (shift, note, compared) = compare(&pairs, FLOOR);
    assert!(shift.unwrap().removed && note.is_some());
    assert!((compared[0].change.ratio.0 - 1.0).abs() < 0.001);
    assert_eq!(compared[0].word, Word::Same);
    assert!((compared[9].change.ratio.0 - 1.07 / 1.03).abs() < 0.001);
}

#[test]
fn a_slowdown_of_everything_is_called_on_every_case() {
    let (base, head) = (around(100.0), around(130.0));
    let (shift, note, compared) = compare(&[(&base, &head); 20], FLOOR);
    assert!(!shift.unwrap().removed && note.is_none());
    assert!(compared.iter().all(|c| c.word == Word::Regressed));
}

#[test]
fn the_smallest_effect_is_one_that_would_be_called() {
    for (base, head) in [
        (around(100.0), around(101.0)),
        (
            timed(&[100.0, 110.0, 104.0, 96.0]),
            timed(&[99.0, 108.0, 103.0, 95.0]),
        ),
        (timed(&[100.0, 110.0, 104.0]), timed(&[99.0, 108.0, 103.0])),
        (
            timed(&[90.0, 95.0, 100.0, 105.0, 110.0]),
            timed(&[91.0, 96.0, 101.0, 106.0, 111.0]),
        ),
    ] {
        let effect = one(&base, &head).change.smallest_effect;
        let least = Ratio::grown_by(effect);
        let centred = one(&base, &head).change.ratio;
        let moved = |factor: Ratio| {
            let times = head
                .device_ns
                .iter()
                .map(|time| (*time / centred * factor).0);
            word(&numbers(&base.device_ns), &times.collect::<Vec<_>>())
        };
        assert_eq!(moved(least * 1.001), Word::Regressed, "{effect}");
        assert_eq!(moved(least.inverse() * 0.999), Word::Improved, "{effect}");
    }
}

#[test]
fn a_floor_from_an_edited_file_is_replaced_by_the_default() {
    for wild in [f64::NAN, -1.0, f64::INFINITY] {
        let policy = Policy {
            floor: Share(wild),
            ..Policy::default()
        };
        assert_eq!(floor(&policy), FLOOR);
    }
}

proptest! {
    #[test]
    fn any_values_get_finite_figures(
        base in prop::collection::vec(prop::num::f64::ANY, 0..8),
        head in prop::collection::vec(prop::num::f64::ANY, 0..8),
        fresh in prop::collection::vec(prop::num::f64::ANY, 0..8),
        floor in prop::num::f64::POSITIVE,
    ) {
        let mut record = timed(&head);
        record.confirm_ns = quantities(fresh);
        let base = timed(&base);
        let (_, _, compared) = compare(&[(&base, &record); 6], Share(floor));
        for row in compared {
            let Change { ratio, low, high, p, .. } = row.change;
            prop_assert!(ratio.is_finite() && low.is_finite() && high.is_finite());
            prop_assert!(p.0 > 0.0 && p.0 <= 1.0);
            prop_assert!(low <= ratio * (1.0 + 1e-9) && ratio <= high * (1.0 + 1e-9));
        }
    }

    #[test]
    fn swapping_the_sides_swaps_the_word(
        base in prop::collection::vec(50.0f64..400.0, 1..8),
        head in prop::collection::vec(50.0f64..400.0, 1..8),
    ) {
        let swapped = match word(&base, &head) {
            Word::Regressed => Word::Improved,
            Word::Improved => Word::Regressed,
            other => other,
        };
        prop_assert_eq!(word(&head, &base), swapped);
    }
}
