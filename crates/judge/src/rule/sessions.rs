//! What differs between sessions: a day, a boot, another layout of memory.
//!
//! A session's centre differs from the next by more than its invocations say. From three
//! stored sessions on, this part is estimated for each case and shrunk over all of them, as
//! the variance of invocations is; what all cases of a session share is the suite's.

use super::moderated::{Prior, Variance, pooled, variance};
use super::terms::{FEWEST_CASES, Series, Trace};
use crate::statistics::one_sample_centre;
use regatta_core::record::side::median;

/// From so many sessions on their spread is known.
const FEWEST: usize = 3;

/// Sessions that lie apart no more than this times what their invocations explain have no
/// part of their own.
const EXPLAINED: f64 = 1.5;

/// The sessions of a base, of all cases.
pub struct Between {
    /// By session, what all cases share of it.
    levels: Vec<f64>,
    /// `None` for a case that not all of them have.
    cases: Vec<Option<Held>>,
}

/// One case over the sessions.
pub struct Held {
    /// Mean of the sessions' centres.
    pub centre: f64,
    /// Of a session's centre, shrunk.
    pub spread: Variance,
    /// Every invocation of every session, with what the session shares taken out: the base,
    /// where sessions differ no more than invocations.
    pub pooled: Vec<f64>,
    /// True where they differ by more.
    pub differs: bool,
}

impl Between {
    /// Looks at the sessions of a base; `None` where there are too few.
    pub fn of(cases: &[Series], prior: &Prior) -> Option<Between> {
        let earlier = cases.iter().map(|case| case.earlier.len()).max()?;
        if earlier + 1 < FEWEST {
            return None;
        }
        let is_whole = |case: &Series| case.earlier.len() == earlier;
        let whole: Vec<bool> = cases.iter().map(is_whole).collect();
        let sessions = |case: &Series| -> Vec<Vec<f64>> {
            let all = case.earlier.iter().chain([&case.base]);
            all.map(Trace::all).collect()
        };
        let there = cases.iter().filter(|case| is_whole(case));
        let all: Vec<Vec<Vec<f64>>> = there.map(sessions).collect();
        let centre = |values: &Vec<f64>| one_sample_centre(values);
        let centres: Vec<Vec<f64>> = all
            .iter()
            .map(|case| case.iter().map(centre).collect())
            .collect();
        let levels: Vec<f64> = (0..=earlier)
            .map(|session| {
                // Few cases share nothing that could be told from their own.
                if all.len() < FEWEST_CASES {
                    return 0.0;
                }
                let own = centres
                    .iter()
                    .map(|case| case[session] - median(case).unwrap_or(0.0));
                median(&own.collect::<Vec<_>>()).unwrap_or(0.0)
            })
            .collect();
        let level = levels.iter().sum::<f64>() / levels.len() as f64;
        let rest: Vec<Vec<f64>> = centres
            .iter()
            .map(|case| {
                case.iter()
                    .zip(&levels)
                    .map(|(own, shared)| own - shared)
                    .collect()
            })
            .collect();
        let spreads: Vec<Variance> = rest.iter().map(|case| variance(case)).collect();
        let common = Prior::fit(&spreads);
        // What a session's centre varies by when nothing but its invocations does.
        let within = |case: &Vec<Vec<f64>>| {
            let values = case.last().map_or(0, Vec::len).max(1) as f64;
            let own = case.iter().map(|session| variance(session));
            prior.shrink(own.fold(NOTHING, pooled)).value / values
        };
        let within: Vec<f64> = all.iter().map(within).collect();
        let excess =
            median(&spreads.iter().map(|s| s.value).collect::<Vec<_>>())? / median(&within)?;
        let held = rest.iter().zip(spreads).zip(&all).zip(&within).map(
            |(((centres, spread), sessions), within)| {
                let shrunk = common.shrink(spread);
                Held {
                    centre: centres.iter().sum::<f64>() / centres.len() as f64 + level,
                    differs: excess > EXPLAINED || spread.value > 2.0 * EXPLAINED * within,
                    spread: shrunk,
                    pooled: sessions
                        .iter()
                        .zip(&levels)
                        .flat_map(|(all, own)| all.iter().map(move |v| v - own + level))
                        .collect(),
                }
            },
        );
        let mut held = held.collect::<Vec<Held>>().into_iter();
        let cases = whole
            .into_iter()
            .map(|whole| whole.then(|| held.next()).flatten())
            .collect();
        Some(Between { cases, levels })
    }

    /// How many sessions.
    pub fn sessions(&self) -> usize {
        self.levels.len()
    }

    /// What all cases share of each.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// A case over the sessions; `None` where it was not in all of them.
    pub fn held(&self, case: usize) -> Option<&Held> {
        self.cases.get(case)?.as_ref()
    }
}

const NOTHING: Variance = Variance {
    value: 0.0,
    degrees: 0.0,
};
