//! What a history says: when cases changed, what creeps, and who moved together. For trends,
//! never for the verdict of a gate.
//!
//! Everything is computed on logarithms of times, run by run: the invocations of a run are one
//! value here, since what differs from day to day is in all of them.
//!
//! What all cases of a run share is taken out as far as it comes and goes with the run. What
//! stays, a step or a drift of all cases, is judged as a series of its own.
//!
//! What gets slower in no step that stands out creeps: a series without its steps is held to its
//! own order (Daniels, Journal of the Royal Statistical Society B 12, 1950: Spearman's rank
//! correlation with time), and its last runs to fixed first ones. Both have to say so.

mod memory;
mod moved;
mod scan;
mod types;

pub use types::{Creep, Crept, Event, Lost, Options, Series, Step, Trend, Trends, Who};

use std::ops::Range;

use rayon::prelude::*;

use super::statistics::two_sample_ratio;
use crate::statistics::normal_upper;
use memory::Memory;
use regatta_core::record::history::{Came, Clock, History};
use regatta_worker::units::{Nanoseconds, Probability, Ratio};
use scan::{Place, Scan, middle, ranks};

/// Reads a history.
pub fn trends(history: &History, options: &Options) -> Trends {
    let all = series(history, options.clock);
    let (shared, cases) = found(&all, history.runs.len(), options);
    let events = moved::events(history, &all, shared.as_ref(), &cases, options);
    let crept = moved::crept(history, &all, shared.as_ref(), &cases);
    Trends {
        shared,
        cases,
        events,
        crept,
        lost: lost(history),
    }
}

/// The times of each case, by its number.
pub fn series(history: &History, clock: Clock) -> Vec<Series> {
    let mut all = vec![Series::default(); history.cases.len()];
    for (place, kept) in history.runs.iter().enumerate() {
        for (number, came) in &kept.results {
            let time = match came {
                Came::Timed(figures) => figures.of(clock),
                _ => None,
            };
            if let (Some(time), Some(of)) = (time, all.get_mut(*number as usize)) {
                of.runs.push(place as u32);
                of.times.push(time);
            }
        }
    }
    all
}

/// What so many runs of these cases share, and what each of them says.
pub fn found(all: &[Series], runs: usize, options: &Options) -> (Option<Trend>, Vec<Trend>) {
    let logs = all.par_iter().map(logarithms);
    let mut logs: Vec<Vec<f64>> = logs.collect();
    let scan = Scan {
        shortest: options.shortest.max(2),
        ln_level: options.level.0.ln() - ((all.len() + 1) as f64).ln(),
        memory: 0.0,
    };
    let shared = shared(all, &logs, runs).map(|shared| {
        let own = Scan {
            memory: Memory::of(&shared.logs).by_itself(),
            ..scan
        };
        let changes = own.changes(&shared.logs);
        shared.take_out(&changes, all, &mut logs);
        let factors = shared.logs.iter().map(|log| Nanoseconds(log.exp()));
        let series = Series {
            runs: shared.runs,
            times: factors.collect(),
        };
        told(&series, &shared.logs, &changes, own, options)
    });
    let memories: Vec<Memory> = logs.par_iter().map(|logs| Memory::of(logs)).collect();
    let usual = Memory::usual(&memories);
    let cases = all.par_iter().zip(&logs).zip(&memories);
    let cases = cases.map(|((series, logs), own)| {
        let scan = Scan {
            memory: usual.max(own.by_itself()),
            ..scan
        };
        told(series, logs, &scan.changes(logs), scan, options)
    });
    (shared, cases.collect())
}

fn logarithms(series: &Series) -> Vec<f64> {
    series.times.iter().map(|time| time.0.ln()).collect()
}

/// Values on each side of a change that its size is taken of: the pairs of more would take
/// longer than finding it.
const NEAREST: usize = 50;

/// What a series says whose level changes at these places; `logs` are its values without what
/// all cases of a run share.
fn told(series: &Series, logs: &[f64], changes: &[Place], scan: Scan, options: &Options) -> Trend {
    let steps = steps(series, logs, changes, scan, options);
    let creep = creep(series, logs, &steps, scan, options);
    let since = steps.last().map_or(0, |(at, _)| *at);
    let since = match creep {
        Some(_) => since.max(logs.len().saturating_sub(options.reference)),
        None => since,
    };
    let level = |values: &[Nanoseconds]| regatta_core::record::side::median(values);
    let reference = reference(series, options);
    Trend {
        runs: series.runs.len(),
        level_ns: level(&series.times[since..]),
        reference_ns: level(&series.times[reference]),
        steps: steps.into_iter().map(|(_, step)| step).collect(),
        creep,
    }
}

/// The changes that are as large as the floor, with their places in the series.
fn steps(
    series: &Series,
    logs: &[f64],
    changes: &[Place],
    scan: Scan,
    options: &Options,
) -> Vec<(usize, Step)> {
    let mut places = changes.to_vec();
    loop {
        let mut ends: Vec<usize> = places.iter().map(|place| place.at).collect();
        ends.push(logs.len());
        let mut from = 0;
        let mut found = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let (at, to) = (place.at, ends[number + 1]);
            let factors = |logs: &[f64]| -> Vec<f64> { logs.iter().map(|log| log.exp()).collect() };
            let left = factors(&logs[from.max(at.saturating_sub(NEAREST))..at]);
            let right = factors(&logs[at..to.min(at + NEAREST)]);
            let level = |values: &[Nanoseconds]| regatta_core::record::side::median(values);
            let size = two_sample_ratio(&left, &right, 0.95);
            if let (Some(size), Some(from_ns), Some(to_ns)) = (
                size,
                level(&series.times[from..at]),
                level(&series.times[at..to]),
            ) {
                let p = (place.ln_p + paid(logs.len(), scan)).exp().min(1.0);
                let step = Step {
                    run: series.runs[at] as usize,
                    before: series.runs[at - 1] as usize,
                    from_ns,
                    to_ns,
                    ratio: size.ratio,
                    low: size.low,
                    high: size.high,
                    p: Probability(p * options.level.0),
                    runs_after: to - at,
                };
                found.push((at, step));
            }
            from = at;
        }
        // The smallest goes first: without it, its neighbours are of more runs.
        let size = |step: &Step| step.ratio.0.ln().abs();
        let smallest = found
            .iter()
            .min_by(|a, b| size(&a.1).total_cmp(&size(&b.1)));
        match smallest.map(|(at, step)| (*at, size(step))) {
            Some((at, size)) if size < options.floor.0.ln_1p() => {
                places.retain(|place| place.at != at);
            }
            _ => return found,
        }
    }
}

/// What a place pays for that many were searched, as a logarithm: of the level.
fn paid(length: usize, scan: Scan) -> f64 {
    scan.places(length) - scan.ln_level
}

/// Cases whose latest run gave no time, and since when.
fn lost(history: &History) -> Vec<Option<Lost>> {
    let mut lost: Vec<Option<Lost>> = vec![None; history.cases.len()];
    for (place, kept) in history.runs.iter().enumerate() {
        for (number, came) in &kept.results {
            let Some(of) = lost.get_mut(*number as usize) else {
                continue;
            };
            let reason = match came {
                Came::Timed(_) => None,
                Came::Unsupported => Some("unsupported"),
                Came::Disturbed => Some("the machine was in all of its times"),
                Came::Failed(reason) | Came::Missing(reason) => Some(reason.as_str()),
            };
            let since = of.take().map(|lost| lost.run);
            *of = reason.map(|reason| Lost {
                run: since.unwrap_or(place),
                reason: reason.to_owned(),
            });
        }
    }
    lost
}

/// Of fewer cases the middle one is the case itself.
const FEWEST: usize = 8;

/// What all cases share, run by run.
struct Shared {
    /// The runs that have it.
    runs: Vec<u32>,
    /// Logarithm of the factor.
    logs: Vec<f64>,
}

/// The middle one of how far cases are from their own medians, in each run of enough of them.
fn shared(all: &[Series], logs: &[Vec<f64>], runs: usize) -> Option<Shared> {
    if all.len() < FEWEST {
        return None;
    }
    let mut away: Vec<Vec<f64>> = vec![Vec::new(); runs];
    for (series, logs) in all.iter().zip(logs) {
        let level = middle(logs);
        for (run, log) in series.runs.iter().zip(logs) {
            if let Some(of) = away.get_mut(*run as usize) {
                of.push(log - level);
            }
        }
    }
    let enough = away.into_par_iter().enumerate();
    let enough = enough.filter(|(_, away)| away.len() >= FEWEST);
    let (runs, logs): (Vec<u32>, Vec<f64>) = enough
        .map(|(run, away)| (run as u32, middle(&away)))
        .unzip();
    (!runs.is_empty()).then_some(Shared { runs, logs })
}

impl Shared {
    /// Takes out of each case how far its runs are from the level that these changes leave.
    fn take_out(&self, changes: &[Place], all: &[Series], logs: &mut [Vec<f64>]) {
        let mut ends: Vec<usize> = changes.iter().map(|place| place.at).collect();
        ends.push(self.logs.len());
        let mut wobble = vec![0.0; self.runs.last().map_or(0, |last| *last as usize + 1)];
        let mut from = 0;
        for to in ends {
            let level = middle(&self.logs[from..to]);
            for place in from..to {
                wobble[self.runs[place] as usize] = self.logs[place] - level;
            }
            from = to;
        }
        let each = all.par_iter().zip(logs);
        each.for_each(|(series, logs)| {
            for (run, log) in series.runs.iter().zip(logs) {
                *log -= wobble.get(*run as usize).copied().unwrap_or(0.0);
            }
        });
    }
}

/// In floors, what counts as creep: it has no day that one could look at.
const FLOORS: f64 = 2.0;

/// In the level of changes, that of creep: its p is exact, and steps are to have what there is.
const TENTH: f64 = 10.0;

/// The places of the reference in a series.
fn reference(series: &Series, options: &Options) -> Range<usize> {
    let from = series
        .runs
        .partition_point(|run| (*run as usize) < options.reference_from);
    from..series.runs.len().min(from + options.reference)
}

/// Whether a series creeps, given its steps with their places.
fn creep(
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

#[cfg(test)]
mod tests;
