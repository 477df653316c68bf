//! One case in the table: its figures in a row, and all that is known beneath.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::activity;
use super::change::{Comparison, EXCERPT, FindingView, comparison, findings, reason};
use super::context::{Context, tone};
use super::fact::{Fact, fact};
use crate::attention::ParamValue;
use crate::judge::judgement::{Row, Timing, Uncounted};
use crate::machine::Structure;
use crate::record::conditions::Conditions;
use crate::record::disturbance::told;
use crate::record::side::{CaseRecord, median};
use crate::record::types::Outcome;
use crate::report::fill;
use crate::report::plot::{Invocation, Strip, strip};
use crate::report::summary::reproduce;
use crate::report::text::{clean, one_line};
use crate::units::{ARROW, Bytes, Digits, Nanoseconds, counted, numbers};

/// A case, as the template takes it.
#[derive(Serialize)]
pub(super) struct CaseView {
    number: usize,
    case: String,
    word: &'static str,
    tone: &'static str,
    allowed: bool,
    base: Option<String>,
    head: Option<String>,
    tflops: Option<String>,
    gbps: Option<String>,
    /// What the columns are sorted by; absent where there is no number.
    sort: SortKeys,
    comparison: Option<Comparison>,
    reason: Option<String>,
    findings: Vec<FindingView>,
    samples: Option<String>,
    facts: Vec<Fact>,
    effective: Vec<Fact>,
    errors: Vec<Fact>,
    /// Every change of structure, those that are ignored last.
    changes: Vec<String>,
    structure: Vec<StructureView>,
    log: Option<String>,
    reproduce: String,
}

#[derive(Serialize)]
struct SortKeys {
    base: Option<f64>,
    head: Option<f64>,
    ratio: Option<f64>,
    tflops: Option<f64>,
    gbps: Option<f64>,
}

/// What one call does, of one side.
#[derive(Serialize)]
struct StructureView {
    side: &'static str,
    launches: Vec<LaunchView>,
    counts: String,
}

#[derive(Serialize)]
struct LaunchView {
    kernel: String,
    grid: String,
    block: String,
    blocks: u64,
    /// Multiprocessors that get a block: `1 of 132`.
    sms: String,
    /// Blocks that one holds at once, and how often the device is filled with them.
    at_once: String,
    waves: String,
    registers: String,
    shared: String,
}

impl CaseView {
    pub(super) fn of(context: &Context, row: &Row, number: usize) -> CaseView {
        let head = context.head_record(&row.case);
        let base = context.base_record(&row.case);
        let figure = |side: &Option<Timing>, read: fn(&Timing) -> Option<f64>| {
            let value = side.as_ref().and_then(read);
            // Five digits sort as well as seventeen.
            let digits = |value: f64| format!("{value:.4e}").parse().ok();
            value.filter(|value| value.is_finite()).and_then(digits)
        };
        let time = |timing: &Option<Timing>| {
            let timing = timing.as_ref()?;
            Some(timing.median_ns.to_string())
        };
        let rate = |timing: &Timing| Some(Digits(timing.gbps?).to_string());
        let ratio = row.times_ratio();
        CaseView {
            number,
            case: one_line(&row.case.0),
            word: row.word.text(),
            tone: tone(row.word),
            // Of a case that was measured there is nothing to allow.
            allowed: row.allowed && row.head.is_none(),
            base: time(&row.base),
            head: time(&row.head),
            tflops: row
                .head
                .as_ref()
                .and_then(|timing| Some(timing.tflops?.to_string())),
            gbps: row.head.as_ref().and_then(rate),
            sort: SortKeys {
                base: figure(&row.base, |timing| Some(timing.median_ns.0)),
                head: figure(&row.head, |timing| Some(timing.median_ns.0)),
                ratio: ratio.map(|ratio| ratio.0).filter(|ratio| ratio.is_finite()),
                tflops: figure(&row.head, |timing| Some(timing.tflops?.0)),
                gbps: figure(&row.head, |timing| timing.gbps),
            },
            comparison: comparison(context, row),
            reason: reason(row),
            findings: findings(row),
            samples: samples(context, row),
            facts: [facts(row, head), activity::facts(head, base)].concat(),
            effective: effective(head, base),
            errors: errors(head),
            changes: changes(row),
            structure: structure(row, head, base, fill::sms(&context.report.head.header)),
            log: log(context, row),
            reproduce: reproduce(context.report, &row.case.0),
        }
    }
}

/// The strip plot, with fewer points a case the more cases there are: the page
/// must stay small enough to open on a phone.
fn samples(context: &Context, row: &Row) -> Option<String> {
    let planned = context.report.head.header.settings.invocations;
    let entries = context.entries.get(&row.case).into_iter().flatten();
    let head: Vec<(Vec<f64>, bool)> = entries
        .filter_map(|entry| match &entry.outcome {
            Outcome::Measured(measurement) => {
                Some((numbers(&measurement.device_ns), entry.invocation >= planned))
            }
            _ => None,
        })
        .collect();
    let base_ns = row
        .base
        .as_ref()
        .map_or(Vec::new(), |timing| numbers(&timing.invocations_ns));
    let cases = context.in_full.len().max(1);
    strip(&Strip {
        case: &one_line(&row.case.0),
        base_ns: &base_ns,
        head: head
            .iter()
            .map(|(device_ns, confirms)| Invocation {
                device_ns,
                confirms: *confirms,
            })
            .collect(),
        most: (80_000 / cases).clamp(60, 400),
    })
}

fn facts(row: &Row, record: Option<&CaseRecord>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: String| facts.push(fact(name, value));
    if let Some(timing) = &row.head {
        let range = [timing.min_ns, timing.max_ns].map(|time| time.to_string());
        add("head, fastest to slowest invocation", range.join(" to "));
    }
    if let Some(timing) = &row.base {
        let range = [timing.min_ns, timing.max_ns].map(|time| time.to_string());
        add("base, fastest to slowest invocation", range.join(" to "));
    }
    if let Some(timing) = &row.head {
        if let Some(ns) = timing.host_ns {
            let base = row.base.as_ref().and_then(|base| base.host_ns);
            add("host time to issue a call", before_after(base, ns));
        }
        if let Some(ns) = timing.first_call_ns {
            let base = row.base.as_ref().and_then(|base| base.first_call_ns);
            add("first call", before_after(base, ns));
        }
        add(
            "samples",
            format!(
                "{} in {} invocations",
                timing.samples,
                timing.invocations_ns.len()
            ),
        );
    }
    if let Some(bytes) = record.and_then(|record| record.peak_bytes) {
        add("most device memory in use", bytes.to_string());
    }
    if let Some(clock) = record.and_then(|record| median(&record.clock_mhz)) {
        add("device clock", format!("{clock:.0} MHz"));
    }
    if let Some(record) = record {
        conditions(&record.conditions, &mut add);
        if !record.disturbed.is_empty() {
            let lost = counted(record.disturbed.len(), "invocation");
            let by = one_line(&told(&record.conditions.disturbed_by));
            add(
                "the machine was in",
                format!("{lost} ({by}), which decide nothing"),
            );
        }
    }
    facts
}

/// What happened around the samples, where it says something.
fn conditions(found: &Conditions, add: &mut impl FnMut(&str, String)) {
    let of = |part: u32| format!("in {part} of {} invocations", found.known);
    if found.throttled > 0 {
        let reasons = found.throttle_reasons.iter().map(|reason| one_line(reason));
        let reasons: Vec<String> = reasons.collect();
        add(
            "clocks held back",
            format!("{} ({})", of(found.throttled), reasons.join(", ")),
        );
    }
    if found.shared > 0 {
        let others = format!("{}, up to {}", of(found.shared), found.other_processes);
        add("other processes on the device", others);
    }
    if found.measured_again > 0 {
        let again = format!(
            "in {} ({})",
            counted(found.measured_again as usize, "invocation"),
            one_line(&told(&found.disturbed_by))
        );
        add("samples taken again, because of the machine", again);
    }
    if found.synchronised > 0 {
        let waits = format!("in {} invocations", found.synchronised);
        add("the call waits for the device", waits);
    }
}

fn before_after(base: Option<Nanoseconds>, head: Nanoseconds) -> String {
    match base {
        Some(base) => format!("{base} {ARROW} {head}"),
        None => head.to_string(),
    }
}

/// What each parameter became: `157`, or `157 → 1` where the base differs.
fn effective(head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Vec<Fact> {
    let none = BTreeMap::new();
    let head = head.map_or(&none, |record| &record.effective);
    let base = base.map_or(&none, |record| &record.effective);
    let names: BTreeSet<&String> = head.keys().chain(base.keys()).collect();
    let text = |value: Option<&ParamValue>| {
        value.map_or("unknown".to_owned(), |value| one_line(&value.to_string()))
    };
    names
        .into_iter()
        .map(|name| {
            let (before, now) = (base.get(name), head.get(name));
            let differs = before.is_some() && before != now;
            Fact {
                name: one_line(name),
                value: if differs {
                    format!("{} → {}", text(before), text(now))
                } else {
                    text(now)
                },
                differs,
            }
        })
        .collect()
}

fn errors(head: Option<&CaseRecord>) -> Vec<Fact> {
    let errors = head.into_iter().flat_map(|record| &record.errors);
    errors
        .map(|(result, error)| fact(&one_line(result), format!("{error:.1e}")))
        .collect()
}

fn changes(row: &Row) -> Vec<String> {
    let changes = row.structure.iter().flatten().map(ToString::to_string);
    let uncounted = Uncounted::told(&row.uncounted);
    uncounted
        .into_iter()
        .chain(changes)
        .map(|change| one_line(&change))
        .collect()
}

/// The head's structure; the base's too, where it is another one or was not compared.
fn structure(
    row: &Row,
    head: Option<&CaseRecord>,
    base: Option<&CaseRecord>,
    sms: Option<u32>,
) -> Vec<StructureView> {
    let view = |side, record: Option<&CaseRecord>| {
        let structure = record?.structure.as_ref()?;
        Some(structure_view(side, structure, sms))
    };
    let same = row.structure.as_ref().is_some_and(Vec::is_empty);
    let base = base.filter(|_| !same);
    [view("head", head), view("base", base)]
        .into_iter()
        .flatten()
        .collect()
}

fn structure_view(side: &'static str, structure: &Structure, sms: Option<u32>) -> StructureView {
    let unknown = || "–".to_owned();
    let triple = |sizes: [u32; 3]| sizes.map(|size| size.to_string()).join(" × ");
    let launches = structure.launches.iter().map(|launch| LaunchView {
        kernel: one_line(&launch.name),
        grid: triple(launch.grid),
        block: triple(launch.block),
        blocks: launch.blocks(),
        sms: fill::used(launch, sms).unwrap_or_else(unknown),
        at_once: launch
            .blocks_per_sm
            .map_or_else(unknown, |blocks| blocks.to_string()),
        waves: sms
            .and_then(|sms| launch.waves(sms))
            .map_or_else(unknown, |waves| format!("{waves:.2}")),
        registers: launch
            .registers
            .map_or("–".to_owned(), |count| count.to_string()),
        shared: launch
            .shared_bytes
            .map_or("–".to_owned(), |bytes| Bytes(bytes).to_string()),
    });
    let counts = structure
        .counts
        .iter()
        .map(|(name, count)| format!("{} {count}", one_line(name)));
    let uncounted = structure
        .uncounted
        .iter()
        .map(|(name, reason)| format!("{} not counted: {}", one_line(name), one_line(reason)));
    let counts: Vec<String> = counts.chain(uncounted).collect();
    StructureView {
        side,
        launches: launches.collect(),
        counts: counts.join(", "),
    }
}

/// The last lines a worker printed before it failed.
fn log(context: &Context, row: &Row) -> Option<String> {
    let entries = context.entries.get(&row.case)?;
    entries.iter().rev().find_map(|entry| match &entry.outcome {
        Outcome::Failed { log, .. } if !log.trim().is_empty() => Some(tail(&clean(log))),
        _ => None,
    })
}

/// The end of a log: what a worker said last is what it died of.
fn tail(log: &str) -> String {
    let skipped = log.chars().count().saturating_sub(EXCERPT);
    let end: String = log.chars().skip(skipped).collect();
    if skipped > 0 {
        format!("…{end}")
    } else {
        end
    }
}
