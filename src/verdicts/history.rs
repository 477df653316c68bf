//! How often a history in which nothing changed shows a change, and how soon one that did shows
//! it.
//!
//! A run is a session of the models of noise: what differs between two starts, two sessions and
//! two days of them is in it. Beside these, noise that comes and goes over many runs: what
//! remembers the run before, and a clock that drifts.

use std::f64::consts::TAU;

use rayon::prelude::*;
use serde::Serialize;

use super::draw::{Place, Role, Session, World, normal};
use super::noise::{Beside, MODELS, Noise};
use super::rate::Rate;
use crate::judge::history::{Options, Series, Trend, found};
use crate::record::side::median;
use crate::units::{Nanoseconds, Ratio, Share};

/// Runs of a history.
const RUNS: usize = 200;

/// Cases of a history.
const CASES: usize = 100;

/// Invocations of a run, as suites ask for.
const INVOCATIONS: usize = 5;

/// Samples of an invocation: fewer than suites ask for, which is more noise.
const SAMPLES: usize = 5;

/// Deviation of the runs of a case in the rows that say how soon a change is seen.
const DEVIATION: Share = Share(0.02);

/// Two per cent between the medians of five invocations, which is about 0.54 of what is between
/// invocations.
const PLAIN: Noise = Noise {
    name: "plain",
    between: Share(0.02 / 0.536),
    within: Share(0.005),
    beside: Beside::Nothing,
};

/// What comes and goes from run to run beside a model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    Nothing,
    /// Each case remembers so much of the run before; its own deviation is 1 %.
    Remembers(f64),
    /// All cases share a drift up and down by this, twice in a history.
    Drifts(f64),
}

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Planted {
    Nothing,
    /// One case takes so much longer in the last so many runs.
    Step {
        by: f64,
        runs: usize,
    },
    /// One case takes so much longer from the first run to the last, a little each.
    Creep {
        by: f64,
    },
}

/// Histories of a kind, and what was found in them.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Of which noise.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Histories that show a change or creep where there is none.
    pub wrong: Rate,
    /// Histories whose planted change was found, for what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<Rate>,
}

/// The table of so many histories of each kind.
pub fn table(histories: usize, seed: u64) -> Vec<Row> {
    let (steady, plain) = (MODELS[1], PLAIN);
    let mut kinds: Vec<(String, String, Noise, Over, Planted)> = Vec::new();
    for noise in MODELS {
        let name = noise.name.to_owned();
        kinds.push((name, noise.about(), noise, Over::Nothing, Planted::Nothing));
    }
    for kept in [0.3, 0.6] {
        kinds.push((
            format!("remembers-{kept}"),
            format!("each run remembers {:.0} of the one before", Share(kept)),
            steady,
            Over::Remembers(kept),
            Planted::Nothing,
        ));
    }
    kinds.push((
        "clock-drifts".to_owned(),
        "all cases drift up and down by 3 %".to_owned(),
        steady,
        Over::Drifts(0.03),
        Planted::Nothing,
    ));
    for runs in [5, 8, 10, 15, 20, 100] {
        kinds.push((
            format!("+5 % x{runs}"),
            format!("{DEVIATION} between runs; one case 5 % slower in the last {runs}"),
            plain,
            Over::Nothing,
            Planted::Step { by: 0.05, runs },
        ));
    }
    for (by, runs) in [(0.02, 30), (0.02, 100), (0.03, 20)] {
        kinds.push((
            format!("+{:.0} x{runs}", Share(by)),
            format!("the same, {:.0} slower in the last {runs}", Share(by)),
            plain,
            Over::Nothing,
            Planted::Step { by, runs },
        ));
    }
    for by in [0.04, 0.06, 0.10] {
        kinds.push((
            format!("creep +{:.0}", Share(by)),
            format!("the same, {:.0} slower bit by bit", Share(by)),
            plain,
            Over::Nothing,
            Planted::Creep { by },
        ));
    }
    let rows = kinds.into_iter().enumerate();
    rows.map(|(experiment, (name, about, noise, over, planted))| {
        let world = World::Made(noise);
        let each = (0..histories).into_par_iter().map(|sweep| {
            let place = Place {
                seed,
                experiment: 5_000 + experiment as u64,
                sweep: sweep as u64,
            };
            let all = drawn(&world, place, over, planted);
            judged(&all, planted)
        });
        let none = (Rate::default(), Rate::default());
        let (wrong, right) = each.reduce(|| none, |a, b| (a.0.plus(b.0), a.1.plus(b.1)));
        Row {
            name,
            about,
            wrong,
            found: (planted != Planted::Nothing).then_some(right),
        }
    })
    .collect()
}

/// The times of a history; what is planted is in the first case.
fn drawn(world: &World, place: Place, over: Over, planted: Planted) -> Vec<Series> {
    let mut all = vec![Series::default(); CASES];
    let mut memory = vec![0.0; CASES];
    let mut own = place.generator(1 << 62);
    for run in 0..RUNS {
        let session = Session::begin(world, place, Role::Earlier(run as u32), INVOCATIONS);
        for (case, series) in all.iter_mut().enumerate() {
            let planted = match (case, planted) {
                (0, Planted::Step { by, runs }) if run + runs >= RUNS => by.ln_1p(),
                (0, Planted::Creep { by }) => by.ln_1p() * run as f64 / (RUNS - 1) as f64,
                _ => 0.0,
            };
            let beside = match over {
                Over::Nothing => 0.0,
                Over::Remembers(kept) => {
                    let fresh = 0.01 * (1.0 - kept * kept).sqrt() * normal(&mut own);
                    memory[case] = kept * memory[case] + fresh;
                    memory[case]
                }
                Over::Drifts(by) => by * (TAU * 2.0 * run as f64 / RUNS as f64).sin(),
            };
            let mut replay = session.case(case, Ratio((planted + beside).exp()));
            let medians = (0..INVOCATIONS).filter_map(|_| median(&replay.invocation(SAMPLES)));
            let medians: Vec<Nanoseconds> = medians.collect();
            if let Some(time) = median(&medians) {
                series.runs.push(run as u32);
                series.times.push(time);
            }
        }
    }
    all
}

/// Whether anything is said that is not so, and whether what was planted is.
fn judged(all: &[Series], planted: Planted) -> (Rate, Rate) {
    let (shared, cases) = found(all, RUNS, &Options::default());
    let says = |trend: &Trend| !trend.steps.is_empty() || trend.creep.is_some();
    let first = usize::from(planted != Planted::Nothing);
    // A drift of all cases is no change of any of them; that all drift is so.
    let wrong = cases[first..].iter().any(says);
    let wrong = wrong || shared.is_some_and(|shared| !shared.steps.is_empty());
    let right = match planted {
        Planted::Nothing => true,
        // Where it is, give or take two runs, and nowhere else.
        Planted::Step { runs, .. } => {
            let near = |run: usize| run.abs_diff(RUNS - runs) <= 2;
            matches!(&cases[0].steps[..], [step] if near(step.run))
        }
        Planted::Creep { .. } => cases[0].steps.is_empty() && cases[0].creep.is_some(),
    };
    (Rate::once(wrong), Rate::once(right))
}

/// The table as text, or in Markdown.
pub fn text(rows: &[Row], markdown: bool) -> String {
    let mut out = match markdown {
        true => "| histories | wrong | found |\n|---|---|---|\n".to_owned(),
        false => String::new(),
    };
    for row in rows {
        let told = |rate: Rate| {
            let (low, high) = rate.interval();
            format!("{} of {} [{low:.1}, {high:.1}]", rate.hits, rate.of)
        };
        let (wrong, found) = (told(row.wrong), row.found.map_or(String::new(), told));
        out += &match markdown {
            true => format!("| {}: {} | {wrong} | {found} |\n", row.name, row.about),
            false => {
                let found = match found.as_str() {
                    "" => String::new(),
                    found => format!("   found {found}"),
                };
                format!("{}: {}\n    wrong {wrong}{found}\n", row.name, row.about)
            }
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planted_is_found_and_nothing_else() {
        let place = Place {
            seed: 3,
            experiment: 1,
            sweep: 1,
        };
        let world = World::Made(PLAIN);
        for planted in [
            Planted::Step { by: 0.06, runs: 60 },
            Planted::Creep { by: 0.10 },
            Planted::Nothing,
        ] {
            let all = drawn(&world, place, Over::Nothing, planted);
            let (wrong, right) = judged(&all, planted);
            assert_eq!((wrong.hits, right.hits), (0, 1), "{planted:?}");
        }
        // The noise is what it is called.
        let all = drawn(&world, place, Over::Nothing, Planted::Nothing);
        let deviation = |series: &Series| {
            let logs: Vec<f64> = series.times.iter().map(|time| time.0.ln()).collect();
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            let squares = logs.iter().map(|log| (log - mean).powi(2));
            (squares.sum::<f64>() / logs.len() as f64).sqrt()
        };
        let found: f64 = all.iter().map(deviation).sum::<f64>() / CASES as f64;
        assert!((found - DEVIATION.0).abs() < 0.001, "{found}");
    }
}
