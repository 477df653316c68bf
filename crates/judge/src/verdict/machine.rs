//! What nobody can say because of the machine, and what to do about it.

use crate::judgement::{DisturbedCase, Judgement};
use regatta_core::record::disturbance::{Disturbance, told, worst};
use regatta_worker::units::counted;

/// Cases whose times the machine was in.
pub fn disturbed(judgement: &Judgement) -> Option<String> {
    let head = of_side(judgement, false);
    let by = by(&head);
    let first = by.first()?;
    Some(format!(
        "{} {} not judged because of the machine: {} in {}; {}",
        counted(head.len(), "case"),
        if head.len() == 1 { "is" } else { "are" },
        told(&by),
        most(&head),
        first.advice(),
    ))
}

/// The same of what they were to be held against.
pub fn base_disturbed(judgement: &Judgement) -> Option<String> {
    let base = of_side(judgement, true);
    let by = by(&base);
    // Measured in turn, both are to be measured again, which the head's sentence says.
    let told_already = judgement.in_turn && !of_side(judgement, false).is_empty();
    let first = by.first().filter(|_| !told_already)?;
    let advice = match judgement.in_turn {
        true => first.advice(),
        false => "save it anew from a run on quiet ground",
    };
    Some(format!(
        "the base's times of {} are the machine's: {} in {}; {advice}",
        counted(base.len(), "case"),
        told(&by),
        most(&base),
    ))
}

fn of_side(judgement: &Judgement, base: bool) -> Vec<&DisturbedCase> {
    let all = judgement.disturbed.iter();
    all.filter(|case| case.base == base).collect()
}

fn by(cases: &[&DisturbedCase]) -> Vec<Disturbance> {
    worst(cases.iter().flat_map(|case| &case.by))
}

/// `5 of 5 invocations`, of the case that had most.
fn most(cases: &[&DisturbedCase]) -> String {
    let share = |case: &&&DisturbedCase| 1000 * case.invocations / case.of.max(1);
    let most = cases.iter().max_by_key(share);
    most.map_or(String::new(), |case| {
        format!("{} of {}", case.invocations, counted(case.of, "invocation"))
    })
}
