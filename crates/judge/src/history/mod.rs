//! What a history says: when cases changed, what creeps, and who moved together. For trends,
//! never for the verdict of a gate.
//!
//! Everything is computed on logarithms of times, run by run: the invocations of a run are one
//! value here, since what differs from day to day is in all of them.
//!
//! What all cases of a run share is taken out as far as it comes and goes with the run. What
//! stays, a step or a drift of all cases, is judged as a series of its own.
//!
//! What gets slower in no step that stands out creeps: the newest run is compared with the oldest
//! one, without the steps between them, by the rule of gates.

mod memory;
mod moved;
mod scan;
mod types;

pub use types::{Creep, Crept, Event, Lost, Options, Series, Step, Trend, Trends, Who};

use std::ops::Range;

use rayon::prelude::*;

use crate::rule::{Answer, FEWEST, GATE_ERROR, Series as Values, Terms, compare, shift};
use memory::Memory;
use regatta_core::record::history::{Came, Clock, History};
use regatta_worker::units::{Nanoseconds, Probability, Ratio};
use scan::{Place, Scan, middle};

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
                Came::Timed(figures) => figures.time(clock).map(|time| (time, figures)),
                _ => None,
            };
            if let (Some((time, figures)), Some(of)) = (time, all.get_mut(*number as usize)) {
                of.runs.push(place as u32);
                of.times.push(time);
                of.values.push(figures.values(clock));
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
        error: GATE_ERROR / all.len().max(1) as f64,
    };
    let shared = shared(all, &logs, runs).map(|shared| {
        let own = Scan {
            memory: Memory::of(&shared.logs).by_itself(),
            ..scan
        };
        let changes = own.changes(&shared.logs);
        shared.take_out(&changes, all, &mut logs);
        let factors = shared.logs.iter().map(|log| Nanoseconds(log.exp()));
        let factors: Vec<Nanoseconds> = factors.collect();
        let series = Series {
            runs: shared.runs,
            values: factors.iter().map(|factor| vec![*factor]).collect(),
            times: factors,
        };
        let steps = steps(&series, &shared.logs, &changes, own, options);
        let ends = Ends::of(&series, &steps, options);
        let creep = ends.and_then(|ends| ends.creep(0.0, &series, own, options));
        told(&series, steps, creep, options)
    });
    let memories: Vec<Memory> = logs.par_iter().map(|logs| Memory::of(logs)).collect();
    let usual = Memory::usual(&memories);
    let cases = all.par_iter().zip(&logs).zip(&memories);
    let cases: Vec<_> = cases
        .map(|((series, logs), own)| {
            let scan = Scan {
                memory: usual.max(own.by_itself()),
                ..scan
            };
            let steps = steps(series, logs, &scan.changes(logs), scan, options);
            let ends = Ends::of(series, &steps, options);
            (steps, ends)
        })
        .collect();
    // What the oldest run and the newest of all cases have in common is of these two days.
    let shifts = cases.iter().filter_map(|(_, ends)| ends.as_ref()?.shift());
    let shifts: Vec<f64> = shifts.collect();
    let days = if shifts.len() < FEW {
        0.0
    } else {
        middle(&shifts)
    };
    let cases = all.par_iter().zip(cases).map(|(series, (steps, ends))| {
        let creep = ends.and_then(|ends| ends.creep(days, series, scan, options));
        told(series, steps, creep, options)
    });
    (shared, cases.collect())
}

fn logarithms(series: &Series) -> Vec<f64> {
    series.times.iter().map(|time| time.0.ln()).collect()
}

/// Values on each side of a change that its size is taken of: the pairs of more would take
/// longer than finding it.
const NEAREST: usize = 50;

/// What a series says of these changes.
fn told(
    series: &Series,
    steps: Vec<(usize, Step)>,
    creep: Option<Creep>,
    options: &Options,
) -> Trend {
    let since = steps.last().map_or(0, |(at, _)| *at);
    let since = match creep {
        Some(_) => since.max(series.times.len().saturating_sub(options.reference)),
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

/// The changes that are as large as the threshold, with their places in the series; `logs` are
/// its values without what all cases of a run share.
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
            let left = &logs[from.max(at.saturating_sub(NEAREST))..at];
            let right = &logs[at..to.min(at + NEAREST)];
            let level = |values: &[Nanoseconds]| regatta_core::record::side::median(values);
            let size = shift(left, right);
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
                    ratio: Ratio(size.0.exp()),
                    low: Ratio(size.1.exp()),
                    high: Ratio(size.2.exp()),
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
            Some((at, size)) if size < options.threshold.0.ln_1p() => {
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
const FEW: usize = 8;

/// What all cases share, run by run.
struct Shared {
    /// The runs that have it.
    runs: Vec<u32>,
    /// Logarithm of the factor.
    logs: Vec<f64>,
}

/// The middle one of how far cases are from their own medians, in each run of enough of them.
fn shared(all: &[Series], logs: &[Vec<f64>], runs: usize) -> Option<Shared> {
    if all.len() < FEW {
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
    let enough = enough.filter(|(_, away)| away.len() >= FEW);
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

/// The places of the reference in a series.
fn reference(series: &Series, options: &Options) -> Range<usize> {
    let from = series
        .runs
        .partition_point(|run| (*run as usize) < options.reference_from);
    from..series.runs.len().min(from + options.reference)
}

/// What another day may change: the oldest run and the newest were not measured in pairs.
const DAY: f64 = 0.03;

/// The oldest comparable run and the newest, without the steps between them: logarithms of what
/// their invocations took. Runs of fewer invocations than the rule takes count with their
/// neighbours, as many as the reference has: five against five can show nothing but what lies far
/// apart, and runs that creep lie apart themselves.
struct Ends {
    from: usize,
    base: Vec<f64>,
    head: Vec<f64>,
}

impl Ends {
    fn of(series: &Series, steps: &[(usize, Step)], options: &Options) -> Option<Ends> {
        let from = reference(series, options).start;
        let values = |at: usize| -> Vec<f64> {
            let before = steps
                .iter()
                .filter(|(step, _)| (from + 1..=at).contains(step));
            let explained: f64 = before.map(|(_, step)| step.ratio.0.ln()).sum();
            let of_run = series.values.get(at).into_iter().flatten();
            of_run.map(|time| time.0.ln() - explained).collect()
        };
        let mut places = from..series.runs.len();
        let together = options.reference.min(places.len() / 2).max(FEWEST);
        Some(Ends {
            from,
            base: of_runs(places.by_ref().map(values), together)?,
            head: of_runs(places.rev().map(values), together)?,
        })
    }

    /// By how much the newest run lies above the oldest.
    fn shift(&self) -> Option<f64> {
        Some(shift(&self.base, &self.head)?.0)
    }

    /// Whether the series creeps, by the [rule](crate::rule) of gates, without what both days did
    /// to all cases.
    fn creep(&self, days: f64, series: &Series, scan: Scan, options: &Options) -> Option<Creep> {
        let head: Vec<f64> = self.head.iter().map(|log| log - days).collect();
        let values = Values {
            base: &self.base,
            head: &head,
            paired: false,
        };
        let terms = Terms {
            threshold: options.threshold.0.ln_1p(),
            day: f64::ln_1p(DAY),
            error: scan.error,
            last: true,
        };
        let found = compare(values, terms)?;
        let moved = matches!(found.answer, Answer::Regressed | Answer::Improved);
        moved.then_some(Creep {
            from_ns: *series.times.get(self.from)?,
            to_ns: *series.times.last()?,
            ratio: Ratio(found.change.exp()),
            low: Ratio(found.low.exp()),
            high: Ratio(found.high.exp()),
        })
    }
}

/// The values of the first of these runs; where it has fewer than the rule takes, so many of it
/// and those that follow.
fn of_runs(mut runs: impl Iterator<Item = Vec<f64>>, together: usize) -> Option<Vec<f64>> {
    let mut found = runs.next()?;
    if found.len() < FEWEST {
        while found.len() < together {
            found.extend(runs.next()?);
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests;
