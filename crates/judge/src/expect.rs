//! Expectations: relations that must hold inside one run, without any baseline.
//!
//! A case and its references ran in the same invocations, minutes apart at most,
//! so they are compared pair by pair: what one invocation does to both cancels.

use std::collections::BTreeMap;

use super::causes::{self, Clock, Pair};
use super::complete::{allowed, median_ns, usable};
use super::conditions::why_disturbed;
use super::judgement::{Cause, ExpectationResult, Held};
use super::statistics::paired_ratio;
use super::structure::multiprocessors;
use regatta_core::record::side::{CaseRecord, Side, Status, is_time, median};
use regatta_core::record::types::RunHeader;
use regatta_core::suite::rules::{Expectation, Metric};
use regatta_worker::attention::{Case, CaseId};
use regatta_worker::units::{Nanoseconds, Ratio, Share, counted, numbers};

/// Coverage of the interval. Five invocations reach 93.75 %: their whole range.
const INTERVAL: f64 = 0.95;

/// With a lower coverage than this, which takes five invocations, a limit is broken only
/// when it is exceeded [`UNMISTAKABLE`] times over in all of them, and shown to hold only
/// when all stay so many times below it.
const CALLING: Share = Share(0.90);

/// See [`CALLING`]. What lies many times beyond its limit in every invocation needs no
/// statistics, though it needs two of them: one process may be anything.
const UNMISTAKABLE: f64 = 2.0;

/// Invocations below which nothing is called.
const FEWEST: usize = 2;

/// What came of the expectations of a side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// One for each case that an expectation holds to something.
    pub results: Vec<ExpectationResult>,
    /// Sentences: expectations that held nothing, though the whole suite was to be judged.
    pub gaps: Vec<String>,
    /// Sentences: expectations that had nothing to say about cases they select.
    pub notes: Vec<String>,
}

/// Holds each case of a side to what its suite expects.
pub fn expectations(side: &Side) -> Expectations {
    let mut cases = Vec::new();
    let mut unread = Vec::new();
    for (id, record) in &side.cases {
        match id.case() {
            Ok(case) => cases.push(Candidate { id, case, record }),
            Err(_) => unread.push(id),
        }
    }
    let mut results = Vec::new();
    let (mut gaps, mut notes) = (Vec::new(), Vec::new());
    if !unread.is_empty() && !side.header.rules.expectations.is_empty() {
        gaps.push(format!(
            "{} could not be held to any expectation, since its id is none that regatta \
             reads: {}",
            counted(unread.len(), "case"),
            list(unread)
        ));
    }
    let partly = !side.header.suite.filter.is_empty();
    for rule in &side.header.rules.expectations {
        let before = results.len();
        let alone = hold_all(rule, &cases, &side.header, &mut results);
        if !alone.is_empty() {
            notes.push(format!(
                "`{}` selects {} with nothing to hold {} against: {}",
                rule.name,
                counted(alone.len(), "case"),
                if alone.len() == 1 { "it" } else { "them" },
                list(alone),
            ));
        } else if results.len() == before {
            let said = format!("`{}` was not held against any case", rule.name);
            let selects = cases.iter().any(|case| rule.case.matches(&case.case));
            // A part of a suite may leave out what it speaks of.
            match selects || partly {
                true => notes.push(said),
                false => gaps.push(said),
            }
        }
    }
    Expectations {
        results,
        gaps,
        notes,
    }
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
        let key = rule.alike(&reference.case);
        groups.entry(key).or_default().push(reference);
    }
    let unsupported = |candidate: &Candidate| {
        let status = &candidate.record.status;
        matches!(status, Status::Unsupported { .. })
    };
    let excused = |candidate: &Candidate| {
        unsupported(candidate) || (failed(candidate) && allowed(candidate.id, allow))
    };
    let mut alone = Vec::new();
    for held in cases.iter().filter(|c| rule.case.matches(&c.case)) {
        if excused(held) {
            continue;
        }
        let group = groups.get(&rule.alike(&held.case));
        let planned = group
            .into_iter()
            .flatten()
            .copied()
            .filter(|reference| reference.id != held.id && !unsupported(reference));
        // One that may fail, and did, is left out beside others; where all of them did,
        // there is nothing the case was held against.
        let (failing, references): (Vec<&Candidate>, Vec<&Candidate>) =
            planned.partition(|reference| excused(reference));
        match (references.is_empty(), failing.is_empty()) {
            (false, _) => results.push(hold(rule, held, &references, header)),
            (true, false) => results.push(hold(rule, held, &failing, header)),
            (true, true) => alone.push(held.id),
        }
    }
    alone
}

fn failed(candidate: &Candidate) -> bool {
    candidate.record.status != Status::Measured
}

/// The times a rule speaks of, one of each regular invocation in their order. On a
/// processor host and device are one; elsewhere a worker that reports no host times leaves
/// them unknown.
fn times<'a>(metric: Metric, held: &Candidate<'a>, header: &RunHeader) -> &'a [Nanoseconds] {
    let record = held.record;
    let screened = record.device_ns.len();
    match metric {
        Metric::Device => &record.device_ns,
        Metric::Host if !record.host_ns.is_empty() => {
            &record.host_ns[..screened.min(record.host_ns.len())]
        }
        Metric::Host if header.runs_on_processor(&held.case.variant.worker_name()) => {
            &record.device_ns
        }
        Metric::Host | Metric::FirstCall | Metric::Processor => &[],
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
        looks_worse: false,
    };
    let all = || std::iter::once(held).chain(references.iter().copied());
    let mut disturbed = all().filter_map(|of| Some((of.id, why_disturbed(of.record, "")?)));
    if let Some((id, why)) = disturbed.next() {
        result.held = Held::Inconclusive;
        result.reason = Some(match id == held.id {
            true => why,
            false => format!("{why} of {id}"),
        });
        return result;
    }
    let centre = |candidate: &Candidate| {
        let measured = candidate.record.status == Status::Measured;
        median(&usable(times(rule.metric, candidate, header))).filter(|_| measured)
    };
    // Choosing the fastest of several favours a lucky one; the limit a suite sets
    // leaves room for that.
    let best = references
        .iter()
        .filter_map(|reference| Some((centre(reference)?, *reference)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(_), Some((_, best))) = (centre(held), best) else {
        let missing: Vec<&CaseId> = all()
            .filter(|candidate| centre(candidate).is_none())
            .map(|candidate| candidate.id)
            .collect();
        result.reason = Some(match header.settings.structure_only {
            true => "no time was taken".to_owned(),
            false => {
                let what = match rule.metric {
                    Metric::Device => "not measured",
                    _ => "not measured, or without host times",
                };
                format!("{what}: {}", list(missing))
            }
        });
        return result;
    };
    result.against = Some(best.id.clone());
    compare(rule, &ratios(rule, held, best, header), &mut result);
    if result.held == Held::Broken {
        result.reason = cause(held, best, &result, header);
    }
    result
}

/// The order from which a second cause is told beside the first.
const TOLD_TOO: f64 = 0.6;

/// What sets a case apart from the one it was held against, in at most two causes: the
/// rules that explain a change over time explain a difference within a run as well.
fn cause(
    held: &Candidate,
    best: &Candidate,
    result: &ExpectationResult,
    header: &RunHeader,
) -> Option<String> {
    let clock = |of: &Candidate| match result.metric {
        Metric::Host if !of.record.host_ns.is_empty() => Clock::Host,
        _ => Clock::of(header, of.id, of.record),
    };
    let pair = Pair {
        base: best.record,
        head: held.record,
        base_ns: median_ns(times(result.metric, best, header)),
        head_ns: median_ns(times(result.metric, held, header)),
        base_clock: clock(best),
        clock: clock(held),
        ratio: result.ratio?,
        floor: result.within.growth(),
        versions: Vec::new(),
        sms: multiprocessors(header, held.id),
    };
    let found = causes::found(&pair.facts());
    let (first, others) = found.split_first()?;
    let first = &first.finding;
    // The parameters of two cases differ by design, and the kernels of two variants.
    let variant = |id: &CaseId| id.case().ok().map(|case| case.variant);
    let same_variant = result.against.as_ref().and_then(variant) == variant(&result.case);
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
        first.evidence(),
        second.unwrap_or_default()
    ))
}

/// The first few cases by name, the others by number.
fn list<'a>(cases: impl IntoIterator<Item = &'a CaseId>) -> String {
    const NAMED: usize = 3;
    let all: Vec<&CaseId> = cases.into_iter().collect();
    let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    let text = named.join("; ");
    match all.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

/// A case's times over those of the best, of each invocation that has both.
fn ratios(
    rule: &Expectation,
    held: &Candidate,
    best: &Candidate,
    header: &RunHeader,
) -> Vec<Ratio> {
    let of = |candidate| times(rule.metric, candidate, header).iter().copied();
    let best: BTreeMap<u32, Nanoseconds> = best.record.quiet_invocations().zip(of(best)).collect();
    let pairs = held.record.quiet_invocations().zip(of(held));
    let pairs = pairs.filter_map(|(invocation, case)| Some((case, *best.get(&invocation)?)));
    pairs
        .filter(|(case, best)| is_time(*case) && is_time(*best))
        .map(|(case, best)| case / best)
        .collect()
}

/// Holds the ratios of a case to the limit of a rule.
fn compare(rule: &Expectation, ratios: &[Ratio], result: &mut ExpectationResult) {
    let estimate = paired_ratio(&numbers(ratios), INTERVAL);
    let (Some(estimate), Some(centre)) = (estimate, median(ratios)) else {
        result.reason = Some("no invocation has both times".to_owned());
        return;
    };
    result.ratio = Some(centre);
    result.low = Some(estimate.low);
    result.high = Some(estimate.high);
    if !(rule.within.is_finite() && rule.within > Ratio(0.0)) {
        result.reason = Some("its limit is no positive number".to_owned());
        return;
    }
    let few = estimate.confidence < CALLING;
    let margin = if few { UNMISTAKABLE } else { 1.0 };
    let enough = !few || ratios.len() >= FEWEST;
    if enough && estimate.high <= rule.within / margin {
        result.held = Held::Yes;
    } else if enough && estimate.low > rule.within * margin {
        result.held = Held::Broken;
    } else {
        result.held = Held::Inconclusive;
        result.looks_worse = centre > rule.within;
        result.reason = Some(undecided(ratios, rule.within, few));
    }
}

fn undecided(ratios: &[Ratio], within: Ratio, few: bool) -> String {
    let over = ratios.iter().filter(|&&ratio| ratio > within).count();
    let invocations = counted(ratios.len(), "invocation");
    let limit = within.times();
    if few {
        format!("{over} of {invocations} above {limit}; five would decide")
    } else {
        format!("{over} of {invocations} above {limit}, not clearly enough; more would decide")
    }
}

#[cfg(test)]
mod tests;
