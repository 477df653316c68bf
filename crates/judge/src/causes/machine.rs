//! Causes outside the code: the clock frequency, throttling and other processes; a version of a
//! library or compiler; or an unknown change of the environment.

use super::facts::{Facts, Found};
use crate::judgement::{Cause, Difference, Fact};
use regatta_core::machine::Sides;
use regatta_core::record::Conditions;
use regatta_worker::joined::Joined;
use regatta_worker::units::{Ratio, Share};

/// The resolution of the clock frequency, as a relative difference.
const SMALLEST: f64 = 0.01;

/// Finds another clock frequency of the device, which explains the change of time at least by half.
/// Work that is bound by memory slows less than the clock, so the clock may explain more than the
/// whole change.
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
    let evidence = vec![Difference::Clock { mhz }.into(), Fact::Words(of_it)];
    let cause = if head < base {
        Cause::LowerClock
    } else {
        Cause::HigherClock
    };
    let order = unless_restructured(facts, 0.9, 0.6) * share.min(1.0);
    Some(Found::new(cause, evidence, order))
}

/// Lowers the order of a condition if the structure changed, since that explains a change better.
fn unless_restructured(facts: &Facts, alone: f64, beside: f64) -> f64 {
    if facts.same_structure() {
        alone
    } else {
        beside
    }
}

/// A condition under which a larger share of the slower side's invocations ran, if the time
/// changed.
fn condition(
    facts: &Facts,
    (cause, what): (Cause, &str),
    met: fn(&Conditions) -> u32,
    detail: fn(&Conditions) -> String,
) -> Option<Found> {
    let pair = facts.call()?;
    let (base, head) = (&pair.base.conditions, &pair.head.conditions);
    let (slower, faster) = if facts.ratio > Ratio::ONE {
        (head, base)
    } else {
        (base, head)
    };
    let known = slower.known > 0 && faster.known > 0 && facts.of_device();
    let more = u64::from(met(slower)) * u64::from(faster.known)
        > u64::from(met(faster)) * u64::from(slower.known);
    (facts.moved() && known && more).then(|| {
        let evidence = format!(
            "{what} in {} of {} invocations ({}), before in {} of {}: the machine, not the code",
            met(slower),
            slower.known,
            detail(slower),
            met(faster),
            faster.known
        );
        let order = unless_restructured(facts, 0.8, 0.5);
        Found::new(cause, vec![Fact::Figure(evidence)], order)
    })
}

/// Finds throttling. The clock that is read between samples need not show it: a board at its power
/// limit lowers its clock only under load.
pub fn throttled(facts: &Facts) -> Option<Found> {
    let cause = (Cause::Throttled, "the device held its clocks back");
    let reasons = |conditions: &Conditions| conditions.throttle_reasons.iter().joined(", ");
    condition(facts, cause, |conditions| conditions.throttled, reasons)
}

/// Finds other processes that used the device.
pub fn shared_device(facts: &Facts) -> Option<Found> {
    let words = "other processes computed on the device";
    let cause = (Cause::SharedDevice, words);
    let most = |conditions: &Conditions| format!("up to {}", conditions.other_processes);
    condition(facts, cause, |conditions| conditions.shared, most)
}

/// The largest number of versions in the evidence.
const MAX_NAMED: usize = 4;

/// Finds versions of the case's worker that changed together with the time. With equal launches,
/// only the code inside the kernels can differ. With another structure, or none to compare, the
/// versions may only be the occasion.
pub fn versions(facts: &Facts) -> Option<Found> {
    let versions = &facts.call()?.versions;
    if versions.is_empty() || !facts.moved() {
        return None;
    }
    let named = versions.iter().take(MAX_NAMED);
    let mut evidence: Vec<Fact> = named
        .map(|one| Difference::Version((*one).clone()).into())
        .collect();
    if versions.len() > MAX_NAMED {
        let more = versions.len() - MAX_NAMED;
        evidence.push(Fact::Words(format!("and {more} more")));
    }
    let equal = same_structure(facts);
    evidence.extend(equal.then(|| Fact::words("structure unchanged")));
    // With equal machine code, `environment` reports the change.
    let order = if equal && !same_code(facts) { 0.6 } else { 0.4 };
    Some(Found::new(Cause::Toolchain, evidence, order))
}

/// Finds a change of time with equal machine code and equal launches, for which the environment is
/// the reason.
pub fn environment(facts: &Facts) -> Option<Found> {
    let equal = facts.moved() && same_code(facts) && same_structure(facts);
    let sentence = "the machine code and what is launched are the same: the environment, not the \
                code";
    // It ranks below clock, throttling and other processes, which name the part of the environment.
    equal.then(|| Found::new(Cause::Environment, vec![Fact::words(sentence)], 0.5))
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
