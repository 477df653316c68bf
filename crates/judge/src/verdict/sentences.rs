//! What a verdict says, a sentence each: what is worse, and what nobody can say. `None`
//! where there is nothing of the kind.

use super::families::family;
use crate::judgement::{
    ExpectationResult, Held, Judgement, LimitResult, Row, Tuner, Uncounted, Word,
};
use regatta_core::record::types::Fault;
use regatta_core::suite::structural::Action;
use regatta_worker::units::{Ratio, counted};

const UNKNOWN: &str = "no reason is known";
pub const UNDECIDED: &str = "the evidence decides neither way";
const WITHIN: &str = "the limit lies within the interval";

/// Rows of a kind.
pub fn rows(judgement: &Judgement, which: impl Fn(&Row) -> bool) -> Vec<&Row> {
    judgement.rows.iter().filter(|row| which(row)).collect()
}

/// Expectations of a kind, held against a case each.
pub fn held(
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

fn worst<'a, T>(of: &[&'a T], by: fn(&T) -> Ratio) -> Option<&'a T> {
    of.iter().copied().max_by(|a, b| by(a).total_cmp(&by(b)))
}

fn ratio(row: &Row) -> Ratio {
    row.change
        .as_ref()
        .map_or(Ratio::ONE, |change| change.ratio)
}

/// How far beyond its limit.
fn excess(result: &ExpectationResult) -> Ratio {
    result.ratio.unwrap_or(Ratio(0.0)) / result.within
}

pub fn or<'a>(reason: &'a Option<String>, otherwise: &'a str) -> &'a str {
    reason.as_deref().unwrap_or(otherwise)
}

/// The verb after so many of something: `is` and `are`, `was` and `were`.
fn verb<'a>(number: usize, one: &'a str, many: &'a str) -> &'a str {
    if number == 1 { one } else { many }
}

/// `1 case is`, `2 cases are`.
fn are(number: usize, what: &str) -> String {
    format!("{} {}", counted(number, what), verb(number, "is", "are"))
}

/// `1 case looks slower and was not decided`.
fn look(number: usize, what: &str, how: &str) -> String {
    let (looks, was) = (verb(number, "looks", "look"), verb(number, "was", "were"));
    format!(
        "{} {looks} {how} and {was} not decided",
        counted(number, what)
    )
}

/// A wrong result, a crash or a hang is worse than anything that takes longer.
pub fn faulty(judgement: &Judgement) -> Option<String> {
    let faulty = rows(judgement, Row::is_faulty);
    let first = faulty.first()?;
    let of_kind = |(fault, what)| {
        let number = faulty.iter().filter(|row| row.fault == fault).count();
        (number > 0).then(|| format!("{number} {what}"))
    };
    let kinds = [
        (Fault::WrongResult, "wrong"),
        (Fault::Crash, "crashed"),
        (Fault::Hang, "hung"),
    ];
    let each: Vec<String> = kinds.into_iter().filter_map(of_kind).collect();
    Some(format!(
        "{} failed ({}), first {}: {}",
        counted(faulty.len(), "case"),
        each.join(", "),
        first.case,
        or(&first.unconfirmed, or(&first.reason, UNKNOWN)),
    ))
}

/// Suspects whose fresh invocations were not all taken, or came to nothing.
pub fn unconfirmed(judgement: &Judgement) -> Option<String> {
    let open = |row: &Row| row.unconfirmed.is_some() && !row.allowed && !row.is_faulty();
    let open = rows(judgement, open);
    let first = open.first()?;
    Some(format!(
        "{} {} to be confirmed and not, first {}: {}",
        counted(open.len(), "case"),
        verb(open.len(), "was", "were"),
        first.case,
        or(&first.unconfirmed, ""),
    ))
}

/// Slower, as it looks, and not decided: nothing to pass by.
pub fn look_worse(judgement: &Judgement) -> Option<String> {
    let rows = rows(judgement, |row| row.looks_worse);
    let worst = worst(&rows, ratio)?;
    Some(format!(
        "{}, worst {}: {}",
        look(rows.len(), "case", "slower"),
        worst.case,
        or(&worst.reason, UNDECIDED),
    ))
}

/// Expectations that look broken, and were not decided.
pub fn expectations_look_worse(judgement: &Judgement) -> Option<String> {
    let open = held(judgement, |result| result.looks_worse);
    let worst = worst(&open, excess)?;
    Some(format!(
        "{}, worst `{}` on {}, {} times as long{} where {} is the limit: {}",
        look(open.len(), "expectation", "broken"),
        worst.name,
        worst.case,
        worst.ratio.unwrap_or(Ratio(0.0)).times(),
        worst.metric.where_timed(),
        worst.within.times(),
        or(&worst.reason, WITHIN),
    ))
}

/// True when it was not decided and does not look worse.
pub fn is_open(row: &Row) -> bool {
    row.word == Word::Inconclusive && !row.looks_worse
}

/// The same of an expectation.
pub fn is_not_shown(result: &ExpectationResult) -> bool {
    result.held == Held::Inconclusive && !result.looks_worse
}

/// An expectation that is broken beyond doubt.
pub fn broken(judgement: &Judgement) -> Option<String> {
    let broken = held(judgement, |result| result.held == Held::Broken);
    let worst = worst(&broken, excess)?;
    let against = worst.against.as_ref();
    Some(format!(
        "{} broken, worst `{}`: {} takes {} times as long{} as {}, and {} is the limit",
        are(broken.len(), "expectation"),
        worst.name,
        worst.case,
        worst.ratio.unwrap_or(Ratio(0.0)).times(),
        worst.metric.where_timed(),
        against.map_or_else(|| "its reference".to_owned(), ToString::to_string),
        worst.within.times(),
    ))
}

/// Cases that are slower beyond doubt.
pub fn regressed(judgement: &Judgement) -> Option<String> {
    let regressed = rows(judgement, |row| row.word == Word::Regressed);
    let worst = worst(&regressed, ratio)?;
    let compared = rows(judgement, |row| row.change.is_some());
    // Another figure than the case's own: the suite says what part of a step it is.
    let of_a_step = worst.severity.filter(|s| *s < ratio(worst).growth());
    let step = of_a_step.map_or(String::new(), |severity| {
        format!(", a training step {}", Ratio::grown_by(severity).told())
    });
    let family = family(&regressed, &compared);
    let family = family.map_or(String::new(), |family| format!(" ({family})"));
    Some(format!(
        "{} of {} regressed{family}, worst {}: {} times as long{step}",
        regressed.len(),
        counted(compared.len(), "case"),
        worst.case,
        ratio(worst).times(),
    ))
}

/// A limit on structure that is broken.
pub fn over_limit(judgement: &Judgement) -> Option<String> {
    let broken = limits(judgement, Held::Broken);
    let first = broken.first()?;
    let of = first.reason.as_ref();
    let of = of.map_or(String::new(), |of| format!(" ({of})"));
    Some(format!(
        "{} broken, first `{}`: on {} {}{of}",
        are(broken.len(), "limit"),
        first.name,
        first.subject(),
        first.told(),
    ))
}

/// Structures that changed as the suite does not allow.
pub fn restructured(judgement: &Judgement) -> Option<String> {
    let failed = rows(judgement, Row::fails_by_structure);
    let first = failed.first()?;
    let change = first.structure_at(Action::Fail).next()?;
    let compared = rows(judgement, |row| row.structure.is_some());
    Some(format!(
        "{} of {} changed structure for the worse, first {}: {change}",
        failed.len(),
        counted(compared.len(), "case"),
        first.case,
    ))
}

/// `1 limit could not be judged, first `, and which it is and why.
fn unjudged(number: usize, what: &str, name: &str, of: &str, why: &Option<String>) -> String {
    let number = counted(number, what);
    let why = or(why, UNKNOWN);
    format!("{number} could not be judged, first `{name}` on {of}: {why}")
}

/// A limit that nobody could hold a case to is a gap, like a case without a time.
pub fn unlimited(judgement: &Judgement) -> Option<String> {
    let open = limits(judgement, Held::NotJudged);
    let first = open.first()?;
    let (name, of) = (&first.name, first.subject());
    Some(unjudged(open.len(), "limit", name, &of, &first.reason))
}

/// Expectations are on time: where none was taken they are no gap.
pub fn not_judged(judgement: &Judgement) -> Option<String> {
    let open = held(judgement, |result| result.held == Held::NotJudged);
    let first = open.first().filter(|_| !judgement.structure_only)?;
    let (name, of) = (&first.name, &first.case.0);
    Some(unjudged(open.len(), "expectation", name, of, &first.reason))
}

/// A structure that the base knows and the head does not: nobody can say that it is the same.
pub fn uncounted(judgement: &Judgement) -> Option<String> {
    let open = rows(judgement, Row::structure_unjudged);
    let first = open.first()?;
    Some(format!(
        "the structure of {} could not be judged, first {}: {}",
        counted(open.len(), "case"),
        first.case,
        Uncounted::told(&first.uncounted)?,
    ))
}

/// True for a case that is not judged, since its tuner does not choose alike throughout and its
/// times lie apart by it.
pub fn is_of_several_times(row: &Row) -> bool {
    let several = |tuner: &Tuner| tuner.several_times && row.word == Word::Inconclusive;
    row.tuner.as_deref().is_some_and(several) && !row.allowed
}

/// Hard facts in which the sides differ.
pub fn incomparable(judgement: &Judgement) -> Option<String> {
    let first = judgement.incomparable.first()?;
    let more = match judgement.incomparable.len() - 1 {
        0 => String::new(),
        more => format!(", and {} more", counted(more, "difference")),
    };
    Some(format!(
        "the two sides cannot be compared: {} is {} in the base and {} in the head{more}",
        first.field, first.base, first.head
    ))
}

/// A run in which nothing could have gone wrong must not pass.
pub fn nothing(judgement: &Judgement) -> Option<String> {
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
    let told = !judgement.disturbed.is_empty() || any(is_of_several_times);
    (comparable && !compared && !told).then(|| "no case was measured on both sides".to_owned())
}

/// `: CASE is unsupported: REASON`, of the first case with a reason.
fn first_refusal(judgement: &Judgement) -> String {
    let mut refused = judgement.rows.iter().filter_map(|row| {
        let reason = row.reason.as_ref()?;
        Some(format!(": {} is {}: {reason}", row.case, row.word.text()))
    });
    refused.next().unwrap_or_default()
}

/// A gate that could not have seen what its suite wants seen.
pub fn unsighted(judgement: &Judgement) -> Option<String> {
    let sight = judgement.sight?;
    let compared = rows(judgement, |row| row.change.is_some());
    let sees = |row: &&&Row| {
        let change = row.change.as_ref();
        change.is_some_and(|change| change.smallest_effect <= sight.change)
    };
    let seeing = compared.iter().filter(sees).count();
    let enough = seeing as f64 >= sight.cases.0 * compared.len() as f64;
    (!enough && !compared.is_empty()).then(|| {
        format!(
            "{seeing} of {} could have shown a change of {}, and [policy.sight] wants {:.0}: more \
             invocations, or a quieter machine, would see more",
            counted(compared.len(), "case"),
            sight.change,
            sight.cases,
        )
    })
}

/// Cases that were to be measured, and were not.
pub fn not_measured(judgement: &Judgement) -> Option<String> {
    // What failed is told as a failure.
    let open = |row: &Row| row.word == Word::NotMeasured && !row.allowed && !row.is_faulty();
    let missing = rows(judgement, open);
    let first = missing.first()?;
    let planned = rows(judgement, |row| row.word != Word::Removed);
    Some(format!(
        "{} of {} {} not measured, first {}: {}",
        missing.len(),
        counted(planned.len(), "case"),
        verb(missing.len(), "was", "were"),
        first.case,
        or(&first.reason, UNKNOWN),
    ))
}

/// Of one suite, a case that is gone is a gap in the gate; of two suites, it is
/// what makes them two.
pub fn removed(judgement: &Judgement) -> Option<String> {
    let removed = rows(judgement, |row| row.word == Word::Removed && !row.allowed);
    let first = removed.first().filter(|_| !another_suite(judgement))?;
    Some(format!(
        "{} of the base {} no longer in the suite, first {}",
        counted(removed.len(), "case"),
        verb(removed.len(), "is", "are"),
        first.case,
    ))
}

/// True when the base was measured under another suite.
pub fn another_suite(judgement: &Judgement) -> bool {
    let base = judgement.base.as_ref();
    base.is_some_and(|base| base.suite != judgement.suite)
}

/// Cases that were not decided, and do not look worse.
pub fn inconclusive(judgement: &Judgement) -> Option<String> {
    let open = rows(judgement, is_open);
    let worst = worst(&open, ratio)?;
    Some(format!(
        "{} inconclusive, worst {}: {}",
        are(open.len(), "case"),
        worst.case,
        or(&worst.reason, UNDECIDED),
    ))
}

/// Expectations that were not decided, and do not look worse.
pub fn open_expectations(judgement: &Judgement) -> Option<String> {
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
