//! What gets slower in no step that stands out.
//!
//! A series without its steps is held to its own order (Daniels, Journal of the Royal
//! Statistical Society B 12, 1950: Spearman's rank correlation with time), and its last runs to
//! fixed first ones. Both have to say so.

use std::ops::Range;

use super::scan::{Scan, middle, ranks};
use super::types::{Creep, Options, Series, Step};
use crate::statistics::normal_upper;
use regatta_worker::units::{Nanoseconds, Probability, Ratio};

/// In floors, what counts as creep: it has no day that one could look at.
const FLOORS: f64 = 2.0;

/// In the level of changes, that of creep: its p is exact, and steps are to have what there is.
const TENTH: f64 = 10.0;

/// The places of the reference in a series.
pub(super) fn reference(series: &Series, options: &Options) -> Range<usize> {
    let from = series
        .runs
        .partition_point(|run| (*run as usize) < options.reference_from);
    from..series.runs.len().min(from + options.reference)
}

/// Whether a series creeps, given its steps with their places.
pub(super) fn creep(
    series: &Series,
    logs: &[f64],
    steps: &[(usize, Step)],
    scan: Scan,
    options: &Options,
) -> Option<Creep> {
    let reference = reference(series, options);
    let last = logs.len().checked_sub(options.reference)?;
    // Nothing creeps within the reference.
    if reference.len() < options.reference || last < reference.end {
        return None;
    }
    let mut flat = logs[reference.start..].to_vec();
    for (at, step) in steps.iter().filter(|(at, _)| *at > reference.start) {
        for log in &mut flat[at - reference.start..] {
            *log -= step.ratio.0.ln();
        }
    }
    let first = &flat[..reference.len()];
    let newest = &flat[last - reference.start..];
    let ratio = middle(newest) - middle(first);
    let order = correlation(&flat);
    let enough = ratio.abs() >= (FLOORS * options.floor.0).ln_1p();
    if !enough || order.signum() != ratio.signum() {
        return None;
    }
    let worth = flat.len() as f64 * (1.0 - scan.memory) / (1.0 + scan.memory);
    let z = order.abs() * (worth - 1.0).max(0.0).sqrt();
    let ln_p = (TENTH * 2.0 * normal_upper(z)).max(f64::MIN_POSITIVE).ln();
    let level = |times: &[Nanoseconds]| regatta_core::record::side::median(times);
    (ln_p <= scan.ln_level).then_some(Creep {
        from_ns: level(&series.times[reference])?,
        to_ns: level(&series.times[last..])?,
        ratio: Ratio(ratio.exp()),
        p: Probability((ln_p - scan.ln_level).exp() * options.level.0),
    })
}

/// Spearman's correlation of values with their places.
fn correlation(values: &[f64]) -> f64 {
    let ranks = ranks(values);
    let centre = (values.len() as f64 + 1.0) / 2.0;
    let (mut along, mut across, mut both) = (0.0, 0.0, 0.0);
    for (place, rank) in ranks.iter().enumerate() {
        let (x, y) = (place as f64 + 1.0 - centre, rank - centre);
        along += x * x;
        across += y * y;
        both += x * y;
    }
    match along * across > 0.0 {
        true => both / (along * across).sqrt(),
        false => 0.0,
    }
}
