//! The figures of `estimates.json` and `tukey.json`.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::record::criterion::{ConfidenceInterval, Estimate, Estimates};

/// Enough for the ends of a 95 % interval: fifty resamples lie beyond each.
const RESAMPLES: usize = 2000;

/// Criterion's default.
const CONFIDENCE: f64 = 0.95;

/// Makes the median of absolute deviations estimate the standard deviation of a
/// normal distribution, as criterion does.
const MAD_TO_SIGMA: f64 = 1.4826;

/// The figures that criterion estimates, in its order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    mean: f64,
    median: f64,
    median_abs_dev: f64,
    std_dev: f64,
}

/// Estimates over the samples of all invocations, with percentile intervals from a
/// bootstrap of two stages: invocations with replacement, then samples within each
/// (Davison & Hinkley 1997, 3.8). The same seed gives the same intervals.
///
/// With one invocation, its samples alone are resampled, as criterion does, and
/// nothing is said of how much the next process would differ.
pub fn estimates(invocations: &[&[f64]], seed: u64) -> Estimates {
    let points = figures(&mut invocations.concat());
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut drawn = Vec::new();
    let resamples: Vec<Figures> = (0..RESAMPLES)
        .map(|_| {
            drawn.clear();
            for _ in invocations {
                let times = invocations[rng.random_range(0..invocations.len())];
                drawn.extend((0..times.len()).map(|_| times[rng.random_range(0..times.len())]));
            }
            figures(&mut drawn)
        })
        .collect();
    let estimate = |figure: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = resamples.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        Estimate {
            confidence_interval: ConfidenceInterval {
                confidence_level: CONFIDENCE,
                lower_bound: quantile(&values, (1.0 - CONFIDENCE) / 2.0),
                upper_bound: quantile(&values, (1.0 + CONFIDENCE) / 2.0),
            },
            point_estimate: figure(&points),
            standard_error: std_dev(&values, mean(&values)),
        }
    };
    Estimates {
        mean: estimate(|figures| figures.mean),
        median: estimate(|figures| figures.median),
        median_abs_dev: estimate(|figures| figures.median_abs_dev),
        // One call a sample: no line to fit.
        slope: None,
        std_dev: estimate(|figures| figures.std_dev),
    }
}

/// Tukey's fences: 3 and 1.5 interquartile ranges beyond each quartile.
pub fn fences(invocations: &[&[f64]]) -> [f64; 4] {
    let mut times = invocations.concat();
    times.sort_by(f64::total_cmp);
    let (low, high) = (quantile(&times, 0.25), quantile(&times, 0.75));
    let range = high - low;
    [
        low - 3.0 * range,
        low - 1.5 * range,
        high + 1.5 * range,
        high + 3.0 * range,
    ]
}

/// Sorts the times.
fn figures(times: &mut [f64]) -> Figures {
    times.sort_by(f64::total_cmp);
    let (mean, median) = (mean(times), quantile(times, 0.5));
    let mut deviations: Vec<f64> = times.iter().map(|time| (time - median).abs()).collect();
    deviations.sort_by(f64::total_cmp);
    Figures {
        mean,
        median,
        median_abs_dev: quantile(&deviations, 0.5) * MAD_TO_SIGMA,
        std_dev: std_dev(times, mean),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// With n - 1; zero for a single value.
fn std_dev(values: &[f64], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// The quantile of sorted values, linear between two (Hyndman & Fan 1996, type 7).
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let rank = p * sorted.len().saturating_sub(1) as f64;
    let below = rank.floor();
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    let (floor, ceiling) = (at(below as usize), at(rank.ceil() as usize));
    floor + (ceiling - floor) * (rank - below)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::record::criterion::Sample;

    #[test]
    fn invocations_that_differ_widen_the_interval() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut around =
            |centre: f64| -> Vec<f64> { (0..20).map(|_| centre + rng.random::<f64>()).collect() };
        let alike: Vec<Vec<f64>> = (0..5).map(|_| around(100.0)).collect();
        let apart: Vec<Vec<f64>> = (0..5)
            .map(|i| around(100.0 + 10.0 * f64::from(i)))
            .collect();
        let width = |invocations: &[Vec<f64>]| {
            let slices: Vec<&[f64]> = invocations.iter().map(Vec::as_slice).collect();
            let interval = estimates(&slices, 1).median.confidence_interval;
            interval.upper_bound - interval.lower_bound
        };
        let pooled = [apart.concat()];
        assert!(width(&alike) < 1.0);
        // Samples taken for independent would make it about half as wide.
        assert!(width(&apart) > 1.3 * width(&pooled));
    }

    #[test]
    fn points_and_fences_are_those_of_criterion() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/criterion");
        for benchmark in ["cpu_flash/s1024,d64/new", "sort/unstable/1000/new"] {
            let text = |name| fs::read_to_string(root.join(benchmark).join(name)).unwrap();
            let sample: Sample = serde_json::from_str(&text("sample.json")).unwrap();
            let theirs: Estimates = serde_json::from_str(&text("estimates.json")).unwrap();
            let calls = sample.times.iter().zip(&sample.iters);
            let calls: Vec<f64> = calls.map(|(time, iters)| time / iters).collect();
            let ours = estimates(&[&calls], 1);
            for (ours, theirs) in [
                (&ours.mean, &theirs.mean),
                (&ours.median, &theirs.median),
                (&ours.median_abs_dev, &theirs.median_abs_dev),
                (&ours.std_dev, &theirs.std_dev),
            ] {
                let near = |a: f64, b: f64, within: f64| (a / b - 1.0).abs() < within;
                let (a, b) = (ours.point_estimate, theirs.point_estimate);
                // Criterion rounds its 1.4826 to single precision.
                assert!(near(a, b, 1e-7), "{benchmark}: {a} against {b}");
                // Two resamplings of one sample: the same up to the draw.
                let (a, b) = (ours.standard_error, theirs.standard_error);
                assert!(near(a, b, 0.15), "{benchmark}: {a} against {b}");
            }
            let theirs: [f64; 4] = serde_json::from_str(&text("tukey.json")).unwrap();
            for (ours, theirs) in fences(&[&calls]).iter().zip(&theirs) {
                assert!(
                    (ours - theirs).abs() < 1e-9 * theirs.abs(),
                    "{ours} {theirs}"
                );
            }
        }
    }

    #[test]
    fn one_sample_has_no_spread() {
        let estimates = estimates(&[&[5.0]], 1);
        assert_eq!(estimates.mean.point_estimate, 5.0);
        assert_eq!(estimates.std_dev.point_estimate, 0.0);
        assert_eq!(estimates.median.standard_error, 0.0);
    }
}
