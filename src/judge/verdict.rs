//! What follows from all of it: an outcome and its reasons.

use super::judgement::{
    ExpectationResult, Held, Judgement, LimitResult, Row, Uncounted, Verdict, VerdictOutcome, Word,
};
use super::phrase::{change, count, factor, percent};
use crate::attention::CaseId;
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

const UNKNOWN: &str = "no reason is known";
const UNDECIDED: &str = "the evidence decides neither way";
const WITHIN: &str = "the limit lies within the interval";

fn rows(judgement: &Judgement, which: impl Fn(&Row) -> bool) -> Vec<&Row> {
    judgement.rows.iter().filter(|row| which(row)).collect()
}

fn held(
    judgement: &Judgement,
    which: impl Fn(&ExpectationResult) -> bool,
) -> Vec<&ExpectationResult> {
    let results = judgement.expectations.iter();
    results.filter(|result| which(result)).collect()
}

fn limits(judgement: &Judgement, held: Held) -> Vec<&LimitResult> {
    let limits = judgement.limits.iter();
    limits.filter(|limit| limit.held == held).collect()
}

fn worst<'a, T>(of: &[&'a T], by: fn(&T) -> f64) -> Option<&'a T> {
    of.iter().copied().max_by(|a, b| by(a).total_cmp(&by(b)))
}

fn ratio(row: &Row) -> f64 {
    row.change.as_ref().map_or(1.0, |change| change.ratio)
}

/// How far beyond its limit.
fn excess(result: &ExpectationResult) -> f64 {
    result.ratio.unwrap_or(0.0) / result.within
}

fn or<'a>(reason: &'a Option<String>, otherwise: &'a str) -> &'a str {
    reason.as_deref().unwrap_or(otherwise)
}

/// The verb after so many of something: `is` and `are`, `was` and `were`.
fn verb<'a>(number: usize, one: &'a str, many: &'a str) -> &'a str {
    if number == 1 { one } else { many }
}

/// `1 case is`, `2 cases are`.
fn are(number: usize, what: &str) -> String {
    format!("{} {}", count(number, what), verb(number, "is", "are"))
}

/// `1 case looks slower and was not decided`.
fn look(number: usize, what: &str, how: &str) -> String {
    let (looks, was) = (verb(number, "looks", "look"), verb(number, "was", "were"));
    format!(
        "{} {looks} {how} and {was} not decided",
        count(number, what)
    )
}

/// A wrong result, a crash or a hang is worse than anything that takes longer.
fn faulty(judgement: &Judgement) -> Option<String> {
    let faulty = rows(judgement, Row::is_faulty);
    let first = faulty.first()?;
    let counted = |(fault, what)| {
        let number = faulty.iter().filter(|row| row.fault == fault).count();
        (number > 0).then(|| format!("{number} {what}"))
    };
    let kinds = [
        (Fault::WrongResult, "wrong"),
        (Fault::Crash, "crashed"),
        (Fault::Hang, "hung"),
    ];
    let each: Vec<String> = kinds.into_iter().filter_map(counted).collect();
    Some(format!(
        "{} failed ({}), first {}: {}",
        count(faulty.len(), "case"),
        each.join(", "),
        first.case,
        or(&first.unconfirmed, or(&first.reason, UNKNOWN)),
    ))
}

/// Suspects whose fresh invocations were not all taken, or came to nothing.
fn unconfirmed(judgement: &Judgement) -> Option<String> {
    let open = |row: &Row| row.unconfirmed.is_some() && !row.allowed && !row.is_faulty();
    let open = rows(judgement, open);
    let first = open.first()?;
    Some(format!(
        "{} {} to be confirmed and not, first {}: {}",
        count(open.len(), "case"),
        verb(open.len(), "was", "were"),
        first.case,
        or(&first.unconfirmed, ""),
    ))
}

/// Slower, as it looks, and not decided: nothing to pass by.
fn look_worse(judgement: &Judgement) -> Option<String> {
    let rows = rows(judgement, |row| row.looks_worse);
    let worst = worst(&rows, ratio)?;
    Some(format!(
        "{}, worst {}: {}",
        look(rows.len(), "case", "slower"),
        worst.case,
        or(&worst.reason, UNDECIDED),
    ))
}

fn expectations_look_worse(judgement: &Judgement) -> Option<String> {
    let open = held(judgement, |result| result.looks_worse);
    let worst = worst(&open, excess)?;
    Some(format!(
        "{}, worst `{}` on {}, {} times as long{} where {} is the limit: {}",
        look(open.len(), "expectation", "broken"),
        worst.name,
        worst.case,
        factor(worst.ratio.unwrap_or(0.0)),
        worst.metric.of_host(),
        factor(worst.within),
        or(&worst.reason, WITHIN),
    ))
}

fn is_open(row: &Row) -> bool {
    row.word == Word::Inconclusive && !row.looks_worse
}

fn is_not_shown(result: &ExpectationResult) -> bool {
    result.held == Held::Inconclusive && !result.looks_worse
}

/// What was not decided and does not look worse, and how large a change could be in it that
/// nobody has seen: the end of its interval, or what so few invocations could have shown.
fn undecided(judgement: &Judgement) -> Option<String> {
    let hidden_in_row = |row: &&Row| match &row.change {
        Some(change) => change.smallest_effect.max(change.high - 1.0),
        None => f64::INFINITY,
    };
    // So few invocations call a breach from twice the limit on.
    let few = judgement.head.invocations < 5;
    let hidden_in_expectation = |result: &&ExpectationResult| match result.high {
        Some(high) if few => 2.0 * (high / result.within).max(1.0) - 1.0,
        Some(high) => high / result.within - 1.0,
        None => f64::INFINITY,
    };
    let told = |what: &str, how: &str, sizes: Vec<f64>| {
        let most = sizes.iter().copied().fold(0.0, f64::max);
        let size = match most.is_finite() {
            true => format!("up to {}", percent(most)),
            false => "of any size".to_owned(),
        };
        let all = || {
            format!(
                "{} {how} {size} could have hidden",
                count(sizes.len(), what)
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

fn broken(judgement: &Judgement) -> Option<String> {
    let broken = held(judgement, |result| result.held == Held::Broken);
    let worst = worst(&broken, excess)?;
    let against = worst.against.as_ref();
    Some(format!(
        "{} broken, worst `{}`: {} takes {} times as long{} as {}, and {} is the limit",
        are(broken.len(), "expectation"),
        worst.name,
        worst.case,
        factor(worst.ratio.unwrap_or(0.0)),
        worst.metric.of_host(),
        against.map_or_else(|| "its reference".to_owned(), ToString::to_string),
        factor(worst.within),
    ))
}

fn regressed(judgement: &Judgement) -> Option<String> {
    let regressed = rows(judgement, |row| row.word == Word::Regressed);
    let worst = worst(&regressed, ratio)?;
    let compared = rows(judgement, |row| row.change.is_some());
    // Another figure than the case's own: the suite says what part of a step it is.
    let of_a_step = worst.severity.filter(|s| *s < ratio(worst) - 1.0);
    let step = of_a_step.map_or(String::new(), |severity| {
        format!(", a training step {}", change(1.0 + severity))
    });
    Some(format!(
        "{} of {} regressed, worst {}: {} times as long{step}",
        regressed.len(),
        count(compared.len(), "case"),
        worst.case,
        factor(ratio(worst)),
    ))
}

fn over_limit(judgement: &Judgement) -> Option<String> {
    let broken = limits(judgement, Held::Broken);
    let first = broken.first()?;
    let of = first.reason.as_ref();
    let of = of.map_or(String::new(), |of| format!(" ({of})"));
    Some(format!(
        "{} broken, first `{}`: on {} {}{of}",
        are(broken.len(), "limit"),
        first.name,
        first.case,
        first.told(),
    ))
}

fn restructured(judgement: &Judgement) -> Option<String> {
    let failed = rows(judgement, Row::fails_by_structure);
    let first = failed.first()?;
    let change = first.structure_at(Action::Fail).next()?;
    let compared = rows(judgement, |row| row.structure.is_some());
    Some(format!(
        "{} of {} changed structure for the worse, first {}: {change}",
        failed.len(),
        count(compared.len(), "case"),
        first.case,
    ))
}

/// `1 limit could not be judged, first `, and which it is and why.
fn unjudged(number: usize, what: &str, name: &str, case: &CaseId, why: &Option<String>) -> String {
    let number = count(number, what);
    let why = or(why, UNKNOWN);
    format!("{number} could not be judged, first `{name}` on {case}: {why}")
}

/// A limit that nobody could hold a case to is a gap, like a case without a time.
fn unlimited(judgement: &Judgement) -> Option<String> {
    let open = limits(judgement, Held::NotJudged);
    let first = open.first()?;
    let (name, case) = (&first.name, &first.case);
    Some(unjudged(open.len(), "limit", name, case, &first.reason))
}

/// Expectations are on time: where none was taken they are no gap.
fn not_judged(judgement: &Judgement) -> Option<String> {
    let open = held(judgement, |result| result.held == Held::NotJudged);
    let first = open.first().filter(|_| !judgement.structure_only)?;
    let (name, case) = (&first.name, &first.case);
    Some(unjudged(
        open.len(),
        "expectation",
        name,
        case,
        &first.reason,
    ))
}

/// A structure that the base knows and the head does not: nobody can say that it is the same.
fn uncounted(judgement: &Judgement) -> Option<String> {
    let open = rows(judgement, Row::structure_unjudged);
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
    // What failed is told as a failure.
    let open = |row: &Row| row.word == Word::NotMeasured && !row.allowed && !row.is_faulty();
    let missing = rows(judgement, open);
    let first = missing.first()?;
    let planned = rows(judgement, |row| row.word != Word::Removed);
    Some(format!(
        "{} of {} {} not measured, first {}: {}",
        missing.len(),
        count(planned.len(), "case"),
        verb(missing.len(), "was", "were"),
        first.case,
        or(&first.reason, UNKNOWN),
    ))
}

/// Of one suite, a case that is gone is a gap in the gate; of two suites, it is
/// what makes them two.
fn removed(judgement: &Judgement) -> Option<String> {
    let removed = rows(judgement, |row| row.word == Word::Removed && !row.allowed);
    let first = removed.first().filter(|_| !another_suite(judgement))?;
    Some(format!(
        "{} of the base {} no longer in the suite, first {}",
        count(removed.len(), "case"),
        verb(removed.len(), "is", "are"),
        first.case,
    ))
}

/// True when the base was measured under another suite.
pub fn another_suite(judgement: &Judgement) -> bool {
    let base = judgement.base.as_ref();
    base.is_some_and(|base| base.suite != judgement.suite)
}

fn inconclusive(judgement: &Judgement) -> Option<String> {
    let open = rows(judgement, is_open);
    let worst = worst(&open, ratio)?;
    Some(format!(
        "{} inconclusive, worst {}: {}",
        are(open.len(), "case"),
        worst.case,
        or(&worst.reason, UNDECIDED),
    ))
}

fn open_expectations(judgement: &Judgement) -> Option<String> {
    let open = held(judgement, is_not_shown);
    let worst = worst(&open, excess)?;
    Some(format!(
        "{} inconclusive, worst `{}` on {}: {}",
        are(open.len(), "expectation"),
        worst.name,
        worst.case,
        or(&worst.reason, WITHIN),
    ))
}
