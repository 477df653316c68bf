//! How much a run remembers of those before it: a machine that is warm today is warm tomorrow.
//!
//! By how far values of neighbouring runs lie apart, against those of runs that are farther from
//! each other. The largest quarter of these distances is left out of each, so that wild runs
//! and a change of level, which is in few of them, count for little.

use super::scan::middle;

/// Runs that are so far from each other remember nothing.
const FAR: usize = 8;

/// Distances that count, of all.
const KEPT: f64 = 0.75;

/// Fewer runs than these do not tell.
const FEWEST: usize = 16;

/// More memory than this is no noise, and a change would not be told from it.
const MOST: f64 = 0.9;

/// Less than this may be chance, and is not followed up.
const LEAST: f64 = 0.1;

/// Of so many cases the middle one's memory is known well.
const SEVERAL: usize = 5;

/// Correlations of a value with the next and with the one after that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    next: f64,
    second: f64,
    /// Standard error of both, about.
    error: f64,
}

impl Memory {
    /// What a series shows of a memory.
    pub(super) fn of(values: &[f64]) -> Memory {
        if values.len() < FEWEST {
            return Memory::default();
        }
        let [near, second, far] = [1, 2, FAR.min(values.len() / 4)].map(|lag| {
            let pairs = values.iter().zip(&values[lag..]);
            let mut squares: Vec<f64> = pairs.map(|(a, b)| (b - a).powi(2)).collect();
            squares.sort_by(f64::total_cmp);
            let kept = ((squares.len() as f64 * KEPT).ceil() as usize).max(1);
            squares[..kept].iter().sum::<f64>() / kept as f64
        });
        if far <= 0.0 {
            return Memory::default();
        }
        Memory {
            next: 1.0 - near / far,
            second: 1.0 - second / far,
            error: 2.5 / (values.len() as f64).sqrt(),
        }
    }

    /// The memory of the middle one of all cases: what a machine remembers is in most of them.
    pub(super) fn usual(all: &[Memory]) -> f64 {
        if all.len() < SEVERAL {
            return 0.0;
        }
        let of = |part: fn(&Memory) -> f64| middle(&all.iter().map(part).collect::<Vec<_>>());
        decay(of(|memory| memory.next), of(|memory| memory.second))
    }

    /// As much of its own as cannot be chance.
    pub(super) fn by_itself(self) -> f64 {
        let chance = 2.0 * self.error;
        decay(self.next - chance, self.second - chance)
    }
}

/// By how much a memory falls from run to run. What a run remembers is in part noise that the
/// next one has not, so the first correlation alone says too little of it.
fn decay(next: f64, second: f64) -> f64 {
    let decay = match next > LEAST {
        true => next.max(second.max(0.0).sqrt()),
        false => next,
    };
    decay.clamp(0.0, MOST)
}
