//! Compares the choices of tuners, between the sides and between the invocations of each.
//!
//! A tuner that times its candidates may choose differently in another process, although the code
//! is the same. Records have the choices of each invocation.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::machine::Sides;
use regatta_core::record::{CaseRecord, counted_choice, usual_choice};
use regatta_worker::case::ParamValue;
use regatta_worker::joined::Joined;

/// The parameters that a tuner chose on a side, and whose values differ between the sides.
pub fn changed(base: &CaseRecord, head: &CaseRecord) -> BTreeMap<String, Sides<ParamValue>> {
    let choices = |record: &CaseRecord| -> Vec<String> {
        let usual = usual_choice(&record.choices).into_iter();
        usual
            .flat_map(|choice| choice.tuned.keys().cloned())
            .collect()
    };
    let names: BTreeSet<String> = choices(base).into_iter().chain(choices(head)).collect();
    // A choice that only one side reports may come from a worker that reports more, or the other
    // side set the value by hand. Neither is a change of the tuner's choice.
    let differing = names.into_iter().filter_map(|name| {
        let (before, after) = (tuned(base, &name)?.clone(), tuned(head, &name)?.clone());
        (before != after).then(|| (name, Sides::new(before, after)))
    });
    differing.collect()
}

/// The tuner's most frequent choice for a parameter.
fn tuned<'a>(record: &'a CaseRecord, name: &str) -> Option<&'a ParamValue> {
    let tuned = usual_choice(&record.choices)?.tuned.get(name)?;
    Some(&tuned.value)
}

/// The choices of a side's tuner, if they differ between invocations: `the tuner chose
/// BLOCK_M 64 in 3, BLOCK_M 128 in 2 of 5 invocations`.
pub fn unsteady(record: &CaseRecord) -> Option<String> {
    /// The largest number of choices that are listed.
    const MAX_LISTED: usize = 3;
    let first = &record.choices.first()?.tuned;
    let mut choices: Vec<_> = record.choices.iter().collect();
    let names = choices.iter().flat_map(|choice| choice.tuned.keys());
    let names: BTreeSet<&String> = names.collect();
    let varies = |name: &&&String| {
        let mut others = record.choices.iter();
        others.any(|other| other.tuned.get(**name) != first.get(**name))
    };
    let varying: Vec<&&String> = names.iter().filter(varies).collect();
    if varying.is_empty() {
        return None;
    }
    choices.sort_by_key(|choice| std::cmp::Reverse(choice.invocations.len()));
    let all: usize = choices.iter().map(|choice| choice.invocations.len()).sum();
    let listed = choices.iter().take(MAX_LISTED).map(|choice| {
        let what = varying.iter().filter_map(|name| {
            let tuned = choice.tuned.get(**name)?;
            Some(format!("{name} {}", tuned.value))
        });
        let what = what.joined(" with ");
        format!("{what} in {}", choice.invocations.len())
    });
    let listed = listed.joined(", ");
    let more = match choices.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(", and others in {more} more ways"),
    };
    Some(format!(
        "the tuner chose {listed} of {all} invocations{more}"
    ))
}

/// True where the structures of two sides may differ by chance: a side's choice varies, and the
/// choice in the counted call is not the other side's.
pub fn counted_otherwise(base: &CaseRecord, head: &CaseRecord) -> bool {
    if base.choices.len() < 2 && head.choices.len() < 2 {
        return false;
    }
    match (counted_choice(&base.choices), counted_choice(&head.choices)) {
        (Some(base), Some(head)) => base.tuned.iter().any(|(name, one)| {
            head.tuned
                .get(name)
                .is_some_and(|other| one.value != other.value)
        }),
        _ => false,
    }
}
