//! Expectations: relations that must hold inside one run, without any baseline.
//!
//! A case and its references ran in the same invocations, minutes apart at most,
//! so they are compared pair by pair: what one invocation does to both cancels.

use std::collections::{BTreeMap, BTreeSet};

use super::causes::{self, Pair};
use super::complete::{allowed, usable};
use super::judgement::{ExpectationResult, Held};
use super::phrase::{count, factor, list};
use super::statistics::paired_ratio;
use super::structure::multiprocessors;
use super::values::FEWEST;
use crate::attention::{Case, CaseId, FACETS};
use crate::record::side::{CaseRecord, Side, Status, is_time, median};
use crate::record::types::RunHeader;
use crate::suite::rules::{Expectation, Metric};

/// Coverage of the interval. Five invocations reach 93.75 %: their whole range.
const INTERVAL: f64 = 0.95;

/// With a lower coverage than this, which takes five invocations, a limit counts
/// as broken only when it is exceeded [`UNMISTAKABLE`] times over in all of them.
const CALLING: f64 = 0.90;

/// See [`CALLING`].
const UNMISTAKABLE: f64 = 2.0;

/// Holds each case of a side to what its suite expects. Sentences: expectations
/// that had nothing to say about cases they select.
pub fn expectations(side: &Side) -> (Vec<ExpectationResult>, Vec<String>) {
    let cases: Vec<Candidate> = side
        .cases
        .iter()
        .filter_map(|(id, record)| {
            let case = id.case().ok()?;
            Some(Candidate { id, case, record })
        })
        .collect();
    let mut results = Vec::new();
    let mut notes = Vec::new();
    for rule in &side.header.rules.expectations {
        let before = results.len();
        let alone = hold_all(rule, &cases, &side.header, &mut results);
        if !alone.is_empty() {
            notes.push(format!(
                "`{}` selects {} with nothing to hold {} against: {}",
                rule.name,
                count(alone.len(), "case"),
                if alone.len() == 1 { "it" } else { "them" },
                list(alone),
            ));
        } else if results.len() == before {
            notes.push(format!("`{}` was not held against any case", rule.name));
        }
    }
    (results, notes)
}

struct Candidate<'a> {
    id: &'a CaseId,
    case: Case,
    record: &'a CaseRecord,
}

/// Adds a result for each case that the rule holds to something; returns those it
/// selects for which no reference was planned, or none that this machine supports.
fn hold_all<'a>(
    rule: &Expectation,
    cases: &[Candidate<'a>],
    header: &RunHeader,
    results: &mut Vec<ExpectationResult>,
) -> Vec<&'a CaseId> {
    let allow = &header.rules.policy.allow;
    let mut groups: BTreeMap<Vec<(String, String)>, Vec<&Candidate>> = BTreeMap::new();
    for reference in cases.iter().filter(|c| rule.against.matches(&c.case)) {
        let key = alike(rule, &reference.case);
        groups.entry(key).or_default().push(reference);
    }
    let excused = |candidate: &Candidate| {
        matches!(candidate.record.status, Status::Unsupported { .. })
            || (failed(candidate) && allowed(candidate.id, allow))
    };
    let mut alone = Vec::new();
    for held in cases.iter().filter(|c| rule.case.matches(&c.case)) {
        if excused(held) {
            continue;
        }
        let group = groups.get(&alike(rule, &held.case));
        let references: Vec<&Candidate> = group
            .into_iter()
            .flatten()
            .filter(|reference| reference.id != held.id && !excused(reference))
            .copied()
            .collect();
        if references.is_empty() {
            alone.push(held.id);
        } else {
            results.push(hold(rule, held, &references, header));
        }
    }
    alone
}

/// Everything about a case that neither selector of a rule names: two cases with
/// the same are alike.
///
/// Facets overlap, and naming one names what it implies: the variant is the
/// worker's, so a rule that names variants compares across workers, and a rule
/// that names workers compares variants of the same name.
fn alike(rule: &Expectation, case: &Case) -> Vec<(String, String)> {
    let named: BTreeSet<&str> = rule.case.facets().chain(rule.against.facets()).collect();
    let variant = named.contains("variant");
    let free = |facet: &str| match facet {
        "worker" => variant || named.contains("worker"),
        facet => named.contains(facet),
    };
    let parameters = case.params.iter().map(|(name, _)| name.as_str());
    FACETS
        .into_iter()
        .chain(parameters)
        .filter(|facet| !free(facet))
        .map(|facet| {
            let value = match facet {
                "variant" if named.contains("worker") => case.variant.name.clone(),
                facet => case.facet(facet),
            };
            (facet.to_owned(), value)
        })
        .collect()
}

fn failed(candidate: &Candidate) -> bool {
    candidate.record.status != Status::Measured
}

/// The times a rule speaks of, an invocation each. Where host and device are one,
/// the worker reports no host times and the device's are both.
fn times(metric: Metric, record: &CaseRecord) -> &[f64] {
    let screened = record.device_ns.len();
    match metric {
        Metric::Host if !record.host_ns.is_empty() => {
            &record.host_ns[..screened.min(record.host_ns.len())]
        }
        _ => &record.device_ns,
    }
}

fn hold(
    rule: &Expectation,
    held: &Candidate,
    references: &[&Candidate],
    header: &RunHeader,
) -> ExpectationResult {
    let mut result = ExpectationResult {
        name: rule.name.clone(),
        case: held.id.clone(),
        against: None,
        metric: rule.metric,
        within: rule.within,
        ratio: None,
        low: None,
        high: None,
        held: Held::NotJudged,
        reason: None,
    };
    let centre = |candidate: &Candidate| {
        let measured = candidate.record.status == Status::Measured;
        median(&usable(times(rule.metric, candidate.record))).filter(|_| measured)
    };
    // Choosing the fastest of several favours a lucky one; the limit a suite sets
    // leaves room for that.
    let best = references
        .iter()
        .filter_map(|reference| Some((centre(reference)?, *reference)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(_), Some((_, best))) = (centre(held), best) else {
        let missing: Vec<&CaseId> = std::iter::once(held)
            .chain(references.iter().copied())
            .filter(|candidate| centre(candidate).is_none())
            .map(|candidate| candidate.id)
            .collect();
        result.reason = Some(match header.settings.structure_only {
            true => "no time was taken".to_owned(),
            false => format!("not measured: {}", list(missing)),
        });
        return result;
    };
    result.against = Some(best.id.clone());
    compare(rule, held.record, best.record, &mut result);
    if result.held == Held::Broken {
        result.reason = cause(
            held.record,
            best.record,
            &result,
            multiprocessors(header, held.id),
        );
    }
    result
}

/// Confidence from which a second cause is told beside the first.
const TOLD_TOO: f64 = 0.6;

/// What sets a case apart from the one it was held against, in at most two causes: the
/// rules that explain a change over time explain a difference within a run as well.
fn cause(
    held: &CaseRecord,
    best: &CaseRecord,
    result: &ExpectationResult,
    sms: Option<u64>,
) -> Option<String> {
    let pair = Pair {
        base: best,
        head: held,
        ratio: result.ratio?,
        floor: result.within - 1.0,
        versions: Vec::new(),
        sms,
    };
    let findings = causes::findings(&pair);
    let (first, others) = findings.split_first()?;
    // The parameters of two cases differ by design, and the kernels of two variants.
    let variant = |id: &CaseId| id.case().ok().map(|case| case.variant);
    let same_variant = result.against.as_ref().and_then(variant) == variant(&result.case);
    let by_design = |cause: &str| match cause {
        "parameter-changed" => true,
        "kernel-replaced" => !same_variant,
        _ => false,
    };
    let second = others
        .iter()
        .find(|other| other.confidence >= TOLD_TOO && !by_design(&other.cause));
    let second = second.map(|second| format!("; {}: {}", second.cause, second.evidence));
    Some(format!(
        "{}, from the best to this one: {}{}",
        first.cause,
        first.evidence,
        second.unwrap_or_default()
    ))
}

fn compare(
    rule: &Expectation,
    held: &CaseRecord,
    best: &CaseRecord,
    result: &mut ExpectationResult,
) {
    let pairs = times(rule.metric, held)
        .iter()
        .zip(times(rule.metric, best));
    let ratios: Vec<f64> = pairs
        .filter(|(case, best)| is_time(**case) && is_time(**best))
        .map(|(case, best)| case / best)
        .collect();
    let (Some(estimate), Some(centre)) = (paired_ratio(&ratios, INTERVAL), median(&ratios)) else {
        result.reason = Some("no invocation has both times".to_owned());
        return;
    };
    result.ratio = Some(centre);
    result.low = Some(estimate.low);
    result.high = Some(estimate.high);
    if !(rule.within.is_finite() && rule.within > 0.0) {
        result.reason = Some("its limit is no positive number".to_owned());
        return;
    }
    let few = estimate.confidence < CALLING;
    let breaking = if few { UNMISTAKABLE } else { 1.0 } * rule.within;
    let enough = !few || ratios.len() >= FEWEST;
    if centre <= rule.within {
        result.held = Held::Yes;
    } else if enough && estimate.low > breaking {
        result.held = Held::Broken;
    } else {
        result.held = Held::Inconclusive;
        result.reason = Some(undecided(&ratios, rule.within, few));
    }
}

fn undecided(ratios: &[f64], within: f64, few: bool) -> String {
    let over = ratios.iter().filter(|&&ratio| ratio > within).count();
    let invocations = count(ratios.len(), "invocation");
    let limit = factor(within);
    if few {
        format!("{over} of {invocations} above {limit}; five would decide")
    } else {
        format!("{over} of {invocations} above {limit}, not clearly enough")
    }
}

#[cfg(test)]
mod tests;
