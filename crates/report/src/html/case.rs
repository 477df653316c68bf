//! Facts of one case, beside its verdict.

use std::collections::BTreeSet;

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
use regatta_judge::judgement::{Row, Timing, Uncounted, Word};
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{ARROW, Nanoseconds, counted};

/// A named figure, and whether head and base do not agree on it.
pub(super) type Fact = (String, String, bool);

/// One in which head and base agree.
fn fact(name: impl Into<String>, value: String) -> Fact {
    (name.into(), value, false)
}

/// Facts of a case: figures, effective parameters, errors of its results.
pub(super) fn facts(row: &Row, head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Vec<Fact> {
    let mut facts = figures(row, head);
    facts.extend(of_one_call(head, base));
    facts.extend(effective(head, base));
    let errors = head.into_iter().flat_map(|record| &record.errors);
    facts.extend(errors.map(|(result, error)| {
        let name = format!("{}, error against float64", one_line(result));
        fact(name, format!("{error:.1e}"))
    }));
    facts
}

/// How near a case comes to what its device was measured to reach.
pub(super) fn shares(row: &Row, header: &RunHeader) -> Vec<Fact> {
    let (Some(timing), Some(peak)) = (&row.head, reached(header, &row.case)) else {
        return Vec::new();
    };
    let products = peak.share_of_products(timing.tflops);
    let copies = peak.share_of_copies(timing.gbps);
    let products = products.map(|share| fact("share of the measured matrix product rate", share));
    let copies = copies.map(|share| {
        fact(
            "share of the measured copy rate, by compulsory bytes",
            share,
        )
    });
    products.into_iter().chain(copies).collect()
}

fn figures(row: &Row, record: Option<&CaseRecord>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: String| facts.push(fact(name, value));
    for (side, timing) in [("head", &row.head), ("base", &row.base)] {
        if let Some(Timing { min_ns, max_ns, .. }) = timing {
            let name = format!("{side}, fastest to slowest invocation");
            add(&name, format!("{min_ns} to {max_ns}"));
        }
    }
    if let Some(timing) = &row.head {
        let mut both = |name, read: fn(&Timing) -> Option<Nanoseconds>| {
            if let Some(ns) = read(timing) {
                let base = row.base.as_ref().and_then(read);
                add(
                    name,
                    before_after(base.map(|ns| ns.to_string()), ns.to_string()),
                );
            }
        };
        both("host time to issue a call", |of| of.host_ns);
        both("first call", |of| of.first_call_ns);
        let invocations = timing.invocations_ns.len();
        add(
            "samples",
            format!("{} in {invocations} invocations", timing.samples),
        );
    }
    let Some(record) = record else { return facts };
    if let Some(bytes) = record.median(Metric::PeakMemory) {
        add("most device memory in use", Metric::PeakMemory.value(bytes));
    }
    if let Some(clock) = median(&record.clock_mhz) {
        add("device clock", format!("{clock:.0} MHz"));
    }
    conditions(&record.conditions, &mut add);
    let disturbed = record.disturbed().count();
    if disturbed > 0 {
        let by = worst(record.disturbed().flat_map(|one| &one.disturbed));
        let lost = counted(disturbed, "invocation");
        let lost = format!("{lost} ({})", one_line(&describe(&by)));
        add("disturbed by other programs", lost);
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

/// `157`, or `157 → 1` where the base differs.
fn before_after(base: Option<String>, now: String) -> String {
    match base.filter(|before| *before != now) {
        Some(before) => format!("{before} {ARROW} {now}"),
        None => now,
    }
}

/// What each parameter became.
fn effective(head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Vec<Fact> {
    let of =
        |record: Option<&CaseRecord>| record.map(|of| of.effective.clone()).unwrap_or_default();
    let (head, base) = (of(head), of(base));
    let text = |value: &ParamValue| one_line(&value.to_string());
    let names: BTreeSet<&String> = head.keys().chain(base.keys()).collect();
    let facts = names.into_iter().map(|name| {
        let (before, now) = (base.get(name), head.get(name));
        let value = now.map_or("unknown".to_owned(), text);
        (
            format!("{} became", one_line(name)),
            before_after(before.map(text), value),
            before.is_some() && before != now,
        )
    });
    facts.collect()
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

/// What the device did in one recorded call.
fn of_one_call(head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Vec<Fact> {
    let of = |record: Option<&CaseRecord>| record.and_then(|record| record.activity.clone());
    let (head, base) = (of(head), of(base));
    let facts = FIGURES.iter().filter_map(|(name, read)| {
        let now = read(head.as_ref()?)?;
        let before = base.as_ref().and_then(read);
        Some(fact(*name, before_after(before, now)))
    });
    facts.collect()
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
    let [part, whole] = [part, whole].map(|ns| Nanoseconds(ns as f64));
    match part == Nanoseconds::ZERO {
        true => format!("none of {whole}"),
        false => format!("{part} of {whole}"),
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
            .map(|(name, value, _)| format!("{name}: {value}"))
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
