//! Whether a tuner chose alike: on both sides, and in every invocation of each.
//!
//! A tuner that times its candidates may choose otherwise in another process, whatever the code.
//! What was chosen is known by invocation, and so are the times. Sessions that a baseline keeps are
//! invocations of its side like the newest:
//!
//! - Both sides steady, and unlike: the case is judged, and the choice is its first cause.
//! - A side that differs from invocation to invocation, with times that are not shown to depend on
//!   it: the case is judged as any other. So it is with candidates that are as good, among which a
//!   tuner chooses by chance.
//! - A side that differs, with times that lie apart by what was chosen: it has several times, of
//!   several kernels, and none of them is the case's. It is not judged.

use std::collections::{BTreeMap, BTreeSet};

use super::complete::{Standing, usable};
use super::floor::beyond;
use super::judgement::{Tuner, Word};
use regatta_core::machine::Sides;
use regatta_core::record::choices::{Choice, Choices, counted, usual};
use regatta_core::record::side::{CaseRecord, Side, median};
use regatta_core::record::types::Fault;
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{Nanoseconds, Share};

/// What is to be said of the tuner of a case; `None` where there is none, or it chose alike.
pub fn tuner(base: Option<&CaseRecord>, head: &CaseRecord, floor: Share) -> Option<Tuner> {
    let records = || base.into_iter().chain([head]);
    let changed = base.map(|base| changed(base, head)).unwrap_or_default();
    let of_base = base.and_then(|base| unsteady(base, " of the base"));
    let unsteady = unsteady(head, "").or(of_base);
    if changed.is_empty() && unsteady.is_none() {
        return None;
    }
    let several = records().any(|record| several_times(record, floor));
    let varying = records().flat_map(|record| varying(&chosen(record)));
    let names: BTreeSet<String> = changed.keys().cloned().chain(varying).collect();
    let pinnable = |name: &String| {
        let told = records().flat_map(chosen);
        let mut told = told.filter_map(|chosen| chosen.tuned.get(name));
        told.all(|tuned| tuned.pinnable)
    };
    let (pins, unpinnable): (BTreeSet<String>, BTreeSet<String>) =
        names.into_iter().partition(pinnable);
    let wanted = base.unwrap_or(head);
    let pin = pins.into_iter().filter_map(|name| {
        let value = tuned(wanted, &name).or_else(|| tuned(head, &name))?.clone();
        Some((name, value))
    });
    Some(Tuner {
        changed,
        unsteady,
        several_times: several,
        pin: pin.collect(),
        unpinnable,
    })
}

/// Parameters that a tuner chose on a side, and that the other has otherwise.
pub fn changed(base: &CaseRecord, head: &CaseRecord) -> BTreeMap<String, Sides<ParamValue>> {
    let of = |record: &CaseRecord| -> Vec<String> {
        let usual = usual(&record.choices).into_iter();
        usual
            .flat_map(|choice| choice.tuned.keys().cloned())
            .collect()
    };
    let names: BTreeSet<String> = of(base).into_iter().chain(of(head)).collect();
    // What one side alone tells may be a worker that tells more, and no change; or it was set by
    // hand on the other, which is no choice of a tuner's.
    let differing = names.into_iter().filter_map(|name| {
        let (before, after) = (tuned(base, &name)?.clone(), tuned(head, &name)?.clone());
        (before != after).then(|| (name, Sides::of(before, after)))
    });
    differing.collect()
}

/// What a tuner mostly chose for a parameter on a side.
fn tuned<'a>(record: &'a CaseRecord, name: &str) -> Option<&'a ParamValue> {
    let tuned = usual(&record.choices)?.tuned.get(name)?;
    Some(&tuned.value)
}

/// What a tuner chose in some invocations of a side, of whichever of its sessions.
struct Chosen<'a> {
    tuned: &'a Choices,
    /// How many invocations those are.
    number: usize,
    /// Their times, where they have some.
    times: Vec<Nanoseconds>,
}

/// What the tuner of a side chose: in its own invocations, and in the sessions that a baseline
/// keeps, whose times are the side's as well.
fn chosen(record: &CaseRecord) -> Vec<Chosen<'_>> {
    // Where nothing is chosen now, nothing is to be said of a tuner.
    if record.choices.is_empty() {
        return Vec::new();
    }
    let times = record.device_ns.iter().chain(&record.confirm_ns).copied();
    let newest: BTreeMap<u32, Nanoseconds> = record.invocations().into_iter().zip(times).collect();
    let earlier = record.earlier.iter().zip(&record.earlier_choices);
    let earlier = earlier.map(|(times, choices)| {
        let places = (0..).zip(times.iter().copied());
        (choices, places.collect::<BTreeMap<u32, Nanoseconds>>())
    });
    let mut all: Vec<Chosen<'_>> = Vec::new();
    for (choices, times) in std::iter::once((&record.choices, newest)).chain(earlier) {
        for choice in choices {
            let own = choice.invocations.iter();
            let own: Vec<Nanoseconds> = own.filter_map(|of| times.get(of).copied()).collect();
            let (number, own) = (choice.invocations.len(), usable(&own));
            match all.iter_mut().find(|known| *known.tuned == choice.tuned) {
                Some(known) => {
                    known.number += number;
                    known.times.extend(own);
                }
                None => all.push(Chosen {
                    tuned: &choice.tuned,
                    number,
                    times: own,
                }),
            }
        }
    }
    all
}

/// Sessions of a side of which it is known what a tuner chose, with the newest.
fn sessions(record: &CaseRecord) -> usize {
    let told = |choices: &&Vec<Choice>| !choices.is_empty();
    1 + record.earlier_choices.iter().filter(told).count()
}

/// Names whose value is not the same in all choices.
fn varying(choices: &[Chosen<'_>]) -> BTreeSet<String> {
    let Some((first, others)) = choices.split_first() else {
        return BTreeSet::new();
    };
    let names = choices.iter().flat_map(|choice| choice.tuned.keys());
    let differs = |name: &&String| {
        let of = |choice: &Chosen<'_>| choice.tuned.get(*name).cloned();
        others.iter().any(|other| of(other) != of(first))
    };
    names.filter(differs).cloned().collect()
}

/// What a side's tuner chose, where that differs from invocation to invocation, or between the
/// sessions of a baseline.
pub fn unsteady(record: &CaseRecord, whose: &str) -> Option<String> {
    /// Choices that are told one by one.
    const TOLD: usize = 3;
    let mut choices = chosen(record);
    if choices.len() < 2 {
        return None;
    }
    let names = varying(&choices);
    choices.sort_by_key(|choice| std::cmp::Reverse(choice.number));
    let all: usize = choices.iter().map(|choice| choice.number).sum();
    let over = match sessions(record) {
        1 => String::new(),
        sessions => format!(" in {sessions} sessions"),
    };
    let told = choices
        .iter()
        .take(TOLD)
        .enumerate()
        .map(|(place, choice)| {
            let what = names.iter().filter_map(|name| {
                let tuned = choice.tuned.get(name)?;
                // One name need not be said again.
                Some(match names.len() == 1 && place > 0 {
                    true => tuned.value.to_string(),
                    false => format!("{name} {}", tuned.value),
                })
            });
            let what: Vec<String> = what.collect();
            let what = match what.is_empty() {
                true => "what it does not tell".to_owned(),
                false => what.join(" with "),
            };
            let number = choice.number;
            match place {
                0 => format!("{what} in {number} of {all} invocations{whose}{over}"),
                _ => format!("{what} in {number}"),
            }
        });
    let mut told = told.collect::<Vec<_>>().join(", ");
    if choices.len() > TOLD {
        told += &format!(", and others in {} more ways", choices.len() - TOLD);
    }
    Some(format!("the tuner chose {told}"))
}

/// Invocations of a choice without which its times say nothing: one process may be anything.
const FEWEST: usize = 2;

/// True where the times of a side lie apart by what its tuner chose: those of two choices, of
/// [`FEWEST`] invocations each, do not overlap, and their medians are further from each other
/// than the floor.
pub fn several_times(record: &CaseRecord, floor: Share) -> bool {
    let times = chosen(record).into_iter().map(|choice| choice.times);
    let times: Vec<Vec<Nanoseconds>> = times.filter(|times| times.len() >= FEWEST).collect();
    let apart = |one: &[Nanoseconds], other: &[Nanoseconds]| {
        let ends = |times: &[Nanoseconds]| {
            let low = times.iter().copied().min_by(Nanoseconds::total_cmp)?;
            let high = times.iter().copied().max_by(Nanoseconds::total_cmp)?;
            Some((low, high, median(times)?))
        };
        ends(one).zip(ends(other)).is_some_and(|(one, other)| {
            let disjoint = one.1 < other.0 || other.1 < one.0;
            disjoint && beyond(one.2 / other.2, floor)
        })
    };
    let mut pairs = times.iter().enumerate();
    pairs.any(|(place, one)| times[..place].iter().any(|other| apart(one, other)))
}

/// What is said of a case, where what there is to judge are several times and not one.
pub fn one_time(standing: Standing<'_>, floor: Share) -> Standing<'_> {
    let Standing::Both(base, head) = standing else {
        return standing;
    };
    let why = |record, whose| {
        let told = unsteady(record, whose).filter(|_| several_times(record, floor))?;
        Some(format!("not judged, since it has several times: {told}"))
    };
    match why(head, "").or_else(|| why(base, " of the base")) {
        None => standing,
        reason => Standing::Said(Word::Inconclusive, reason, Fault::Unknown),
    }
}

/// True where the structures of two sides may differ by chance: a side chooses now this, now
/// that, and what was counted is of another choice than on the other side.
pub fn counted_otherwise<'a>(base: &'a CaseRecord, head: &'a CaseRecord) -> bool {
    let steady = |record: &CaseRecord| chosen(record).len() < 2;
    if steady(base) && steady(head) {
        return false;
    }
    let tuned = |record: &'a CaseRecord| counted(&record.choices).map(|choice| &choice.tuned);
    match (tuned(base), tuned(head)) {
        (Some(base), Some(head)) => base
            .iter()
            .any(|(name, one)| head.get(name).is_some_and(|other| one.value != other.value)),
        _ => false,
    }
}

/// Cases of a side whose tuner does not choose alike throughout, and which are judged all the
/// same; as a sentence. `whose` is ` of the base`, or nothing.
pub fn note(side: &Side, whose: &str, floor: Share) -> Option<String> {
    let flips = |record: &&CaseRecord| chosen(record).len() > 1 && !several_times(record, floor);
    let found: Vec<&CaseRecord> = side.cases.values().filter(flips).collect();
    let first = unsteady(found.first()?, whose)?;
    Some(format!(
        "{} whose tuner does not choose alike in all invocations{whose}, with times that are not \
         shown to depend on it: {first}",
        regatta_worker::units::counted(found.len(), "case"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judgement::{Cause, Judgement, VerdictOutcome};
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
        record.effective = effective.into_iter().collect();
        record
    }

    fn judged(base: &CaseRecord, head: &CaseRecord) -> Judgement {
        let [base, head] = [base, head].map(|record| side("s", vec![(CASE, record.clone())]));
        judge(&head, Some(&base), &Options::default())
    }

    /// What a baseline is after a session was added to it.
    #[test]
    fn a_tuner_that_chose_otherwise_is_the_first_cause_and_told_with_what_would_decide() {
        let base = chose(around(100.0), &[128; 5], true);
        let judgement = judged(&base, &chose(around(200.0), &[64; 5], true));
        let row = &judgement.rows[0];
        assert_eq!(row.word, Word::Regressed);
        assert_eq!(
            row.findings[0].to_string(),
            "tuner-chose: the tuner chose BLOCK_M 128 → 64"
        );
        assert!(
            row.findings
                .iter()
                .all(|f| f.cause != Cause::ParameterChanged)
        );
        let told = "in 1 case the tuner chose otherwise, first fake/tuned:s32,d16: BLOCK_M 128 → 64; \
                what tells its choice from the code: pin it on both sides: --set \
                fake/tuned.BLOCK_M=128";
        let reasons = &judgement.verdict.reasons;
        assert!(reasons.iter().any(|reason| reason == told), "{reasons:#?}");

        // One that is pinned to the base's is no change.
        let mut pinned = chose(around(200.0), &[128; 5], true);
        pinned.choices.clear();
        let judgement = judged(&base, &pinned);
        let row = &judgement.rows[0];
        assert_eq!((row.word, row.tuner.as_ref()), (Word::Regressed, None));
        assert!(row.findings.iter().all(|f| f.cause != Cause::TunerChose));
    }

    #[test]
    fn times_that_lie_apart_by_what_was_chosen_are_not_judged() {
        let base = chose(around(100.0), &[128; 5], false);
        let mixed = timed(&[100.0, 130.0, 100.5, 131.0, 99.5]);
        let mixed = chose(mixed, &[128, 64, 128, 64, 128], false);
        let told = unsteady(&mixed, "");
        assert_eq!(
            told.as_deref(),
            Some("the tuner chose BLOCK_M 128 in 3 of 5 invocations, 64 in 2")
        );
        let judgement = judged(&base, &mixed);
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
        let judgement = judged(&mixed, &base);
        assert_eq!(judgement.verdict.outcome, VerdictOutcome::NotJudged);
        assert!(judgement.verdict.reasons[0].contains("3 of 5 invocations of the base"));
    }

    #[test]
    fn candidates_that_are_as_good_change_nothing() {
        let base = chose(around(100.0), &[128; 5], true);
        let flips = chose(around(100.0), &[128, 64, 128, 64, 128], true);
        let judgement = judged(&base, &flips);
        assert_eq!(judgement.rows[0].word, Word::Same);
        assert_eq!(judgement.verdict.outcome, VerdictOutcome::Passed);
        let notes = judgement.notes.join("\n");
        assert!(
            notes.contains("1 case whose tuner does not choose alike"),
            "{notes}"
        );
        // And one that is slower whatever was chosen is slower.
        let slow = chose(around(200.0), &[128, 64, 128, 64, 128], true);
        assert_eq!(judged(&base, &slow).rows[0].word, Word::Regressed);
        assert!(!several_times(&flips, FLOOR));
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
}
