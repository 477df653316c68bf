//! The figures of a case, each declared once, as a column of `cases.csv` and a fact on the page.

use std::collections::BTreeSet;
use std::fmt;

use crate::Report;
use crate::device;
use crate::text::{clean, one_line};
use regatta_core::machine::ActivitySummary;
use regatta_core::record::disturbance::{describe, worst};
use regatta_core::record::{CaseRecord, Conditions, Entry, Outcome, median};
use regatta_core::suite::Metric;
use regatta_judge::judgement::{Row, Timing, Uncounted, Word};
use regatta_judge::structure::multiprocessors;
use regatta_worker::case::ParamValue;
use regatta_worker::joined::Joined;
use regatta_worker::units::{ARROW, Nanoseconds, Share, numbers};

use FactFigure::{Number, Part, Time};

/// A figure, which a page prints with its unit, and a table as a plain number.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FactFigure {
    Time(Nanoseconds),
    Part(Share),
    Number(f64),
}

impl FactFigure {
    pub(crate) fn number(self) -> f64 {
        match self {
            FactFigure::Time(time) => time.0,
            FactFigure::Part(share) => share.0,
            FactFigure::Number(number) => number,
        }
    }
}

impl fmt::Display for FactFigure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            FactFigure::Time(time) => time.fmt(f),
            FactFigure::Part(share) => share.fmt(f),
            FactFigure::Number(number) => number.fmt(f),
        }
    }
}

/// The records that the figures of one side of a case are read from.
pub(crate) struct CaseSide<'a> {
    pub timing: Option<&'a Timing>,
    pub record: Option<&'a CaseRecord>,
    /// The spread of the samples of an invocation: the median over all invocations.
    pub within: Option<Share>,
    /// Multiprocessors of the machine.
    pub sms: Option<u32>,
}

impl CaseSide<'_> {
    /// The activity of one recorded call.
    fn call(&self) -> Option<&ActivitySummary> {
        self.record?.activity.as_ref()
    }

    /// A condition, if any invocation recorded it.
    fn condition(&self, read: fn(&Conditions) -> u32) -> Option<FactFigure> {
        let conditions = &self.record?.conditions;
        (conditions.known > 0).then(|| Number(read(conditions).into()))
    }
}

type Read = for<'a> fn(&CaseSide<'a>) -> Option<FactFigure>;

/// Every figure: its column of `cases.csv`, its name on a page (empty if the page shows it
/// elsewhere), and the function that reads it. A column `head_...` has a counterpart `base_...`.
/// The figures from `busy_ns` to `moving_ns` come from one recorded call. Recording lengthens a
/// call, so each of them is only a part of that call.
#[rustfmt::skip]
pub(crate) const FIGURES: [(&str, &str, Read); 21] = [
    ("head_ns", "", |side| Some(Time(side.timing?.median_ns))),
    ("head_min_ns", "fastest invocation", |side| Some(Time(side.timing?.min_ns))),
    ("head_max_ns", "slowest invocation", |side| Some(Time(side.timing?.max_ns))),
    ("tflops", "", |side| Some(Number(side.timing?.tflops?.0))),
    ("gbps", "", |side| side.timing?.gbps.map(Number)),
    ("samples", "samples", |side| Some(Number(side.timing?.samples as f64))),
    ("invocations", "invocations", |side| Some(Number(side.timing?.invocations_ns.len() as f64))),
    ("spread_within", "", |side| side.within.map(Part)),
    ("spread_between", "", |side| Some(Part(coefficient_of_variation(&side.timing?.invocations_ns)))),
    ("clock_mhz", "device clock in MHz", |side| median(&side.record?.clock_mhz).map(Number)),
 ("throttled", "invocations with clocks held back", |side| side.condition(|conditions| conditions.throttled)),
 ("other_processes", "other processes on the device", |side| side.condition(|conditions| conditions.other_processes)),
    ("synchronised", "invocations whose call waits for the device", |side| above_zero(side.record?.conditions.synchronised)),
    ("disturbed", "invocations disturbed by other programs", |side| above_zero(side.record?.disturbed().count() as u32)),
    ("sm_fill", "SMs that the longest launch fills", |side| device::filled(side.record?, side.sms).map(Part)),
    ("busy_ns", "device busy in a recorded call", |side| Some(time(side.call()?.time.busy_ns))),
    ("idle_ns", "idle between its operations", |side| Some(time(side.call()?.time.idle_ns()))),
    ("host_bound", "part of it that waits for the host", |side| side.call()?.time.host_bound().map(Part)),
    ("copying_ns", "copying", |side| side.call()?.time.copying_ns.map(time)),
    ("overlap_ns", "copying, with a kernel at once", |side| Some(time(side.call()?.time.overlap_ns))),
    ("moving_ns", "in kernels that move data", |side| side.call()?.moving_ns.map(time)),
];

/// The sample standard deviation (over n - 1) divided by the mean; NaN for fewer than two values.
pub(crate) fn coefficient_of_variation(times: &[Nanoseconds]) -> Share {
    let values = numbers(times);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    Share((squares.sum::<f64>() / (count - 1.0)).sqrt() / mean)
}

fn above_zero(count: u32) -> Option<FactFigure> {
    (count > 0).then_some(Number(count.into()))
}

fn time(ns: u64) -> FactFigure {
    Time(Nanoseconds(ns as f64))
}

/// A fact's name and value, and true if head and base differ in it.
pub(crate) type Fact = (String, String, bool);

/// Facts of a case for its details: figures, effective parameters, errors of its results.
pub(crate) fn facts(report: &Report, row: &Row) -> Vec<Fact> {
    let header = &report.head.header;
    let sms = multiprocessors(header, &row.case);
    let records = [
        report.side.cases.get(&row.case),
        report.base.and_then(|base| base.cases.get(&row.case)),
    ];
    let sides = [(&row.head, records[0]), (&row.base, records[1])];
    let [head, base] = sides.map(|(timing, record)| CaseSide {
        timing: timing.as_ref(),
        record,
        within: None,
        sms,
    });
    let mut facts = effective(records[0], records[1]);
    let mut add = |name: &str, before: Option<String>, now: Option<String>| {
        facts.extend(now.map(|now| (name.to_owned(), before_after(before, now), false)));
    };
    for (_, name, read) in FIGURES.iter().filter(|(_, name, _)| !name.is_empty()) {
        // A zero is left out, since it only says that nothing happened.
        let text = |side| {
            let figure =
                read(side).filter(|figure| figure.number().is_finite() && figure.number() != 0.0);
            figure.map(|figure| figure.to_string())
        };
        add(name, text(&base), text(&head));
    }
    let others = Metric::ALL.into_iter();
    for metric in others.filter(|metric| *metric != Metric::Device) {
        let text = |record: Option<&CaseRecord>| Some(metric.value(record?.median(metric)?));
        add(metric.text(), text(base.record), text(head.record));
    }
    if let Some(record) = head.record {
        let by = record.conditions.throttle_reasons.iter();
        let by = by.map(|reason| one_line(reason)).joined(", ");
        let by = Some(by).filter(|by| !by.is_empty());
        add("clocks held back by", None, by);
        let by = worst(record.disturbed().flat_map(|one| &one.disturbed));
        let by = Some(one_line(&describe(&by))).filter(|by| !by.is_empty());
        add("the disturbance at its worst", None, by);
        for (result, error) in record.errors.iter() {
            let reference = if record.conditions.compared_with_base > 0 {
                "difference from the base's"
            } else {
                "error against float64"
            };
            let name = format!("{}, {reference}", one_line(result));
            add(&name, None, Some(format!("{error:.1e}")));
        }
    }
    let peak = row.head.as_ref().zip(device::reached(header, &row.case));
    let [products, copies] = peak.map_or([None, None], |(side, peak)| {
        peak.shares(side.tflops, side.gbps)
    });
    let of_bytes = "share of the measured copy rate, by compulsory bytes";
    add("share of the measured matrix product rate", None, products);
    add(of_bytes, None, copies);
    facts
}

/// `157`, or `157 → 1` where the base differs.
fn before_after(base: Option<String>, now: String) -> String {
    match base.filter(|before| *before != now) {
        Some(before) => format!("{before} {ARROW} {now}"),
        None => now,
    }
}

/// The effective parameters, with the base's value where it differs.
fn effective(head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Vec<Fact> {
    let params = |record: &CaseRecord| record.effective.clone();
    let [head, base] = [head, base].map(|record| record.map(params).unwrap_or_default());
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

/// Metrics other than the device time whose word is not `same`, then all changes of structure,
/// ignored ones last.
pub(crate) fn changes(row: &Row) -> Vec<String> {
    let metrics = row.metrics.iter().filter_map(|metric| {
        let word = metric.change.word;
        let is_other = metric.metric != Metric::Device && word != Word::Same;
        is_other.then(|| format!("{}: {}", word.name(), metric.changed()))
    });
    let changes = row.structure.iter().flatten().map(ToString::to_string);
    let uncounted = Uncounted::sentence(&row.uncounted).into_iter();
    let all = uncounted.chain(metrics).chain(changes);
    all.map(|change| one_line(&change)).collect()
}

/// The last lines that a worker printed before it failed, if there are any.
pub(crate) fn log(entry: &Entry, most: usize) -> Option<String> {
    match &entry.outcome {
        Outcome::Failed { log, .. } if !log.trim().is_empty() => Some(tail(&clean(log), most)),
        _ => None,
    }
}

/// The end of a log, which names the cause of a failure.
fn tail(log: &str, most: usize) -> String {
    let skipped = log.chars().count().saturating_sub(most);
    let end: String = log.chars().skip(skipped).collect();
    if skipped > 0 {
        format!("…{end}")
    } else {
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn memory_that_grew_is_more_and_not_slower() {
        let mut row = fixture::failed().judgement.rows.remove(0);
        let peak = fixture::metric(Metric::PeakMemory, Word::Regressed, 1e9, 3e9);
        row.metrics = vec![peak];
        let change = &changes(&row)[0];
        assert!(change.starts_with("regressed: peak memory "), "{change}");
        assert!(change.contains("3.00x more"), "{change}");
    }
}
