//! Groups changes into events: cases that change with the same run are one event.

use std::collections::{BTreeMap, BTreeSet};

use super::THRESHOLD;
use super::changes::middle;
use super::{Crept, Event, Series, Step, Trend, Who};
use crate::axes::{AxisTable, described};
use crate::comparable::{differ, maps, revision_text};
use crate::judgement::Mismatch;
use regatta_core::record::history::{About, History};
use regatta_worker::units::{Nanoseconds, Ratio};

/// The largest distance in runs at which changes belong together: noise moves the place of a small
/// change.
const NEAR: usize = 2;

/// The fewest cases of which common values are sought.
const FEWEST: usize = 3;

/// The share of cases that counts as nearly all.
const NEARLY_ALL: f64 = 0.8;

/// The number of runs on each side that show whether a case changed with all others.
const BESIDE: usize = 20;

/// The field of a difference of revisions.
const REVISION: &str = "revision";

/// The prefix of facts about the method of measuring.
const METHOD: &str = "measure.";

/// A case by its number, and a change of it.
type CaseStep<'t> = (usize, &'t Step);

/// The events of a history, in the order of its runs.
pub(super) fn events(
    history: &History,
    all: &[Series],
    shared: Option<&Trend>,
    cases: &[Trend],
) -> Vec<Event> {
    let changes = cases.iter().enumerate();
    let changes = changes.flat_map(|(case, trend)| {
        let each = trend.steps.iter();
        each.map(move |step| (case, step))
    });
    let mut left: Vec<CaseStep> = changes.collect();
    let context = Movers { history, all };
    let mut events = Vec::new();
    for step in shared.iter().flat_map(|shared| &shared.steps) {
        let with = context.all_moved(step);
        if with.len() < FEWEST {
            continue;
        }
        // A case that changed by much more has another reason.
        let usual = step.change.ratio.0.ln();
        let alike = |(_, other): &CaseStep| {
            let own = other.change.ratio.0.ln();
            near(other, step) && (own - usual).abs() <= usual.abs().max(2.0 * THRESHOLD.0)
        };
        left.retain(|change| !alike(change));
        events.push(context.event(step, with, true));
    }
    while !left.is_empty() {
        let (run, slower) = crowded(&left);
        let (mut together, rest): (Vec<CaseStep>, Vec<CaseStep>) = left
            .into_iter()
            .partition(|(_, step)| is_slower(step) == slower && within(step.run, run));
        left = rest;
        together.sort_by(|a, b| size(b.1).total_cmp(&size(a.1)));
        if together.len() < FEWEST {
            let each = together.iter();
            events.extend(each.map(|(case, step)| context.event(step, vec![*case], false)));
        } else {
            // A case may change twice within [`NEAR`] runs.
            let mut seen = BTreeSet::new();
            together.retain(|(case, _)| seen.insert(*case));
            let ratios: Vec<f64> = together
                .iter()
                .map(|(_, step)| step.change.ratio.0.ln())
                .collect();
            let with = together.iter().map(|(case, _)| *case).collect();
            let mut event = context.event(together[0].1, with, false);
            event.ratio = Ratio(middle(&ratios).exp());
            events.push(event);
        }
    }
    events.sort_by_key(|event| event.run);
    events
}

/// The drifts of a history, slower and faster.
pub(super) fn crept(
    history: &History,
    all: &[Series],
    shared: Option<&Trend>,
    cases: &[Trend],
) -> Vec<Crept> {
    let context = Movers { history, all };
    let mut drifts = Vec::new();
    for slower in [true, false] {
        let crept = cases.iter().enumerate().filter_map(|(case, trend)| {
            let ratio = trend.creep.as_ref()?.change.ratio;
            ((ratio > Ratio::ONE) == slower).then_some((case, ratio.0.ln()))
        });
        let mut crept: Vec<(usize, f64)> = crept.collect();
        crept.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let mut push = |cases: Vec<usize>, ratio, all| {
            let who = context.who(&cases, all);
            drifts.push(Crept { who, cases, ratio });
        };
        let of_all = shared.and_then(|shared| shared.creep.as_ref());
        if let Some(creep) = of_all.filter(|creep| (creep.change.ratio > Ratio::ONE) == slower) {
            let timed = cases.iter().enumerate().filter(|(_, trend)| trend.runs > 0);
            push(
                timed.map(|(case, _)| case).collect(),
                creep.change.ratio,
                true,
            );
        }
        if !crept.is_empty() {
            let (cases, ratios): (Vec<usize>, Vec<f64>) = crept.into_iter().unzip();
            push(cases, Ratio(middle(&ratios).exp()), false);
        }
    }
    drifts
}

fn is_slower(step: &Step) -> bool {
    step.change.ratio > Ratio::ONE
}

fn size(step: &Step) -> f64 {
    step.change.ratio.0.ln().abs()
}

fn within(run: usize, other: usize) -> bool {
    run.abs_diff(other) <= NEAR
}

fn near(step: &Step, other: &Step) -> bool {
    within(step.run, other.run) && is_slower(step) == is_slower(other)
}

/// The run around which most cases change in the same direction, and true if they get slower.
fn crowded(left: &[CaseStep]) -> (usize, bool) {
    let mut counts: BTreeMap<(bool, usize), usize> = BTreeMap::new();
    for (_, step) in left {
        *counts.entry((is_slower(step), step.run)).or_default() += 1;
    }
    let around = |(slower, run): (bool, usize)| -> usize {
        let nearby = counts.range((slower, run.saturating_sub(NEAR))..=(slower, run + NEAR));
        nearby.map(|(_, count)| count).sum()
    };
    // Among equal neighbourhoods, the run with most changes is chosen, then the first.
    let best = counts
        .iter()
        .max_by_key(|((slower, run), count)| (around((*slower, *run)), **count, usize::MAX - run));
    best.map_or((0, true), |((slower, run), _)| (*run, *slower))
}

struct Movers<'h> {
    history: &'h History,
    all: &'h [Series],
}

impl Movers<'_> {
    /// The cases that changed with a shared step, the one that changed most first; empty unless
    /// they are nearly all cases.
    fn all_moved(&self, step: &Step) -> Vec<usize> {
        let (mut there, mut moved) = (0, Vec::new());
        for (case, series) in self.all.iter().enumerate() {
            let at = series
                .runs
                .partition_point(|run| (*run as usize) < step.run);
            let left = &series.times[at.saturating_sub(BESIDE)..at];
            let right = &series.times[at..series.times.len().min(at + BESIDE)];
            let level = |times: &[Nanoseconds]| regatta_core::record::median(times);
            let (Some(left), Some(right)) = (level(left), level(right)) else {
                continue;
            };
            there += 1;
            let own = (right / left).0.ln();
            let usual = step.change.ratio.0.ln();
            // At least half of the shared step, in the same direction.
            if own * usual.signum() >= 0.5 * usual.abs() {
                moved.push((case, own.abs()));
            }
        }
        if (moved.len() as f64) < NEARLY_ALL * f64::from(there) {
            return Vec::new();
        }
        moved.sort_by(|a, b| b.1.total_cmp(&a.1));
        moved.into_iter().map(|(case, _)| case).collect()
    }

    fn event(&self, step: &Step, cases: Vec<usize>, all: bool) -> Event {
        let about = |place: usize| self.history.runs.get(place).map(|kept| &kept.about);
        // The differences are those of the run itself, even if the previous run lacks the case.
        let before = step.run.saturating_sub(1).max(step.before);
        let (mut code, mut machine) = (Vec::new(), Vec::new());
        if let (Some(base), Some(head)) = (about(before), about(step.run)) {
            compare(base, head, &mut code);
            maps(&mut machine, "", &base.facts, &head.facts);
        }
        let mut nearby = Vec::new();
        let last = self.history.runs.len().saturating_sub(1);
        let around = [before.saturating_sub(NEAR), last.min(step.run + NEAR)];
        if let [Some(base), Some(head)] = around.map(about) {
            compare(base, head, &mut nearby);
            maps(&mut nearby, "", &base.facts, &head.facts);
            // Each nightly run has another revision.
            let with_it = code.iter().chain(&machine);
            let with_it: BTreeSet<&String> = with_it.map(|mismatch| &mismatch.field).collect();
            nearby.retain(|mismatch| {
                mismatch.field != REVISION && !with_it.contains(&mismatch.field)
            });
        }
        Event {
            run: step.run,
            before,
            nearby,
            who: if machine.is_empty() {
                self.who(&cases, all)
            } else if machine
                .iter()
                .all(|mismatch| mismatch.field.starts_with(METHOD))
            {
                Who::Method
            } else {
                Who::Machine
            },
            cases,
            ratio: step.change.ratio,
            most: step.clone(),
            code,
            machine,
        }
    }

    fn who(&self, moved: &[usize], all: bool) -> Who {
        let present = self.all.iter().filter(|series| !series.runs.is_empty());
        let many = all || moved.len() as f64 >= NEARLY_ALL * present.count() as f64;
        let many = many && moved.len() >= FEWEST;
        let workers: BTreeSet<&str> = moved.iter().map(|case| self.worker(*case)).collect();
        match moved {
            _ if many && workers.len() > 1 => Who::Machine,
            _ if many => Who::Suite,
            [_] => Who::Case,
            _ => self.family(moved).map_or(Who::Several, Who::Family),
        }
    }

    /// The values on axes that nearly all changed cases share and hardly any other case has:
    /// `all 12 cases of torch/efficient with backward`. `None` if few cases changed, or all.
    fn family(&self, moved: &[usize]) -> Option<String> {
        let timed = |case: &usize| !self.all[*case].runs.is_empty();
        let timed: Vec<usize> = (0..self.all.len()).filter(timed).collect();
        if moved.len() < FEWEST || moved.len() == timed.len() {
            return None;
        }
        let table = AxisTable::new(timed.iter().map(|case| &self.history.cases[*case]));
        let seen: BTreeSet<&usize> = moved.iter().collect();
        let states: Vec<_> = timed.iter().map(|case| Some(seen.contains(case))).collect();
        let description = described(&table, &states)?;
        let most = description.hits.len() as f64 >= NEARLY_ALL * moved.len() as f64;
        (most && !description.terms.is_empty()).then(|| description.sentence("case"))
    }

    fn worker(&self, case: usize) -> &str {
        let id = self.history.cases.get(case).map_or("", |id| &*id.0);
        id.split(['/', '@']).next().unwrap_or_default()
    }
}

/// Adds the differences of the code between two runs.
fn compare(base: &About, head: &About, mismatches: &mut Vec<Mismatch>) {
    let revision = |about: &About| about.git.as_ref().map(revision_text);
    if let (Some(base), Some(head)) = (revision(base), revision(head)) {
        differ(mismatches, REVISION, base, head);
    }
    differ(mismatches, "regatta", &base.tool, &head.tool);
    let empty = BTreeMap::new();
    let workers: BTreeSet<&String> = base.versions.keys().chain(head.versions.keys()).collect();
    for worker in workers {
        let versions = |about: &About| about.versions.get(worker).unwrap_or(&empty).clone();
        maps(
            mismatches,
            &format!("{worker}."),
            &versions(base),
            &versions(head),
        );
    }
}
