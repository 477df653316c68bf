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
mod tests;
