//! The machine, not the code: its clock, what held that back, who else was there. And what
//! surrounds the same launches: another library or compiler, or nothing that is known.

use super::facts::{Facts, Found};
use crate::judgement::{Cause, Difference, Fact};
use regatta_core::machine::Sides;
use regatta_core::record::side::Conditions;
use regatta_worker::units::{Ratio, Share};

/// Smaller differences of the clock are its resolution.
const SMALLEST: f64 = 0.01;

/// The device ran at another clock, which moved the way the time did, far enough to explain
/// at least half of it. Work bound by memory slows less than its clock, so more than all of
/// a change may be explained.
pub fn clock(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let Sides { base, head } = pair.clock_mhz()?;
    if !facts.moved() || !facts.of_device() || (head / base - 1.0).abs() < SMALLEST {
        return None;
    }
    let share = (base / head).ln() / facts.ratio.0.ln();
    if !(0.5..=2.0).contains(&share) {
        return None;
    }
    let mhz = Sides::new(base, head);
    let part = Share(share.min(1.0));
    let of_it = format!("which accounts for {part} of the change: the machine, not the code");
    let told = vec![Difference::Clock { mhz }.into(), Fact::words(&of_it)];
    let cause = match head < base {
        true => Cause::LowerClock,
        false => Cause::HigherClock,
    };
    let order = unless_restructured(facts, 0.9, 0.6) * share.min(1.0);
    Some(Found::new(cause, told, order))
}

/// A change of structure explains better than a condition that came with it.
fn unless_restructured(facts: &Facts, alone: f64, beside: f64) -> f64 {
    match facts.same_structure() {
        true => alone,
        false => beside,
    }
}

/// The conditions of the slower record and of the faster, where time moved and a share of
/// the slower one's invocations is larger than the same share of the faster one's.
fn disturbed<'a>(
    facts: &Facts<'a>,
    share: fn(&Conditions) -> Share,
) -> Option<(&'a Conditions, &'a Conditions)> {
    let pair = facts.call()?;
    let (base, head) = (&pair.base.conditions, &pair.head.conditions);
    let (slower, faster) = match facts.ratio > Ratio::ONE {
        true => (head, base),
        false => (base, head),
    };
    let known = faster.known > 0 && facts.of_device();
    let more = share(slower) > share(faster);
    (facts.moved() && known && more).then_some((slower, faster))
}

/// The device held its clocks back. The clock that is read between samples need not show it:
/// a board at its power limit lowers its clock under load alone.
pub fn throttled(facts: &Facts) -> Option<Found> {
    let (slower, faster) = disturbed(facts, Conditions::throttled_share)?;
    let reasons: Vec<&str> = slower.throttle_reasons.iter().map(String::as_str).collect();
    let told = Fact::Condition {
        what: "the device held its clocks back".to_owned(),
        detail: reasons.join(", "),
        slower: (slower.throttled, slower.known),
        faster: (faster.throttled, faster.known),
    };
    let order = unless_restructured(facts, 0.8, 0.5);
    Some(Found::new(Cause::Throttled, vec![told], order))
}

/// Other processes computed on the device.
pub fn shared_device(facts: &Facts) -> Option<Found> {
    let (slower, faster) = disturbed(facts, Conditions::shared_share)?;
    let told = Fact::Condition {
        what: "other processes computed on the device".to_owned(),
        detail: format!("up to {}", slower.other_processes),
        slower: (slower.shared, slower.known),
        faster: (faster.shared, faster.known),
    };
    let order = unless_restructured(facts, 0.8, 0.5);
    Some(Found::new(Cause::SharedDevice, vec![told], order))
}

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
    let mut told: Vec<Fact> = named
        .map(|one| Difference::Version((*one).clone()).into())
        .collect();
    if versions.len() > NAMED {
        told.push(Fact::words(&format!("and {} more", versions.len() - NAMED)));
    }
    let equal = same_structure(facts);
    if equal {
        told.push(Fact::words("structure unchanged"));
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
    equal.then(|| Found::new(Cause::Environment, vec![Fact::words(told)], 0.5))
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
