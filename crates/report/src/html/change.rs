//! One case that changed: times, ratio, causes, and how to see it again.

use serde::Serialize;

use super::chosen::EXCERPT;
use super::context::PageContext;
use crate::account::{AccountView, FindingView, findings};
use crate::summary::{interval, reproduce};
use crate::text::{clean, one_line, shorten};
use regatta_core::suite::rules::Metric;
use regatta_judge::judgement::{Change, MetricRow, Row, Timing, Uncounted, Word};
use regatta_worker::units::{Ratio, Share, counted};

/// A case that changed, as the template takes it.
#[derive(Serialize)]
pub(super) struct ChangeView {
    /// True where the table has it.
    linked: bool,
    case: String,
    /// Whose figures these are, where it is not the device time.
    metric: Option<&'static str>,
    base: Option<String>,
    head: Option<String>,
    comparison: Option<ComparisonView>,
    reason: Option<String>,
    structure: Vec<String>,
    findings: Vec<FindingView>,
    accounts: Vec<AccountView>,
    reproduce: String,
}

/// Head against base, in words and as a whisker.
#[derive(Serialize)]
pub(super) struct ComparisonView {
    /// The estimate.
    change: String,
    /// Its 90 % interval.
    pub(super) interval: String,
    /// How it was measured, and what it could have shown.
    pub(super) how: String,
    /// Of `change`.
    tone: &'static str,
    whisker: Option<WhiskerView>,
}

/// Where a whisker lies, in percent of its track.
#[derive(Serialize)]
pub(super) struct WhiskerView {
    from: f64,
    width: f64,
    at: f64,
    band_from: f64,
    band_width: f64,
    beyond: bool,
    tone: &'static str,
}

impl ChangeView {
    pub(super) fn new(context: &PageContext, row: &Row) -> ChangeView {
        let time = |timing: &Option<Timing>| {
            let timing = timing.as_ref()?;
            Some(timing.median_ns.to_string())
        };
        let first = row.first_metric();
        let side = |of: fn(&MetricRow) -> f64, timing: &Option<Timing>| match first {
            Some(first) => Some(first.metric.value(of(first))),
            None => time(timing),
        };
        let metric = first.map(|first| first.metric);
        ChangeView {
            linked: context.cases.contains(&row.case),
            case: one_line(&row.case.0),
            metric: metric.filter(|of| *of != Metric::Device).map(Metric::text),
            base: side(|of| of.base, &row.base),
            head: side(|of| of.head, &row.head),
            comparison: first.map(|first| comparison(context, first)),
            reason: reason(row, EXCERPT),
            structure: structure(row, metric),
            findings: findings(&row.findings),
            accounts: AccountView::all(row),
            reproduce: reproduce(context.report, &row.case.0),
        }
    }
}

/// The row's reason, lines kept apart, `most` columns of it; `None` when it has none.
pub(super) fn reason(row: &Row, most: usize) -> Option<String> {
    let reason = shorten(&clean(row.reason.as_deref()?), most);
    (!reason.trim().is_empty()).then_some(reason)
}

/// Changes that are worth telling beside the metric that is shown; where those of a time went is
/// an account.
fn structure(row: &Row, shown: Option<Metric>) -> Vec<String> {
    let told = Uncounted::sentence(&row.uncounted)
        .into_iter()
        .chain(
            row.regressed()
                .filter(|of| Some(of.metric) != shown)
                .map(MetricRow::changed),
        )
        .chain(row.structure_beside_causes());
    told.map(|change| one_line(&change)).collect()
}

pub(super) fn comparison(context: &PageContext, of: &MetricRow) -> ComparisonView {
    let (change, word) = (&of.change, of.word);
    let invocations = change.invocations;
    let how = match change.paired {
        true => counted(invocations.1, "pair"),
        false => format!(
            "{} against {} of a stored run",
            invocations.1,
            counted(invocations.0, "invocation")
        ),
    };
    let left_out = match change.left_out {
        0 => String::new(),
        some => format!(
            "; {} that other programs disturbed {} left out",
            counted(some, "invocation"),
            if some == 1 { "is" } else { "are" }
        ),
    };
    let detectable = change.detectable.map_or(String::new(), |of| {
        format!("; {of} would have been detected")
    });
    ComparisonView {
        change: change.ratio.to_string(),
        interval: interval(change).unwrap_or_default(),
        how: how + &left_out + &detectable,
        tone: tone_of(word, change.ratio),
        // A whisker lies in the band of the device time's threshold.
        whisker: match of.metric {
            Metric::Device => whisker(change, word, context.threshold()),
            _ => None,
        },
    }
}

/// How a ratio is coloured: as a loss or a gain where it is one and was called so. A case may
/// be worse for another reason than its time.
fn tone_of(word: Word, ratio: Ratio) -> &'static str {
    match word {
        Word::Regressed if ratio.0 > 1.0 => "bad",
        Word::Improved if ratio.0 < 1.0 => "good",
        _ => "calm",
    }
}

/// All whiskers of a page have one scale, three thresholds either way by logarithm,
/// so that they can be compared down a column.
fn whisker(change: &Change, word: Word, threshold: Share) -> Option<WhiskerView> {
    let threshold = Ratio::grown_by(threshold).0.ln();
    let half = 3.0 * threshold;
    let place = |ratio: Ratio| {
        let share = 50.0 + 50.0 * ratio.0.ln() / half;
        // One decimal: a track is not a thousand pixels wide.
        (share.clamp(0.0, 100.0) * 10.0).round() / 10.0
    };
    let sane = |ratio: Ratio| ratio.is_finite() && ratio > Ratio(0.0);
    let (low, high) = (change.low?, change.high?);
    if ![change.ratio, low, high].into_iter().all(sane) {
        return None;
    }
    let (from, to) = (place(low), place(high));
    let round = |share: f64| (share * 10.0).round() / 10.0;
    Some(WhiskerView {
        from,
        width: round((to - from).max(0.5)),
        at: place(change.ratio),
        band_from: round(50.0 - 50.0 * threshold / half),
        band_width: round(100.0 * threshold / half),
        beyond: change.ratio.0.ln().abs() > half,
        tone: tone_of(word, change.ratio),
    })
}
