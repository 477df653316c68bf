//! What surrounds the same launches: another library or compiler, or nothing that is known.

use super::facts::{Facts, Found};
use crate::judgement::{Cause, Fact};

/// Versions named in the evidence.
const NAMED: usize = 4;

/// Versions of the case's worker that changed, where time did too. Equal launches with other
/// versions leave the code inside the kernels; without a structure to compare, or with
/// another one, versions may only be the occasion.
pub fn versions(facts: &Facts) -> Option<Found> {
    let versions = &facts.call()?.versions;
    if versions.is_empty() || !facts.moved() {
        return None;
    }
    let named = versions.iter().take(NAMED);
    let mut told: Vec<Fact> = named.map(|one| Fact::Version((*one).clone())).collect();
    if versions.len() > NAMED {
        told.push(Fact::said(&format!("and {} more", versions.len() - NAMED)));
    }
    let equal = same_structure(facts);
    if equal {
        told.push(Fact::said("structure unchanged"));
    }
    // With equal instructions it is what surrounds them: `environment` says so.
    let order = if equal && !same_code(facts) { 0.6 } else { 0.4 };
    Some(Found::new(Cause::Toolchain, told, order))
}

/// The same instructions, launched alike, take another time: what surrounds them changed.
pub fn environment(facts: &Facts) -> Option<Found> {
    let equal = facts.moved() && same_code(facts) && same_structure(facts);
    let told = "the machine code and what is launched are the same: the environment, not the \
                code";
    // Below a clock, throttling or another process, which say what of the environment.
    equal.then(|| Found::new(Cause::Environment, vec![Fact::said(told)], 0.5))
}

/// True when both structures were counted, and no exact figure of them differs.
fn same_structure(facts: &Facts) -> bool {
    facts.structures().is_some() && facts.same_structure()
}

/// True when both sides ran the same instructions.
fn same_code(facts: &Facts) -> bool {
    let codes = facts.structures();
    let codes = codes.and_then(|(base, head)| base.code.as_ref().zip(head.code.as_ref()));
    codes.is_some_and(|(base, head)| base == head)
}
