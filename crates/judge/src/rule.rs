//! The rule that compares one metric of one case, by exact ranks of the invocations' values.
//!
//! An invocation gives one value. All differences between the head's values and the base's are
//! sorted; for pairs, also the means of every two pairs' differences. The median of the sorted
//! values is the estimate. The interval leaves out 5 % at each end, by the exact distribution of
//! Mann and Whitney's U (Annals of Mathematical Statistics 18, 1947); for pairs also of Wilcoxon's
//! signed ranks (Biometrics Bulletin 1, 1945), and for pairs that took turns also of signs. The
//! narrowest of these intervals is used. Nothing is subtracted from a value and no distribution is
//! assumed.
//!
//! A case *regressed* if the interval lies beyond the threshold, and the interval at only this
//! comparison's share of the gate's error still excludes no change. It also regressed if the two
//! sides lie so far apart that no test is needed, or if more of the head's starts are slow
//! (Fisher's exact test). It *improved* if the interval lies beyond the threshold on the other
//! side, at an error of 1 % for each case. It is the *same* if the interval lies within the
//! threshold. Any other case is open, and is measured again. The error rates and the power of the
//! rule: `rule/tests.rs`.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use crate::judgement::{Comparison, Word};
use regatta_core::metric::walsh_averages;
use regatta_worker::units::{Ratio, Share};
use statrs::distribution::{ContinuousCDF, Normal};

/// The numbers of pairs, or of invocations of the head, after which the rule is applied.
pub const LOOKS: [u32; 5] = [5, 10, 15, 25, 35];

/// The number of looks that can call an interval at a share of the gate's error. The first is not
/// among them: any result of five pairs is likelier by chance than that.
pub const LOOKS_THAT_CALL: usize = LOOKS.len() - 1;

/// The probability that a gate calls a regression although the code did not change.
pub const GATE_ERROR: f64 = 0.002;

/// The probability left out at each end of the printed interval, which is a 90 % interval.
const END: f64 = 0.05;

/// The error probability at which one comparison is called an improvement. It is larger, because an
/// improvement turns no gate red.
pub const IMPROVED: f64 = 0.01;

/// Two sides need no test if the gap between them exceeds the threshold by this many times the
/// wider side's range.
const MIN_GAP_RANGES: f64 = 4.0;

/// The largest probability that two sides of the same code lie apart by chance, at which no test is
/// needed.
const BY_CHANCE: f64 = 1e-4;

/// A start is slow if it takes this many times the base's median, plus the threshold.
const SLOW_START: f64 = 1.25;

/// The probability below which more slow starts of the head are not put down to chance.
const LIKELY: f64 = END;

/// The same probability if the base has no slow start, by the least number of the base's starts.
/// Few starts show little, so a larger probability suffices.
const LIKELY_NEW: [(usize, f64); 2] = [(25, 0.125), (0, 0.5)];

/// The fewest invocations of each side for an interval.
pub const FEWEST: usize = 5;

/// The largest number of values on both sides together for which U is counted exactly. Beyond it,
/// the normal approximation is off by less than a percent where decisions are made.
pub const EXACT_LIMIT: usize = 120;

/// The values of one metric of one case, one for each invocation, as natural logarithms.
#[derive(Clone, Copy, Debug)]
pub struct BothSides<'a> {
    /// The base's values.
    pub base: &'a [f64],
    /// The head's values.
    pub head: &'a [f64],
    /// True if `base[i]` and `head[i]` were measured as a pair.
    pub paired: bool,
    /// True if the samples of each pair were taken in turns, so that effects of the machine are in
    /// both. A start is then slow in comparison with its pair.
    pub in_turns: bool,
}

impl<'a> BothSides<'a> {
    /// Values that are not paired.
    pub fn new(base: &'a [f64], head: &'a [f64]) -> BothSides<'a> {
        BothSides {
            base,
            head,
            paired: false,
            in_turns: false,
        }
    }
}

/// The terms of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The smallest change that counts, as a difference of logarithms.
    pub threshold: f64,
    /// The day-to-day allowance between base and head, as a difference of logarithms; 0 for pairs.
    pub day: f64,
    /// This comparison's share of [`GATE_ERROR`].
    pub error: f64,
    /// The error probability at which this comparison is called an improvement: its share, or
    /// [`IMPROVED`].
    pub error_of_improved: f64,
    /// True if no more invocations follow.
    pub last: bool,
}

impl Terms {
    /// The terms of a last look, without a day-to-day allowance.
    pub fn last(threshold: f64, error: f64) -> Terms {
        Terms {
            threshold,
            day: 0.0,
            error,
            error_of_improved: error,
            last: true,
        }
    }
}

/// The invocations that take far longer than the base's median: their numbers and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlowStarts {
    /// The number of slow invocations of the base, and of all its invocations.
    pub base: (usize, usize),
    /// The number of slow invocations of the head, and of all its invocations.
    pub head: (usize, usize),
    /// The median of the head's slow invocations, as a multiple of the base's median.
    pub times: f64,
    /// True if more of the head's invocations are slow than chance explains, and they cost more
    /// than the threshold, so that the case may be worse.
    pub likely: bool,
}

/// A statistic on the differences between two sides.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Ranks {
    /// Mann and Whitney: differences of each value of the head and each of the base.
    All { base: usize, head: usize },
    /// Wilcoxon: the means of every two pairs' differences.
    Pairs(usize),
    /// The sign test: the difference of each pair. If a third of the pairs have a slow start on one
    /// side, the median still shows the change of the others.
    Signs(usize),
}

/// Compares one metric of one case, and counts its slow starts. `None` where a side has no value.
pub fn compare(sides: BothSides<'_>, terms: Terms) -> Option<(Comparison, SlowStarts)> {
    let BothSides {
        base,
        head,
        paired,
        in_turns,
    } = sides;
    if base.is_empty() || head.is_empty() {
        return None;
    }
    let Terms {
        threshold,
        day,
        error,
        error_of_improved,
        last,
    } = terms;
    let mut views = vec![(
        Ranks::All {
            base: base.len(),
            head: head.len(),
        },
        differences(base, head),
    )];
    if paired {
        let means = sorted(walsh_averages(&pair_differences(base, head)));
        views.push((Ranks::Pairs(base.len()), means));
    }
    if in_turns {
        let each = sorted(pair_differences(base, head));
        views.push((Ranks::Signs(base.len()), each));
    }

    // `half_width` is that of the widest interval, which a repetition can be expected to reach.
    let (mut change, mut low, mut high) = (0.0, f64::NEG_INFINITY, f64::INFINITY);
    let mut half_width = 0.0;
    let fewest = base.len().min(head.len());
    for (at, (ranks, sorted)) in views.iter().enumerate() {
        let ends = if fewest >= FEWEST {
            ranks.interval(sorted, END)
        } else {
            (f64::NEG_INFINITY, f64::INFINITY)
        };
        half_width = f64::max(half_width, (ends.1 - ends.0) / 2.0);
        if at == 0 || ends.1 - ends.0 < high - low {
            (change, (low, high)) = (median(sorted), ends);
        }
    }

    let (slow, chance_of_slow) = slow_starts(sides, threshold + day);
    let more_slow = slow.head.0 > slow.base.0;

    let (base_ends, head_ends) = (ends(base), ends(head));
    let apart = if fewest >= FEWEST {
        let range = f64::max(base_ends.1 - base_ends.0, head_ends.1 - head_ends.0);
        MIN_GAP_RANGES * range + threshold + day
    } else {
        0.0
    };
    let few = fewest < FEWEST || !last && by_chance(base.len(), head.len()) > BY_CHANCE;
    let apart = if few {
        // Two pairs must differ by a factor of 32, and five by a factor of four if more can follow.
        apart.max((7 - fewest.min(FEWEST)) as f64 * std::f64::consts::LN_2)
    } else {
        apart
    };
    let pairs_apart = |sign: f64| {
        if !in_turns || fewest < FEWEST || few {
            return false;
        }
        let ratios = pair_differences(base, head);
        let ratios: Vec<f64> = ratios.iter().map(|ratio| sign * ratio).collect();
        let (least, most) = ends(&ratios);
        least >= MIN_GAP_RANGES * (most - least) + threshold + day
    };
    let beyond = threshold + day;
    let certain = |(ranks, sorted): &(Ranks, Vec<f64>), error: f64| {
        let share = match ranks {
            _ if views.len() < 3 => error / views.len() as f64,
            Ranks::Pairs(_) => error / 2.0,
            _ => error / 4.0,
        };
        ranks.interval(sorted, share)
    };
    let slower = low > beyond && views.iter().any(|view| certain(view, error).0 > day);
    let is_faster = |view| certain(view, error_of_improved).1 < -day;
    let faster = high < -beyond && views.iter().any(is_faster);

    let is_apart = head_ends.0 - base_ends.1 >= apart || pairs_apart(1.0);
    let word = if is_apart || chance_of_slow <= error || slower {
        Word::Regressed
    } else if more_slow && (slow.likely || !last) {
        Word::Inconclusive
    } else if base_ends.0 - head_ends.1 >= apart || pairs_apart(-1.0) || faster {
        Word::Improved
    } else if -threshold <= low && high <= threshold {
        Word::Same
    } else {
        Word::Inconclusive
    };
    let twice = (2.0 * threshold.exp_m1()).ln_1p();
    // The smallest change that the last look would call in 95 of 100 repetitions.
    let half_then = half_width * (fewest as f64 / f64::from(LOOKS[LOOKS.len() - 1])).sqrt();
    let detectable = Share((threshold + 5.0 * half_then).exp_m1());
    let counts = (base.len(), head.len());
    let (ratio, threshold_share) = (Ratio(change.exp()), Share(threshold.exp_m1()));
    let mut comparison = Comparison::new(word, ratio, threshold_share, counts).within(low, high);
    comparison.paired = paired;
    comparison.detectable = comparison.low.filter(|_| paired).map(|_| detectable);
    comparison.may_be_worse =
        word == Word::Inconclusive && (change > threshold || high > twice || slow.likely);
    Some((comparison, slow))
}

/// The probability that all starts of one side are slow and none of the other, for the share of
/// slow starts that makes this most likely. A tuner that chooses one of two kernels at random does
/// that.
fn by_chance(base: usize, head: usize) -> f64 {
    let share = head as f64 / (base + head) as f64;
    share.powi(head as i32) * (1.0 - share).powi(base as i32)
}

/// Counts the slow starts of both sides. In pairs that took turns, a start is compared with the
/// other side's. Also returns the probability of at least as many on the head's side if the sides
/// do not differ.
fn slow_starts(sides: BothSides<'_>, threshold: f64) -> (SlowStarts, f64) {
    let limit = SLOW_START.ln() + threshold;
    // Most sides have no slow start.
    let slow = |values: &[f64], above_usual: &dyn Fn(f64) -> f64| -> Vec<f64> {
        let above = values.iter().map(|value| above_usual(*value));
        above.filter(|above| *above > limit).map(f64::exp).collect()
    };
    let (base, head) = if sides.in_turns {
        let ratios = pair_differences(sides.base, sides.head);
        let usual = median_of(&ratios).min(0.0);
        let base = slow(&ratios, &|ratio| usual - ratio);
        (base, slow(&ratios, &|ratio| ratio))
    } else {
        let usual = median_of(sides.base);
        let above = |side: &[f64]| slow(side, &|value| value - usual);
        (above(sides.base), above(sides.head))
    };
    let counts = [sides.base.len(), sides.head.len()];
    let chance = if head.len() > base.len() {
        fisher(head.len(), base.len(), counts[0], counts[1])
    } else {
        1.0
    };
    // Slow starts of a share s that take t times as long cost s (t - 1) on average.
    let cost =
        |slow: &[f64], all: usize| slow.iter().map(|times| times - 1.0).sum::<f64>() / all as f64;
    let costs_more = cost(&head, counts[1]) - cost(&base, counts[0]) > threshold.exp_m1();
    let likely = if base.is_empty() {
        let row = LIKELY_NEW.iter().find(|(starts, _)| counts[0] >= *starts);
        row.map_or(LIKELY, |(_, likely)| *likely)
    } else {
        LIKELY
    };
    let likely = costs_more && chance <= likely;
    let times = if head.is_empty() {
        0.0
    } else {
        median_of(&head)
    };
    let counted = SlowStarts {
        base: (base.len(), counts[0]),
        head: (head.len(), counts[1]),
        times,
        likely,
    };
    (counted, chance)
}

/// The number of pairs at the next look after `pairs`; `None` after the last.
pub fn next_look(pairs: u32) -> Option<u32> {
    LOOKS.into_iter().find(|look| *look > pairs)
}

/// The ratio of two sides that are known to differ: the median of all differences, with its 90 %
/// interval.
pub fn shift(sides: BothSides<'_>, threshold: Share) -> Option<Comparison> {
    let BothSides { base, head, .. } = sides;
    if base.is_empty() || head.is_empty() {
        return None;
    }
    let sorted = differences(base, head);
    let counts @ (base, head) = (base.len(), head.len());
    let (low, high) = Ranks::All { base, head }.interval(&sorted, END);
    let ratio = Ratio(median(&sorted).exp());
    let word = if ratio > Ratio::ONE {
        Word::Regressed
    } else {
        Word::Improved
    };
    Some(Comparison::new(word, ratio, threshold, counts).within(low, high))
}

impl SlowStarts {
    /// True if slow starts take clearly longer than the change itself, which the other starts show.
    pub fn are_slower_than(&self, change: Ratio) -> bool {
        self.likely && self.times > SLOW_START * change.0
    }
}

/// The total number of pairs that would decide, if estimate and spread stay. It grows with the
/// square of the interval's half width over the distance between the estimate and the threshold.
pub fn needed_pairs(comparison: &Comparison, terms: &Terms, pairs: usize) -> f64 {
    let change = comparison.ratio.0.ln().abs();
    let room = (terms.threshold - change).abs();
    let narrow = comparison
        .low
        .zip(comparison.high)
        .map_or(0.0, |(low, high)| {
            let half = (high / low).0.ln() / 2.0;
            (pairs as f64 * (half / room).powi(2)).ceil()
        });
    let fewest = if change > terms.threshold {
        fewest_to_show(terms.error)
    } else {
        FEWEST
    };
    narrow.max(fewest as f64)
}

/// The number of pairs after which two sides without overlap are shown to differ.
fn fewest_to_show(error: f64) -> usize {
    let shown = |pairs: &usize| {
        let ranks = Ranks::All {
            base: *pairs,
            head: *pairs,
        };
        ranks.skipped(error / 2.0).is_some()
    };
    (FEWEST..EXACT_LIMIT).find(shown).unwrap_or(EXACT_LIMIT)
}

impl Ranks {
    /// The values of `sorted` that leave out `error` at each end; infinite if there are too few
    /// values.
    fn interval(self, sorted: &[f64], error: f64) -> (f64, f64) {
        match self.skipped(error) {
            Some(skipped) => (sorted[skipped], sorted[sorted.len() - 1 - skipped]),
            None => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    /// The largest value of the statistic whose lower tail is at most `error`.
    fn skipped(self, error: f64) -> Option<usize> {
        type Skipped = HashMap<(Ranks, u64), Option<usize>>;
        static KNOWN: LazyLock<Mutex<Skipped>> = LazyLock::new(Mutex::default);
        let key = (self, error.to_bits());
        if let Some(known_limit) = KNOWN.lock().ok().and_then(|known| known.get(&key).copied()) {
            return known_limit;
        }
        // Sums of probabilities have rounding errors.
        let limit = error * (1.0 + 1e-12);
        let skipped = self.lower_tails().take_while(|tail| *tail <= limit).count();
        let known_limit = skipped.checked_sub(1);
        if let Ok(mut known) = KNOWN.lock() {
            known.insert(key, known_limit);
        }
        known_limit
    }

    /// P(statistic ≤ 0), P(statistic ≤ 1), ... without ties.
    fn lower_tails(self) -> Box<dyn Iterator<Item = f64>> {
        let ways = match self {
            Ranks::All { base, head } if base + head > EXACT_LIMIT => {
                let (n, m) = (base as f64, head as f64);
                let mean = n * m / 2.0;
                let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
                let normal = Normal::standard();
                let tail = move |u| normal.cdf((u as f64 + 0.5 - mean) / deviation);
                return Box::new((0..base * head).map(tail));
            }
            Ranks::All { base, head } => mann_whitney_ways(base, head),
            Ranks::Pairs(pairs) => signed_rank_ways(pairs),
            Ranks::Signs(pairs) => sign_ways(pairs),
        };
        let all: f64 = ways.iter().sum();
        let mut sum = 0.0;
        Box::new(ways.into_iter().map(move |ways| {
            sum += ways;
            sum / all
        }))
    }
}

/// The number of orders of `n` and `m` values in which U is 0, 1, ..., n m: the coefficients of the
/// Gaussian binomial, by `∏ (1 - q^(n+i)) / (1 - q^i)`. Each partial product has whole
/// coefficients.
fn mann_whitney_ways(n: usize, m: usize) -> Vec<f64> {
    let longest = n * m + 1;
    let mut ways = vec![0_i128; longest];
    ways[0] = 1;
    for i in 1..=m {
        for u in (n + i..longest).rev() {
            ways[u] -= ways[u - n - i];
        }
        for u in i..longest {
            ways[u] += ways[u - i];
        }
    }
    ways.into_iter().map(|ways| ways as f64).collect()
}

/// The number of choices of signs for which the positive ranks of `n` differences add up to 0, 1,
/// ...
fn signed_rank_ways(n: usize) -> Vec<f64> {
    let mut ways = vec![0.0; n * (n + 1) / 2 + 1];
    ways[0] = 1.0;
    for rank in 1..=n {
        for sum in (rank..ways.len()).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}

/// The number of choices of signs for which 0, 1, ... of `n` differences are positive.
fn sign_ways(n: usize) -> Vec<f64> {
    let mut ways = vec![1.0];
    for positive in 1..=n {
        ways.push(ways[positive - 1] * (n + 1 - positive) as f64 / positive as f64);
    }
    ways
}

/// Fisher's exact test: the probability that at least `head_slow` of all slow starts fall on the
/// head, if slowness does not depend on the side (Journal of the Royal Statistical Society 85,
/// 1922).
fn fisher(head_slow: usize, base_slow: usize, base: usize, head: usize) -> f64 {
    let slow = head_slow + base_slow;
    let ways = |group: usize, take: usize| -> f64 {
        (1..=take)
            .map(|i| ((group - take + i) as f64 / i as f64).ln())
            .sum()
    };
    (head_slow..=slow.min(head))
        .map(|on_head| {
            (ways(head, on_head) + ways(base, slow - on_head) - ways(base + head, slow)).exp()
        })
        .sum()
}

fn differences(base: &[f64], head: &[f64]) -> Vec<f64> {
    let mut all = Vec::with_capacity(head.len() * base.len());
    for value in head {
        all.extend(base.iter().map(|before| value - before));
    }
    sorted(all)
}

fn pair_differences(base: &[f64], head: &[f64]) -> Vec<f64> {
    head.iter()
        .zip(base)
        .map(|(head, base)| head - base)
        .collect()
}

/// Sorts in the order of `f64::total_cmp`, by the integers that it compares, which is faster: a
/// judgement sorts short lists a million times.
fn sorted(values: Vec<f64>) -> Vec<f64> {
    let turned = |bits: i64| bits ^ ((bits >> 63) as u64 >> 1) as i64;
    let keys = values
        .into_iter()
        .map(|value| turned(value.to_bits() as i64));
    let mut keys: Vec<i64> = keys.collect();
    keys.sort_unstable();
    let values = keys
        .into_iter()
        .map(|key| f64::from_bits(turned(key) as u64));
    values.collect()
}

fn median(sorted: &[f64]) -> f64 {
    let last = sorted.len() - 1;
    (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0
}

fn median_of(values: &[f64]) -> f64 {
    median(&sorted(values.to_vec()))
}

/// The smallest and the largest value.
fn ends(values: &[f64]) -> (f64, f64) {
    let mut ends = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values {
        ends = (ends.0.min(*value), ends.1.max(*value));
    }
    ends
}

#[cfg(test)]
mod tests;
