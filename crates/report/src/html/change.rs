//! One case that changed: times, ratio, causes, and how to see it again.

use serde::Serialize;

use super::chosen::EXCERPT;
use super::context::Context;
use crate::account::{AccountView, FindingView, findings};
use crate::summary::{Fresh, fresh, judged, reproduce};
use crate::text::{clean, one_line, shorten};
use regatta_judge::judgement::{Change, MetricRow, Row, Timing, Uncounted, Word};
use regatta_worker::units::{Ratio, Share};

/// A case that changed, as the template takes it.
#[derive(Serialize)]
pub(super) struct ChangeView {
    /// True where the table has it.
    linked: bool,
    case: String,
    base: Option<String>,
    head: Option<String>,
    comparison: Option<Comparison>,
    reason: Option<String>,
    structure: Vec<String>,
    findings: Vec<FindingView>,
    accounts: Vec<AccountView>,
    reproduce: String,
}

/// Head against base, in words and as a whisker.
#[derive(Serialize)]
pub(super) struct Comparison {
    /// The ratio of the two times that are shown.
    change: String,
    /// The estimate that was judged, where it reads otherwise, and its interval.
    pub(super) judged: String,
    pub(super) confidence: String,
    pub(super) p: String,
    pub(super) reachable_p: String,
    pub(super) stage: &'static str,
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
    pub(super) fn of(context: &Context, row: &Row) -> ChangeView {
        let time = |timing: &Option<Timing>| {
            let timing = timing.as_ref()?;
            Some(timing.median_ns.to_string())
        };
        ChangeView {
            linked: context.cases.contains(&row.case),
            case: one_line(&row.case.0),
            base: time(&row.base),
            head: time(&row.head),
            comparison: comparison(context, row),
            reason: reason(row, EXCERPT),
            structure: structure(row),
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

/// Changes beside the device's time that are worth telling; where those of a time went is an
/// account.
pub(super) fn structure(row: &Row) -> Vec<String> {
    let told = Uncounted::told(&row.uncounted)
        .into_iter()
        .chain(row.metrics_told().map(MetricRow::changed))
        .chain(row.structure_told());
    told.map(|change| one_line(&change)).collect()
}

pub(super) fn comparison(context: &Context, row: &Row) -> Option<Comparison> {
    let change = row.change.as_ref()?;
    let ratio = row.times_ratio().unwrap_or(Ratio(f64::NAN));
    Some(Comparison {
        change: ratio.to_string(),
        judged: judged(row).unwrap_or_default(),
        confidence: change.confidence.to_string(),
        p: change.p.to_string(),
        reachable_p: change.reachable_p.to_string(),
        stage: match fresh(row) {
            None => "from the screening invocations",
            Some(Fresh::Confirmed) => "confirmed by fresh invocations",
            Some(Fresh::Withdrawn) => "withdrawn by fresh invocations",
            Some(Fresh::Undecided) => "fresh invocations did not decide",
        },
        tone: tone_of(row.word, ratio),
        whisker: whisker(change, row.word, context.floor()),
    })
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

/// All whiskers of a page have one scale, three floors either way by logarithm,
/// so that they can be compared down a column.
fn whisker(change: &Change, word: Word, floor: Share) -> Option<WhiskerView> {
    let floor = Ratio::grown_by(floor).0.ln();
    let half = 3.0 * floor;
    let place = |ratio: Ratio| {
        let share = 50.0 + 50.0 * ratio.0.ln() / half;
        // One decimal: a track is not a thousand pixels wide.
        (share.clamp(0.0, 100.0) * 10.0).round() / 10.0
    };
    let sane = |ratio: Ratio| ratio.is_finite() && ratio > Ratio(0.0);
    if ![change.ratio, change.low, change.high]
        .into_iter()
        .all(sane)
    {
        return None;
    }
    let (from, to) = (place(change.low), place(change.high));
    let round = |share: f64| (share * 10.0).round() / 10.0;
    Some(WhiskerView {
        from,
        width: round((to - from).max(0.5)),
        at: place(change.ratio),
        band_from: round(50.0 - 50.0 * floor / half),
        band_width: round(100.0 * floor / half),
        beyond: change.ratio.0.ln().abs() > half,
        tone: tone_of(word, change.ratio),
    })
}
