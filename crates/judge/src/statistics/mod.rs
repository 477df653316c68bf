//! Rank statistics over a handful of invocations.
//!
//! Distribution-free and exact for small numbers, because five invocations are
//! the usual evidence and no normal approximation holds there. Checked against
//! SciPy: `tests/vectors/make_statistics.py` makes the numbers in
//! `tests/vectors/statistics.json`.
//!
//! Values, levels and probabilities are plain numbers here: ranks and logarithms have no
//! unit. What is estimated has one: a [`Ratio`](regatta_worker::units::Ratio).

mod hodges_lehmann;
mod mann_whitney;
mod student;

pub use hodges_lehmann::{Estimate, paired_ratio, two_sample_ratio};
pub(super) use mann_whitney::u_lower_tail;
pub use mann_whitney::{Test, mann_whitney, needed_per_side, reachable_p};
pub use student::{one_sample_centre, t_upper, t_upper_quantile};

use statrs::distribution::{ContinuousCDF, Normal};

/// Standard deviation (of a sample, over n - 1) over the mean; not a number for fewer
/// than two values.
pub fn coefficient_of_variation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (squares.sum::<f64>() / (count - 1.0)).sqrt() / mean
}

/// Upper tail of the standard normal distribution.
pub(super) fn normal_upper(z: f64) -> f64 {
    Normal::standard().sf(z)
}

/// The point that a fraction `p` of the standard normal distribution exceeds.
fn normal_upper_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(1.0 - p)
}

/// How many order statistics to leave out at each end of a list so that the rest
/// is an interval of at least `nominal` coverage, and that coverage.
///
/// `lower_tail(k)` is the probability, under the null hypothesis, that the rank
/// statistic is at most `k`. Nothing is left out when even the whole range has
/// less than the nominal coverage; the coverage then says so.
fn trim(nominal: f64, mut lower_tail: impl FnMut(usize) -> f64, longest: usize) -> (usize, f64) {
    let mut skipped = 0;
    let mut coverage = 1.0 - 2.0 * lower_tail(0);
    while skipped + 1 < longest.div_ceil(2) {
        let next = 1.0 - 2.0 * lower_tail(skipped + 1);
        if next < nominal {
            break;
        }
        skipped += 1;
        coverage = next;
    }
    (skipped, coverage.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
