//! Finds the places where a series changes its level.
//!
//! In intervals of many lengths, the place is searched at which the ranks on the two sides differ
//! most (Pettitt, Applied Statistics 28, 1979). With several lengths, a level that rises and falls
//! again is found as well (Kovács, Bühlmann, Li & Munk, Biometrika 110, 2023). The
//! [rule](crate::rule) of gates then decides whether the clearest of these places is a change, by
//! the runs on its two sides. The two parts are searched again.

use crate::rule::{BothSides, EXACT_LIMIT, FEWEST, Terms, compare};
use regatta_core::record::median;

/// The fewest runs on each side of a change.
pub const SHORTEST: usize = 5;

/// The fewest deviations of the rank sum at which the rule is applied to a place.
const CLEAR: f64 = 2.5;

/// A step is preferred to a line if twice the difference of their log likelihoods is at least this.
const PLAINLY: f64 = 6.0;

/// Values farther than this many deviations from their level are counted at this distance.
const WILD: f64 = 3.5;

/// The ascending indices at which a series begins another level. `error` is the probability that a
/// series without a change shows any; it is divided among the places of all intervals. If each run
/// is correlated with the next, only every second or third is compared, since together they carry
/// no more information.
pub fn changes(values: &[f64], error: f64, correlation: f64) -> Vec<usize> {
    let intervals = intervals(values.len());
    let places: usize = intervals.iter().map(|(from, to)| to - from).sum();
    let search = ChangeSearch {
        values,
        error: error / places.max(1) as f64,
        noise: noise(values),
        every: ((1.0 + correlation) / (1.0 - correlation)).round() as usize,
    };
    let clear = |&(from, to): &(usize, usize)| search.clearest(from, to);
    let seeded: Vec<ChangePoint> = intervals.iter().filter_map(clear).collect();
    let mut open = vec![(0, values.len())];
    let mut changes = Vec::new();
    while let Some((from, to)) = open.pop() {
        let inside = |change: &&ChangePoint| change.from >= from && change.to <= to;
        let mut all: Vec<ChangePoint> = seeded.iter().filter(inside).copied().collect();
        all.extend(search.clearest(from, to));
        all.sort_by(|a, b| b.clear.total_cmp(&a.clear));
        if let Some(change) = all
            .into_iter()
            .find(|candidate| search.is_change(candidate))
        {
            let at = search.settled(&change);
            changes.push(at);
            open.extend([(from, at), (at, to)]);
        }
    }
    changes.sort_unstable();
    changes
}

/// The last runs of `left` and the first of `right`, as many as the rule counts exactly.
pub fn beside(left: &[f64], right: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let after = right.len().min(EXACT_LIMIT / 2);
    let before = left.len().min(EXACT_LIMIT - after);
    let after = right.len().min(EXACT_LIMIT - before);
    (
        left[left.len() - before..].to_vec(),
        right[..after].to_vec(),
    )
}

/// Intervals of the whole length, a half, a quarter and so on, each overlapping the previous one by
/// half.
fn intervals(length: usize) -> Vec<(usize, usize)> {
    let mut intervals = Vec::new();
    for part in 0.. {
        let width = length as f64 / f64::from(1u32 << part);
        if width < 2.0 * SHORTEST as f64 {
            break;
        }
        let count = (2usize << part) - 1;
        let step = (length as f64 - width) / (count - 1).max(1) as f64;
        intervals.extend((0..count).map(|number| {
            let from = number as f64 * step;
            let to = (from + width).ceil().min(length as f64);
            (from.floor() as usize, to as usize)
        }));
    }
    intervals
}

/// The clearest place of an interval.
#[derive(Clone, Copy)]
struct ChangePoint {
    from: usize,
    to: usize,
    at: usize,
    /// The distance of the rank sum before `at` from its mean, in standard deviations.
    clear: f64,
}

struct ChangeSearch<'v> {
    values: &'v [f64],
    /// The error probability of one place.
    error: f64,
    /// The standard deviation of one run.
    noise: f64,
    /// The stride with which runs are compared.
    every: usize,
}

impl ChangeSearch<'_> {
    fn clearest(&self, from: usize, to: usize) -> Option<ChangePoint> {
        let length = to - from;
        let ranks = ranks(&self.values[from..to]);
        let mut sum = 0.0;
        let clear = |(before, rank): (usize, f64)| {
            sum += rank;
            let (left, right) = (before as f64, (length - before) as f64);
            let away = sum - left * (length as f64 + 1.0) / 2.0;
            let deviation = (left * right * (length as f64 + 1.0) / 12.0).sqrt();
            let (at, clear) = (from + before, away.abs() / deviation);
            ChangePoint {
                from,
                to,
                at,
                clear,
            }
        };
        let all = (1..length).zip(ranks).map(clear);
        let enough = SHORTEST..=length.saturating_sub(SHORTEST);
        let there =
            all.filter(|change| enough.contains(&(change.at - from)) && change.clear >= CLEAR);
        there.max_by(|a, b| a.clear.total_cmp(&b.clear))
    }

    /// Moves a change to the nearby place that minimises the distances of the runs from the levels
    /// of its two sides. Where a side drifts, ranks locate the change less well.
    fn settled(&self, change: &ChangePoint) -> usize {
        let off = |at: &usize| {
            let sides = [&self.values[change.from..*at], &self.values[*at..change.to]];
            let off = sides.map(|side| {
                let level = middle(side);
                side.iter().map(|value| (value - level).abs()).sum::<f64>()
            });
            off[0] + off[1]
        };
        let (first, last) = (change.from + SHORTEST, change.to - SHORTEST);
        let near = first.max(change.at - SHORTEST)..=last.min(change.at + SHORTEST);
        let best = near.min_by(|a, b| off(a).total_cmp(&off(b)));
        best.unwrap_or(change.at)
    }

    /// True if the rule shows a change and the change stands out.
    fn is_change(&self, change: &ChangePoint) -> bool {
        let (left, right) = (
            &self.values[change.from..change.at],
            &self.values[change.at..change.to],
        );
        let (base, head) = beside(left, right);
        // At least five values a side stay; where these lie far apart, more would change nothing.
        let every = self.every.min(base.len().min(head.len()) / FEWEST).max(1);
        let thinned = |side: Vec<f64>| -> Vec<f64> { side.into_iter().step_by(every).collect() };
        let (base, head) = (thinned(base), thinned(head));
        let sides = BothSides::new(&base, &head);
        let comparison = compare(sides, Terms::last(0.0, self.error));
        comparison.is_some_and(|(shown, _)| shown.has_moved()) && self.stands_out(left, right)
    }

    /// True if at least half of the change lies between the neighbouring runs, and a step fits
    /// clearly better than a line through the medians of both sides. The number of neighbouring
    /// runs suffices to tell half of the change from none by two deviations. A drift has no day on
    /// which it happened.
    fn stands_out(&self, left: &[f64], right: &[f64]) -> bool {
        let (low, high) = (middle(left), middle(right));
        let change = high - low;
        let runs = 32.0 * (self.noise / change).powi(2);
        let runs = (runs.ceil() as usize).max(SHORTEST);
        let before = &left[left.len().saturating_sub(runs)..];
        let after = &right[..runs.min(right.len())];
        let jump = middle(after) - middle(before);

        // The distance of an outlier is limited.
        let off = |value: f64| value.abs().min(WILD * self.noise).powi(2);
        let (mut off_step, mut off_line) = (0.0, 0.0);
        let length = (left.len() + right.len()) as f64;
        for (place, value) in left.iter().chain(right).enumerate() {
            let level = if place < left.len() { low } else { high };
            let along = (place as f64 + 0.5 - left.len() as f64 / 2.0) / (length / 2.0);
            off_step += off(value - level);
            off_line += off(value - low - change * along);
        }
        let plainly = off_step <= 0.0 || length * (off_line / off_step).ln() >= PLAINLY;
        jump / change >= 0.5 && plainly
    }
}

/// The correlation of a run with the next, from the median distance of neighbours over that of runs
/// far from each other. Medians are used because a change of level does not move them. 0 if there
/// are too few runs.
pub fn correlation(values: &[f64]) -> f64 {
    const FAR: usize = 10;
    const ENOUGH: usize = 24;
    let apart = |lag: usize| {
        let apart = values
            .windows(lag + 1)
            .map(|window| (window[lag] - window[0]).abs());
        middle(&apart.collect::<Vec<_>>())
    };
    let (near, far) = (apart(1), apart(FAR));
    if values.len() < ENOUGH || far <= 0.0 {
        0.0
    } else {
        (1.0 - (near / far).powi(2)).clamp(0.0, 0.9)
    }
}

/// The standard deviation of a run, from the median difference of neighbours, which a change of
/// level does not move.
fn noise(values: &[f64]) -> f64 {
    /// The factor from a median absolute deviation to a standard deviation.
    const TO_DEVIATION: f64 = 1.4826;
    let apart = values.windows(2).map(|two| (two[1] - two[0]).abs());
    TO_DEVIATION * middle(&apart.collect::<Vec<_>>()) / f64::sqrt(2.0)
}

/// Ranks from 1; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for group in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = before as f64 + (group.len() as f64 + 1.0) / 2.0;
        group.iter().for_each(|place| ranks[*place] = rank);
        before += group.len();
    }
    ranks
}

/// The median; 0 without values.
pub fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(0.0)
}
