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

/// What the test says of `head` against `base`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// Pairs in which the head's value is the larger, ties counting one half.
    pub u: f64,
    /// p against "the head is neither larger nor smaller": twice the smaller of
    /// the one-sided ones, at most 1.
    pub two_sided: f64,
    /// p against "the head is not larger".
    pub greater: f64,
    /// p against "the head is not smaller".
    pub less: f64,
    /// True when p was enumerated rather than approximated.
    pub exact: bool,
}

/// Tests whether the values of `head` tend to be larger or smaller than those of
/// `base`. `None` when a side is empty or holds a NaN.
pub fn mann_whitney(base: &[f64], head: &[f64]) -> Option<Test> {
    let all: Vec<f64> = base.iter().chain(head).copied().collect();
    if base.is_empty() || head.is_empty() || all.iter().any(|value| value.is_nan()) {
        return None;
    }
    let (ranks, ties) = doubled_ranks(&all);
    let (n, m) = (base.len(), head.len());
    let rank_sum: usize = ranks[n..].iter().sum();
    // In halves: twice U = twice the rank sum - m (m + 1).
    let doubled_u = rank_sum - m * (m + 1);
    let (less, greater) = if n + m > EXACT_LIMIT {
        approximate(n, m, doubled_u as f64 / 2.0, &ties)
    } else if ties.is_empty() {
        exact(&u_counts(n, m), doubled_u / 2)
    } else {
        exact(&subset_sums(&ranks, m), rank_sum)
    };
    let keep = |p: f64| p.clamp(f64::MIN_POSITIVE, 1.0);
    Some(Test {
        u: doubled_u as f64 / 2.0,
        two_sided: keep(2.0 * less.min(greater)),
        greater: keep(greater),
        less: keep(less),
        exact: n + m <= EXACT_LIMIT,
    })
}

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

/// Twice the average rank of each value, so that ranks of ties stay whole, and
/// the sizes of the groups of ties.
fn doubled_ranks(values: &[f64]) -> (Vec<usize>, Vec<usize>) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut ties = Vec::new();
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        if group.len() > 1 {
            ties.push(group.len());
        }
    }
    let mut before = 0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        for &index in group {
            ranks[index] = 2 * before + group.len() + 1;
        }
        before += group.len();
    }
    (ranks, ties)
}

/// One-sided tails `(P(T <= t), P(T >= t))` of a statistic with these counts.
fn exact(counts: &[f64], t: usize) -> (f64, f64) {
    let total: f64 = counts.iter().sum();
    let at_most: f64 = counts.iter().take(t + 1).sum();
    let at_least: f64 = counts.iter().skip(t).sum();
    (at_most / total, at_least / total)
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

/// In how many ways `size` of the ranks add up to 0, 1, ...
fn subset_sums(ranks: &[usize], size: usize) -> Vec<f64> {
    let longest = ranks.iter().sum::<usize>() + 1;
    let mut ways = vec![vec![0.0; longest]; size + 1];
    ways[0][0] = 1.0;
    let mut reach = 0;
    for (taken, &rank) in ranks.iter().enumerate() {
        reach += rank;
        for k in (1..=size.min(taken + 1)).rev() {
            let (fewer, here) = ways.split_at_mut(k);
            for sum in rank..=reach {
                here[0][sum] += fewer[k - 1][sum - rank];
            }
        }
    }
    ways.swap_remove(size)
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

/// Normal approximation of `(P(U <= u), P(U >= u))`, corrected for continuity and
/// ties (Lehmann, Nonparametrics, 1975, section 1.4).
fn approximate(n: usize, m: usize, u: f64, ties: &[usize]) -> (f64, f64) {
    let (n, m) = (n as f64, m as f64);
    let all = n + m;
    let tied: f64 = ties
        .iter()
        .map(|&size| (size as f64).powi(3) - size as f64)
        .sum();
    let variance = n * m / 12.0 * (all + 1.0 - tied / (all * (all - 1.0)));
    if variance <= 0.0 {
        return (1.0, 1.0);
    }
    let away = u - n * m / 2.0;
    let sigma = variance.sqrt();
    (
        normal_upper((-away - 0.5) / sigma),
        normal_upper((away - 0.5) / sigma),
    )
}
