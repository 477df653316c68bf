//! Facts of one case, beside its verdict.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::device::reached;
use crate::summary::interval;
use crate::text::{clean, one_line};
use regatta_core::machine::ActivitySummary;
use regatta_core::record::conditions::Conditions;
use regatta_core::record::disturbance::{describe, worst};
use regatta_core::record::side::{CaseRecord, median};
use regatta_core::record::types::RunHeader;
use regatta_core::record::types::{Entry, Outcome};
use regatta_core::suite::rules::Metric;
use regatta_judge::judgement::{Row, Uncounted, Word};
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{ARROW, Nanoseconds, counted};

/// Named figures of a case.
pub(super) type Facts = Vec<FactView>;

/// Facts of a case: figures, effective parameters, errors of its results.
pub(super) fn facts(row: &Row, head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Facts {
    let mut facts = figures(row, head);
    facts.extend(of_one_call(head, base));
    facts.extend(effective(head, base));
    facts.extend(errors(head));
    facts
}

/// How near a case comes to what its device was measured to reach.
pub(super) fn shares(row: &Row, header: &RunHeader) -> Facts {
    let (Some(timing), Some(peak)) = (&row.head, reached(header, &row.case)) else {
        return Vec::new();
    };
    let products = peak.share_of_products(timing.tflops);
    let copies = peak.share_of_copies(timing.gbps);
    let shares = [
        ("share of the measured matrix product rate", products),
        (
            "share of the measured copy rate, by compulsory bytes",
            copies,
        ),
    ];
    let shares = shares.into_iter();
    shares
        .filter_map(|(name, share)| Some(fact(name, share?)))
        .collect()
}

fn figures(row: &Row, record: Option<&CaseRecord>) -> Vec<FactView> {
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
    if let Some(bytes) = record.and_then(|record| record.median(Metric::PeakMemory)) {
        add("most device memory in use", Metric::PeakMemory.value(bytes));
    }
    if let Some(clock) = record.and_then(|record| median(&record.clock_mhz)) {
        add("device clock", format!("{clock:.0} MHz"));
    }
    if let Some(record) = record {
        conditions(&record.conditions, &mut add);
        let disturbed = record.disturbed().count();
        if disturbed > 0 {
            let by = worst(record.disturbed().flat_map(|one| &one.disturbed));
            let lost = counted(disturbed, "invocation");
            add(
                "disturbed by other programs",
                format!("{lost} ({})", one_line(&describe(&by))),
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
fn effective(head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Vec<FactView> {
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
            FactView {
                name: format!("{} became", one_line(name)),
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

fn errors(head: Option<&CaseRecord>) -> Vec<FactView> {
    let errors = head.into_iter().flat_map(|record| &record.errors);
    errors
        .map(|(result, error)| {
            let name = format!("{}, error against float64", one_line(result));
            fact(&name, format!("{error:.1e}"))
        })
        .collect()
}

/// Other metrics than the device time that are not the same, then every change of structure, those
/// that are ignored last.
pub(super) fn changes(row: &Row) -> Vec<String> {
    let metrics = row.metrics.iter();
    let metrics = metrics.filter(|of| of.metric != Metric::Device && of.word != Word::Same);
    let metrics = metrics.map(|of| {
        let (word, name, times) = (of.word.text(), of.metric.text(), of.from_to());
        let interval = interval(&of.change).unwrap_or_default();
        format!("{word}: {name} {times}, {} {interval}", of.change.ratio)
    });
    let changes = row.structure.iter().flatten().map(ToString::to_string);
    let uncounted = Uncounted::sentence(&row.uncounted);
    uncounted
        .into_iter()
        .chain(metrics)
        .chain(changes)
        .map(|change| one_line(&change))
        .collect()
}

/// The last lines that a worker printed before it failed, where an entry has some.
pub(super) fn log(entry: &Entry, most: usize) -> Option<String> {
    match &entry.outcome {
        Outcome::Failed { log, .. } if !log.trim().is_empty() => Some(tail(&clean(log), most)),
        _ => None,
    }
}

/// The end of a log, which names what a worker died of.
fn tail(log: &str, most: usize) -> String {
    let skipped = log.chars().count().saturating_sub(most);
    let end: String = log.chars().skip(skipped).collect();
    if skipped > 0 {
        format!("…{end}")
    } else {
        end
    }
}

/// What the device did in one recorded call, the base's before the head's where both are known and read otherwise.
fn of_one_call(head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Vec<FactView> {
    let of = |record: Option<&CaseRecord>| record.and_then(|record| record.activity.clone());
    let Some(head) = of(head) else {
        return Vec::new();
    };
    let base = of(base);
    FIGURES
        .iter()
        .filter_map(|(name, read)| {
            let now = read(&head)?;
            let before = base.as_ref().and_then(read).filter(|before| *before != now);
            Some(FactView {
                name: (*name).to_owned(),
                differs: false,
                value: match before {
                    Some(before) => format!("{before} → {now}"),
                    None => now,
                },
            })
        })
        .collect()
}

type Read = fn(&ActivitySummary) -> Option<String>;

/// Recording stretches a call, so each figure is a part of the recorded call.
const FIGURES: [(&str, Read); 5] = [
    ("device busy in a recorded call", |of| {
        Some(part(of.time.busy_ns, of.time.span_ns))
    }),
    ("idle between launches", |of| {
        let idle = Nanoseconds(of.time.idle_ns() as f64);
        (of.time.gaps > 0).then(|| format!("{idle} in {}", counted(of.time.gaps as usize, "gap")))
    }),
    ("of the call, waiting for the host", |of| {
        Some(of.time.host_bound()?.to_string())
    }),
    ("copying, with a kernel at once", |of| {
        let copying = of.time.copying_ns.filter(|&ns| ns > 0)?;
        Some(part(of.time.overlap_ns, copying))
    }),
    ("in kernels that move data", |of| {
        let moving = of.moving_ns.filter(|&ns| ns > 0)?;
        Some(part(moving, of.time.busy_ns))
    }),
];

/// `52.7 µs of 267.0 µs`.
fn part(part: u64, whole: u64) -> String {
    match part {
        0 => format!("none of {}", Nanoseconds(whole as f64)),
        part => format!(
            "{} of {}",
            Nanoseconds(part as f64),
            Nanoseconds(whole as f64)
        ),
    }
}

/// A named figure.
#[derive(Clone, Serialize)]
pub struct FactView {
    pub name: String,
    pub value: String,
    /// True when head and base do not agree on it.
    pub differs: bool,
}

/// One in which head and base agree.
pub fn fact(name: &str, value: String) -> FactView {
    FactView {
        name: name.to_owned(),
        value,
        differs: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::machine::DeviceTime;
    use regatta_core::record::side::Status;

    fn told(head: ActivitySummary, base: Option<ActivitySummary>) -> Vec<String> {
        let record = |activity| CaseRecord {
            activity,
            ..CaseRecord::empty(Status::Measured)
        };
        let facts = of_one_call(Some(&record(Some(head))), Some(&record(base)));
        let facts = facts.into_iter();
        facts
            .map(|fact| format!("{}: {}", fact.name, fact.value))
            .collect()
    }

    #[test]
    fn figures_that_are_known_are_told_and_no_others() {
        let views = ActivitySummary {
            time: DeviceTime {
                busy_ns: 63_616,
                span_ns: 63_616,
                host_bound_ns: Some(0),
                ..DeviceTime::default()
            },
            ..ActivitySummary::default()
        };
        let copies = ActivitySummary {
            time: DeviceTime {
                busy_ns: 214_306,
                span_ns: 266_977,
                gaps: 4,
                host_bound_ns: Some(29_901),
                copying_ns: Some(14_000),
                ..DeviceTime::default()
            },
            moving_ns: Some(149_986),
            ..ActivitySummary::default()
        };
        insta::assert_snapshot!("one_side", told(views.clone(), None).join("\n"));
        insta::assert_snapshot!("both_sides", told(copies, Some(views)).join("\n"));
    }
}
