//! `cases.csv`: a row for each case.

use std::collections::BTreeSet;

use super::{Table, cell, parameter, text_cell};
use crate::device;
use crate::exporter::Report;
use crate::text::one_line;
use regatta_core::machine::{ActivitySummary, METRICS};
use regatta_core::record::conditions::Conditions;
use regatta_core::record::side::CaseRecord;
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Action;
use regatta_judge::judgement::{Finding, Row, Timing, Uncounted};
use regatta_judge::spread::{Spread, Spreads};
use regatta_worker::attention::FACETS;

/// Columns of `cases.csv` between the facets and those of metrics. From `busy_ns` to
/// `moving_ns` they are of one recorded call, `host_bound` a share of it.
const FIGURES: [&str; 29] = [
    "word",
    "allowed",
    "reason",
    "head_ns",
    "head_min_ns",
    "head_max_ns",
    "base_ns",
    "base_min_ns",
    "base_max_ns",
    "tflops",
    "gbps",
    "samples",
    "invocations",
    "spread_within",
    "spread_between",
    "throttled",
    "other_processes",
    "synchronised",
    "disturbed",
    "sm_fill",
    "busy_ns",
    "idle_ns",
    "host_bound",
    "copying_ns",
    "overlap_ns",
    "moving_ns",
    "findings",
    "account",
    "structure",
];

/// Columns of each metric, after its key: its value on both sides, in nanoseconds or bytes, and
/// the change, whose interval is of 90 %.
const OF_METRIC: [&str; 9] = [
    "word",
    "base",
    "head",
    "ratio",
    "ratio_low_90",
    "ratio_high_90",
    "threshold",
    "detectable",
    "paired",
];

/// A row for each case.
pub(super) fn cases(
    table: &mut Table,
    report: &Report,
    spreads: &Spreads,
) -> Result<(), ::csv::Error> {
    let head = &report.side;
    let sms = device::sms(&report.head.header);
    let mut params: BTreeSet<String> = BTreeSet::new();
    for row in &report.judgement.rows {
        // An id without an equals sign has none.
        if let Some(case) = row.case.case().ok().filter(|_| row.case.0.contains('=')) {
            params.extend(case.params.iter().map(|(name, _)| name.clone()));
        }
    }
    let effective: BTreeSet<&str> = head
        .cases
        .values()
        .flat_map(|record| record.effective.keys())
        .map(String::as_str)
        .collect();

    let mut names: Vec<String> = vec!["case".into()];
    names.extend(FACETS.iter().chain(&FIGURES).map(ToString::to_string));
    for metric in Metric::ALL {
        let of = OF_METRIC
            .iter()
            .map(|name| format!("{}_{name}", metric.key()));
        names.extend(of);
    }
    names.extend(["instructions", "instructions_spread"].map(str::to_owned));
    names.extend(params.iter().map(|name| format!("param_{name}")));
    names.extend(
        effective
            .iter()
            .map(|name| format!("effective_{}", one_line(name))),
    );
    table.write_record(&names)?;

    for row in &report.judgement.rows {
        let case = row.case.case().ok();
        let record = head.cases.get(&row.case);
        let mut cells = vec![text_cell(&row.case.0)];
        let facet = |name: &str| case.as_ref().map_or(String::new(), |case| case.facet(name));
        cells.extend(FACETS.iter().map(|name| text_cell(&facet(name))));
        cells.extend(figures(
            row,
            record,
            spreads.spread(&row.case).as_ref(),
            sms,
        ));
        for metric in Metric::ALL {
            cells.extend(of_metric(row, record, metric));
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

/// The cells under [`FIGURES`].
fn figures(
    row: &Row,
    record: Option<&CaseRecord>,
    spread: Option<&Spread>,
    sms: Option<u32>,
) -> [String; 29] {
    let condition = |count: fn(&Conditions) -> Option<u32>| {
        cell(record.and_then(|record| count(&record.conditions)))
    };
    let share =
        |share: fn(&Spread) -> f64| cell(spread.map(share).filter(|share| share.is_finite()));
    let activity = record.and_then(|record| record.activity.as_ref());
    let active = |ns: fn(&ActivitySummary) -> Option<u64>| cell(activity.and_then(ns));
    let head = |figure: fn(&Timing) -> f64| cell(row.head.as_ref().map(figure));
    let base = |figure: fn(&Timing) -> f64| cell(row.base.as_ref().map(figure));
    [
        row.word.text().to_owned(),
        row.allowed.to_string(),
        row.reason.as_deref().map(text_cell).unwrap_or_default(),
        head(|timing| timing.median_ns.0),
        head(|timing| timing.min_ns.0),
        head(|timing| timing.max_ns.0),
        base(|timing| timing.median_ns.0),
        base(|timing| timing.min_ns.0),
        base(|timing| timing.max_ns.0),
        cell(row.head.as_ref().and_then(|timing| Some(timing.tflops?.0))),
        cell(row.head.as_ref().and_then(|timing| timing.gbps)),
        cell(row.head.as_ref().map(|timing| timing.samples)),
        cell(row.head.as_ref().map(|timing| timing.invocations_ns.len())),
        share(|spread| spread.within.0),
        share(|spread| spread.between.0),
        condition(|of| (of.known > 0).then_some(of.throttled)),
        condition(|of| (of.known > 0).then_some(of.other_processes)),
        condition(|of| (of.synchronised > 0).then_some(of.synchronised)),
        cell(
            record
                .map(|record| record.disturbed().count())
                .filter(|lost| *lost > 0),
        ),
        cell(record.and_then(|record| Some(device::filled(record, sms)?.0))),
        active(|of| Some(of.time.busy_ns)),
        active(|of| Some(of.time.idle_ns())),
        cell(activity.and_then(|of| Some(of.time.host_bound()?.0))),
        active(|of| of.time.copying_ns),
        active(|of| Some(of.time.overlap_ns)),
        active(|of| of.moving_ns),
        findings(&row.findings),
        text_cell(
            &row.account
                .as_ref()
                .map_or_else(String::new, |of| one_line(&of.to_string())),
        ),
        structure(row),
    ]
}

/// The cells under [`OF_METRIC`]. What was measured and compared with nothing has its head alone.
fn of_metric(row: &Row, record: Option<&CaseRecord>, metric: Metric) -> [String; 9] {
    let Some(of) = row.metric(metric) else {
        let head = record.and_then(|record| record.median(metric));
        let mut cells: [String; 9] = Default::default();
        cells[2] = cell(head);
        return cells;
    };
    let change = &of.change;
    [
        of.word.text().to_owned(),
        cell(Some(of.base)),
        cell(Some(of.head)),
        cell(Some(change.ratio.0)),
        cell(change.low.map(|low| low.0)),
        cell(change.high.map(|high| high.0)),
        cell(Some(change.threshold.0)),
        cell(change.detectable.map(|share| share.0)),
        change.paired.to_string(),
    ]
}

fn findings(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings
        .iter()
        .map(|finding| one_line(&finding.to_string()))
        .collect();
    text_cell(&texts.join("; "))
}

/// Every change of structure with how it is taken: `fail: grid 157x1x1 → 1x1x1 of fmha`.
/// Empty where nothing changed, and where nothing was compared; what is not counted any more
/// is told.
fn structure(row: &Row) -> String {
    let changes = row.structure.iter().flatten();
    let uncounted = Uncounted::sentence(&row.uncounted).into_iter();
    let uncounted = uncounted.map(|told| one_line(&format!("missing: {told}")));
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
