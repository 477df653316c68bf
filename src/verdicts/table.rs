//! Counts verdicts over many sweeps.

use rayon::prelude::*;
use serde::Serialize;

use super::draw::{Place, World};
use super::gate::{Judged, judged};
use super::noise::MODELS;
use super::rate::Rate;
use super::rules::{Called, RULES, Rule, Takes};
use super::sweep::{Against, Changed, Design, Invocations, Measured, SESSIONS, Sessions, Sweep};
use crate::judge::judgement::{VerdictOutcome, Word};
use crate::units::{Nanoseconds, Ratio, Share};

/// Cases of a sweep that change together, where any do.
const CHANGED: usize = 5;

/// The changes that are looked for.
pub const CHANGES: [Share; 5] = [
    Share(0.01),
    Share(0.02),
    Share(0.03),
    Share(0.05),
    Share(0.10),
];

/// What rules of other tools are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// What the tool would have measured itself: mostly the samples of one process.
    Own,
    /// The medians of the invocations that the gate judges.
    Medians,
}

/// What is counted, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How a sweep is measured.
    pub design: Design,
    /// The floor of the gate.
    pub floor: Share,
    /// What other rules are given.
    pub evidence: Evidence,
    /// Unchanged sweeps of each noise; of each change, as many changed cases.
    pub sweeps: usize,
    /// What all draws follow from.
    pub seed: u64,
}

/// How often each rule is wrong and right.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Smallest change that counts, for the gate.
    pub floor: Share,
    /// What other rules were given.
    pub evidence: Evidence,
    /// What all draws followed from.
    pub seed: u64,
    /// Unchanged sweeps of each noise.
    pub sweeps: usize,
    /// Cases of a sweep.
    pub cases: usize,
    /// The changes that were looked for.
    pub changes: [Share; 5],
    /// By noise.
    pub blocks: Vec<Block>,
}

/// One noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Block {
    /// Its name.
    pub noise: String,
    /// What it is, in a few words.
    pub about: String,
    /// By rule.
    pub lines: Vec<Line>,
}

/// One rule under one noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The rule.
    pub rule: &'static str,
    /// Unchanged sweeps that fail.
    pub red: Rate,
    /// What only this gate says.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Ours>,
    /// Cells of unchanged sweeps that are called worse.
    pub worse: Rate,
    /// Changed cells that are called worse, by change.
    pub found: Vec<Rate>,
}

/// What only this gate says of unchanged sweeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ours {
    /// Sweeps of which it says that it cannot say.
    pub cannot_say: Rate,
    /// Sweeps in which something is called improved.
    pub improved: Rate,
    /// Cells that are left undecided.
    pub undecided: Rate,
    /// Fresh invocations of a case, in all sweeps.
    pub fresh: usize,
    /// Of cases that changed by what their row said would be seen, those that are called.
    pub at_seen: Rate,
}

impl Ours {
    fn plus(self, other: Ours) -> Ours {
        Ours {
            cannot_say: self.cannot_say.plus(other.cannot_say),
            improved: self.improved.plus(other.improved),
            undecided: self.undecided.plus(other.undecided),
            fresh: self.fresh + other.fresh,
            at_seen: self.at_seen.plus(other.at_seen),
        }
    }
}

impl Line {
    fn new(rule: &'static str, is_ours: bool) -> Line {
        Line {
            rule,
            red: Rate::default(),
            ours: is_ours.then(Ours::default),
            worse: Rate::default(),
            found: vec![Rate::default(); CHANGES.len()],
        }
    }

    fn plus(mut self, other: &Line) -> Line {
        self.red = self.red.plus(other.red);
        self.ours = self.ours.zip(other.ours).map(|(one, two)| one.plus(two));
        self.worse = self.worse.plus(other.worse);
        for (found, more) in self.found.iter_mut().zip(&other.found) {
            *found = found.plus(*more);
        }
        self
    }
}

/// This gate's lines: what a head is held against.
pub const OURS: [(&str, Against); 4] = [
    ("gate", Against::Stored),
    ("gate, 8 sessions", Against::Sessions(SESSIONS as usize)),
    ("gate, base beside", Against::Beside),
    ("diff", Against::Once),
];

/// No line counts anything yet.
fn lines() -> Vec<Line> {
    let ours = OURS.map(|(name, _)| Line::new(name, true));
    let theirs = RULES.iter().map(|rule| Line::new(rule.name, false));
    ours.into_iter().chain(theirs).collect()
}

/// A noise to be counted under.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Its name.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Tells its draws from those of others, whichever are in the table.
    pub number: u64,
    /// Where to draw.
    pub world: World,
}

/// These models, by what they are called.
pub fn models(chosen: impl Fn(&str) -> bool) -> Vec<Replayed> {
    let numbered = (0..).zip(MODELS);
    let wanted = numbered.filter(|(_, noise)| chosen(noise.name));
    wanted
        .map(|(number, noise)| Replayed {
            name: noise.name.to_owned(),
            about: noise.about(),
            number,
            world: World::Made(noise),
        })
        .collect()
}

/// Counts under every noise.
pub fn table(noises: &[Replayed], plan: &Plan) -> Table {
    let block = |noise: &Replayed| Block {
        noise: noise.name.clone(),
        about: noise.about.clone(),
        lines: block(noise, plan),
    };
    Table {
        floor: plan.floor,
        evidence: plan.evidence,
        seed: plan.seed,
        sweeps: plan.sweeps,
        cases: plan.design.cases,
        changes: CHANGES,
        blocks: noises.iter().map(block).collect(),
    }
}

/// A sweep to be counted: which change, and which of its sweeps.
#[derive(Clone, Copy)]
struct Task {
    change: Option<usize>,
    sweep: usize,
}

fn block(noise: &Replayed, plan: &Plan) -> Vec<Line> {
    let unchanged = (0..plan.sweeps).map(|sweep| Task {
        change: None,
        sweep,
    });
    let changed = (0..CHANGES.len()).flat_map(|change| {
        let sweeps = 0..plan.sweeps.div_ceil(CHANGED);
        sweeps.map(move |sweep| Task {
            change: Some(change),
            sweep,
        })
    });
    let tasks: Vec<Task> = unchanged.chain(changed).collect();
    let add = |one: Vec<Line>, two: Vec<Line>| {
        let pairs = one.into_iter().zip(&two);
        pairs.map(|(one, two)| one.plus(two)).collect()
    };
    tasks
        .par_iter()
        .map(|task| {
            let change = task.change.map_or(0, |change| change as u64 + 1);
            let place = Place {
                seed: plan.seed,
                experiment: noise.number * 16 + change,
                sweep: task.sweep as u64,
            };
            counted(&noise.world, place, *task, plan)
        })
        .reduce(lines, add)
}

/// The lines of a single sweep.
fn counted(world: &World, place: Place, task: Task, plan: &Plan) -> Vec<Line> {
    let changed = task.change.map_or(Changed::NOTHING, |change| Changed {
        cases: CHANGED.min(plan.design.cases),
        factor: Ratio::grown_by(CHANGES[change]),
    });
    let most = RULES.iter().map(|rule| rule.takes.samples).max();
    let design = Design {
        first_samples: most.unwrap_or(0).max(plan.design.samples),
        ..plan.design
    };
    let sessions = Sessions::begin(world, place, design, changed);
    let told = sessions.measure(Against::Once);
    // What is looked at: the cases that changed, or where none did, all.
    let looked_at = match task.change {
        Some(_) => changed.cases,
        None => design.cases,
    };
    let mut lines = lines();
    let (ours, theirs) = lines.split_at_mut(OURS.len());
    for (line, rule) in theirs.iter_mut().zip(&RULES) {
        let called = called(rule, &told, looked_at, place, plan.evidence);
        count_theirs(line, rule, &called, task.change);
    }
    for (line, (_, against)) in ours.iter_mut().zip(OURS) {
        let mut sweep = sessions.measure(against);
        let judged = judged(&mut sweep, design, plan.floor, against);
        count_ours(line, &judged, looked_at, task.change);
        if let (Some(ours), None) = (&mut line.ours, task.change) {
            ours.at_seen = at_seen(&sessions, &judged, design, plan.floor, against);
        }
    }
    lines
}

/// How many cases are called, of those that take as much longer as their rows said this gate
/// would see: a few of each sweep, chosen by their place.
fn at_seen(
    sessions: &Sessions,
    clean: &Judged,
    design: Design,
    floor: Share,
    against: Against,
) -> Rate {
    let seen: Vec<Ratio> = clean.judgement.rows[..CHANGED.min(design.cases)]
        .iter()
        .filter_map(|row| Some(Ratio::grown_by(row.change.as_ref()?.smallest_effect)))
        .take_while(|factor| factor.is_finite())
        .collect();
    let factor = |case: usize| seen.get(case).copied().unwrap_or(Ratio::ONE);
    let again = judged(
        &mut sessions.planted(against, factor),
        design,
        floor,
        against,
    );
    let called = again.judgement.rows[..seen.len()].iter();
    Rate {
        hits: called.filter(|row| row.word == Word::Regressed).count(),
        of: seen.len(),
    }
}

/// What a rule calls each case that is looked at.
fn called(
    rule: &Rule,
    told: &Sweep,
    looked_at: usize,
    place: Place,
    evidence: Evidence,
) -> Vec<Called> {
    // Apart from what sides are drawn from.
    let mut rng = place.generator(1 << 40);
    let given = |side: &Measured, case: usize| match evidence {
        Evidence::Own => taken(&side.cases[case], rule.takes),
        Evidence::Medians => vec![side.medians(case)],
    };
    let cases = 0..looked_at;
    cases
        .map(|case| (rule.call)(&given(&told.base, case), &given(&told.head, case), &mut rng))
        .collect()
}

/// As many of the processes and samples as a tool takes.
fn taken(invocations: &Invocations, takes: Takes) -> Invocations {
    let first = |samples: &Vec<Nanoseconds>| samples[..takes.samples.min(samples.len())].to_vec();
    invocations
        .iter()
        .take(takes.processes)
        .map(first)
        .collect()
}

fn count_theirs(line: &mut Line, rule: &Rule, called: &[Called], change: Option<usize>) {
    let of = |what: Called| called.iter().filter(|called| **called == what).count();
    let (slower, faster) = (of(Called::Slower), of(Called::Faster));
    let cells = Rate {
        hits: slower,
        of: called.len(),
    };
    match change {
        Some(change) => line.found[change] = cells,
        None => {
            line.red = Rate::once((rule.red)(slower, faster));
            line.worse = cells;
        }
    }
}

fn count_ours(line: &mut Line, judged: &Judged, looked_at: usize, change: Option<usize>) {
    let Judged { judgement, fresh } = judged;
    let of = |word| Rate {
        hits: judgement.rows[..looked_at]
            .iter()
            .filter(|row| row.word == word)
            .count(),
        of: looked_at,
    };
    let outcome = judgement.verdict.outcome;
    match change {
        Some(change) => line.found[change] = of(Word::Regressed),
        None => {
            line.red = Rate::once(outcome == VerdictOutcome::Failed);
            let improved = judgement.rows.iter().any(|row| row.word == Word::Improved);
            line.ours = Some(Ours {
                cannot_say: Rate::once(outcome == VerdictOutcome::NotJudged),
                improved: Rate::once(improved),
                undecided: of(Word::Inconclusive),
                fresh: *fresh,
                at_seen: Rate::default(),
            });
            line.worse = of(Word::Regressed);
        }
    }
}

/// The largest half width of the intervals of power, for a line beneath the table.
pub fn widest(table: &Table) -> Option<Share> {
    let lines = table.blocks.iter().flat_map(|block| &block.lines);
    let rates = lines.flat_map(|line| &line.found);
    let halves = rates.map(|rate| {
        let (low, high) = rate.interval();
        (high - low).0 / 2.0
    });
    halves.reduce(f64::max).map(Share)
}

#[cfg(test)]
mod tests;
