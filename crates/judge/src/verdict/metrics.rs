//! What a verdict says of metrics beside the device's time.

use super::sentences::{UNDECIDED, or};
use crate::judgement::{Judgement, MetricRow, Row, Word};
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Action;
use regatta_worker::units::counted;

/// Metrics beside the device's time that got worse as the suite does not allow.
pub fn regressed(judgement: &Judgement) -> Option<String> {
    let parts = Metric::OTHERS.into_iter().filter_map(|metric| {
        let failed: Vec<(&Row, &MetricRow)> = of_metric(judgement, metric)
            .filter(|(_, of)| of.fails())
            .collect();
        let (row, worst) = failed
            .iter()
            .max_by(|(_, a), (_, b)| a.change.ratio.total_cmp(&b.change.ratio))?;
        Some(format!(
            "the {} of {} regressed, worst {}: {}",
            metric.text(),
            counted(failed.len(), "case"),
            row.case,
            worst.told(),
        ))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The same of those that look worse and were not decided.
pub fn look_worse(judgement: &Judgement) -> Option<String> {
    let parts = Metric::OTHERS.into_iter().filter_map(|metric| {
        let open: Vec<(&Row, &MetricRow)> = of_metric(judgement, metric)
            .filter(|(row, of)| row.word != Word::Regressed && of.looks_worse)
            .filter(|(_, of)| of.action == Action::Fail)
            .collect();
        let (row, first) = open.first()?;
        Some(format!(
            "the {} of {} looks worse and was not decided, first {}: {}; {}",
            metric.text(),
            counted(open.len(), "case"),
            row.case,
            first.told(),
            or(&first.reason, UNDECIDED),
        ))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn of_metric(judgement: &Judgement, metric: Metric) -> impl Iterator<Item = (&Row, &MetricRow)> {
    judgement.rows.iter().flat_map(move |row| {
        let own = row.metrics.iter().filter(move |of| of.metric == metric);
        own.filter(|_| !row.allowed).map(move |of| (row, of))
    })
}
