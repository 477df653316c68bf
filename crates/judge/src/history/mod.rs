//! Reads a history: when cases changed, which drift, and which changed together. For trends, never
//! for the verdict of a gate.
//!
//! Everything is computed on logarithms of times, run by run: the invocations of a run are one
//! value here, since what differs from day to day is in all of them.
//!
//! A shift that all cases of one run share is removed if it goes away with the run. A lasting
//! shift, a step or a drift of all cases, is judged as a series of its own.
//!
//! A case drifts if it gets slower without a step that stands out: the newest run is compared with
//! the oldest one, without the steps between them, by the rule of gates.

mod changes;
mod moved;

use rayon::prelude::*;

use crate::judgement::{Comparison, Mismatch};
use crate::rule::{BothSides, FEWEST, GATE_ERROR, Terms, compare, shift};
use changes::{beside, changes, correlation, middle};
use regatta_core::record::history::{CaseTimes, History};
use regatta_core::record::{Outcome, median};
use regatta_core::suite::Metric;
use regatta_worker::units::{Nanoseconds, Ratio, Share};
use serde::Serialize;

/// Options of the analysis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Which of the times.
    pub metric: Metric,
    /// The run that the reference begins with.
    pub reference_from: usize,
}

/// The times of one case, in the runs that have one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Places of the runs in the history, ascending.
    pub runs: Vec<u32>,
    /// The times of those runs.
    pub times: Vec<Nanoseconds>,
    /// The same of each invocation, as far as they are kept.
    pub values: Vec<Vec<Nanoseconds>>,
}

/// A change of level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Place of the first run after it.
    pub run: usize,
    /// Place of the last run before it that has a time.
    pub before: usize,
    /// Level before: the median of the runs since the change before.
    pub from_ns: Nanoseconds,
    /// Level after.
    pub to_ns: Nanoseconds,
    /// Runs after against runs before: the median of all ratios.
    #[serde(flatten)]
    pub change: Comparison,
    /// Runs after it, to the next change or the last run.
    pub runs_after: usize,
}

/// The trend of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trend {
    /// Runs that have a time of it.
    pub runs: usize,
    /// Level now: the median of the runs since its last change, or of the last few where it
    /// creeps.
    pub level_ns: Option<Nanoseconds>,
    /// The newest run's time.
    pub newest_ns: Option<Nanoseconds>,
    /// Level of the reference.
    pub reference_ns: Option<Nanoseconds>,
    /// The changes of level, in order.
    pub steps: Vec<Step>,
    /// The drift from the oldest run to the newest, without these steps between them.
    pub creep: Option<Step>,
}

impl Trend {
    /// The newest run over the reference.
    pub fn newest_ratio(&self) -> Option<Ratio> {
        Some(self.newest_ns? / self.reference_ns?)
    }

    /// The level now over the reference.
    pub fn since_reference(&self) -> Option<Ratio> {
        Some(self.level_ns? / self.reference_ns?)
    }
}

/// A case whose latest run gave no time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Place of the run since when.
    pub run: usize,
    /// Why, in its latest run.
    pub reason: String,
}

/// Everything that a history says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trends {
    /// The trend that all cases share, a factor on their medians; `None` with too few cases.
    pub shared: Option<Trend>,
    /// The trend of each case, by its number.
    pub cases: Vec<Trend>,
    /// Cases that changed together, in the order of the runs.
    pub events: Vec<Event>,
    /// The drifts, that of all cases first.
    pub crept: Vec<Crept>,
    /// Cases whose latest run gave no time, by their number.
    pub lost: Vec<Option<Lost>>,
}

/// Who moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "who", content = "which", rename_all = "lowercase")]
pub enum Who {
    /// One case.
    Case,
    /// Cases that share some tokens, as text: `all 12 cases of torch/efficient`.
    Family(String),
    /// Cases with nothing in common.
    Several,
    /// Nearly all cases of the suite.
    Suite,
    /// Nearly all cases of several workers, or the machine itself changed.
    Machine,
    /// The method of measuring changed.
    Method,
}

/// A change that several cases may share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Place of the first run after it.
    pub run: usize,
    /// Place of the run before.
    pub before: usize,
    /// Who moved.
    #[serde(flatten)]
    pub who: Who,
    /// The cases by their numbers, the one that changed most first.
    pub cases: Vec<usize>,
    /// The middle one of their changes.
    pub ratio: Ratio,
    /// The change of the one that changed most, with its interval.
    pub most: Step,
    /// The other differences between the two runs: revision, versions.
    pub code: Vec<Mismatch>,
    /// The same of what a time depends on beside the code: hard facts, the way of measuring.
    pub machine: Vec<Mismatch>,
    /// Versions and facts that changed within two runs of it: noise moves the place of a small
    /// change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearby: Vec<Mismatch>,
}

impl Who {
    /// True if the change is not one of the measured code.
    pub fn is_beside_the_code(&self) -> bool {
        matches!(self, Who::Machine | Who::Method)
    }
}

impl Event {
    /// True where it got slower.
    pub fn is_slower(&self) -> bool {
        self.ratio > Ratio::ONE
    }
}

/// Cases that creep the same way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crept {
    /// Who moved.
    #[serde(flatten)]
    pub who: Who,
    /// The cases by their numbers, the one that crept farthest first.
    pub cases: Vec<usize>,
    /// The middle one of them.
    pub ratio: Ratio,
}

/// Smaller changes are not reported.
const THRESHOLD: Share = Share(0.01);

/// Probability that a history in which nothing changed shows a change anywhere.
const ERROR: f64 = 0.01;

/// Runs that creep is measured from.
pub const REFERENCE: usize = 10;

/// Reads a history.
pub fn trends(history: &History, options: &Options) -> Trends {
    let all = series(history, options.metric);
    let (shared, cases) = found(&all, history.runs.len(), options);
    let events = moved::events(history, &all, shared.as_ref(), &cases);
    let crept = moved::crept(history, &all, shared.as_ref(), &cases);
    Trends {
        shared,
        cases,
        events,
        crept,
        lost: lost(history, options.metric),
    }
}

/// False where other programs disturbed the metric. Load takes none of a call's CPU time.
fn counts(times: &CaseTimes, metric: Metric) -> bool {
    !times.disturbed || metric == Metric::CpuTime
}

/// The times of each case, by its number.
pub fn series(history: &History, metric: Metric) -> Vec<Series> {
    let mut all = vec![Series::default(); history.cases.len()];
    for (place, kept) in history.runs.iter().enumerate() {
        for (number, outcome) in &kept.results {
            let times = outcome.measured().filter(|times| counts(times, metric));
            let time = times.and_then(|times| Some((times.time(metric)?, times)));
            if let (Some((time, times)), Some(series)) = (time, all.get_mut(*number as usize)) {
                series.runs.push(place as u32);
                series.times.push(time);
                series.values.push(times.values(metric));
            }
        }
    }
    all
}

/// The trend that all cases share over `runs` runs, and the trend of each.
pub fn found(all: &[Series], runs: usize, options: &Options) -> (Option<Trend>, Vec<Trend>) {
    let error = ERROR / (all.len() + 1) as f64;
    let logs = all.par_iter().map(|series| logarithms(&series.times));
    let mut logs: Vec<Vec<f64>> = logs.collect();
    let mut shared = None;
    if let Some((runs, factors)) = shared_factors(all, &logs, runs) {
        let places = changes(&factors, error, own_correlation(&factors));
        take_out(&runs, &factors, &places, all, &mut logs);
        let times: Vec<Nanoseconds> = factors.iter().map(|log| Nanoseconds(log.exp())).collect();
        let values = times.iter().map(|factor| vec![*factor]).collect();
        let series = Series {
            runs,
            times,
            values,
        };
        let steps = steps(&series, &factors, places);
        let creep =
            Ends::new(&series, &steps, options).and_then(|ends| ends.creep(0.0, 1, &series));
        shared = Some(trend(&series, steps, creep, options));
    }
    // A lasting change of the machine shows in most cases.
    let usual: Vec<f64> = logs.par_iter().map(|logs| correlation(logs)).collect();
    let usual = if usual.len() < FEW {
        0.0
    } else {
        middle(&usual)
    };
    let cases = all.par_iter().zip(&logs);
    let cases: Vec<_> = cases
        .map(|(series, logs)| {
            let correlation = usual.max(own_correlation(logs));
            let steps = steps(series, logs, changes(logs, error, correlation));
            let ends = Ends::new(series, &steps, options);
            (steps, ends)
        })
        .collect();
    // The common change of all cases between the oldest run and the newest belongs to these two days.
    let shifts = cases.iter().filter_map(|(_, ends)| ends.as_ref()?.shift());
    let shifts: Vec<f64> = shifts.collect();
    let days = if shifts.len() < FEW {
        0.0
    } else {
        middle(&shifts)
    };
    let cases = all.par_iter().zip(cases).map(|(series, (steps, ends))| {
        let creep = ends.and_then(|ends| ends.creep(days, all.len(), series));
        trend(series, steps, creep, options)
    });
    (shared, cases.collect())
}

/// As much of the correlation of one series as cannot be chance.
fn own_correlation(logs: &[f64]) -> f64 {
    (correlation(logs) - 4.0 / (logs.len().max(1) as f64).sqrt()).max(0.0)
}

fn logarithms(times: &[Nanoseconds]) -> Vec<f64> {
    times.iter().map(|time| time.0.ln()).collect()
}

/// The trend of a series with these changes.
fn trend(
    series: &Series,
    steps: Vec<(usize, Step)>,
    creep: Option<Step>,
    options: &Options,
) -> Trend {
    let since = steps.last().map_or(0, |(at, _)| *at);
    let since = match creep {
        Some(_) => since.max(series.times.len().saturating_sub(REFERENCE)),
        None => since,
    };
    let from = reference(series, options);
    let to = series.times.len().min(from + REFERENCE);
    Trend {
        runs: series.runs.len(),
        level_ns: median(&series.times[since..]),
        newest_ns: series.times.last().copied(),
        reference_ns: median(&series.times[from..to]),
        steps: steps.into_iter().map(|(_, step)| step).collect(),
        creep,
    }
}

/// The changes at these places that are as large as the threshold, each with its place; `logs`
/// are the series' values without what all cases of a run share.
fn steps(series: &Series, logs: &[f64], mut places: Vec<usize>) -> Vec<(usize, Step)> {
    loop {
        let mut ends = vec![0];
        ends.extend(&places);
        ends.push(logs.len());
        let steps = ends.windows(3).filter_map(|window| {
            let [from, at, to] = [window[0], window[1], window[2]];
            let (left, right) = beside(&logs[from..at], &logs[at..to]);
            let step = Step {
                run: series.runs[at] as usize,
                before: series.runs[at - 1] as usize,
                from_ns: median(&series.times[from..at])?,
                to_ns: median(&series.times[at..to])?,
                change: shift(BothSides::new(&left, &right), THRESHOLD)?,
                runs_after: to - at,
            };
            Some((at, step))
        });
        let steps: Vec<(usize, Step)> = steps.collect();
        // The smallest goes first: without it, its neighbours are of more runs.
        let size = |step: &(usize, Step)| step.1.change.ratio.0.ln().abs();
        let smallest = steps.iter().min_by(|a, b| size(a).total_cmp(&size(b)));
        match smallest.filter(|step| size(step) < THRESHOLD.0.ln_1p()) {
            Some(small) => places.retain(|at| *at != small.0),
            None => return steps,
        }
    }
}

/// Cases whose latest run gave no time of a metric, and since when.
fn lost(history: &History, metric: Metric) -> Vec<Option<Lost>> {
    let mut lost: Vec<Option<Lost>> = vec![None; history.cases.len()];
    for (place, kept) in history.runs.iter().enumerate() {
        for (number, outcome) in &kept.results {
            let Some(lost_case) = lost.get_mut(*number as usize) else {
                continue;
            };
            let reason = match outcome {
                Outcome::Measured(times) if !counts(times, metric) => {
                    Some("other programs disturbed all of its times")
                }
                Outcome::Unsupported { .. } => Some("unsupported"),
                outcome => outcome.reason(),
            };
            let since = lost_case.take().map(|lost| lost.run);
            *lost_case = reason.map(|reason| Lost {
                run: since.unwrap_or(place),
                reason: reason.to_owned(),
            });
        }
    }
    lost
}

/// With fewer cases, the median case could be the case itself.
const FEW: usize = 8;

/// The runs of enough cases, and the logarithm of the factor that all of them share: the middle
/// one of how far cases are from their own medians.
fn shared_factors(all: &[Series], logs: &[Vec<f64>], runs: usize) -> Option<(Vec<u32>, Vec<f64>)> {
    let mut away: Vec<Vec<f64>> = vec![Vec::new(); runs];
    for (series, logs) in all.iter().zip(logs) {
        let level = middle(logs);
        for (run, log) in series.runs.iter().zip(logs) {
            if let Some(shifts) = away.get_mut(*run as usize) {
                shifts.push(log - level);
            }
        }
    }
    let enough = away.into_par_iter().enumerate();
    let enough = enough.filter(|(_, away)| away.len() >= FEW);
    let of_runs = enough.map(|(run, away)| (run as u32, middle(&away)));
    let (runs, factors): (Vec<u32>, Vec<f64>) = of_runs.unzip();
    (!runs.is_empty()).then_some((runs, factors))
}

/// Takes out of each case how far its runs are from the level that these changes of the factors
/// leave.
fn take_out(
    runs: &[u32],
    factors: &[f64],
    places: &[usize],
    all: &[Series],
    logs: &mut [Vec<f64>],
) {
    let mut away = vec![0.0; runs.last().map_or(0, |last| *last as usize + 1)];
    let mut from = 0;
    for to in places.iter().copied().chain([factors.len()]) {
        let level = middle(&factors[from..to]);
        for place in from..to {
            away[runs[place] as usize] = factors[place] - level;
        }
        from = to;
    }
    all.par_iter().zip(logs).for_each(|(series, logs)| {
        for (run, log) in series.runs.iter().zip(logs) {
            *log -= away.get(*run as usize).copied().unwrap_or(0.0);
        }
    });
}

/// The place at which the reference of a series begins.
fn reference(series: &Series, options: &Options) -> usize {
    let before = |run: &u32| (*run as usize) < options.reference_from;
    series.runs.partition_point(before)
}

/// The day-to-day allowance: the oldest and the newest run were not measured in pairs.
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
    fn new(series: &Series, steps: &[(usize, Step)], options: &Options) -> Option<Ends> {
        let from = reference(series, options);
        let values = |at: usize| -> Vec<f64> {
            let before = steps
                .iter()
                .filter(|(step, _)| (from + 1..=at).contains(step));
            let explained: f64 = before.map(|(_, step)| step.change.ratio.0.ln()).sum();
            let of_run = series.values.get(at).into_iter().flatten();
            of_run.map(|time| time.0.ln() - explained).collect()
        };
        let mut places = from..series.runs.len();
        let together = REFERENCE.min(places.len() / 2).max(FEWEST);
        Some(Ends {
            from,
            base: of_runs(places.by_ref().map(values), together)?,
            head: of_runs(places.rev().map(values), together)?,
        })
    }

    /// By how much the newest run lies above the oldest.
    fn shift(&self) -> Option<f64> {
        let shift = shift(BothSides::new(&self.base, &self.head), THRESHOLD)?;
        Some(shift.ratio.0.ln())
    }

    /// True if the series drifts by the [rule](crate::rule) of gates, without the shift that the two
    /// days gave all cases.
    fn creep(&self, days: f64, cases: usize, series: &Series) -> Option<Step> {
        let head: Vec<f64> = self.head.iter().map(|log| log - days).collect();
        let values = BothSides::new(&self.base, &head);
        let terms = Terms {
            day: f64::ln_1p(DAY),
            ..Terms::last(THRESHOLD.0.ln_1p(), GATE_ERROR / cases.max(1) as f64)
        };
        let (change, _) = compare(values, terms)?;
        change.has_moved().then_some(Step {
            run: *series.runs.last()? as usize,
            before: *series.runs.get(self.from)? as usize,
            from_ns: *series.times.get(self.from)?,
            to_ns: *series.times.last()?,
            change,
            runs_after: 1,
        })
    }
}

/// The values of the first of these runs; where it has fewer than the rule takes, so many of it
/// and those that follow.
fn of_runs(mut runs: impl Iterator<Item = Vec<f64>>, together: usize) -> Option<Vec<f64>> {
    let mut sums = runs.next()?;
    if sums.len() < FEWEST {
        while sums.len() < together {
            sums.extend(runs.next()?);
        }
    }
    Some(sums)
}

#[cfg(test)]
mod tests;
