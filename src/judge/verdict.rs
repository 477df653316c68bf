//! What follows from all of it: an outcome and its reasons.

use super::judgement::{
    Change, ExpectationResult, Held, Judgement, LimitResult, Row, Uncounted, Verdict,
    VerdictOutcome, Word,
};
use super::phrase::{change, count, factor, percent};
use crate::record::types::Fault;
use crate::suite::structural::Action;

/// How strictly to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What is inconclusive is not judged, instead of passed.
    pub strict: bool,
    /// Another suite is another experiment, and refused.
    pub same_suite: bool,
    /// Without a base there is nothing to pass by.
    pub wants_base: bool,
}

/// Combines everything that was found, gravest first. A failure outranks what was
/// not judged: one regression in an incomplete run is a regression.
pub fn verdict(judgement: &Judgement, options: &Options) -> Verdict {
    let failures = [
        faulty(judgement),
        broken(judgement),
        over_limit(judgement),
        regressed(judgement),
        restructured(judgement),
    ];
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let no_base = options.wants_base && judgement.base.is_none();
    let gaps = [
        no_base.then(|| "there is no baseline to hold it against".to_owned()),
        incomparable(judgement),
        nothing(judgement),
        not_measured(judgement),
        all_slower(judgement),
        removed(judgement),
        not_judged(judgement),
        unlimited(judgement),
        unconfirmed(judgement),
        look_worse(judgement),
        expectations_look_worse(judgement),
        uncounted(judgement),
    ];
    let open = [inconclusive(judgement), open_expectations(judgement)];
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

/// A wrong result, a crash or a hang is worse than anything that takes longer.
fn faulty(judgement: &Judgement) -> Option<String> {
    let faulty: Vec<&Row> = judgement
        .rows
        .iter()
        .filter(|row| row.is_faulty())
        .collect();
    let first = faulty.first()?;
    let counted = |fault: Fault, what: &str| {
        let number = faulty.iter().filter(|row| row.fault == fault).count();
        (number > 0).then(|| format!("{number} {what}"))
    };
    let each = [
        counted(Fault::WrongResult, "wrong"),
        counted(Fault::Crash, "crashed"),
        counted(Fault::Hang, "hung"),
    ];
    let each: Vec<String> = each.into_iter().flatten().collect();
    let reason = first.unconfirmed.as_deref().or(first.reason.as_deref());
    Some(format!(
        "{} failed ({}), first {}: {}",
        count(faulty.len(), "case"),
        each.join(", "),
        first.case,
        reason.unwrap_or("no reason is known"),
    ))
}

/// Suspects whose fresh invocations were not all taken, or came to nothing.
fn unconfirmed(judgement: &Judgement) -> Option<String> {
    let rows = judgement.rows.iter();
    let open: Vec<&Row> = rows
        .filter(|row| row.unconfirmed.is_some() && !row.allowed && !row.is_faulty())
        .collect();
    let first = open.first()?;
    Some(format!(
        "{} to be confirmed and not, first {}: {}",
        were(open.len(), "case"),
        first.case,
        first.unconfirmed.as_deref().unwrap_or_default(),
    ))
}

/// Slower, as it looks, and not decided: nothing to pass by.
fn look_worse(judgement: &Judgement) -> Option<String> {
    let rows: Vec<&Row> = judgement
        .rows
        .iter()
        .filter(|row| row.looks_worse)
        .collect();
    let worst = rows.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    Some(format!(
        "{} slower and {} not decided, worst {}: {}",
        match rows.len() {
            1 => "1 case looks".to_owned(),
            n => format!("{n} cases look"),
        },
        if rows.len() == 1 { "was" } else { "were" },
        worst.case,
        worst
            .reason
            .as_deref()
            .unwrap_or("the evidence decides neither way"),
    ))
}

fn expectations_look_worse(judgement: &Judgement) -> Option<String> {
    let open = judgement.expectations.iter();
    let open: Vec<&ExpectationResult> = open.filter(|result| result.looks_worse).collect();
    let worst = open.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)))?;
    Some(format!(
        "{} broken and {} not decided, worst `{}` on {}, {} times as long{} where {} is the \
         limit: {}",
        match open.len() {
            1 => "1 expectation looks".to_owned(),
            n => format!("{n} expectations look"),
        },
        if open.len() == 1 { "was" } else { "were" },
        worst.name,
        worst.case,
        factor(worst.ratio.unwrap_or(0.0)),
        worst.metric.of_host(),
        factor(worst.within),
        worst
            .reason
            .as_deref()
            .unwrap_or("the limit lies within the interval"),
    ))
}

/// What was not decided and does not look worse, and how large a change could be in it that
/// nobody has seen: the end of its interval, or what so few invocations could have shown.
fn undecided(judgement: &Judgement) -> Option<String> {
    let rows = rows(judgement, Word::Inconclusive);
    let rows: Vec<&Row> = rows.into_iter().filter(|row| !row.looks_worse).collect();
    let hidden_in_row = |row: &&Row| match &row.change {
        Some(change) => change.smallest_effect.max(change.high - 1.0),
        None => f64::INFINITY,
    };
    let open = held(judgement, Held::Inconclusive);
    let open: Vec<_> = open
        .into_iter()
        .filter(|result| !result.looks_worse)
        .collect();
    // So few invocations call a breach from twice the limit on.
    let few = judgement.head.invocations < 5;
    let hidden_in_expectation = |result: &&ExpectationResult| match result.high {
        Some(high) if few => 2.0 * (high / result.within).max(1.0) - 1.0,
        Some(high) => high / result.within - 1.0,
        None => f64::INFINITY,
    };
    let size = |sizes: Vec<f64>| {
        let most = sizes.into_iter().fold(0.0, f64::max);
        match most.is_finite() {
            true => format!("up to {}", percent(most)),
            false => "of any size".to_owned(),
        }
    };
    let mut parts = Vec::new();
    if !rows.is_empty() {
        let sizes = rows.iter().map(hidden_in_row).collect();
        parts.push(format!(
            "{} undecided, a change {} could have hidden",
            count(rows.len(), "case"),
            size(sizes)
        ));
    }
    if !open.is_empty() {
        let sizes = open.iter().map(hidden_in_expectation).collect();
        parts.push(format!(
            "{} not shown to hold, a breach {} could have hidden",
            count(open.len(), "expectation"),
            size(sizes)
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// `1 case was`, `2 cases were`.
fn were(number: usize, thing: &str) -> String {
    let verb = if number == 1 { "was" } else { "were" };
    format!("{} {verb}", count(number, thing))
}

fn rows(judgement: &Judgement, word: Word) -> Vec<&Row> {
    let rows = judgement.rows.iter();
    rows.filter(|row| row.word == word).collect()
}

fn ratio(row: &Row) -> f64 {
    row.change.as_ref().map_or(1.0, |change| change.ratio)
}

fn held(judgement: &Judgement, held: Held) -> Vec<&ExpectationResult> {
    let results = judgement.expectations.iter();
    results.filter(|result| result.held == held).collect()
}

/// How far beyond its limit.
fn excess(result: &ExpectationResult) -> f64 {
    result.ratio.unwrap_or(0.0) / result.within
}

fn broken(judgement: &Judgement) -> Option<String> {
    let broken = held(judgement, Held::Broken);
    let worst = broken
        .iter()
        .max_by(|a, b| excess(a).total_cmp(&excess(b)))?;
    let are = if broken.len() == 1 { "is" } else { "are" };
    let against = worst.against.as_ref();
    Some(format!(
        "{} {are} broken, worst `{}`: {} takes {} times as long{} as {}, and {} is the limit",
        count(broken.len(), "expectation"),
        worst.name,
        worst.case,
        factor(worst.ratio.unwrap_or(0.0)),
        worst.metric.of_host(),
        against.map_or_else(|| "its reference".to_owned(), ToString::to_string),
        factor(worst.within),
    ))
}

fn regressed(judgement: &Judgement) -> Option<String> {
    let rows = rows(judgement, Word::Regressed);
    let worst = rows.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    let compared = judgement.rows.iter().filter(|row| row.change.is_some());
    // Another figure than the case's own: the suite says what part of a step it is.
    let of_a_step = worst.severity.filter(|s| *s < ratio(worst) - 1.0);
    let step = of_a_step.map_or(String::new(), |severity| {
        format!(", a training step {}", change(1.0 + severity))
    });
    Some(format!(
        "{} of {} regressed, worst {}: {} times as long{step}",
        rows.len(),
        count(compared.count(), "case"),
        worst.case,
        factor(ratio(worst)),
    ))
}

fn over_limit(judgement: &Judgement) -> Option<String> {
    let limits = judgement.limits.iter();
    let broken: Vec<&LimitResult> = limits.filter(|limit| limit.held == Held::Broken).collect();
    let first = broken.first()?;
    let are = if broken.len() == 1 { "is" } else { "are" };
    let of = first.reason.as_ref();
    let of = of.map_or(String::new(), |of| format!(" ({of})"));
    Some(format!(
        "{} {are} broken, first `{}`: on {} {}{of}",
        count(broken.len(), "limit"),
        first.name,
        first.case,
        first.told(),
    ))
}

fn restructured(judgement: &Judgement) -> Option<String> {
    let failed = judgement.rows.iter().filter(|row| row.fails_by_structure());
    let failed: Vec<&Row> = failed.collect();
    let first = failed.first()?;
    let change = first.structure_at(Action::Fail).next()?;
    let compared = judgement.rows.iter().filter(|row| row.structure.is_some());
    Some(format!(
        "{} of {} changed structure for the worse, first {}: {change}",
        failed.len(),
        count(compared.count(), "case"),
        first.case,
    ))
}

/// A limit that nobody could hold a case to is a gap, like a case without a time.
fn unlimited(judgement: &Judgement) -> Option<String> {
    let open = judgement
        .limits
        .iter()
        .filter(|l| l.held == Held::NotJudged);
    let open: Vec<&LimitResult> = open.collect();
    let first = open.first()?;
    Some(format!(
        "{} could not be judged, first `{}` on {}: {}",
        count(open.len(), "limit"),
        first.name,
        first.case,
        first.reason.as_deref().unwrap_or("no reason is known"),
    ))
}

/// A structure that the base knows and the head does not: nobody can say that it is the same.
fn uncounted(judgement: &Judgement) -> Option<String> {
    let open = judgement.rows.iter().filter(|row| row.structure_unjudged());
    let open: Vec<&Row> = open.collect();
    let first = open.first()?;
    Some(format!(
        "the structure of {} could not be judged, first {}: {}",
        count(open.len(), "case"),
        first.case,
        Uncounted::told(&first.uncounted)?,
    ))
}

fn incomparable(judgement: &Judgement) -> Option<String> {
    let first = judgement.incomparable.first()?;
    let more = match judgement.incomparable.len() - 1 {
        0 => String::new(),
        more => format!(", and {} more", count(more, "difference")),
    };
    Some(format!(
        "the two sides cannot be compared: {} is {} in the base and {} in the head{more}",
        first.field, first.base, first.head
    ))
}

/// A run in which nothing could have gone wrong must not pass.
fn nothing(judgement: &Judgement) -> Option<String> {
    let any = |test: fn(&Row) -> bool| judgement.rows.iter().any(test);
    if judgement.structure_only {
        let counted = any(|row| matches!(row.word, Word::Counted | Word::Added));
        let comparable = judgement.base.is_some() && judgement.incomparable.is_empty();
        return match (counted, comparable && !any(|row| row.structure.is_some())) {
            (false, _) => Some("no structure was counted".to_owned()),
            (true, true) => Some("no case has a structure on both sides".to_owned()),
            (true, false) => None,
        };
    }
    if !any(|row| row.head.is_some()) {
        return Some(format!("nothing was measured{}", first_refusal(judgement)));
    }
    let compared = judgement.rows.iter().any(|row| row.change.is_some());
    let comparable = judgement.base.is_some() && judgement.incomparable.is_empty();
    (comparable && !compared).then(|| "no case was measured on both sides".to_owned())
}

/// `: CASE is unsupported: REASON`, of the first case with a reason.
fn first_refusal(judgement: &Judgement) -> String {
    let mut refused = judgement.rows.iter().filter_map(|row| {
        let reason = row.reason.as_ref()?;
        Some(format!(": {} is {}: {reason}", row.case, row.word.text()))
    });
    refused.next().unwrap_or_default()
}

/// Everything slower at once, beyond the floor, and no single case called: that is
/// no reason to pass.
fn all_slower(judgement: &Judgement) -> Option<String> {
    let shift = judgement.common_shift?;
    (shift.beyond_floor && shift.ratio > 1.0).then(|| {
        format!(
            "most of {} are slower, in the median {} times as long: a change that all \
             of them run through, or the machine; measure the base again to tell",
            count(shift.cases, "case"),
            factor(shift.ratio)
        )
    })
}

fn not_measured(judgement: &Judgement) -> Option<String> {
    let mut missing = rows(judgement, Word::NotMeasured);
    // What failed is told as a failure.
    missing.retain(|row| !row.allowed && !row.is_faulty());
    let first = missing.first()?;
    let reason = first.reason.as_deref().unwrap_or("no reason is known");
    let planned = judgement
        .rows
        .iter()
        .filter(|row| row.word != Word::Removed);
    let were = if missing.len() == 1 { "was" } else { "were" };
    Some(format!(
        "{} of {} {were} not measured, first {}: {reason}",
        missing.len(),
        count(planned.count(), "case"),
        first.case,
    ))
}

/// Of one suite, a case that is gone is a gap in the gate; of two suites, it is
/// what makes them two.
fn removed(judgement: &Judgement) -> Option<String> {
    if another_suite(judgement) {
        return None;
    }
    let mut removed = rows(judgement, Word::Removed);
    removed.retain(|row| !row.allowed);
    let first = removed.first()?;
    let is = if removed.len() == 1 { "is" } else { "are" };
    Some(format!(
        "{} of the base {is} no longer in the suite, first {}",
        count(removed.len(), "case"),
        first.case,
    ))
}

/// True when the base was measured under another suite.
pub fn another_suite(judgement: &Judgement) -> bool {
    let base = judgement.base.as_ref();
    base.is_some_and(|base| base.suite != judgement.suite)
}

/// Expectations are on time: where none was taken they are no gap.
fn not_judged(judgement: &Judgement) -> Option<String> {
    if judgement.structure_only {
        return None;
    }
    let open = held(judgement, Held::NotJudged);
    let first = open.first()?;
    Some(format!(
        "{} could not be judged, first `{}` on {}: {}",
        count(open.len(), "expectation"),
        first.name,
        first.case,
        first.reason.as_deref().unwrap_or("no reason is known"),
    ))
}

fn inconclusive(judgement: &Judgement) -> Option<String> {
    let mut rows = rows(judgement, Word::Inconclusive);
    rows.retain(|row| !row.looks_worse);
    let uncertain = |row: &Row| {
        row.change
            .as_ref()
            .map_or(0.0, |change: &Change| change.ratio)
    };
    let worst = rows
        .iter()
        .max_by(|a, b| uncertain(a).total_cmp(&uncertain(b)))?;
    let is = if rows.len() == 1 { "is" } else { "are" };
    Some(format!(
        "{} {is} inconclusive, worst {}: {}",
        count(rows.len(), "case"),
        worst.case,
        worst
            .reason
            .as_deref()
            .unwrap_or("the evidence decides neither way"),
    ))
}

fn open_expectations(judgement: &Judgement) -> Option<String> {
    let mut open = held(judgement, Held::Inconclusive);
    open.retain(|result| !result.looks_worse);
    let worst = open.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)))?;
    let is = if open.len() == 1 { "is" } else { "are" };
    Some(format!(
        "{} {is} inconclusive, worst `{}` on {}: {}",
        count(open.len(), "expectation"),
        worst.name,
        worst.case,
        worst
            .reason
            .as_deref()
            .unwrap_or("the limit lies within the interval"),
    ))
}
