//! The places where a series changes its level.
//!
//! Intervals of many lengths are searched for the place where the ranks on its two sides differ
//! most (Pettitt, Applied Statistics 28, 1979), so that what goes up and comes down again is seen
//! as well (Kovács, Bühlmann, Li & Munk, Biometrika 110, 2023). Whether the clearest of these
//! places is a change, the [rule](crate::rule) of gates decides, by the runs on its two sides; the
//! two parts are then searched again.

use crate::rule::{BothSides, EXACT_LIMIT, FEWEST, Terms, compare};
use regatta_core::record::median;

/// Runs on each side of a change, at the least.
pub const SHORTEST: usize = 5;

/// No place that is less clear than this many deviations is a change to the rule.
const CLEAR: f64 = 2.5;

/// A step is preferred to a line if twice the difference of their log likelihoods exceeds this.
const PLAINLY: f64 = 6.0;

/// Values beyond so many deviations of their level count as if they were there.
const WILD: f64 = 3.5;

/// The places where a series begins another level, ascending. `error` is the probability that a
/// series without a change shows any: each place of each interval has its share. Of runs that are
/// correlated with the next every second counts, or third, as that is as much as all of them tell.
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

/// The last runs before a place and the first from it on: as many as the rule counts exactly.
pub fn beside(left: &[f64], right: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let after = right.len().min(EXACT_LIMIT / 2);
    let before = left.len().min(EXACT_LIMIT - after);
    let after = right.len().min(EXACT_LIMIT - before);
    (
        left[left.len() - before..].to_vec(),
        right[..after].to_vec(),
    )
}

/// Intervals of the whole length, half of it, a quarter and so on, each half over the one
/// before it.
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
    /// Deviations of the ranks' sum before it.
    clear: f64,
}

struct ChangeSearch<'v> {
    values: &'v [f64],
    /// The error of one place.
    error: f64,
    /// Deviation of one run.
    noise: f64,
    /// Every how manieth run counts.
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

    /// The place next to a change that leaves the least off the levels of its two sides: ranks of
    /// a side that drifts say it less well.
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

    /// True where the rule shows a change and it stands out.
    fn is_change(&self, change: &ChangePoint) -> bool {
        let (left, right) = (
            &self.values[change.from..change.at],
            &self.values[change.at..change.to],
        );
        let (base, head) = beside(left, right);
        // Five a side are left: where these lie far apart, more of them would say no more.
        let every = self.every.min(base.len().min(head.len()) / FEWEST).max(1);
        let thinned = |side: Vec<f64>| -> Vec<f64> { side.into_iter().step_by(every).collect() };
        let (base, head) = (thinned(base), thinned(head));
        let sides = BothSides::new(&base, &head);
        let comparison = compare(sides, Terms::last(0.0, self.error));
        comparison.is_some_and(|(shown, _)| shown.has_moved()) && self.stands_out(left, right)
    }

    /// True where half of a change lies between the runs next to it, as many as tell half of it
    /// from none by two deviations, and a step fits plainly better than a line through both
    /// middles: what creeps or drifts has no day on which it changed.
    fn stands_out(&self, left: &[f64], right: &[f64]) -> bool {
        let (low, high) = (middle(left), middle(right));
        let change = high - low;
        let runs = 32.0 * (self.noise / change).powi(2);
        let runs = (runs.ceil() as usize).max(SHORTEST);
        let before = &left[left.len().saturating_sub(runs)..];
        let after = &right[..runs.min(right.len())];
        let jump = middle(after) - middle(before);

        // One wild run is as far off as any.
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

/// The correlation of a run with the next, by how far neighbours lie apart against runs that are
/// far from each other; middle distances, which no change moves. 0 of too few runs to tell.
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

/// Standard deviation of a run, by the middle difference of neighbours, which no change moves.
fn noise(values: &[f64]) -> f64 {
    /// From a median of absolute deviations to a standard deviation.
    const TO_DEVIATION: f64 = 1.4826;
    let apart = values.windows(2).map(|two| (two[1] - two[0]).abs());
    TO_DEVIATION * middle(&apart.collect::<Vec<_>>()) / f64::sqrt(2.0)
}

/// Ranks from 1; those of equal values are the mean of theirs.
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

/// The median; 0 of none.
pub fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(0.0)
}
