//! Who moved: cases that change with the same run are one event.

use std::collections::{BTreeMap, BTreeSet};

use super::THRESHOLD;
use super::changes::middle;
use super::{Crept, Event, Series, Step, Trend, Who};
use crate::comparable::{differ, maps, revision_text};
use crate::judgement::Mismatch;
use regatta_core::record::history::{About, History};
use regatta_worker::attention::{CaseId, FACETS};
use regatta_worker::units::{Nanoseconds, Ratio, counted};

/// Cases that change within so many runs of each other change together: noise moves the place
/// of a small change.
const NEAR: usize = 2;

/// Fewer cases than these have nothing in common.
const FEWEST: usize = 3;

/// Nearly all.
const MOST: f64 = 0.8;

/// Runs on each side that tell whether a case moved with all others.
const BESIDE: usize = 20;

/// What a difference of revisions is called.
const REVISION: &str = "revision";

/// How facts begin that are of the way of measuring.
const METHOD: &str = "measure.";

/// A change of a case.
struct CaseStep<'t> {
    case: usize,
    step: &'t Step,
}

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
        each.map(move |step| CaseStep { case, step })
    });
    let mut left: Vec<CaseStep> = changes.collect();
    let context = Movers { history, all };
    let mut events = Vec::new();
    for step in shared.iter().flat_map(|shared| &shared.steps) {
        let with = context.all_moved(step);
        if with.len() < FEWEST {
            continue;
        }
        // One that changed by much more has a reason of its own.
        let usual = step.ratio.0.ln();
        let alike = |change: &CaseStep| {
            let own = change.step.ratio.0.ln();
            near(change.step, step) && (own - usual).abs() <= usual.abs().max(2.0 * THRESHOLD.0)
        };
        left.retain(|change| !alike(change));
        events.push(context.event(step, with, true));
    }
    while !left.is_empty() {
        let (run, slower) = crowded(&left);
        let (mut together, rest): (Vec<CaseStep>, Vec<CaseStep>) = left
            .into_iter()
            .partition(|change| is_slower(change.step) == slower && within(change.step.run, run));
        left = rest;
        together.sort_by(|a, b| size(b.step).total_cmp(&size(a.step)));
        if together.len() < FEWEST {
            let each = together.iter();
            events.extend(each.map(|change| context.event(change.step, vec![change.case], false)));
        } else {
            // A case may change twice within these few runs.
            let mut seen = BTreeSet::new();
            together.retain(|change| seen.insert(change.case));
            let ratios: Vec<f64> = together.iter().map(|c| c.step.ratio.0.ln()).collect();
            let with = together.iter().map(|change| change.case).collect();
            let mut event = context.event(together[0].step, with, false);
            event.ratio = Ratio(middle(&ratios).exp());
            events.push(event);
        }
    }
    events.sort_by_key(|event| event.run);
    events
}

/// What creeps in a history: what gets slower, and what gets faster.
pub(super) fn crept(
    history: &History,
    all: &[Series],
    shared: Option<&Trend>,
    cases: &[Trend],
) -> Vec<Crept> {
    let context = Movers { history, all };
    let mut found = Vec::new();
    for slower in [true, false] {
        let crept = cases.iter().enumerate().filter_map(|(case, trend)| {
            let ratio = trend.creep.as_ref()?.ratio;
            ((ratio > Ratio::ONE) == slower).then_some((case, ratio.0.ln()))
        });
        let mut crept: Vec<(usize, f64)> = crept.collect();
        crept.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let of_all = shared.and_then(|shared| shared.creep.as_ref());
        if let Some(creep) = of_all.filter(|creep| (creep.ratio > Ratio::ONE) == slower) {
            let timed = cases.iter().enumerate().filter(|(_, trend)| trend.runs > 0);
            let with: Vec<usize> = timed.map(|(case, _)| case).collect();
            found.push(Crept {
                who: context.who(&with, true),
                cases: with,
                ratio: creep.ratio,
            });
        }
        if !crept.is_empty() {
            let ratios: Vec<f64> = crept.iter().map(|(_, ratio)| *ratio).collect();
            let with: Vec<usize> = crept.into_iter().map(|(case, _)| case).collect();
            found.push(Crept {
                who: context.who(&with, false),
                cases: with,
                ratio: Ratio(middle(&ratios).exp()),
            });
        }
    }
    found
}

fn is_slower(step: &Step) -> bool {
    step.ratio > Ratio::ONE
}

fn size(step: &Step) -> f64 {
    step.ratio.0.ln().abs()
}

fn within(run: usize, of: usize) -> bool {
    run.abs_diff(of) <= NEAR
}

fn near(step: &Step, of: &Step) -> bool {
    within(step.run, of.run) && is_slower(step) == is_slower(of)
}

/// The run around which most cases change the same way, and which way.
fn crowded(left: &[CaseStep]) -> (usize, bool) {
    let mut counts: BTreeMap<(bool, usize), usize> = BTreeMap::new();
    for change in left {
        *counts
            .entry((is_slower(change.step), change.step.run))
            .or_default() += 1;
    }
    let around = |(slower, run): (bool, usize)| -> usize {
        let nearby = counts.range((slower, run.saturating_sub(NEAR))..=(slower, run + NEAR));
        nearby.map(|(_, count)| count).sum()
    };
    // Of as many around, the run with most of them, and then the first.
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
    /// The cases that moved with a step of what all share, the one that moved most first: none
    /// where these are not nearly all of those there are.
    fn all_moved(&self, step: &Step) -> Vec<usize> {
        let (mut there, mut moved) = (0, Vec::new());
        for (case, series) in self.all.iter().enumerate() {
            let at = series
                .runs
                .partition_point(|run| (*run as usize) < step.run);
            let left = &series.times[at.saturating_sub(BESIDE)..at];
            let right = &series.times[at..series.times.len().min(at + BESIDE)];
            let level = |times: &[Nanoseconds]| regatta_core::record::side::median(times);
            let (Some(left), Some(right)) = (level(left), level(right)) else {
                continue;
            };
            there += 1;
            let own = (right / left).0.ln();
            let usual = step.ratio.0.ln();
            // Half of it, and on the same side.
            if own * usual.signum() >= 0.5 * usual.abs() {
                moved.push((case, own.abs()));
            }
        }
        if (moved.len() as f64) < MOST * f64::from(there) {
            return Vec::new();
        }
        moved.sort_by(|a, b| b.1.total_cmp(&a.1));
        moved.into_iter().map(|(case, _)| case).collect()
    }

    fn event(&self, step: &Step, cases: Vec<usize>, all: bool) -> Event {
        let about = |place: usize| self.history.runs.get(place).map(|kept| &kept.about);
        // What changed with the run itself, though the case was not in the one before.
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
            // A nightly run is of another revision each time.
            let with_it = code.iter().chain(&machine);
            let with_it: BTreeSet<&String> = with_it.map(|of| &of.field).collect();
            nearby.retain(|of| of.field != REVISION && !with_it.contains(&of.field));
        }
        Event {
            run: step.run,
            before,
            nearby,
            who: match machine.iter().all(|of| of.field.starts_with(METHOD)) {
                true if !machine.is_empty() => Who::Method,
                true => self.who(&cases, all),
                false => Who::Machine,
            },
            cases,
            ratio: step.ratio,
            most: step.clone(),
            code,
            machine,
        }
    }

    fn who(&self, moved: &[usize], all: bool) -> Who {
        let present = self.all.iter().filter(|series| !series.runs.is_empty());
        let many = all || moved.len() as f64 >= MOST * present.count() as f64;
        let many = many && moved.len() >= FEWEST;
        let workers: BTreeSet<&str> = moved.iter().map(|case| self.worker(*case)).collect();
        match moved {
            _ if many && workers.len() > 1 => Who::Machine,
            _ if many => Who::Suite,
            [_] => Who::Case,
            _ => {
                let ids = |cases: &mut dyn Iterator<Item = usize>| {
                    cases
                        .map(|case| &self.history.cases[case])
                        .collect::<Vec<_>>()
                };
                let timed = self.all.iter().enumerate();
                let mut timed = timed.filter(|(_, series)| !series.runs.is_empty());
                let compared = ids(&mut timed.by_ref().map(|(case, _)| case));
                let moved = ids(&mut moved.iter().copied());
                common(&moved, &compared).map_or(Who::Several, Who::Family)
            }
        }
    }

    fn worker(&self, case: usize) -> &str {
        let id = self.history.cases.get(case).map_or("", |id| id.0.as_str());
        id.split(['/', '@']).next().unwrap_or_default()
    }
}

/// What changed of the code between two runs.
fn compare(base: &About, head: &About, found: &mut Vec<Mismatch>) {
    let revision = |about: &About| about.git.as_ref().map(revision_text);
    if let (Some(base), Some(head)) = (revision(base), revision(head)) {
        differ(found, REVISION, base, head);
    }
    differ(found, "regatta", &base.tool, &head.tool);
    let none = BTreeMap::new();
    let workers: BTreeSet<&String> = base.versions.keys().chain(head.versions.keys()).collect();
    for worker in workers {
        let of = |about: &About| about.versions.get(worker).unwrap_or(&none).clone();
        maps(found, &format!("{worker}."), &of(base), &of(head));
    }
}

/// What the cases that moved have in common, and hardly any other case has: `all 12 cases of
/// torch/efficient, direction backward`. `None` where they are few, everything, or have
/// nothing in common.
pub fn common(moved: &[&CaseId], compared: &[&CaseId]) -> Option<String> {
    if moved.len() < FEWEST || moved.len() == compared.len() {
        return None;
    }
    // What nearly all that moved have: few things, of which the others are then counted.
    let mut hits: BTreeMap<Key, usize> = BTreeMap::new();
    for key in moved.iter().flat_map(|case| keys(&facets(case))) {
        *hits.entry(key).or_default() += 1;
    }
    hits.retain(|_, hits| *hits as f64 >= MOST * moved.len() as f64);
    let mut counts: BTreeMap<Key, usize> = hits.keys().map(|key| (key.clone(), 0)).collect();
    for case in compared {
        let facets = facets(case);
        for (key, of) in &mut counts {
            *of += usize::from(key.iter().all(|facet| facets.contains(facet)));
        }
    }
    let counted_both = hits.into_iter().zip(counts.into_values());
    let best = counted_both
        .map(|((key, hits), of)| (key, (hits, of)))
        .filter(|(_, (hits, of))| *hits as f64 >= MOST * *of as f64)
        // The most of them; of as many, what says it in the fewest words.
        .max_by_key(|(key, (hits, of))| (*hits, usize::MAX - of, usize::MAX - key.len()))?;
    let (key, (hits, of)) = best;
    let words: Vec<String> = key
        .iter()
        .map(|(name, value)| match *name {
            "variant" | "worker" => value.clone(),
            name => format!("{name} {value}"),
        })
        .collect();
    let many = match hits == of {
        true => format!("all {}", counted(of, "case")),
        false => format!("{hits} of the {}", counted(of, "case")),
    };
    Some(format!("{many} of {}", words.join(", ")))
}

/// A value of a facet, or a variant with one.
type Key = Vec<(&'static str, String)>;

/// Each value by itself, and each with the variant.
fn keys(facets: &[(&'static str, String)]) -> Vec<Key> {
    let variant = facets.iter().find(|(name, _)| *name == "variant");
    let single = facets.iter().map(|facet| vec![facet.clone()]);
    let others = facets.iter().filter(|(name, _)| *name != "variant");
    let paired = others.filter_map(|facet| Some(vec![variant?.clone(), facet.clone()]));
    single.chain(paired).collect()
}

fn facets(case: &CaseId) -> Vec<(&'static str, String)> {
    let Ok(case) = case.case() else {
        return Vec::new();
    };
    let named = FACETS.iter().map(|name| (*name, case.facet(name)));
    named.filter(|(_, value)| !value.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moved_together_and_alone_is_told_together() {
        let variants = ["cpu/flash", "cpu/naive"].into_iter();
        let sizes = variants.flat_map(|variant| (1..=6).map(move |n| (variant, 64 * n)));
        let ids = sizes.flat_map(|(variant, seq)| {
            ["", ",bwd"].map(|way| CaseId(format!("{variant}:s{seq},d64{way}")))
        });
        let all: Vec<CaseId> = ids.collect();
        let told = |moved: fn(&str) -> bool| {
            let all: Vec<&CaseId> = all.iter().collect();
            let moved: Vec<&CaseId> = all.iter().copied().filter(|id| moved(&id.0)).collect();
            common(&moved, &all).unwrap_or_default()
        };
        let backward = told(|id| id.starts_with("cpu/flash") && id.ends_with("bwd"));
        assert_eq!(backward, "all 6 cases of cpu/flash, direction backward");
        assert_eq!(
            told(|id| id.starts_with("cpu/naive")),
            "all 12 cases of cpu/naive"
        );
        assert!(told(|id| id.contains(":s64,")).starts_with("all 4 cases of seq"));
        // What has nothing in common is only counted.
        let any = |id: &str| {
            ["s64,d64", "s128,d64,bwd", "s384,d64"]
                .iter()
                .any(|e| id.ends_with(e))
        };
        assert_eq!(told(any), "");
        assert_eq!(told(|_| true), "");
    }
}
