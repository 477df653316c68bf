//! Expectations, which must hold inside one run, without any baseline: relations between cases, and
//! limits on their figures.
//!
//! A case and its references ran in the same processes, at most minutes apart. They are compared by
//! the [rule](super::rule), in pairs, so that an effect of one process on both cancels. The
//! threshold is the allowed ratio.

mod figures;

pub use figures::on_builds;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::causes::{self, Pair, TimeSource};
use super::complete::{allowed, unmeasured};
use super::decide::decide;
use super::judgement::{Cause, Comparison, ExpectationResult, Word};
use super::metrics::{ComparedValues, computes, longer_by_tasks, values_of};
use super::rule::{GATE_ERROR, LOOKS_THAT_CALL, Terms};
use super::structure::{Structures, changes, multiprocessors};
use regatta_core::record::{CaseRecord, Outcome, RunHeader, Side, WorkerRecord};
use regatta_core::suite::{Expectation, Metric, Quantity, Selector};
use regatta_core::text::listed;
use regatta_worker::case::{Case, CaseId};
use regatta_worker::units::{Nanoseconds, Ratio, counted};

/// The results of a side's expectations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// One result for each case that an expectation applies to.
    pub results: Vec<ExpectationResult>,
    /// Sentences on expectations that compared nothing, although the whole suite was to be judged.
    pub gaps: Vec<String>,
    /// Sentences on expectations that could not be applied to cases that they select.
    pub notes: Vec<String>,
}

/// Compares each case of a side with what its suite expects.
pub fn expectations(side: &Side) -> Expectations {
    let header = &side.header;
    let cases = side.cases.iter();
    let cases = cases.filter_map(|(id, record)| {
        let case = id.case().ok()?;
        Some(ExpectedCase { id, case, record })
    });
    let cases: Vec<ExpectedCase> = cases.collect();
    let partly = !header.suite.filter.is_empty();
    let (mut gaps, mut notes) = (Vec::new(), Vec::new());
    let (mut chosen, mut unmeasured, mut limits) = (Vec::new(), Vec::new(), Vec::new());
    for rule in &header.rules.expectations {
        let Some(relation) = Relation::new(rule) else {
            limits.extend(figures::results(rule, &cases, header));
            continue;
        };
        let before = chosen.len();
        let (alone, left_out) = choose(relation, &cases, header, &mut chosen);
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
                // With a filter, the cases of an expectation may have been left out.
                _ if partly => notes.push(sentence),
                Some(first) => {
                    let result = without_value(relation, first, &cases, header);
                    unmeasured.push(result.missing_at(&rule.origin));
                }
                None => gaps.push(sentence),
            }
        }
    }
    let error = GATE_ERROR / (chosen.len().max(1) * LOOKS_THAT_CALL) as f64;
    let results = chosen.iter().map(|(relation, case, references)| {
        let result = judge(*relation, case, references, header, error);
        result.missing_at(&relation.rule.origin)
    });
    let mut results: Vec<ExpectationResult> = results.chain(unmeasured).collect();
    if header.settings.structure_only {
        for result in &mut results {
            result.word = Word::Skipped;
            result.reason = Some("no time was taken".to_owned());
        }
    }
    results.extend(limits);
    Expectations {
        results,
        gaps,
        notes,
    }
}

/// The result of a relation that compared no case: skipped if `optional` names each case that it
/// lacks, else missing.
fn without_value(
    relation: Relation,
    first: &ExpectedCase,
    cases: &[ExpectedCase],
    header: &RunHeader,
) -> ExpectationResult {
    let Relation { rule, against, .. } = relation;
    let involved = cases
        .iter()
        .filter(|one| rule.case.matches(&one.case) || against.matches(&one.case));
    let lacking = involved.filter(|one| !one.is_measured());
    let lacking: Vec<&CaseId> = lacking.map(|one| one.id).collect();
    let reason = "the suite has no case that it could be compared with".to_owned();
    let known = unmeasured(&lacking, &header.rules.policy.optional);
    let (word, reason) = known.unwrap_or((Word::Missing, reason));
    ExpectationResult {
        word,
        reason: Some(reason),
        ..ExpectationResult::missing(rule, Some(first.id))
    }
}

struct ExpectedCase<'a> {
    id: &'a CaseId,
    case: Rc<Case>,
    record: &'a CaseRecord,
}

impl ExpectedCase<'_> {
    fn is_measured(&self) -> bool {
        self.record.status.is_measured()
    }

    fn is_unsupported(&self) -> bool {
        matches!(self.record.status, Outcome::Unsupported { .. })
    }

    /// True where nothing is expected of the case: it is unsupported, or failed and `optional`
    /// allows that.
    fn is_excused(&self, optional: &[String]) -> bool {
        self.is_unsupported() || (!self.is_measured() && allowed(self.id, optional))
    }
}

/// An expectation that compares times of cases.
#[derive(Clone, Copy)]
struct Relation<'a> {
    rule: &'a Expectation,
    against: &'a Selector,
    metric: Metric,
    /// Largest allowed ratio of times.
    within: Ratio,
}

impl<'a> Relation<'a> {
    /// `None` for a limit on a figure.
    fn new(rule: &'a Expectation) -> Option<Relation<'a>> {
        let Quantity::Metric(metric) = rule.metric else {
            return None;
        };
        Some(Relation {
            rule,
            against: rule.against.as_ref()?,
            metric,
            within: Ratio(rule.at_most?),
        })
    }
}

/// A relation, a case that it applies to, and the references that the case is compared with.
type Chosen<'a> = (
    Relation<'a>,
    &'a ExpectedCase<'a>,
    Vec<&'a ExpectedCase<'a>>,
);

/// Adds each case that the relation applies to. Returns the cases without a planned reference that
/// this machine supports, and the references that were left out although others remain.
fn choose<'a>(
    relation: Relation<'a>,
    cases: &'a [ExpectedCase<'a>],
    header: &RunHeader,
    chosen: &mut Vec<Chosen<'a>>,
) -> (Vec<&'a CaseId>, BTreeSet<&'a CaseId>) {
    let Relation { rule, against, .. } = relation;
    let optional = &header.rules.policy.optional;
    let mut groups: BTreeMap<Vec<(String, String)>, Vec<&ExpectedCase>> = BTreeMap::new();
    for reference in cases.iter().filter(|c| against.matches(&c.case)) {
        let key = rule.alike(&reference.case);
        groups.entry(key).or_default().push(reference);
    }
    let (mut alone, mut left_out) = (Vec::new(), BTreeSet::new());
    for case in cases.iter().filter(|c| rule.case.matches(&c.case)) {
        if case.is_excused(optional) {
            continue;
        }
        let group = groups.get(&rule.alike(&case.case));
        let others = || {
            let group = group.into_iter().flatten().copied();
            group.filter(|reference| reference.id != case.id)
        };
        // A reference that may fail and did is left out if others remain. If all of them failed,
        // there is nothing to compare the case with.
        let planned = others().filter(|reference| !reference.is_unsupported());
        let (failing, references): (Vec<&ExpectedCase>, Vec<&ExpectedCase>) =
            planned.partition(|reference| reference.is_excused(optional));
        if !references.is_empty() {
            let absent = others().filter(|reference| !reference.is_measured());
            left_out.extend(absent.map(|reference| reference.id));
            chosen.push((relation, case, references));
        } else if !failing.is_empty() {
            chosen.push((relation, case, failing));
        } else {
            alone.push(case.id);
        }
    }
    (alone, left_out)
}

/// The metric that is compared. On a CPU, host time and device time are the same.
fn metric(relation: Relation, case: &ExpectedCase, header: &RunHeader) -> Metric {
    let worker = header.worker_of(&case.case);
    let on_cpu = worker.is_some_and(WorkerRecord::runs_on_processor);
    match relation.metric {
        Metric::Host if on_cpu && case.record.median(Metric::Host).is_none() => Metric::Device,
        metric => metric,
    }
}

fn judge(
    relation: Relation,
    case: &ExpectedCase,
    references: &[&ExpectedCase],
    header: &RunHeader,
    error: f64,
) -> ExpectationResult {
    let mut result = ExpectationResult::missing(relation.rule, Some(case.id));
    let centre = |candidate: &ExpectedCase| {
        let median = candidate.record.median(metric(relation, candidate, header));
        median.filter(|_| candidate.is_measured())
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
        let what = match relation.metric {
            Metric::Device => "not measured".to_owned(),
            other => format!("not measured, or without {}", other.text()),
        };
        let missing = list(missing.map(|candidate| candidate.id));
        result.reason = Some(format!("{what}: {missing}"));
        return result;
    };
    result.against = Some(best.id.clone());
    let Some((comparison, reason)) = by_rule(relation, (case, best), header, error) else {
        result.reason = Some("no invocation has both values".to_owned());
        return result;
    };
    result.value = Some(comparison.ratio.0);
    result.comparison = Some(comparison);
    (result.word, result.reason) = (comparison.word, reason);
    if result.word == Word::Regressed {
        let cause = cause(relation, (case, best), comparison.ratio, header);
        result.reason = match (result.reason, cause) {
            (Some(reason), Some(cause)) => Some(format!("{reason}; {cause}")),
            (reason, cause) => cause.or(reason),
        };
    }
    result
}

/// Decides by the rule, and gives the reason. A case that is faster than it has to be meets the
/// demand.
fn by_rule(
    relation: Relation,
    (of, best): (&ExpectedCase, &ExpectedCase),
    header: &RunHeader,
    error: f64,
) -> Option<(Comparison, Option<String>)> {
    let threshold = relation.within.0.ln();
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
    let metrics = [best, of].map(|one| metric(relation, one, header));
    let values = compared(metrics, 0.0);
    let (base, head) = (best.record, of.record);
    let may_replace = metrics.iter().all(|metric| metric.is_wall_time())
        && !header.rules.policy.ignores(Metric::CpuTime)
        && computes(base)
        && computes(head);
    let longer = longer_by_tasks(header, base, head).filter(|_| may_replace);
    let cpu = longer.map(|longer| compared([Metric::CpuTime; 2], longer));
    let decision = decide(&values.observed((base, head), cpu.as_ref()), &terms)?;
    let by = Ratio(shift.exp());
    let mut comparison = decision.comparison.scaled(by);
    // The estimate comes from the metric that decided.
    if let Some(cpu) = decision.by_cpu() {
        comparison = comparison.with_estimate_of(cpu.scaled(by));
    }
    let met = matches!(comparison.word, Word::Same | Word::Improved);
    let reason = values.reason(&decision, &terms, by);
    let reason = reason.filter(|_| !met || comparison.by_cpu_time);
    comparison.open &= comparison.may_be_worse;
    if met {
        comparison.word = Word::Same;
    }
    Some((comparison, reason))
}

/// The order from which on a second cause is reported beside the first.
const TOLD_TOO: f64 = 0.6;

/// At most two causes of the difference between a case and its reference. The rules that explain a
/// change between two runs explain a difference within a run as well.
fn cause(
    relation: Relation,
    (of, best): (&ExpectedCase, &ExpectedCase),
    ratio: Ratio,
    header: &RunHeader,
) -> Option<String> {
    let clock = |case: &ExpectedCase| match relation.metric {
        Metric::Host if case.record.median(Metric::Host).is_some() => TimeSource::Host,
        _ => TimeSource::of_case(header, case.id, case.record),
    };
    let time = |case: &ExpectedCase| case.record.median(relation.metric).map(Nanoseconds);
    let sms = multiprocessors(header, of.id);
    let changes = changes(&Structures {
        base: best.record,
        head: of.record,
        sms,
        policy: &header.rules.policy,
        counterparts: None,
    });
    let pair = Pair {
        base: best.record,
        head: of.record,
        base_ns: time(best),
        head_ns: time(of),
        base_clock: clock(best),
        clock: clock(of),
        ratio,
        threshold: relation.within.growth(),
        versions: Vec::new(),
        sms,
        cores: header.cores(),
        restructured: changes.map(|changes| !changes.is_empty()),
    };
    let findings = causes::found(&pair.facts());
    let (first, others) = findings.split_first()?;
    let first = &first.finding;
    // Two cases have different parameters by design, and two variants have different kernels.
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

/// The first three of these cases.
fn list<'a>(cases: impl IntoIterator<Item = &'a CaseId>) -> String {
    listed(cases, 3, "; ")
}

#[cfg(test)]
mod tests;
