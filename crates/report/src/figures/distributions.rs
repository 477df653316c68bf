//! The samples of a few cases, drawn alike for both sides: each invocation is a row of dots, with
//! its side's median.

use std::collections::{BTreeMap, HashSet};

use plotters::style::text_anchor::HPos;

use super::paint::width;
use super::scale::{Scale, is_drawable, time_labels};
use super::{ASIDE, Figure, LABEL, Letters, Sheet};
use crate::html::taken;
use crate::summary::{SortedRows, evidence};
use crate::{RenderError, Report};
use regatta_core::record::Entry;
use regatta_judge::judgement::{Row, Timing};
use regatta_worker::case::CaseId;
use regatta_worker::units::{Share, numbers};

/// The largest number of cases in a figure.
const MAX_CASES: usize = 5;

/// The largest number of samples drawn for an invocation.
const MAX_SAMPLES: usize = 120;

/// A case.
struct SampledCase {
    id: String,
    times: String,
    sides: Vec<SideSamples>,
}

/// The times of a side in nanoseconds, one list for each invocation.
struct SideSamples {
    name: &'static str,
    ink: &'static str,
    median: f64,
    invocations: Vec<Vec<f64>>,
}

/// The figure of the cases that changed most or, without a base, of those whose invocations differ
/// most.
///
/// # Errors
/// When the samples cannot be read again.
pub(super) fn figure(report: &Report, summary: &SortedRows) -> Result<Option<Figure>, RenderError> {
    let rows = &report.judgement.rows;
    let mut rows: Vec<&Row> = summary.places.iter().map(|&place| &rows[place]).collect();
    rows.retain(|row| row.head.is_some());
    if report.judgement.base.is_some() {
        rows.retain(|row| row.change().is_some());
    } else {
        rows.sort_by(|a, b| spread(b).total_cmp(&spread(a)));
    }
    rows.truncate(MAX_CASES);
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let wanted: HashSet<&str> = rows.iter().map(|row| &*row.case.0).collect();
    let (mut head, mut base) = (Samples::new(), Samples::new());
    let add = |all: &mut Samples, case: &CaseId, entry: &Entry| {
        let samples = taken(entry, MAX_SAMPLES);
        all.entry(case.to_string()).or_default().extend(samples);
    };
    report.entries(Some(&wanted), |entry| add(&mut head, &entry.case, entry))?;
    report.base_entries(&wanted, |case, entry| add(&mut base, case, entry))?;
    let cases: Vec<SampledCase> = rows.iter().map(|row| case(row, &head, &base)).collect();
    let title = match (&first.base, &first.head) {
        (Some(base), Some(head)) => {
            let apart = head.min_ns > base.max_ns || base.min_ns > head.max_ns;
            let verb = if apart { "lie apart" } else { "overlap" };
            format!("{}: the invocations of head and base {verb}", first.case)
        }
        _ => {
            let (case, spread) = (&first.case, Share(spread(first)));
            format!("The invocations of {case} differ most: by {spread}")
        }
    };
    let about = "Samples of each invocation, a row each; the bar is the median of its side";
    let draw = move |wide| draw(&cases, wide);
    Ok(Some(Figure::new("distributions", title, about, draw)))
}

/// The range of the invocations' medians divided by the median.
fn spread(row: &Row) -> f64 {
    let spread = |head: &Timing| (head.max_ns - head.min_ns).share_of(head.median_ns).0;
    row.head.as_ref().map_or(0.0, spread)
}

type Samples = BTreeMap<String, Vec<Vec<f64>>>;

fn case(row: &Row, head: &Samples, base: &Samples) -> SampledCase {
    let sides = [
        ("base", "base", &row.base, base),
        ("head", "head", &row.head, head),
    ];
    let there = sides.iter().filter(|(_, _, timing, _)| timing.is_some());
    // Samples of one side could not be compared with medians of the other.
    let id = &*row.case.0;
    let sampled = there.clone().all(|(.., samples)| samples.contains_key(id));
    let sides = there.filter_map(|(name, ink, timing, samples)| {
        let timing = timing.as_ref()?;
        let medians = numbers(&timing.invocations_ns).into_iter();
        Some(SideSamples {
            name,
            ink,
            median: timing.median_ns.0,
            invocations: if sampled {
                samples[id].clone()
            } else {
                medians.map(|ns| vec![ns]).collect()
            },
        })
    });
    SampledCase {
        id: row.case.to_string(),
        times: evidence(row).unwrap_or_default().join(", "),
        sides: sides.collect(),
    }
}

fn draw(cases: &[SampledCase], wide: f64) -> Sheet {
    const LANE: f64 = 40.0;
    let mut sheet = Sheet::default();
    let left = 48.0;
    let mut y = 14.0;
    for case in cases {
        let narrow = width(&case.id, 13.0, true) + width(&case.times, 12.0, false) + 20.0 > wide;
        sheet.text((0.0, y), &case.id, Letters(13.0, "text", true), HPos::Left);
        if narrow {
            y += 18.0;
        }
        let (x, anchor) = if narrow {
            (0.0, HPos::Left)
        } else {
            (wide, HPos::Right)
        };
        sheet.text((x, y), &case.times, ASIDE, anchor);
        y += 16.0;
        let all = case
            .sides
            .iter()
            .flat_map(|side| &side.invocations)
            .flatten();
        let mut sorted: Vec<f64> = all.copied().filter(|ns| is_drawable(*ns)).collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else {
            continue;
        };
        // The axis ends not far above most samples, so that an outlier does not flatten the others.
        let most = sorted[(sorted.len() - 1) * 97 / 100];
        let high = if high > 2.0 * most { 1.25 * most } else { high };
        let room = 0.04 * (high - low) + 1e-3 * high;
        let scale = Scale {
            values: low - room..high + room,
            pixels: left..wide - 6.0,
            logarithmic: false,
        };
        let bottom = y + LANE * case.sides.len() as f64;
        let ticks = scale.ticks(if wide < 600.0 { 3 } else { 6 });
        let print = time_labels(&ticks);
        for tick in &ticks {
            let x = scale.at(*tick);
            sheet.line([(x, y), (x, bottom)], 1.0, "line");
            sheet.text((x, bottom + 12.0), print(tick), LABEL, HPos::Center);
        }
        for side in &case.sides {
            sheet.text((0.0, y + LANE / 2.0), side.name, ASIDE, HPos::Left);
            let count = side.invocations.len() as f64;
            for (number, samples) in side.invocations.iter().enumerate() {
                let y = y + 5.0 + (LANE - 10.0) * (number as f64 + 0.5) / count;
                let radius = if samples.len() > 1 { 1.8 } else { 3.5 };
                for ns in samples.iter().filter(|ns| is_drawable(**ns)) {
                    sheet.dot((scale.at(*ns), y), radius, side.ink, String::new());
                }
            }
            let x = scale.at(side.median);
            sheet.line([(x, y + 2.0), (x, y + LANE - 2.0)], 2.5, "text");
            y += LANE;
        }
        y = bottom + 40.0;
    }
    sheet.height = (y - 16.0).max(0.0);
    sheet
}
