//! Hodges-Lehmann estimates of a ratio, with exact intervals.
//!
//! Hodges & Lehmann, Annals of Mathematical Statistics 34 (1963); the intervals
//! invert the rank tests (Hollander, Wolfe & Chicken, Nonparametric Statistical
//! Methods, 3rd ed., 4.3 and 3.3). Times scale, they do not shift, so everything
//! happens on their logarithms: a shift there is a ratio here.

use super::mann_whitney::u_lower_tail;
use super::{normal_upper, normal_upper_quantile, trim};
use regatta_worker::units::{Ratio, Share};

/// From so many values a side on, the rest is left out: nobody measures as many
/// invocations, and the pairs would not fit in memory.
const MOST_VALUES: usize = 1_000;

/// Up to so many pairs of invocations, the signed-rank distribution is enumerated.
const EXACT_LIMIT: usize = 60;

/// A ratio and the interval around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub ratio: Ratio,
    /// Lower end of the interval.
    pub low: Ratio,
    /// Upper end of the interval.
    pub high: Ratio,
    /// Real coverage of the interval: at least the one asked for where the number
    /// of values allows it, else that of the widest interval there is.
    pub confidence: Share,
}

/// By what factor `head` is larger than `base`: the median of all ratios of a
/// head's value to a base's. `None` unless both sides hold positive numbers only.
pub fn two_sample_ratio(base: &[f64], head: &[f64], nominal: f64) -> Option<Estimate> {
    let (base, head) = (logarithms(base)?, logarithms(head)?);
    let mut shifts: Vec<f64> = head
        .iter()
        .flat_map(|h| base.iter().map(move |b| h - b))
        .collect();
    shifts.sort_by(f64::total_cmp);
    let tail = u_lower_tail(base.len(), head.len());
    Some(estimate(&shifts, trim_at(nominal, tail, &shifts)))
}

/// The centre of ratios taken pair by pair: the median of their Walsh averages
/// (geometric means of all pairs, each with itself included), with the interval
/// of Wilcoxon's signed-rank test. `None` unless all are positive numbers.
pub fn paired_ratio(ratios: &[f64], nominal: f64) -> Option<Estimate> {
    let logs = logarithms(ratios)?;
    let mut averages: Vec<f64> = (0..logs.len())
        .flat_map(|i| (i..logs.len()).map(move |j| (i, j)))
        .map(|(i, j)| (logs[i] + logs[j]) / 2.0)
        .collect();
    averages.sort_by(f64::total_cmp);
    let tail = signed_rank_lower_tail(logs.len());
    Some(estimate(&averages, trim_at(nominal, tail, &averages)))
}

fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    let usable = !values.is_empty() && values.iter().all(|&v| v > 0.0 && v.is_finite());
    let few = &values[..values.len().min(MOST_VALUES)];
    usable.then(|| few.iter().map(|value| value.ln()).collect())
}

/// [`trim`], started near the answer where the list is long.
fn trim_at(nominal: f64, mut tail: impl FnMut(usize) -> f64, sorted: &[f64]) -> (usize, f64) {
    if sorted.len() <= EXACT_LIMIT * EXACT_LIMIT {
        return trim(nominal, tail, sorted.len());
    }
    let z = normal_upper_quantile((1.0 - nominal) / 2.0);
    let (mut low, mut high) = (0, sorted.len() / 2);
    // The tail grows with its argument: bisect for the last one that still covers.
    while low + 1 < high && z.is_finite() {
        let middle = low.midpoint(high);
        if 1.0 - 2.0 * tail(middle) >= nominal {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low, (1.0 - 2.0 * tail(low)).clamp(0.0, 1.0))
}

fn estimate(sorted: &[f64], (skipped, confidence): (usize, f64)) -> Estimate {
    let last = sorted.len() - 1;
    let middle = (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0;
    Estimate {
        ratio: Ratio(middle.exp()),
        low: Ratio(sorted[skipped].exp()),
        high: Ratio(sorted[last - skipped].exp()),
        confidence: Share(confidence),
    }
}

/// The probability that Wilcoxon's signed-rank statistic of `n` differences is at
/// most `w`: each of the ranks 1..n counts or not, all ways alike.
fn signed_rank_lower_tail(n: usize) -> impl FnMut(usize) -> f64 {
    let longest = n * (n + 1) / 2 + 1;
    let exact = (n <= EXACT_LIMIT).then(|| {
        let mut probabilities = vec![0.0; longest];
        probabilities[0] = 1.0;
        for rank in 1..=n {
            for sum in (0..longest).rev() {
                let with = if sum >= rank {
                    probabilities[sum - rank]
                } else {
                    0.0
                };
                probabilities[sum] = (probabilities[sum] + with) / 2.0;
            }
        }
        probabilities
    });
    let size = n as f64;
    let mean = size * (size + 1.0) / 4.0;
    let sigma = (size * (size + 1.0) * (2.0 * size + 1.0) / 24.0).sqrt();
    move |w| match &exact {
        Some(probabilities) => probabilities.iter().take(w + 1).sum(),
        None => normal_upper((mean - w as f64 - 0.5) / sigma),
    }
}
