//! The bootstrap as criterion makes it: of Welch's t over both samples pooled, and of the
//! change of means over each sample by itself.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Resamples. Criterion makes 100,000; a p of 0.05 is known to a hundredth by as many.
const RESAMPLES: usize = 1_000;

/// From so many values on, what lies this many standard errors from a limit needs no
/// bootstrap: its distribution is near the normal one, whose own limits are at 1.96.
const ENOUGH: usize = 20;
const SURELY_IN: f64 = 1.2;
const SURELY_OUT: f64 = 4.0;

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Variance of the mean.
fn variance_of_mean(values: &[f64]) -> f64 {
    let (mean, count) = (mean(values), values.len() as f64);
    let squares = values.iter().map(|value| (value - mean).powi(2));
    squares.sum::<f64>() / (count - 1.0) / count
}

/// Welch's t of `head` against `base`.
pub fn welch_t(base: &[f64], head: &[f64]) -> f64 {
    let spread = (variance_of_mean(base) + variance_of_mean(head)).sqrt();
    (mean(head) - mean(base)) / spread
}

fn resample(from: &[f64], into: &mut [f64], rng: &mut ChaCha8Rng) {
    for value in into {
        *value = from[rng.random_range(0..from.len())];
    }
}

/// Two-sided p of Welch's t by its bootstrap: both samples are drawn from all values.
pub fn p_of_welch_t(base: &[f64], head: &[f64], rng: &mut ChaCha8Rng) -> f64 {
    let t = welch_t(base, head);
    if base.len().min(head.len()) >= ENOUGH {
        match t.abs() {
            far if far > SURELY_OUT => return 0.0,
            near if near < SURELY_IN => return 1.0,
            _ => {}
        }
    }
    let all = [base, head].concat();
    let (mut one, mut other) = (base.to_vec(), head.to_vec());
    let (mut below, mut counted) = (0, 0);
    for _ in 0..RESAMPLES {
        resample(&all, &mut one, rng);
        resample(&all, &mut other, rng);
        let drawn = welch_t(&one, &other);
        if drawn.is_finite() {
            counted += 1;
            below += usize::from(drawn < t);
        }
    }
    match counted {
        0 => 1.0,
        _ => 2.0 * below.min(counted - below) as f64 / counted as f64,
    }
}

/// The 95 % interval of the change of means, each sample drawn from itself. `None` where
/// it cannot lie beyond `threshold` whole: the percentiles stand around the change itself.
pub fn change_of_means(
    base: &[f64],
    head: &[f64],
    threshold: f64,
    rng: &mut ChaCha8Rng,
) -> Option<(f64, f64)> {
    let (before, after) = (mean(base), mean(head));
    let change = after / before - 1.0;
    if change.abs() <= threshold {
        return None;
    }
    if base.len().min(head.len()) >= ENOUGH {
        let error = (variance_of_mean(base) + variance_of_mean(head)).sqrt() / before;
        match (change.abs() - threshold) / error {
            near if near < SURELY_IN => return None,
            far if far > SURELY_OUT => {
                return Some((change - 1.96 * error, change + 1.96 * error));
            }
            _ => {}
        }
    }
    let (mut one, mut other) = (base.to_vec(), head.to_vec());
    let mut changes: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample(base, &mut one, rng);
            resample(head, &mut other, rng);
            mean(&other) / mean(&one) - 1.0
        })
        .collect();
    changes.sort_by(f64::total_cmp);
    let at = |share: f64| changes[(share * (RESAMPLES - 1) as f64).round() as usize];
    Some((at(0.025), at(0.975)))
}
