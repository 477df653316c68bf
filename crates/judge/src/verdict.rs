//! What follows from all of it: an outcome and its reasons.

pub(super) mod families;
mod machine;
mod metrics;
mod sentences;
mod suite;
mod tuned;

use super::judgement::{ExpectationResult, Judgement, Row, Verdict, VerdictOutcome};
pub use sentences::another_suite;
use sentences::{held, is_not_shown, is_open, rows};

use regatta_worker::units::{Ratio, Share, counted};

/// How strictly to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What is inconclusive is not judged, instead of passed.
    pub strict: bool,
    /// Another suite is another experiment, and refused.
    pub same_suite: bool,
    /// Without a base there is nothing to pass by.
    pub wants_base: bool,
    /// Invocations come in batches, and each look at them is paid for: a gate. Two stored
    /// runs are looked at once.
    pub batches: bool,
}

impl Options {
    /// A gate: a run against a baseline of its suite, in batches.
    pub fn gate(strict: bool) -> Options {
        Options {
            strict,
            same_suite: true,
            wants_base: true,
            batches: true,
        }
    }

    /// Two versions that are measured for it, in batches.
    pub fn comparison(strict: bool) -> Options {
        Options {
            same_suite: false,
            ..Options::gate(strict)
        }
    }
}

/// Combines everything that was found, gravest first. A failure outranks what was
/// not judged: one regression in an incomplete run is a regression.
pub fn verdict(judgement: &Judgement, options: &Options) -> Verdict {
    let failures = [
        sentences::faulty(judgement),
        sentences::broken(judgement),
        sentences::over_limit(judgement),
        sentences::regressed(judgement),
        suite::regressed(judgement),
        metrics::regressed(judgement),
        sentences::restructured(judgement),
        tuned::otherwise(judgement),
    ];
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let no_base = options.wants_base && judgement.base.is_none();
    let gaps = [
        no_base.then(|| "there is no baseline to hold it against".to_owned()),
        sentences::incomparable(judgement),
        machine::disturbed(judgement),
        machine::base_disturbed(judgement),
        tuned::several_times(judgement),
        sentences::nothing(judgement),
        sentences::not_measured(judgement),
        suite::all_slower(judgement),
        sentences::removed(judgement),
        sentences::not_judged(judgement),
        sentences::unlimited(judgement),
        sentences::unconfirmed(judgement),
        sentences::look_worse(judgement),
        metrics::look_worse(judgement),
        sentences::unsighted(judgement),
        sentences::expectations_look_worse(judgement),
        sentences::uncounted(judgement),
    ];
    let open = [
        sentences::inconclusive(judgement),
        sentences::open_expectations(judgement),
    ];
    let open = open.into_iter().filter(|_| options.strict);
    let gaps = gaps.into_iter().chain(open).flatten();
    let mut gaps: Vec<String> = gaps.chain(judgement.gaps.iter().cloned()).collect();
    let outcome = match (failures.is_empty(), gaps.is_empty()) {
        (false, _) => VerdictOutcome::Failed,
        (true, false) => VerdictOutcome::NotJudged,
        (true, true) => VerdictOutcome::Passed,
    };
    let mut reasons = failures;
    reasons.append(&mut gaps);
    Verdict {
        outcome,
        reasons,
        undecided: undecided(judgement),
    }
}

/// What was not decided and does not look worse, and how large a change could be in it that
/// nobody has seen: the end of its interval, or what so few invocations could have shown.
fn undecided(judgement: &Judgement) -> Option<String> {
    let any = Share(f64::INFINITY);
    let hidden_in_row = |row: &&Row| match &row.change {
        Some(change) => change.smallest_effect.max(change.high.growth()),
        None => any,
    };
    // So few invocations call a breach from twice the limit on.
    let few = judgement.head.invocations < 5;
    let hidden_in_expectation = |result: &&ExpectationResult| match result.high {
        Some(high) if few => ((high / result.within).max(Ratio::ONE) * 2.0).growth(),
        Some(high) => (high / result.within).growth(),
        None => any,
    };
    let told = |what: &str, how: &str, sizes: Vec<Share>| {
        let most = sizes.iter().copied().fold(Share(0.0), Share::max);
        let size = match most.is_finite() {
            true => format!("up to {most}"),
            false => "of any size".to_owned(),
        };
        let all = || {
            format!(
                "{} {how} {size} could have hidden",
                counted(sizes.len(), what)
            )
        };
        (!sizes.is_empty()).then(all)
    };
    let cases = rows(judgement, is_open);
    let expectations = held(judgement, is_not_shown);
    let parts = [
        told(
            "case",
            "undecided, a change",
            cases.iter().map(hidden_in_row).collect(),
        ),
        told(
            "expectation",
            "not shown to hold, a breach",
            expectations.iter().map(hidden_in_expectation).collect(),
        ),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
