//! The Mann-Whitney U test (Wilcoxon's rank-sum test).
//!
//! Mann & Whitney, Annals of Mathematical Statistics 18 (1947). The exact p is
//! that of the permutation distribution given the ties that occurred, so tied
//! values (a coarse timer) cost power but never validity.

use super::normal_upper;

/// Up to so many values in all, p is exact; above, the normal approximation with
/// correction for ties and continuity is off by less than a percent of p where
/// decisions are made.
const EXACT_LIMIT: usize = 60;

/// The smallest two-sided p that `n` against `m` values can give: that of two
/// sides which do not overlap, `2 / C(n + m, n)`.
pub fn reachable_p(n: usize, m: usize) -> f64 {
    let (few, many) = (n.min(m), n.max(m));
    let arrangements = (1..=few).fold(1.0, |count: f64, i| count * (many + i) as f64 / i as f64);
    (2.0 / arrangements).clamp(f64::MIN_POSITIVE, 1.0)
}

/// The number of values on each side from which a two-sided p of `p` can occur.
pub fn needed_per_side(p: f64) -> usize {
    (1..512).find(|&k| reachable_p(k, k) <= p).unwrap_or(512)
}

/// In how many ways `n` against `m` distinct values give U = 0, 1, ..., n m.
///
/// These are the coefficients of the Gaussian binomial `[n + m choose m]`, built
/// by `∏ (1 - q^(n+i)) / (1 - q^i)`; each partial product is one itself, so every
/// step stays in whole numbers.
pub(super) fn u_counts(n: usize, m: usize) -> Vec<f64> {
    let longest = n * m + 1;
    let mut counts = vec![0i128; longest];
    counts[0] = 1;
    for i in 1..=m {
        for u in (n + i..longest).rev() {
            counts[u] -= counts[u - n - i];
        }
        for u in i..longest {
            counts[u] += counts[u - i];
        }
    }
    counts.into_iter().map(|count| count as f64).collect()
}

/// The probability that U is at most `u` without ties, for `n` against `m`.
pub(crate) fn u_lower_tail(n: usize, m: usize) -> impl FnMut(usize) -> f64 {
    let exact = (n + m <= EXACT_LIMIT).then(|| u_counts(n, m));
    let total: f64 = exact.iter().flatten().sum();
    let sigma = ((n * m * (n + m + 1)) as f64 / 12.0).sqrt();
    let mean = (n * m) as f64 / 2.0;
    move |u| match &exact {
        Some(counts) => counts.iter().take(u + 1).sum::<f64>() / total,
        None => normal_upper((mean - u as f64 - 0.5) / sigma),
    }
}
