//! Expectations: relations that must hold inside one run, without any baseline.
//!
//! A case and the cases that it is compared with ran in the same processes, minutes apart at
//! most. They are compared by the [rule](super::rule), in pairs: what one process does to both
//! cancels. The allowed ratio is the threshold.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::causes::{self, Pair, TimeSource};
use super::complete::{allowed, unmeasured};
use super::decide::{Decision, decide};
use super::judgement::{Cause, ExpectationResult, Word};
use super::metrics::{ComparedValues, computes, longer_by_tasks, values_of};
use super::rule::{GATE_ERROR, LOOKS_THAT_CALL, Terms};
use super::structure::{Structures, changes, multiprocessors};
use regatta_core::record::{CaseRecord, RunHeader, Side, Status, WorkerRecord};
use regatta_core::suite::{Expectation, Metric, Quantity};
use regatta_worker::attention::{Case, CaseId};
use regatta_worker::units::{Nanoseconds, Ratio, counted};

/// The results of a side's expectations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// One for each case that an expectation is about.
    pub results: Vec<ExpectationResult>,
    /// Sentences: expectations that compared nothing, though the whole suite was to be judged.
    pub gaps: Vec<String>,
    /// Sentences: expectations that had nothing to say about cases they select.
    pub notes: Vec<String>,
}

/// Compares each case of a side with what its suite expects.
pub fn expectations(side: &Side) -> Expectations {
    let mut cases = Vec::new();
    let mut unread = Vec::new();
    for (id, record) in &side.cases {
        match id.case() {
            Ok(case) => cases.push(ExpectedCase { id, case, record }),
            Err(_) => unread.push(id),
        }
    }
    let rules = &side.header.rules.expectations;
    let (mut gaps, mut notes) = (Vec::new(), Vec::new());
    if !unread.is_empty() && !rules.is_empty() {
        gaps.push(format!(
            "{} could not be compared by any expectation, since regatta cannot \
             read its id: {}",
            counted(unread.len(), "case"),
            list(unread)
        ));
    }
    let partly = !side.header.suite.filter.is_empty();
    let (mut chosen, mut unmeasured) = (Vec::new(), Vec::new());
    for rule in rules {
        let before = chosen.len();
        let (alone, left_out) = choose(rule, &cases, &side.header, &mut chosen);
        if chosen.len() > before && !left_out.is_empty() {
            notes.push(format!(
                "`{}` holds no case to {}, which {} no time here: {}",
                rule.name,
                counted(left_out.len(), "reference"),
                if left_out.len() == 1 { "has" } else { "have" },
                list(left_out),
            ));
        }
        if chosen.len() > before && !alone.is_empty() {
            notes.push(format!(
                "`{}` selects {} with nothing to compare {} with: {}",
                rule.name,
                counted(alone.len(), "case"),
                if alone.len() == 1 { "it" } else { "them" },
                list(alone),
            ));
        } else if chosen.len() == before {
            let sentence = format!("`{}` compared no case{}", rule.name, rule.origin);
            let selected = cases.iter().find(|case| rule.case.matches(&case.case));
            match selected {
                // A part of a suite may leave out what it speaks of.
                _ if partly => notes.push(sentence),
                Some(first) => {
                    let result = without_value(rule, first, &cases, &side.header);
                    unmeasured.push(result.missing_at(&rule.origin));
                }
                None => gaps.push(sentence),
            }
        }
    }
    let error = GATE_ERROR / (chosen.len().max(1) * LOOKS_THAT_CALL) as f64;
    let results = chosen.iter().map(|(rule, case, against)| {
        let result = judge(rule, case, against, &side.header, error);
        result.missing_at(&rule.origin)
    });
    let mut results: Vec<ExpectationResult> = results.chain(unmeasured).collect();
    if side.header.settings.structure_only {
        for result in &mut results {
            result.word = Word::Skipped;
            result.reason = Some("no time was taken".to_owned());
        }
    }
    Expectations {
        results,
        gaps,
        notes,
    }
}

/// The result of an expectation that compared no case: skipped if `optional` names each case that
/// it lacks, else missing.
fn without_value(
    rule: &Expectation,
    first: &ExpectedCase,
    cases: &[ExpectedCase],
    header: &RunHeader,
) -> ExpectationResult {
    let optional = &header.rules.policy.optional;
    let involved = cases
        .iter()
        .filter(|one| rule.case.matches(&one.case) || rule.against.matches(&one.case));
    let lacking = involved.filter(|one| one.record.status != Status::Measured);
    let lacking: Vec<&CaseId> = lacking.map(|one| one.id).collect();
    let mut result = empty(rule, first);
    let reason = "the suite has no case that it could be compared with".to_owned();
    let (word, reason) = unmeasured(&lacking, optional).unwrap_or((Word::Missing, reason));
    (result.word, result.reason) = (word, Some(reason));
    result
}

struct ExpectedCase<'a> {
    id: &'a CaseId,
    case: Rc<Case>,
    record: &'a CaseRecord,
}

/// An expectation, a case that it is about, and what that is compared with.
type Chosen<'a> = (
    &'a Expectation,
    &'a ExpectedCase<'a>,
    Vec<&'a ExpectedCase<'a>>,
);

/// Adds each case that the rule is about; returns those for which no reference was planned, or
/// none that this machine supports, and references that are left out beside others.
fn choose<'a>(
    rule: &'a Expectation,
    cases: &'a [ExpectedCase<'a>],
    header: &RunHeader,
    chosen: &mut Vec<Chosen<'a>>,
) -> (Vec<&'a CaseId>, BTreeSet<&'a CaseId>) {
    let allow = &header.rules.policy.optional;
    let mut groups: BTreeMap<Vec<(String, String)>, Vec<&ExpectedCase>> = BTreeMap::new();
    for reference in cases.iter().filter(|c| rule.against.matches(&c.case)) {
        let key = rule.alike(&reference.case);
        groups.entry(key).or_default().push(reference);
    }
    let unsupported = |candidate: &ExpectedCase| {
        let status = &candidate.record.status;
        matches!(status, Status::Unsupported { .. })
    };
    let failed = |candidate: &ExpectedCase| candidate.record.status != Status::Measured;
    let excused = |candidate: &ExpectedCase| {
        unsupported(candidate) || (failed(candidate) && allowed(candidate.id, allow))
    };
    let (mut alone, mut left_out) = (Vec::new(), BTreeSet::new());
    for case in cases.iter().filter(|c| rule.case.matches(&c.case)) {
        if excused(case) {
            continue;
        }
        let group = groups.get(&rule.alike(&case.case));
        let planned = group
            .into_iter()
            .flatten()
            .copied()
            .filter(|reference| reference.id != case.id && !unsupported(reference));
        // One that may fail, and did, is left out beside others; where all of them did,
        // there is nothing to compare the case with.
        let (failing, references): (Vec<&ExpectedCase>, Vec<&ExpectedCase>) =
            planned.partition(|reference| excused(reference));
        if !references.is_empty() {
            let same = group
                .into_iter()
                .flatten()
                .filter(|reference| reference.id != case.id);
            let absent = same.filter(|reference| failed(reference));
            left_out.extend(absent.map(|reference| reference.id));
        }
        match (references.is_empty(), failing.is_empty()) {
            (false, _) => chosen.push((rule, case, references)),
            (true, false) => chosen.push((rule, case, failing)),
            (true, true) => alone.push(case.id),
        }
    }
    (alone, left_out)
}

/// The metric that is compared: on the CPU host and device are one.
fn metric(rule: &Expectation, case: &ExpectedCase, header: &RunHeader) -> Metric {
    let worker = header.worker_of(&case.case);
    let on_cpu = worker.is_some_and(WorkerRecord::runs_on_processor);
    match rule.metric {
        Metric::Host if on_cpu && case.record.median(Metric::Host).is_none() => Metric::Device,
        metric => metric,
    }
}

/// A result without a value.
fn empty(rule: &Expectation, case: &ExpectedCase) -> ExpectationResult {
    ExpectationResult {
        case: Some(case.id.clone()),
        at_most: Some(rule.within.0),
        ..ExpectationResult::missing(&rule.name, Quantity::Metric(rule.metric))
    }
}

fn judge(
    rule: &Expectation,
    case: &ExpectedCase,
    references: &[&ExpectedCase],
    header: &RunHeader,
    error: f64,
) -> ExpectationResult {
    let mut result = empty(rule, case);
    let centre = |candidate: &ExpectedCase| {
        let measured = candidate.record.status == Status::Measured;
        let median = candidate.record.median(metric(rule, candidate, header));
        median.filter(|_| measured)
    };
    // Choosing the fastest of several favours a lucky one; the limit a suite sets
    // leaves room for that.
    let best = references
        .iter()
        .filter_map(|reference| Some((centre(reference)?, *reference)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(_), Some((_, best))) = (centre(case), best) else {
        let all = std::iter::once(case).chain(references.iter().copied());
        let missing = all.filter(|candidate| centre(candidate).is_none());
        let what = match rule.metric {
            Metric::Device => "not measured".to_owned(),
            other => format!("not measured, or without {}", other.text()),
        };
        let missing = list(missing.map(|candidate| candidate.id));
        result.reason = Some(format!("{what}: {missing}"));
        return result;
    };
    result.against = Some(best.id.clone());
    if !(rule.within.is_finite() && rule.within > Ratio(0.0)) {
        result.reason = Some("its limit is not a positive number".to_owned());
        return result;
    }
    let Some((decision, shift, reason)) = by_rule(rule, (case, best), header, error) else {
        result.reason = Some("no invocation has both values".to_owned());
        return result;
    };
    let compared = decision.result;
    let end = |log: f64| log.is_finite().then(|| Ratio((log + shift).exp()));
    result.value = Some((compared.change + shift).exp());
    (result.low, result.high) = (end(compared.low), end(compared.high));
    (result.word, result.reason) = (decision.word, reason);
    result.may_be_worse = decision.may_be_worse;
    result.open = decision.may_be_worse && decision.open;
    if result.word == Word::Regressed {
        let cause = cause(rule, (case, best), &result, header);
        result.reason = match (result.reason, cause) {
            (Some(reason), Some(cause)) => Some(format!("{reason}; {cause}")),
            (reason, cause) => cause.or(reason),
        };
    }
    result
}

/// Decides by the rule; also the logarithm that the head's values were shifted by, and the reason.
fn by_rule(
    rule: &Expectation,
    (of, best): (&ExpectedCase, &ExpectedCase),
    header: &RunHeader,
    error: f64,
) -> Option<(Decision, f64, Option<String>)> {
    let threshold = rule.within.0.ln();
    // A limit below 1 demands that the case is that much faster.
    let shift = threshold.min(0.0);
    let terms = Terms::last(threshold.max(0.0), error);
    let compared = |[best_metric, metric]: [Metric; 2], longer: f64| {
        let values = |one: &ExpectedCase, metric| values_of(one.record, metric, metric, false);
        let mut compared = ComparedValues::new(values(best, best_metric), values(of, metric), true);
        for value in &mut compared.head {
            *value += longer - shift;
        }
        compared
    };
    let metrics = [best, of].map(|one| metric(rule, one, header));
    let values = compared(metrics, 0.0);
    let (base, head) = (best.record, of.record);
    let may_replace = metrics.iter().all(|metric| metric.is_wall_time())
        && !header.rules.policy.ignores(Metric::CpuTime)
        && computes(base)
        && computes(head);
    let longer = longer_by_tasks(header, base, head).filter(|_| may_replace);
    let cpu = longer.map(|longer| compared([Metric::CpuTime; 2], longer));
    let decision = decide(&values.observed((base, head), cpu.as_ref()), &terms)?;
    let met = matches!(decision.word, Word::Same | Word::Improved);
    let reason = values.reason(&decision, &terms, shift);
    let reason = reason.filter(|_| !met || decision.by_cpu);
    let decision = if met { decision.same() } else { decision };
    Some((decision, shift, reason))
}

/// The order from which on a second cause is reported beside the first.
const TOLD_TOO: f64 = 0.6;

/// The causes, at most two, of the difference between a case and the one it is compared with: the
/// rules that explain a change over time explain a difference within a run as well.
fn cause(
    rule: &Expectation,
    (of, best): (&ExpectedCase, &ExpectedCase),
    result: &ExpectationResult,
    header: &RunHeader,
) -> Option<String> {
    let clock = |case: &ExpectedCase| match rule.metric {
        Metric::Host if case.record.median(Metric::Host).is_some() => TimeSource::Host,
        _ => TimeSource::of_case(header, case.id, case.record),
    };
    let time = |case: &ExpectedCase| case.record.median(rule.metric).map(Nanoseconds);
    let sms = multiprocessors(header, of.id);
    let changes = changes(&Structures {
        base: best.record,
        head: of.record,
        sms,
        policy: &header.rules.policy,
    });
    let pair = Pair {
        base: best.record,
        head: of.record,
        base_ns: time(best),
        head_ns: time(of),
        base_clock: clock(best),
        clock: clock(of),
        ratio: Ratio(result.value?),
        threshold: rule.within.growth(),
        versions: Vec::new(),
        sms,
        cores: header.cores(),
        restructured: changes.map(|changes| !changes.is_empty()),
    };
    let findings = causes::found(&pair.facts());
    let (first, others) = findings.split_first()?;
    let first = &first.finding;
    // The parameters of two cases differ by design, and the kernels of two variants.
    let variant = |id: &CaseId| id.case().ok().map(|case| case.variant.clone());
    let same_variant = variant(best.id) == variant(of.id);
    let by_design = |cause: Cause| match cause {
        Cause::ParameterChanged => true,
        Cause::KernelReplaced => !same_variant,
        _ => false,
    };
    let second = others
        .iter()
        .find(|other| other.order >= TOLD_TOO && !by_design(other.finding.cause));
    let second = second.map(|second| format!("; {}", second.finding));
    Some(format!(
        "{}, from the best to this one: {}{}",
        first.cause,
        first.evidence,
        second.unwrap_or_default()
    ))
}

/// The first few cases by name, the others by number.
fn list<'a>(cases: impl IntoIterator<Item = &'a CaseId>) -> String {
    const MAX_NAMED: usize = 3;
    let all: Vec<&CaseId> = cases.into_iter().collect();
    let named: Vec<String> = all
        .iter()
        .take(MAX_NAMED)
        .map(ToString::to_string)
        .collect();
    let text = named.join("; ");
    match all.len().saturating_sub(MAX_NAMED) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

#[cfg(test)]
mod tests;
