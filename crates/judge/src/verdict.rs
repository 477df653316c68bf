//! The verdict on a judgement: the outcome and its reasons.

use crate::judgement::{Judgement, Mismatch, Row, Uncounted, Verdict, VerdictOutcome, Word, tally};
use regatta_core::suite::{Action, Metric};
use regatta_worker::joined::Joined;
use regatta_worker::units::{Ratio, Share, counted};

/// The options of judging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A base of another suite is refused, because it is another experiment.
    pub same_suite: bool,
    /// A run without a base cannot pass.
    pub wants_base: bool,
    /// No more invocations follow.
    pub last: bool,
}

impl Options {
    /// The options for a run alone, which is judged by its suite's expectations.
    pub const ALONE: Options = Options {
        same_suite: false,
        wants_base: false,
        last: true,
    };

    /// The options for a run against a baseline of its suite.
    pub const GATE: Options = Options {
        same_suite: true,
        wants_base: true,
        last: true,
    };

    /// The options for two versions that are measured for their comparison.
    pub const COMPARISON: Options = Options {
        same_suite: false,
        wants_base: true,
        last: true,
    };
}

/// Combines all results, the most severe first. A failure outranks missing and inconclusive cases:
/// a regression in an incomplete run is a regression.
pub fn verdict(judgement: &Judgement, options: &Options) -> Verdict {
    let mut reasons = failures(judgement);
    let mut gaps: Vec<String> = incomparable(&judgement.incomparable).collect();
    if options.wants_base && judgement.base.is_none() {
        gaps.push("there is no baseline to compare it with".to_owned());
    }
    gaps.extend(nothing(judgement));
    gaps.extend(open(judgement));
    gaps.extend(judgement.gaps.iter().cloned());
    let outcome = match (reasons.is_empty(), gaps.is_empty()) {
        (false, _) => VerdictOutcome::Failed,
        (true, false) => VerdictOutcome::Inconclusive,
        (true, true) => VerdictOutcome::Passed,
    };
    reasons.append(&mut gaps);
    Verdict {
        outcome,
        reasons,
        shown: shown(judgement),
    }
}

/// The number of cases by verdict, and the method: `48 same, 2 inconclusive (at most +2.9 %); 40 by
/// pairs, 10 against the stored run`.
fn shown(judgement: &Judgement) -> String {
    let compared = judgement.is_comparison();
    let rows = judgement.rows.iter();
    let open = rows.clone().filter(|row| row.word == Word::Inconclusive);
    let highest = open.filter_map(|row| {
        let metric = row.first_metric()?;
        let growth = metric.change.high?.growth();
        (growth > Share(0.0)).then_some((growth, metric.metric))
    });
    let highest = highest.max_by(|one, other| one.0.0.total_cmp(&other.0.0));
    let words = tally(rows.map(|row| row.word)).into_iter();
    let summary = words.map(|(word, number)| {
        let name = word.of_case(compared);
        match highest.filter(|_| word == Word::Inconclusive) {
            Some((most, Metric::Device)) => format!("{number} {name} (at most +{most})"),
            Some((most, metric)) => {
                format!("{number} {name} ({} at most +{most})", metric.text())
            }
            None => format!("{number} {name}"),
        }
    });
    let mut summary = summary.joined(", ");
    if compared && judgement.rows.iter().all(|row| row.word == Word::New) {
        summary += "; nothing was compared";
    }
    let compared = || judgement.rows.iter().filter_map(|row| row.change());
    let pairs = compared().filter(|change| change.paired).count();
    let stored = compared().count() - pairs;
    match (pairs, stored) {
        (0, 0) => {}
        (_, 0) => summary += "; by pairs",
        (0, _) => summary += "; against a stored run",
        _ => summary += &format!("; {pairs} by pairs, {stored} against a stored run"),
    }
    let by_cpu = judgement.rows.iter().filter(|row| {
        let device = row.metric(Metric::Device);
        device.is_some_and(|device| device.change.by_cpu_time)
    });
    match by_cpu.count() {
        0 => {}
        by_cpu => summary += &format!(", {by_cpu} by CPU time"),
    }
    let demands = tally(judgement.expectations.iter().map(|result| result.word));
    if !demands.is_empty() {
        let each = demands.into_iter();
        let each = each.map(|(word, number)| format!("{number} {}", word.of_demand()));
        summary += &format!("; expectations: {}", each.joined(", "));
    }
    for option in judgement.head.filter.iter().chain(&judgement.head.changed) {
        summary += &format!("; {option}");
    }
    summary + &restructured(judgement).unwrap_or_default()
}

/// The largest upper end of the cases' intervals, for a judgement that passed; below 1 if each case
/// is faster.
pub fn largest_slowdown(judgement: &Judgement) -> Option<Ratio> {
    if judgement.verdict.outcome != VerdictOutcome::Passed {
        return None;
    }
    let mut most = None;
    for row in &judgement.rows {
        let Some(device) = row.metric(Metric::Device) else {
            continue;
        };
        let high = row.deciding(device).change.high?;
        most = Some(most.map_or(high, |most: Ratio| most.max(high)));
    }
    most.filter(|most| most.0.is_finite())
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

fn why(reason: &Option<String>) -> &str {
    reason.as_deref().unwrap_or("no reason is known")
}

fn worst<T>(items: impl Iterator<Item = T>, by: impl Fn(&T) -> Ratio) -> Option<T> {
    items.max_by(|a, b| by(a).total_cmp(&by(b)))
}

/// The failures, one sentence for each kind. A wrong result, a crash or a hang comes before
/// anything that takes longer.
fn failures(judgement: &Judgement) -> Vec<String> {
    let rows = || judgement.rows.iter();
    let error = rows().find(|row| row.word == Word::Error);
    let error = error.map(|row| format!("first error {}: {}", row.case, why(&row.reason)));
    let violated = judgement.expectations.iter();
    let violated = violated.filter(|result| result.word == Word::Regressed);
    let violated = worst(violated, |result| result.excess()).map(|worst| {
        let compared_with = match (&worst.against, &worst.reason) {
            (Some(against), _) => format!(", against {against}"),
            (None, Some(reason)) => format!(" ({reason})"),
            (None, None) => String::new(),
        };
        let (name, subject, sentence) = (&worst.name, worst.subject(), worst.sentence());
        format!("worst violated expectation `{name}`: {subject} {sentence}{compared_with}")
    });
    let regressed = rows().filter_map(|row| Some((row, row.regressed().next()?)));
    let regressed = worst(regressed, |(row, _)| row.ratio()).map(|(row, first)| {
        let deciding = row.deciding(first);
        let how = match deciding.metric {
            Metric::Device => deciding.change_of_time(),
            _ => deciding.sentence(),
        };
        let finding = row.findings.first().map(ToString::to_string);
        let because = finding.or_else(|| row.added_runs().map(ToString::to_string));
        let because = because.map_or(String::new(), |words| format!("; {words}"));
        format!("worst regression {}: {how}{because}", row.case)
    });
    let structure = rows().find_map(|row| {
        let change = row.structure_at(Action::Fail).next()?;
        Some(format!("first worse structure {}: {change}", row.case))
    });
    let all = [error, violated, regressed, structure];
    all.into_iter().flatten().collect()
}

/// The first missing case and the worst inconclusive one, which keep the run from passing. Between
/// two suites, a case that is gone is only a difference of the suites.
fn open(judgement: &Judgement) -> impl Iterator<Item = String> {
    let rows = || judgement.rows.iter();
    let base = judgement.base.as_ref();
    let another_suite = base.is_some_and(|base| base.suite != judgement.suite);
    let missing = rows().find_map(|row| {
        let gone = row.head.is_none() && another_suite;
        let why = if !row.uncounted.is_empty() {
            Uncounted::sentence(&row.uncounted).unwrap_or_default()
        } else if row.word == Word::Missing && !gone {
            why(&row.reason).to_owned()
        } else {
            return None;
        };
        Some(format!("first missing case {}: {why}", row.case))
    });
    let expectations = || judgement.expectations.iter();
    let without_value = expectations().find(|result| result.word == Word::Missing);
    let without_value = without_value.map(|first| {
        let (name, subject, why) = (&first.name, first.subject(), why(&first.reason));
        format!("first expectation without a value `{name}` on {subject}: {why}")
    });
    let inconclusive = worst(rows().filter(|row| row.may_be_worse()), |row| row.ratio());
    let inconclusive = inconclusive.map(|worst| {
        let why = why(&worst.reason);
        format!("worst inconclusive case {}: {why}", worst.case)
    });
    let undecided = expectations().filter(|result| result.may_be_worse());
    let undecided = worst(undecided, |result| result.excess()).map(|worst| {
        let (name, subject, sentence) = (&worst.name, worst.subject(), worst.sentence());
        let why = why(&worst.reason);
        format!("worst inconclusive expectation `{name}`: {subject} {sentence}: {why}")
    });
    let all = [missing, without_value, inconclusive, undecided];
    all.into_iter().flatten()
}

/// A sentence for each hard fact in which the sides differ.
pub fn incomparable(differences: &[Mismatch]) -> impl Iterator<Item = String> {
    let differences = differences.iter();
    differences.map(|mismatch| format!("not comparable: {mismatch}"))
}

/// The reason why a run that compared nothing must not pass.
fn nothing(judgement: &Judgement) -> Option<String> {
    let any = |test: fn(&Row) -> bool| judgement.rows.iter().any(test);
    let comparable = judgement.is_comparison();
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
    // Against a revision without these cases, all of them are new.
    let new = judgement.paired && any(|row| row.word == Word::New);
    let compared = new || any(|row| row.change().is_some());
    (comparable && !compared).then(|| "no case was measured on both sides".to_owned())
}

/// `: CASE is skipped: REASON`, for the first case with a reason. Empty if an error or a missing
/// case has a sentence of its own.
fn first_refusal(judgement: &Judgement) -> String {
    let has_line = |row: &Row| matches!(row.word, Word::Error | Word::Missing);
    if judgement.rows.iter().any(has_line) {
        return String::new();
    }
    let mut refused = judgement.rows.iter().filter_map(|row| {
        let reason = row.reason.as_ref()?;
        Some(format!(": {} is {}: {reason}", row.case, row.word.name()))
    });
    refused.next().unwrap_or_default()
}
