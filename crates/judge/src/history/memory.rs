//! How much a run remembers of those before it: a machine that is warm today is warm tomorrow.
//!
//! By how far values of neighbouring runs lie apart, against those of runs that are farther from
//! each other. A change of level is no memory: the clearest one is taken out first, and runs
//! between which there is a jump tell nothing.

use super::scan::{TO_DEVIATION, middle, ranks};

/// Runs that are farther apart than this are in too few pairs without a change between them.
const FAR: usize = 4;

/// A difference of neighbours beyond so many deviations of such differences is a jump.
const JUMP: f64 = 3.0;

/// Fewer runs than these do not tell.
const FEWEST: usize = 24;

/// More memory than this is no noise, and a change would not be told from it.
const MOST: f64 = 0.9;

/// Less than this may be chance, and is not followed up.
const LEAST: f64 = 0.1;

/// Of so many cases the middle one's memory is known well.
const SEVERAL: usize = 5;

/// Correlations of a value with the next and with the one after that, were those with the one
/// that is [`FAR`] from it none.
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
        let values = level(values);
        let steps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let sizes: Vec<f64> = steps.iter().map(|step| step.abs()).collect();
        let jump = JUMP * TO_DEVIATION * middle(&sizes);
        let [near, second, far] = [1, 2, FAR].map(|lag| {
            let smooth = steps.windows(lag).zip(0..);
            let smooth = smooth.filter(|(steps, _)| steps.iter().all(|step| step.abs() <= jump));
            let squares = smooth.map(|(_, at): (_, usize)| (values[at + lag] - values[at]).powi(2));
            let squares: Vec<f64> = squares.collect();
            squares.iter().sum::<f64>() / squares.len() as f64
        });
        // A clock of coarse steps may show nothing but jumps.
        if near.is_nan() || second.is_nan() || far.is_nan() || far <= 0.0 {
            return Memory::default();
        }
        Memory {
            next: 1.0 - near / far,
            second: 1.0 - second / far,
            error: 2.0 / (values.len() as f64).sqrt(),
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

/// The values without the difference between the two sides of the place where their ranks
/// differ most.
fn level(values: &[f64]) -> Vec<f64> {
    let ranks = ranks(values);
    let length = values.len() as f64;
    let mut sum = 0.0;
    let scores = ranks.iter().enumerate().map(|(place, rank)| {
        sum += rank;
        let left = place as f64 + 1.0;
        let away: f64 = sum - left * (length + 1.0) / 2.0;
        let spread = left * (length - left);
        (
            place + 1,
            if spread > 0.0 {
                away.abs() / spread.sqrt()
            } else {
                0.0
            },
        )
    });
    let clearest = scores.max_by(|a, b| a.1.total_cmp(&b.1));
    let at = clearest.map_or(values.len(), |(at, _)| at);
    let (left, right) = values.split_at(at);
    let (low, high) = (middle(left), middle(right));
    let left = left.iter().map(|value| value - low);
    left.chain(right.iter().map(|value| value - high)).collect()
}

/// By how much a memory falls from run to run. What a run remembers is in part noise that the
/// next one has not, so the first correlation alone says too little of it; and what is far may
/// be remembered still.
fn decay(next: f64, second: f64) -> f64 {
    if next <= LEAST {
        return next.max(0.0);
    }
    let (mut one, mut two) = (next, second.max(0.0));
    for _ in 0..8 {
        let falls = (two / one).clamp(0.0, MOST);
        let far = (two * falls * falls).min(0.5);
        // As much of the distance as what is remembered over it takes away.
        one = 1.0 - (1.0 - next) * (1.0 - far);
        two = 1.0 - (1.0 - second) * (1.0 - far);
        two = two.max(0.0);
    }
    one.max(two.sqrt()).clamp(0.0, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    /// Series of so many runs that remember so much, with noise of their own beside it, and a
    /// change of level in the middle.
    fn usual(runs: usize, kept: f64, own: f64, step: f64) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut normal = || (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        let series = (0..60).map(|_| {
            let mut memory = normal();
            let value = |run: usize| {
                memory = kept * memory + (1.0 - kept * kept).sqrt() * normal();
                memory + own * normal() + if run < runs / 2 { 0.0 } else { step }
            };
            Memory::of(&(0..runs).map(value).collect::<Vec<_>>())
        });
        Memory::usual(&series.collect::<Vec<_>>())
    }

    #[test]
    fn a_memory_is_told_from_none_and_from_a_change() {
        for step in [0.0, 4.0, 50.0] {
            assert!(usual(200, 0.0, 0.0, step) < 0.12, "{step}");
            assert!(usual(40, 0.0, 0.0, step) < 0.25, "{step}");
            let half = usual(200, 0.5, 0.0, step);
            assert!((0.4..0.65).contains(&half), "{step}: {half}");
        }
        // What is remembered, though half of the noise is not.
        let hidden = usual(400, 0.6, 0.54, 0.0);
        assert!((0.45..0.7).contains(&hidden), "{hidden}");
        assert_eq!(usual(20, 0.9, 0.0, 0.0), 0.0);
    }

    #[test]
    fn one_series_alone_has_to_show_it_beyond_chance() {
        let still = Memory::of(&[1.0; 60]);
        assert_eq!(still.by_itself(), 0.0);
        let slow: Vec<f64> = (0..200).map(|run| (f64::from(run) / 20.0).sin()).collect();
        assert!(Memory::of(&slow).by_itself() > 0.5);
    }
}
