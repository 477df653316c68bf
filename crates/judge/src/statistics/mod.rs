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
pub use mann_whitney::{needed_per_side, reachable_p};
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
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Vectors {
        two_sample: Vec<TwoSample>,
        paired: Vec<Paired>,
    }

    #[derive(Deserialize)]
    struct TwoSample {
        base: Vec<f64>,
        head: Vec<f64>,
        #[serde(flatten)]
        expected: Expected,
    }

    #[derive(Deserialize)]
    struct Paired {
        ratios: Vec<f64>,
        #[serde(flatten)]
        expected: Expected,
    }

    #[derive(Deserialize)]
    struct Expected {
        ratio: f64,
        low: f64,
        high: f64,
        confidence: f64,
    }

    fn vectors() -> Vectors {
        serde_json::from_str(include_str!("../../../../tests/vectors/statistics.json")).unwrap()
    }

    fn close(ours: f64, theirs: f64) {
        assert!(
            (ours - theirs).abs() <= 1e-9 * theirs.abs().max(1e-3),
            "{ours} is not {theirs}"
        );
    }

    #[test]
    fn hodges_lehmann_agrees_with_enumeration() {
        let vectors = vectors();
        let check = |ours: Estimate, theirs: &Expected| {
            close(ours.ratio.0, theirs.ratio);
            close(ours.low.0, theirs.low);
            close(ours.high.0, theirs.high);
            close(ours.confidence.0, theirs.confidence);
        };
        for case in &vectors.two_sample {
            let ours = two_sample_ratio(&case.base, &case.head, 0.95).unwrap();
            check(ours, &case.expected);
        }
        for case in &vectors.paired {
            check(paired_ratio(&case.ratios, 0.95).unwrap(), &case.expected);
        }
    }

    #[test]
    fn the_smallest_p_takes_four_or_five_a_side() {
        assert_eq!((needed_per_side(0.05), needed_per_side(0.01)), (4, 5));
        assert!((reachable_p(5, 5) - 2.0 / 252.0).abs() < 1e-15);
    }

    #[test]
    fn five_pairs_cover_their_whole_range() {
        let estimate = paired_ratio(&[1.3, 1.1, 1.2, 1.5, 1.4], 0.95).unwrap();
        close(estimate.low.0, 1.1);
        close(estimate.high.0, 1.5);
        close(estimate.confidence.0, 0.9375);
    }

    #[test]
    fn what_cannot_be_ranked_has_no_answer() {
        assert_eq!(two_sample_ratio(&[0.0], &[1.0], 0.95), None);
        assert_eq!(two_sample_ratio(&[1.0], &[f64::INFINITY], 0.95), None);
        assert_eq!(paired_ratio(&[], 0.95), None);
        assert_eq!(paired_ratio(&[-1.0], 0.95), None);
    }

    fn times() -> impl Strategy<Value = Vec<f64>> {
        // Coarse, so that ties are common.
        prop::collection::vec((900u32..1100).prop_map(f64::from), 1..14)
    }

    proptest! {
        #[test]
        fn ratios_scale_with_the_head(a in times(), b in times(), scale in 0.01f64..100.0) {
            let plain = two_sample_ratio(&a, &b, 0.95).unwrap();
            prop_assert!(plain.low <= plain.ratio * (1.0 + 1e-12));
            prop_assert!(plain.ratio <= plain.high * (1.0 + 1e-12));
            prop_assert!((0.0..=1.0).contains(&plain.confidence.0));
            let scaled: Vec<f64> = b.iter().map(|v| v * scale).collect();
            let moved = two_sample_ratio(&a, &scaled, 0.95).unwrap();
            prop_assert!(((moved.ratio / plain.ratio).0 / scale - 1.0).abs() < 1e-9);
            prop_assert!(((moved.low / plain.low).0 / scale - 1.0).abs() < 1e-9);
            let back = two_sample_ratio(&b, &a, 0.95).unwrap();
            prop_assert!(((back.ratio * plain.ratio).0 - 1.0).abs() < 1e-9);
            prop_assert!(((back.low * plain.high).0 - 1.0).abs() < 1e-9);
        }

        #[test]
        fn paired_ratios_scale(ratios in prop::collection::vec(0.1f64..10.0, 1..12), c in 0.1f64..10.0) {
            let plain = paired_ratio(&ratios, 0.95).unwrap();
            prop_assert!(plain.low <= plain.ratio * (1.0 + 1e-12));
            prop_assert!(plain.ratio <= plain.high * (1.0 + 1e-12));
            let scaled: Vec<f64> = ratios.iter().map(|r| r * c).collect();
            let moved = paired_ratio(&scaled, 0.95).unwrap();
            prop_assert!(((moved.ratio / plain.ratio).0 / c - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_coefficient_of_variation_is_of_a_sample() {
        // By hand: mean 4, squares 4 + 0 + 4 over 2.
        assert_eq!(coefficient_of_variation(&[2.0, 4.0, 6.0]), 0.5);
        assert_eq!(coefficient_of_variation(&[7.0, 7.0]), 0.0);
        assert!(coefficient_of_variation(&[1.0]).is_nan());
    }
}
