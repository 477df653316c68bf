//! What follows from all of it: an outcome and its reasons.

pub(super) mod families;
mod sentences;

pub use sentences::another_suite;

use crate::judgement::{
    CommonShift, DisturbedCase, ExpectationResult, Judgement, MetricRow, Row, Tuner, Verdict,
    VerdictOutcome, Word,
};
use regatta_core::record::disturbance::{Disturbance, told, worst};
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Action;
use regatta_worker::units::{Ratio, Share, counted};
use sentences::{UNDECIDED, held, is_not_shown, is_of_several_times, is_open, or, rows};

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
        suite_regressed(judgement),
        metrics_regressed(judgement),
        sentences::restructured(judgement),
        otherwise(judgement),
    ];
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let no_base = options.wants_base && judgement.base.is_none();
    let gaps = [
        no_base.then(|| "there is no baseline to hold it against".to_owned()),
        sentences::incomparable(judgement),
        disturbed(judgement),
        base_disturbed(judgement),
        several_times(judgement),
        sentences::nothing(judgement),
        sentences::not_measured(judgement),
        all_slower(judgement),
        sentences::removed(judgement),
        sentences::not_judged(judgement),
        sentences::unlimited(judgement),
        sentences::unconfirmed(judgement),
        sentences::look_worse(judgement),
        metrics_look_worse(judgement),
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

/// Cases whose times the machine was in.
fn disturbed(judgement: &Judgement) -> Option<String> {
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
fn base_disturbed(judgement: &Judgement) -> Option<String> {
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

/// Metrics beside the device's time that got worse as the suite does not allow.
fn metrics_regressed(judgement: &Judgement) -> Option<String> {
    let parts = Metric::OTHERS.into_iter().filter_map(|metric| {
        let failed: Vec<(&Row, &MetricRow)> = of_metric(judgement, metric)
            .filter(|(_, of)| of.fails())
            .collect();
        let (row, worst) = failed
            .iter()
            .max_by(|(_, a), (_, b)| a.change.ratio.total_cmp(&b.change.ratio))?;
        Some(format!(
            "the {} of {} regressed, worst {}: {}",
            metric.text(),
            counted(failed.len(), "case"),
            row.case,
            worst.told(),
        ))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The same of those that look worse and were not decided.
fn metrics_look_worse(judgement: &Judgement) -> Option<String> {
    let parts = Metric::OTHERS.into_iter().filter_map(|metric| {
        let open: Vec<(&Row, &MetricRow)> = of_metric(judgement, metric)
            .filter(|(row, of)| row.word != Word::Regressed && of.looks_worse)
            .filter(|(_, of)| of.action == Action::Fail)
            .collect();
        let (row, first) = open.first()?;
        Some(format!(
            "the {} of {} looks worse and was not decided, first {}: {}; {}",
            metric.text(),
            counted(open.len(), "case"),
            row.case,
            first.told(),
            or(&first.reason, UNDECIDED),
        ))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn of_metric(judgement: &Judgement, metric: Metric) -> impl Iterator<Item = (&Row, &MetricRow)> {
    judgement.rows.iter().flat_map(move |row| {
        let own = row.metrics.iter().filter(move |of| of.metric == metric);
        own.filter(|_| !row.allowed).map(move |of| (row, of))
    })
}

/// Everything slower at once, beyond the floor, and nobody can say whether it is the code:
/// that is no reason to pass.
fn all_slower(judgement: &Judgement) -> Option<String> {
    let shift = judgement.common_shift.filter(|shift| shift.looks_worse)?;
    Some(format!(
        "{} of {} are slower together, in the middle {}: a change that all of them run \
         through, or the machine; sessions stored on other days, or the base measured again, \
         would tell",
        shift.sharing,
        counted(shift.cases, "case"),
        shift.ratio.told(),
    ))
}

/// The whole suite is slower beyond doubt: one thing, however many rows.
fn suite_regressed(judgement: &Judgement) -> Option<String> {
    let worse = |shift: &CommonShift| shift.word == Word::Regressed;
    let shift = judgement.common_shift.filter(worse)?;
    let rows = rows(judgement, |row| row.word == Word::Regressed);
    if rows.len() >= shift.sharing {
        // Beyond what a day does each case is told by itself.
        return None;
    }
    Some(format!(
        "the suite as a whole regressed: {} of {} are slower together, in the middle {}",
        shift.sharing,
        counted(shift.cases, "case"),
        shift.ratio.told(),
    ))
}

/// Cases that are worse, where a tuner chose otherwise.
fn otherwise(judgement: &Judgement) -> Option<String> {
    let worse = |row: &Row| row.word == Word::Regressed || row.fails_by_structure();
    let chosen = |row: &Row| row.tuner.as_ref().is_some_and(|of| !of.changed.is_empty());
    let rows = rows(judgement, |row| worse(row) && chosen(row));
    let (first, tuner) = first(&rows)?;
    Some(format!(
        "in {} the tuner chose otherwise, first {}: {}; what tells its choice from the code: {}",
        counted(rows.len(), "case"),
        first.case,
        tuner.chosen(),
        tuner.advice(&first.case),
    ))
}

/// Cases of several times.
fn several_times(judgement: &Judgement) -> Option<String> {
    let rows = rows(judgement, is_of_several_times);
    let (first, tuner) = first(&rows)?;
    Some(format!(
        "{} not judged, since a tuner chose now this, now that and the times lie apart by it, \
         first {}: {}; {}",
        match rows.len() {
            1 => "1 case is".to_owned(),
            number => format!("{number} cases are"),
        },
        first.case,
        tuner.unsteady.as_deref().unwrap_or_default(),
        tuner.advice(&first.case),
    ))
}

/// The first case that can be pinned, or else the first.
fn first<'a>(rows: &[&'a Row]) -> Option<(&'a Row, &'a Tuner)> {
    let tuned = || {
        rows.iter()
            .filter_map(|row| Some((*row, row.tuner.as_deref()?)))
    };
    let pinnable = tuned().find(|(_, tuner)| !tuner.pin.is_empty());
    pinnable.or_else(|| tuned().next())
}
