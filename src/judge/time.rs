//! The rule for times: screen, confirm, and one of four words.
//!
//! The values are medians of invocations; single samples are no evidence, because
//! samples of one process share its luck. With a floor of 5 %:
//!
//! - A case is **suspected** when the exact Mann-Whitney p of its invocations is
//!   at most 0.10, which is 0.05 in each direction (or the smallest their number
//!   allows), and the Hodges-Lehmann ratio lies beyond the floor. Being suspected
//!   costs fresh invocations, nothing else.
//! - With fresh invocations only these count, on the head's side at least: p at
//!   most 0.05 after Holm's correction over all cases that have them, and the ratio
//!   beyond the floor, is *regressed* or *improved*. A regression thus has to show
//!   twice, and a sweep of hundreds of cases stays below 5 % false alarms
//!   (`tests/judge_rates.rs`).
//! - Without fresh invocations the bar is p at most 0.01 instead. Four against four
//!   cannot get there: they must not overlap at all, with the whole interval
//!   beyond the floor.
//! - With fresh invocations, sides that do not overlap at all, with the whole interval
//!   beyond the floor, are called whatever Holm says: where a hundred cases are
//!   slower at once, his correction would make the gate blind to all of them.
//! - Either way three against three suffice for a factor of two between the
//!   slowest of one side and the fastest of the other. Holm over many cases, or
//!   few invocations, must not make the gate blind to a hundredfold slowdown.
//! - Two against two suffice for a factor of four: what lies many times beyond needs no
//!   statistics, and what one invocation alone shows is not called.
//! - *Same* needs proof: the whole interval within the floor, at 90 % coverage or
//!   more, which is equivalence by two one-sided tests at 5 % (Schuirmann 1987).
//! - All else is *inconclusive*, with the reason. One that reads slower, beyond the floor,
//!   **looks worse**: it gets fresh invocations whatever its p, and if these do not decide
//!   either, the run does not pass.
//! - Fresh invocations that did not all come to a time (a crash, a gate that was stopped)
//!   decide nothing: the screen stands, and is not called *same*.
//!
//! Simulated sweeps of 200 cases with five invocations a side and ten fresh ones find
//! a change of 10 % in more than 95 of 100 cases, or more than 80 on a machine that
//! runs in two modes. Two stored runs, with nothing fresh, alarm falsely more often
//! when the machine is noisy, and the judgement says that nothing was confirmed.
//!
//! "Beyond the floor" is symmetric in logarithms: above `1 + floor` or below
//! `1 / (1 + floor)`.

use super::complete::usable;
use super::floor::beyond;
use super::judgement::{Change, CommonShift, Stage, Word};
use super::reasons;
use super::shift::common_shift;
use super::statistics::holm_adjusted;
use super::values::{CONFIRM_P, SCREEN_P, UNCONFIRMED_P, Values, reaches};
use crate::record::side::CaseRecord;
use crate::units::{Probability, Ratio, Share};

/// What the times of one case say.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Regressed, improved, same or inconclusive.
    pub word: Word,
    /// Why.
    pub reason: Option<String>,
    /// The figures.
    pub change: Change,
    /// True when it is slower beyond the floor, as it looks, and nothing decided it.
    pub looks_worse: bool,
}

/// True when the figures of a screen warrant fresh invocations: a change is suspected, or
/// something looks worse and was not decided.
pub fn suspicious(change: &Change, looks_worse: bool, floor: Share) -> bool {
    let suspected = reaches(change.p, SCREEN_P.max(change.reachable_p));
    beyond(change.ratio, floor) && (suspected || looks_worse)
}

/// Judges the times of all cases together: the common shift, then each case.
/// Pairs are base and head, each with at least one usable time.
///
/// The shift is estimated from the screen, where every case takes part, and divided
/// out of fresh invocations too: those of a few suspects cannot tell a drift.
pub fn compare(
    pairs: &[(&CaseRecord, &CaseRecord)],
    floor: Share,
) -> (Option<CommonShift>, Option<String>, Vec<Compared>) {
    let screened = pairs.iter().map(|(base, head)| {
        Values::of(&base.device_ns, &head.device_ns, Ratio::ONE).map(|values| values.estimate.ratio)
    });
    let ratios: Vec<Ratio> = screened.flatten().collect();
    let (shift, note) = common_shift(&ratios, floor);
    let divisor = shift.filter(|s| s.removed).map_or(Ratio::ONE, |s| s.ratio);
    let evidence: Vec<Evidence> = pairs
        .iter()
        .map(|(base, head)| Evidence::of(base, head, divisor))
        .collect();
    let confirming = evidence.iter().filter_map(|e| e.confirm.as_ref());
    let p: Vec<f64> = confirming.map(|values| values.p.0).collect();
    let mut adjusted = holm_adjusted(&p).into_iter().map(Probability);
    let together = p.len();
    let compared = evidence.iter().map(|evidence| match &evidence.confirm {
        Some(fresh) => {
            let adjusted = adjusted.next().unwrap_or(Probability(1.0));
            confirmed(fresh, &evidence.screen, adjusted, together, floor)
        }
        None => unconfirmed(&evidence.screen, evidence.lost, floor),
    });
    (shift, note, compared.collect())
}

/// What is known of one case.
struct Evidence<'a> {
    screen: Values,
    confirm: Option<Values>,
    /// Why fresh invocations decide nothing, where they were to.
    lost: Option<&'a str>,
}

impl<'a> Evidence<'a> {
    /// Fresh values of the head are held against fresh ones of the base where it
    /// has any (both were measured side by side), else against those it has.
    fn of(base: &CaseRecord, head: &'a CaseRecord, divisor: Ratio) -> Evidence<'a> {
        let fresh_base = if usable(&base.confirm_ns).is_empty() {
            &base.device_ns
        } else {
            &base.confirm_ns
        };
        let screen = Values::of(&base.device_ns, &head.device_ns, divisor);
        let lost = head.unconfirmed.as_ref().map(|lost| lost.reason.as_str());
        let fresh = || Values::of(fresh_base, &head.confirm_ns, divisor);
        Evidence {
            screen: screen.unwrap_or_else(Values::none),
            confirm: if lost.is_none() { fresh() } else { None },
            lost,
        }
    }
}

fn direction(ratio: Ratio) -> Word {
    if ratio > Ratio::ONE {
        Word::Regressed
    } else {
        Word::Improved
    }
}

fn confirmed(
    fresh: &Values,
    screen: &Values,
    adjusted: Probability,
    together: usize,
    floor: Share,
) -> Compared {
    let change = fresh.change(Stage::Confirm, floor, CONFIRM_P.among(together));
    let counts = beyond(change.ratio, floor);
    let (word, reason) = if counts && reaches(adjusted, CONFIRM_P) {
        (direction(change.ratio), None)
    } else if counts && (fresh.unmistakable() || fresh.separated(floor)) {
        (direction(change.ratio), Some(reasons::unmistakable(fresh)))
    } else if fresh.equivalent(floor) {
        (Word::Same, Some(reasons::withdrawn(screen, fresh)))
    } else {
        let reason = reasons::not_confirmed(screen, fresh, adjusted, together, floor);
        (Word::Inconclusive, Some(reason))
    };
    Compared::new(word, reason, change, floor)
}

fn unconfirmed(screen: &Values, lost: Option<&str>, floor: Share) -> Compared {
    let change = screen.change(Stage::Screen, floor, UNCONFIRMED_P);
    let counts = beyond(change.ratio, floor);
    let (word, reason) = if counts && reaches(change.p, UNCONFIRMED_P) {
        (direction(change.ratio), None)
    } else if counts && (screen.unmistakable() || screen.fully_apart(floor)) {
        (direction(change.ratio), Some(reasons::unmistakable(screen)))
    } else if screen.equivalent(floor) && lost.is_none() {
        (Word::Same, None)
    } else {
        (Word::Inconclusive, Some(reasons::undecided(screen, floor)))
    };
    let reason = match (lost, reason) {
        (Some(lost), Some(said)) => Some(format!("{said}; it was to be confirmed: {lost}")),
        (Some(lost), None) => Some(format!("it was to be confirmed: {lost}")),
        (None, reason) => reason,
    };
    Compared::new(word, reason, change, floor)
}

impl Compared {
    fn new(word: Word, reason: Option<String>, change: Change, floor: Share) -> Compared {
        Compared {
            looks_worse: word == Word::Inconclusive && change.ratio > Ratio::grown_by(floor),
            word,
            reason,
            change,
        }
    }
}

#[cfg(test)]
mod tests;
