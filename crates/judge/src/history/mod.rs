//! Finds trends in a history: when cases changed, which drift, and which changed together. A gate's
//! verdict never uses them.
//!
//! Everything is computed on logarithms of times, with one value for each run: the effects that
//! differ from day to day are in all invocations of a run.
//!
//! A shift that all cases share is removed if it lasts for one run only. A lasting shift of all
//! cases, a step or a drift, is judged as a series of its own.
//!
//! A case drifts if it gets slower without a clear step: the newest run is compared with the oldest
//! one by the rule of gates, after the known steps between them are subtracted.

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
    /// The metric that is analysed.
    pub metric: Metric,
    /// The index of the first run of the reference.
    pub reference_from: usize,
}

/// The times of one case, in the runs that measured it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The indices of these runs in the history, ascending.
    pub runs: Vec<u32>,
    /// The time in each of these runs.
    pub times: Vec<Nanoseconds>,
    /// The times of each run's invocations, as far as they are kept.
    pub values: Vec<Vec<Nanoseconds>>,
}

/// A change of level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The index of the first run after the change.
    pub run: usize,
    /// The index of the last run before the change that has a time.
    pub before: usize,
    /// The level before: the median of the runs since the previous change.
    pub from_ns: Nanoseconds,
    /// The level after, to the next change.
    pub to_ns: Nanoseconds,
    /// The runs after compared with the runs before: the median of all ratios.
    #[serde(flatten)]
    pub change: Comparison,
    /// The number of runs after the change, to the next change or the last run.
    pub runs_after: usize,
}

/// The trend of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trend {
    /// The number of runs that have a time for the case.
    pub runs: usize,
    /// The present level: the median of the runs since the last change, or of the last
    /// [`REFERENCE`] runs where the case drifts.
    pub level_ns: Option<Nanoseconds>,
    /// The time of the newest run.
    pub newest_ns: Option<Nanoseconds>,
    /// The level of the reference runs.
    pub reference_ns: Option<Nanoseconds>,
    /// The changes of level, in order.
    pub steps: Vec<Step>,
    /// The drift from the oldest run to the newest, after the steps between them are subtracted.
    pub creep: Option<Step>,
}

impl Trend {
    /// The newest run over the reference.
    pub fn newest_ratio(&self) -> Option<Ratio> {
        Some(self.newest_ns? / self.reference_ns?)
    }

    /// The present level over the reference.
    pub fn since_reference(&self) -> Option<Ratio> {
        Some(self.level_ns? / self.reference_ns?)
    }
}

/// A case that has no time in its latest run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// The index of the first run without a time.
    pub run: usize,
    /// The reason in the latest run.
    pub reason: String,
}

/// The result of analysing a history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trends {
    /// The trend that all cases share, as a factor on their medians; `None` with too few cases.
    pub shared: Option<Trend>,
    /// The trend of each case, by its number.
    pub cases: Vec<Trend>,
    /// Cases that changed together, in the order of the runs.
    pub events: Vec<Event>,
    /// The drifts: the one of all cases first, then those of groups of cases.
    pub crept: Vec<Crept>,
    /// For each case, by its number, whether its latest run gave no time.
    pub lost: Vec<Option<Lost>>,
}

/// The cases that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "who", content = "which", rename_all = "lowercase")]
pub enum Who {
    /// One case.
    Case,
    /// Cases with common values on some axes, as text: `all 12 cases of torch/efficient`.
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
    /// The index of the first run after the change.
    pub run: usize,
    /// The index of the run before it.
    pub before: usize,
    /// The cases that changed.
    #[serde(flatten)]
    pub who: Who,
    /// The cases by their numbers, the one that changed most first.
    pub cases: Vec<usize>,
    /// The median of their changes.
    pub ratio: Ratio,
    /// The change of the case that changed most, with its interval.
    pub most: Step,
    /// Differences of the code between the two runs: revision, versions.
    pub code: Vec<Mismatch>,
    /// Differences outside the code on which a time depends: hard facts, the method of measuring.
    pub machine: Vec<Mismatch>,
    /// Versions and facts that changed within two runs of it, since noise can move the place of a
    /// small change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearby: Vec<Mismatch>,
}

impl Who {
    /// True if the change is not due to the measured code.
    pub fn is_beside_the_code(&self) -> bool {
        matches!(self, Who::Machine | Who::Method)
    }
}

impl Event {
    /// True if the cases got slower.
    pub fn is_slower(&self) -> bool {
        self.ratio > Ratio::ONE
    }
}

/// Cases that drift in the same direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crept {
    /// The cases that changed.
    #[serde(flatten)]
    pub who: Who,
    /// The numbers of the cases, the one that drifted farthest first.
    pub cases: Vec<usize>,
    /// The median of their drifts.
    pub ratio: Ratio,
}

/// The smallest change that is reported.
const THRESHOLD: Share = Share(0.01);

/// The probability that a history in which nothing changed shows a change anywhere.
const ERROR: f64 = 0.01;

/// The number of runs in the reference.
pub const REFERENCE: usize = 10;

/// Analyses a history.
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

/// False where other programs disturbed the metric. CPU time counts always, because load does not
/// use a call's CPU time.
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

/// The trend that all cases share over `runs` runs, and the trend of each case.
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
    // A lasting state of the machine correlates the runs of most cases.
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
    // The common change of all cases between the oldest run and the newest is due to the two days.
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

/// The part of a series' correlation that chance does not explain.
fn own_correlation(logs: &[f64]) -> f64 {
    (correlation(logs) - 4.0 / (logs.len().max(1) as f64).sqrt()).max(0.0)
}

fn logarithms(times: &[Nanoseconds]) -> Vec<f64> {
    times.iter().map(|time| time.0.ln()).collect()
}

/// Makes the trend of a series from its changes.
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

/// The changes at `places` that reach the threshold, each with its index. `logs` are the logarithms
/// of the series, without the shifts that all cases of a run share.
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
        // The smallest change is dropped first, so that its neighbours are computed from more runs.
        let size = |step: &(usize, Step)| step.1.change.ratio.0.ln().abs();
        let smallest = steps.iter().min_by(|a, b| size(a).total_cmp(&size(b)));
        match smallest.filter(|step| size(step) < THRESHOLD.0.ln_1p()) {
            Some(small) => places.retain(|at| *at != small.0),
            None => return steps,
        }
    }
}

/// The cases that have no time of a metric in their latest run, and since which run.
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

/// The fewest cases with a common shift: with fewer, the median case could be the case itself.
const FEW: usize = 8;

/// The runs with enough cases, and the logarithm of the factor that all cases of each share: the
/// median distance of cases from their own medians.
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

/// Subtracts from each case the distance of the shared factor from its level, where `places` are
/// the changes of that level.
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

/// The index in a series at which the reference begins.
fn reference(series: &Series, options: &Options) -> usize {
    let before = |run: &u32| (*run as usize) < options.reference_from;
    series.runs.partition_point(before)
}

/// The day-to-day allowance, since the oldest and the newest run were not measured in pairs.
const DAY: f64 = 0.03;

/// The values of the oldest comparable run and of the newest, as logarithms, after the steps
/// between them are subtracted. A run with fewer invocations than the rule needs is joined with its
/// neighbours, as many as the reference has. Five against five values show only large differences,
/// and runs that drift differ from each other already.
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

    /// The logarithm of the newest run over the oldest.
    fn shift(&self) -> Option<f64> {
        let shift = shift(BothSides::new(&self.base, &self.head), THRESHOLD)?;
        Some(shift.ratio.0.ln())
    }

    /// The drift of the series by the [rule](crate::rule) of gates, if it shows one. `days` is the
    /// common shift of all cases between the two days, which is subtracted.
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

/// The values of the first of `runs`. If they are fewer than the rule needs, the values of the
/// following runs are added, up to `together`.
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
