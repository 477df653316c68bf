//! What follows from all of it: an outcome and its reasons.

use crate::judgement::{
    ExpectationResult, Judgement, Mismatch, Row, Uncounted, Verdict, VerdictOutcome, Word, tally,
};
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Action;
use regatta_worker::units::{Ratio, Share, counted};

/// How to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Another suite is another experiment, and refused.
    pub same_suite: bool,
    /// Without a base there is nothing to pass by.
    pub wants_base: bool,
    /// No more invocations follow.
    pub last: bool,
}

impl Options {
    /// A run alone: what its suite expects.
    pub const ALONE: Options = Options {
        same_suite: false,
        wants_base: false,
        last: true,
    };

    /// A run against a baseline of its suite.
    pub const GATE: Options = Options {
        same_suite: true,
        wants_base: true,
        last: true,
    };

    /// Two versions that are measured for it.
    pub const COMPARISON: Options = Options {
        same_suite: false,
        wants_base: true,
        last: true,
    };
}

/// Combines everything that was found, gravest first. A failure outranks what is missing or
/// inconclusive: one regression in an incomplete run is a regression.
pub fn verdict(judgement: &Judgement, options: &Options) -> Verdict {
    let failures = [
        errors(judgement),
        violated(judgement),
        regressed(judgement),
        worse_structure(judgement),
    ];
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let no_base = options.wants_base && judgement.base.is_none();
    let gaps = [
        no_base.then(|| "there is no baseline to compare it with".to_owned()),
        nothing(judgement),
        missing(judgement),
        expectations_missing(judgement),
        inconclusive(judgement),
        expectations_inconclusive(judgement),
    ];
    let gaps = incomparable(&judgement.incomparable).chain(gaps.into_iter().flatten());
    let mut gaps: Vec<String> = gaps.chain(judgement.gaps.iter().cloned()).collect();
    let outcome = match (failures.is_empty(), gaps.is_empty()) {
        (false, _) => VerdictOutcome::Failed,
        (true, false) => VerdictOutcome::Inconclusive,
        (true, true) => VerdictOutcome::Passed,
    };
    let mut reasons = failures;
    reasons.append(&mut gaps);
    Verdict {
        outcome,
        reasons,
        shown: shown(judgement),
    }
}

/// What was shown of how many cases, and how: `48 same, 2 inconclusive (at most +2.9 %); 40 by
/// pairs, 10 against the stored run`.
fn shown(judgement: &Judgement) -> String {
    let compared = judgement.base.is_some() && judgement.incomparable.is_empty();
    let rows = judgement.rows.iter();
    let open = rows.clone().filter(|row| row.word == Word::Inconclusive);
    let most = open.filter_map(|row| Some(row.first_metric()?.change.high?.growth()));
    let most = most.fold(Share(0.0), Share::max);
    let words = tally(rows.map(|row| row.word)).into_iter();
    let told = words.map(|(word, number)| {
        let name = match (word, compared) {
            (Word::New, false) => "measured",
            (word, _) => word.text(),
        };
        match word == Word::Inconclusive && most > Share(0.0) {
            true => format!("{number} {name} (at most +{most})"),
            false => format!("{number} {name}"),
        }
    });
    let told: Vec<String> = told.collect();
    let mut told = told.join(", ");
    let compared = || judgement.rows.iter().filter_map(|row| row.change());
    let pairs = compared().filter(|change| change.paired).count();
    let stored = compared().count() - pairs;
    match (pairs, stored) {
        (0, 0) => {}
        (_, 0) => told += "; by pairs",
        (0, _) => told += "; against a stored run",
        _ => told += &format!("; {pairs} by pairs, {stored} against a stored run"),
    }
    // What is disturbed is the same by its CPU time alone.
    let by_cpu = judgement.rows.iter().filter(|row| {
        let device = row.metric(Metric::Device);
        row.word == Word::Same && device.is_some_and(|of| of.disturbed && of.word == Word::Same)
    });
    match by_cpu.count() {
        0 => {}
        by_cpu => told += &format!(", {by_cpu} by CPU time"),
    }
    let demands = tally(judgement.expectations.iter().map(|of| of.word));
    if !demands.is_empty() {
        let each = demands.into_iter();
        let each = each.map(|(word, number)| format!("{number} {}", word.of_demand()));
        told += &format!("; expectations: {}", each.collect::<Vec<_>>().join(", "));
    }
    if let Some(filter) = &judgement.head.filter {
        told += &format!("; {filter}");
    }
    told + &restructured(judgement).unwrap_or_default()
}

/// Structure that changed where no time got worse: `; structure changed in 2 cases, first CASE:
/// launches 1 → 3 of flash`.
fn restructured(judgement: &Judgement) -> Option<String> {
    let as_fast = |row: &&Row| matches!(row.word, Word::Same | Word::Improved);
    let changed = judgement.rows.iter().filter(as_fast).filter_map(|row| {
        let first = row.structure_at(Action::Warn).next()?;
        Some((row, first))
    });
    let changed: Vec<_> = changed.collect();
    let (row, change) = changed.first()?;
    let number = counted(changed.len(), "case");
    Some(format!(
        "; structure changed in {number}, first {}: {change}",
        row.case
    ))
}

const UNKNOWN: &str = "no reason is known";

fn rows(judgement: &Judgement, which: impl Fn(&Row) -> bool) -> Vec<&Row> {
    judgement.rows.iter().filter(|row| which(row)).collect()
}

fn expectations(
    judgement: &Judgement,
    which: impl Fn(&ExpectationResult) -> bool,
) -> Vec<&ExpectationResult> {
    let results = judgement.expectations.iter();
    results.filter(|result| which(result)).collect()
}

fn worst<'a, T>(of: &[&'a T], by: fn(&T) -> Ratio) -> Option<&'a T> {
    of.iter().copied().max_by(|a, b| by(a).total_cmp(&by(b)))
}

/// The ratio of the metric that a reader is to see first.
fn ratio(row: &Row) -> Ratio {
    let first = row.first_metric();
    first.map_or(Ratio::ONE, |of| of.change.ratio)
}

fn or<'a>(reason: &'a Option<String>, otherwise: &'a str) -> &'a str {
    reason.as_deref().unwrap_or(otherwise)
}

/// A wrong result, a crash or a hang is worse than anything that takes longer.
fn errors(judgement: &Judgement) -> Option<String> {
    let mut rows = judgement.rows.iter();
    let first = rows.find(|row| row.word == Word::Error)?;
    Some(format!(
        "first error {}: {}",
        first.case,
        or(&first.reason, UNKNOWN)
    ))
}

/// Expectations that are shown to be violated.
fn violated(judgement: &Judgement) -> Option<String> {
    let violated = expectations(judgement, |result| result.word == Word::Regressed);
    let worst = worst(&violated, ExpectationResult::excess)?;
    let of = match (&worst.against, &worst.reason) {
        (Some(against), _) => format!(", against {against}"),
        (None, Some(reason)) => format!(" ({reason})"),
        (None, None) => String::new(),
    };
    Some(format!(
        "worst violated expectation `{}`: {} {}{of}",
        worst.name,
        worst.subject(),
        worst.sentence(),
    ))
}

/// Cases of which a metric is shown to be worse.
fn regressed(judgement: &Judgement) -> Option<String> {
    let regressed = rows(judgement, |row| row.regressed().next().is_some());
    let worst = worst(&regressed, ratio)?;
    let first = worst.regressed().next()?;
    let how = match first.metric {
        Metric::Device => format!("{} times as long", first.change.ratio.times()),
        _ => first.sentence(),
    };
    Some(format!("worst regression {}: {how}", worst.case))
}

/// Structures that changed as the suite does not allow.
fn worse_structure(judgement: &Judgement) -> Option<String> {
    let mut rows = judgement.rows.iter();
    let first = rows.find(|row| row.fails_by_structure())?;
    let change = first.structure_at(Action::Fail).next()?;
    Some(format!("first worse structure {}: {change}", first.case))
}

/// Hard facts in which the sides differ, a sentence each.
pub fn incomparable(differences: &[Mismatch]) -> impl Iterator<Item = String> {
    differences.iter().map(|of| {
        let Mismatch { field, base, head } = of;
        format!("not comparable: {field} {base} → {head}")
    })
}

/// A run in which nothing could have gone wrong must not pass.
fn nothing(judgement: &Judgement) -> Option<String> {
    let any = |test: fn(&Row) -> bool| judgement.rows.iter().any(test);
    let comparable = judgement.base.is_some() && judgement.incomparable.is_empty();
    if judgement.structure_only {
        let counted = any(|row| matches!(row.word, Word::Same | Word::Regressed | Word::New));
        return match (counted, comparable && !any(|row| row.structure.is_some())) {
            (false, _) => Some("no structure was counted".to_owned()),
            (true, true) => Some("no case has a structure on both sides".to_owned()),
            (true, false) => None,
        };
    }
    if !any(|row| row.head.is_some()) {
        return Some(format!("nothing was measured{}", first_refusal(judgement)));
    }
    let compared = any(|row| row.change().is_some());
    (comparable && !compared).then(|| "no case was measured on both sides".to_owned())
}

/// `: CASE is skipped: REASON`, of the first case with a reason.
fn first_refusal(judgement: &Judgement) -> String {
    let mut refused = judgement.rows.iter().filter_map(|row| {
        let reason = row.reason.as_ref()?;
        Some(format!(": {} is {}: {reason}", row.case, row.word.text()))
    });
    refused.next().unwrap_or_default()
}

/// Cases that were to be measured, or their structure counted, and were not. Of two suites, a
/// case that is gone is what makes them two.
fn missing(judgement: &Judgement) -> Option<String> {
    let gone = |row: &Row| row.head.is_none() && another_suite(judgement);
    let missing = |row: &Row| row.word == Word::Missing && !gone(row) || lacks_structure(row);
    let mut rows = judgement.rows.iter();
    let first = rows.find(|row| missing(row))?;
    let why = match lacks_structure(first) {
        true => Uncounted::sentence(&first.uncounted).unwrap_or_default(),
        false => or(&first.reason, UNKNOWN).to_owned(),
    };
    Some(format!("first missing case {}: {why}", first.case))
}

/// True where nobody can say whether its structure is what it was.
fn lacks_structure(row: &Row) -> bool {
    !row.uncounted.is_empty() && !row.allowed
}

/// True when the base was measured under another suite.
fn another_suite(judgement: &Judgement) -> bool {
    let base = judgement.base.as_ref();
    base.is_some_and(|base| base.suite != judgement.suite)
}

/// An expectation without a value is a gap, like a case without a time.
fn expectations_missing(judgement: &Judgement) -> Option<String> {
    let open = expectations(judgement, |result| result.word == Word::Missing);
    let first = open.first()?;
    Some(format!(
        "first expectation without a value `{}` on {}: {}",
        first.name,
        first.subject(),
        or(&first.reason, UNKNOWN),
    ))
}

/// Cases that may be worse, and were not decided: nothing to pass by.
fn inconclusive(judgement: &Judgement) -> Option<String> {
    let open = rows(judgement, Row::may_be_worse);
    let worst = worst(&open, ratio)?;
    Some(format!(
        "worst inconclusive case {}: {}",
        worst.case,
        or(&worst.reason, UNKNOWN),
    ))
}

/// The same of expectations.
fn expectations_inconclusive(judgement: &Judgement) -> Option<String> {
    let open = expectations(judgement, |result| result.may_be_worse);
    let worst = worst(&open, ExpectationResult::excess)?;
    Some(format!(
        "worst inconclusive expectation `{}`: {} {}: {}",
        worst.name,
        worst.subject(),
        worst.sentence(),
        or(&worst.reason, UNKNOWN),
    ))
}
