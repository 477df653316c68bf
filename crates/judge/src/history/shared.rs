//! What all cases of a run share, taken out as far as it comes and goes with the run.
//!
//! As in the gate's rule, only what varies from run to run is taken out. What stays, a step or
//! a drift of all cases, is judged as a series of its own.

use rayon::prelude::*;

use super::scan::{Place, middle};
use super::types::Series;

/// Of fewer cases the middle one is the case itself.
const FEWEST: usize = 8;

/// What all cases share, run by run.
pub(super) struct Shared {
    /// The runs that have it.
    pub(super) runs: Vec<u32>,
    /// Logarithm of the factor.
    pub(super) logs: Vec<f64>,
}

/// The middle one of how far cases are from their own medians, in each run of enough of them.
pub(super) fn shared(all: &[Series], logs: &[Vec<f64>], runs: usize) -> Option<Shared> {
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
    pub(super) fn take_out(&self, changes: &[Place], all: &[Series], logs: &mut [Vec<f64>]) {
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
