//! `cases.csv`: a row for each case.

use std::collections::BTreeSet;

use super::{Table, cell, parameter, text_cell};
use crate::Report;
use crate::device;
use crate::text::one_line;
use regatta_core::machine::{ActivitySummary, METRICS};
use regatta_core::record::side::CaseRecord;
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Action;
use regatta_judge::judgement::{MetricRow, Row, Timing, Uncounted};
use regatta_judge::spread::{Spread, Spreads};
use regatta_worker::attention::FACETS;

/// What the cells of a row are read from.
struct CaseCells<'a> {
    row: &'a Row,
    record: Option<&'a CaseRecord>,
    spread: Option<Spread>,
    sms: Option<u32>,
    filter: &'a str,
}

impl CaseCells<'_> {
    fn head(&self, figure: fn(&Timing) -> Option<f64>) -> String {
        cell(self.row.head.as_ref().and_then(figure))
    }

    fn base(&self, figure: fn(&Timing) -> Option<f64>) -> String {
        cell(self.row.base.as_ref().and_then(figure))
    }

    fn spread(&self, share: fn(&Spread) -> f64) -> String {
        let share = self.spread.as_ref().map(share);
        cell(share.filter(|share| share.is_finite()))
    }

    fn record(&self, count: fn(&CaseRecord) -> Option<u32>) -> String {
        cell(self.record.and_then(count))
    }

    /// A figure of one recorded call.
    fn call(&self, ns: fn(&ActivitySummary) -> Option<u64>) -> String {
        let activity = self.record.and_then(|record| record.activity.as_ref());
        cell(activity.and_then(ns))
    }

    fn host_bound(&self) -> String {
        let activity = self.record.and_then(|record| record.activity.as_ref());
        cell(activity.and_then(|of| Some(of.time.host_bound()?.0)))
    }

    fn sm_fill(&self) -> String {
        let filled = |record| Some(device::filled(record, self.sms)?.0);
        cell(self.record.and_then(filled))
    }
}

/// A column's name, and what reads its cell.
type Column<T> = (&'static str, fn(&T) -> String);
type CaseColumn = (&'static str, for<'a> fn(&CaseCells<'a>) -> String);

/// Columns of `cases.csv` between the facets and those of metrics. From `busy_ns` to
/// `moving_ns` they are of one recorded call, `host_bound` a share of it.
const COLUMNS: [CaseColumn; 30] = [
    ("word", |of| of.row.word.text().to_owned()),
    ("allowed", |of| of.row.allowed.to_string()),
    ("reason", |of| joined(of.row.reason.iter())),
    ("filter", |of| text_cell(of.filter)),
    ("head_ns", |of| of.head(|of| Some(of.median_ns.0))),
    ("head_min_ns", |of| of.head(|of| Some(of.min_ns.0))),
    ("head_max_ns", |of| of.head(|of| Some(of.max_ns.0))),
    ("base_ns", |of| of.base(|of| Some(of.median_ns.0))),
    ("base_min_ns", |of| of.base(|of| Some(of.min_ns.0))),
    ("base_max_ns", |of| of.base(|of| Some(of.max_ns.0))),
    ("tflops", |of| of.head(|of| Some(of.tflops?.0))),
    ("gbps", |of| of.head(|of| of.gbps)),
    ("samples", |of| of.head(|of| Some(of.samples as f64))),
    ("invocations", |of| {
        of.head(|of| Some(of.invocations_ns.len() as f64))
    }),
    ("spread_within", |of| of.spread(|of| of.within.0)),
    ("spread_between", |of| of.spread(|of| of.between.0)),
    ("throttled", |of| {
        of.record(|of| known(of, of.conditions.throttled))
    }),
    ("other_processes", |of| {
        of.record(|of| known(of, of.conditions.other_processes))
    }),
    ("synchronised", |of| {
        of.record(|of| above_zero(of.conditions.synchronised))
    }),
    ("disturbed", |of| {
        of.record(|of| above_zero(of.disturbed().count() as u32))
    }),
    ("sm_fill", |of| of.sm_fill()),
    ("busy_ns", |of| of.call(|of| Some(of.time.busy_ns))),
    ("idle_ns", |of| of.call(|of| Some(of.time.idle_ns()))),
    ("host_bound", |of| of.host_bound()),
    ("copying_ns", |of| of.call(|of| of.time.copying_ns)),
    ("overlap_ns", |of| of.call(|of| Some(of.time.overlap_ns))),
    ("moving_ns", |of| of.call(|of| of.moving_ns)),
    ("findings", |of| joined(of.row.findings.iter())),
    ("account", |of| joined(of.row.account.iter())),
    ("structure", |of| structure(of.row)),
];

/// Columns of each metric, after its key: its value on both sides, in nanoseconds or bytes, and
/// the change, whose interval is of 90 %.
const OF_METRIC: [Column<MetricRow>; 9] = [
    ("word", |of| of.word.text().to_owned()),
    ("base", |of| cell(Some(of.base))),
    ("head", |of| cell(Some(of.head))),
    ("ratio", |of| cell(Some(of.change.ratio.0))),
    ("ratio_low_90", |of| cell(of.change.low.map(|low| low.0))),
    ("ratio_high_90", |of| {
        cell(of.change.high.map(|high| high.0))
    }),
    ("threshold", |of| cell(Some(of.change.threshold.0))),
    ("detectable", |of| {
        cell(of.change.detectable.map(|share| share.0))
    }),
    ("paired", |of| of.change.paired.to_string()),
];

/// A count of conditions, where any invocation knew them.
fn known(record: &CaseRecord, count: u32) -> Option<u32> {
    (record.conditions.known > 0).then_some(count)
}

fn above_zero(count: u32) -> Option<u32> {
    (count > 0).then_some(count)
}

/// A row for each case.
pub(super) fn cases(
    table: &mut Table,
    report: &Report,
    spreads: &Spreads,
) -> Result<(), ::csv::Error> {
    let head = &report.side;
    let mut params: BTreeSet<String> = BTreeSet::new();
    for row in &report.judgement.rows {
        // An id without an equals sign has none.
        if let Some(case) = row.case.case().ok().filter(|_| row.case.0.contains('=')) {
            params.extend(case.params.iter().map(|(name, _)| name.clone()));
        }
    }
    let effective = head.cases.values().flat_map(|of| of.effective.keys());
    let effective: BTreeSet<&str> = effective.map(String::as_str).collect();

    let mut names: Vec<String> = vec!["case".into()];
    names.extend(FACETS.map(str::to_owned));
    names.extend(COLUMNS.map(|(name, _)| name.to_owned()));
    for metric in Metric::ALL {
        names.extend(OF_METRIC.map(|(name, _)| format!("{}_{name}", metric.key())));
    }
    names.extend(["instructions", "instructions_spread"].map(str::to_owned));
    names.extend(params.iter().map(|name| format!("param_{name}")));
    let of_head = effective.iter();
    names.extend(of_head.map(|name| format!("effective_{}", one_line(name))));
    table.write_record(&names)?;

    let filter = report.judgement.head.filter.as_deref().unwrap_or_default();
    let sms = device::sms(&report.head.header);
    for row in &report.judgement.rows {
        let case = row.case.case().ok();
        let record = head.cases.get(&row.case);
        let mut cells = vec![text_cell(&row.case.0)];
        let facet = |name: &str| case.as_ref().map_or(String::new(), |case| case.facet(name));
        cells.extend(FACETS.iter().map(|name| text_cell(&facet(name))));
        let source = CaseCells {
            row,
            record,
            spread: spreads.spread(&row.case),
            sms,
            filter,
        };
        cells.extend(COLUMNS.map(|(_, read)| read(&source)));
        for metric in Metric::ALL {
            match row.metric(metric) {
                Some(of) => cells.extend(OF_METRIC.map(|(_, read)| read(of))),
                // A metric without a base has its head alone.
                None => cells.extend(OF_METRIC.map(|(name, _)| match name {
                    "head" => cell(record.and_then(|record| record.median(metric))),
                    _ => String::new(),
                })),
            }
        }
        let counters = record.and_then(|record| record.counters.as_deref());
        let instructions = counters.and_then(|of| of.total(METRICS[0].name));
        cells.push(cell(instructions.map(|counts| counts.most)));
        cells.push(cell(instructions.map(|counts| counts.spread())));
        cells.extend(params.iter().map(|name| {
            let value = case.as_ref().map(|case| case.params.get(name));
            value.as_ref().map_or(String::new(), parameter)
        }));
        cells.extend(effective.iter().map(|&name| {
            let value = record.and_then(|record| record.effective.get(name));
            value.map_or(String::new(), parameter)
        }));
        table.write_record(&cells)?;
    }
    Ok(())
}

/// Texts in a cell.
fn joined(texts: impl Iterator<Item = impl ToString>) -> String {
    let texts: Vec<String> = texts.map(|text| one_line(&text.to_string())).collect();
    text_cell(&texts.join("; "))
}

/// Every change of structure with how it is taken: `fail: grid 157x1x1 → 1x1x1 of fmha`.
/// Empty where nothing changed, and where nothing was compared; counts that the head lacks are
/// named.
fn structure(row: &Row) -> String {
    let changes = row.structure.iter().flatten();
    let uncounted = Uncounted::sentence(&row.uncounted).into_iter();
    let uncounted = uncounted.map(|lost| one_line(&format!("missing: {lost}")));
    let texts = changes.map(|change| {
        let action = match change.action {
            Action::Fail => "fail",
            Action::Warn => "warn",
            Action::Ignore => "ignore",
        };
        one_line(&format!("{action}: {change}"))
    });
    text_cell(&uncounted.chain(texts).collect::<Vec<_>>().join("; "))
}
