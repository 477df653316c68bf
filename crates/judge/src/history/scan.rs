//! Where a series changes its level: seeded binary segmentation with a rank test.
//!
//! Every interval of a fixed set of lengths and places is searched for the place where the
//! ranks on its two sides differ most (Pettitt, Applied Statistics 28, 1979; Lausen &
//! Schumacher, Biometrics 48, 1992), so that what goes up and comes down again is seen as well
//! (Kovács, Bühlmann, Li & Munk, Biometrika 110, 2023). The clearest place is a change, and the
//! two parts are searched anew. A place counts where its p is below the level divided by all
//! places of all intervals of all series: that holds whatever the noise is, as long as it does
//! not depend on time.
//!
//! Two things more. Noise that remembers the run before is as good as fewer runs (`memory`).
//! And where so few runs are there that no arrangement of them is improbable enough, sides that
//! do not overlap at all are held to Student's t.

use statrs::function::gamma::ln_gamma;

use crate::statistics::{normal_upper, t_upper};

/// How one series is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan {
    /// Runs on each side of a change, at the least.
    pub(super) shortest: usize,
    /// Logarithm of the level for all places of this series.
    pub(super) ln_level: f64,
    /// Correlation of one value with the next.
    pub(super) memory: f64,
    /// This case's share of the error of creep.
    pub(super) error: f64,
}

/// A place where an interval changes its level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// The first value after the change.
    pub(super) at: usize,
    /// Logarithm of p, before it is paid for that places were searched.
    pub(super) ln_p: f64,
}

/// A line is told from a step by so much of the logarithm of their likelihoods, twice.
const PLAINLY: f64 = 6.0;

/// Values beyond so many deviations of their side count as if they were there.
const CUT: f64 = 3.5;

/// From a median of absolute deviations to a standard deviation.
pub(super) const TO_DEVIATION: f64 = 1.4826;

/// A series, with what is known of the whole of it.
struct Searched<'v> {
    scan: Scan,
    values: &'v [f64],
    /// Logarithm of the level of one place.
    ln_each: f64,
    /// Standard deviation by the differences of neighbours: a step is one of many.
    deviation: f64,
    degrees: f64,
    /// The same by the middle one of these differences, which no step moves.
    usual: f64,
}

impl Scan {
    /// Logarithm of the number of places that a series of this length is searched at.
    pub(super) fn places(self, length: usize) -> f64 {
        let seeds = intervals(length, 2 * self.shortest);
        let places: usize = seeds.iter().map(|(from, to)| to - from).sum();
        (places.max(1) as f64).ln()
    }

    /// The changes of a series, in their order.
    pub(super) fn changes(self, values: &[f64]) -> Vec<Place> {
        let seeds = intervals(values.len(), 2 * self.shortest);
        let squares = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
        let steps = values.len().saturating_sub(1).max(1) as f64;
        let apart = values.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        let apart: Vec<f64> = apart.collect();
        let searched = Searched {
            scan: self,
            values,
            ln_each: self.ln_level - self.places(values.len()),
            // von Neumann, Annals of Mathematical Statistics 12 (1941); two thirds as good as
            // the deviations from a mean.
            deviation: (squares.sum::<f64>() / (2.0 * steps)).sqrt(),
            degrees: 2.0 * steps / 3.0,
            usual: TO_DEVIATION * middle(&apart) / f64::sqrt(2.0),
        };
        let found = seeds.iter().map(|&(from, to)| searched.within(from, to));
        let mut found: Vec<((usize, usize), Option<Place>)> = seeds
            .iter()
            .copied()
            .zip(found.collect::<Vec<_>>())
            .collect();
        found.retain(|(_, place)| place.is_some());
        let mut open = vec![(0, values.len())];
        let mut changes = Vec::new();
        while let Some((from, to)) = open.pop() {
            let inside = found.iter().filter(|((a, b), _)| *a >= from && *b <= to);
            let inside = inside.filter_map(|(interval, place)| Some((*interval, (*place)?)));
            let whole = match changes.is_empty() {
                true => None,
                false => searched.within(from, to).map(|place| ((from, to), place)),
            };
            let mut all: Vec<_> = inside.chain(whole).collect();
            all.sort_by(|a, b| a.1.ln_p.total_cmp(&b.1.ln_p));
            let steps = all
                .into_iter()
                .find(|((a, b), place)| searched.stands_out(*a, *b, place.at));
            if let Some((_, place)) = steps {
                changes.push(place);
                open.extend([(from, place.at), (place.at, to)]);
            }
        }
        changes.sort_by_key(|place| place.at);
        changes
    }
}

/// Intervals of the whole length, half of it, a quarter and so on, each half over the one
/// before it.
fn intervals(length: usize, shortest: usize) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut parts = 1;
    loop {
        let width = length as f64 / f64::from(1u32 << (parts - 1).min(30));
        if width < shortest as f64 || shortest == 0 {
            return found;
        }
        let count = (1usize << parts) - 1;
        let step = match count {
            1 => 0.0,
            _ => (length as f64 - width) / (count - 1) as f64,
        };
        for number in 0..count {
            let from = (number as f64 * step).floor();
            let to = (number as f64 * step + width).ceil().min(length as f64);
            found.push((from as usize, to as usize));
        }
        parts += 1;
    }
}

impl Searched<'_> {
    /// How many runs without a memory so many are as good as.
    fn worth(&self, runs: usize) -> f64 {
        let memory = self.scan.memory;
        runs as f64 * (1.0 - memory) / (1.0 + memory)
    }

    /// The clearest change of an interval, where it is one.
    fn within(&self, from: usize, to: usize) -> Option<Place> {
        let values = &self.values[from..to];
        let length = values.len();
        let shortest = self.scan.shortest;
        if length < 2 * shortest {
            return None;
        }
        let ranks = ranks(values);
        let shrink = (self.worth(length) / length as f64).sqrt();
        let mut sum = 0.0;
        let mut scores = vec![0.0; length];
        for place in 1..length {
            sum += ranks[place - 1];
            let (left, right) = (place as f64, (length - place) as f64);
            let away = sum - left * (length as f64 + 1.0) / 2.0;
            let deviation = (left * right * (length as f64 + 1.0) / 12.0).sqrt();
            scores[place] = shrink * away / deviation;
        }
        let mut best: Option<Place> = None;
        let mut apart = None;
        for at in shortest..=length - shortest {
            let score = scores[at].abs();
            let few = at.min(length - at);
            let (few, many) = (self.worth(few), self.worth(length - few));
            let ln_p = match ln_least(few, many) <= self.ln_each {
                // The clearest place is higher than its neighbours.
                true if score < scores[at - 1].abs().max(scores[at + 1].abs()) => continue,
                true if score < self.too_near() => continue,
                true => ln_p(score, few, many),
                false => {
                    let apart = apart.get_or_insert_with(|| Apart::of(values));
                    match apart.at(at) {
                        true => self.student(values, at),
                        false => continue,
                    }
                }
            };
            if ln_p <= self.ln_each && best.is_none_or(|best| ln_p < best.ln_p) {
                best = Some(Place {
                    at: from + at,
                    ln_p,
                });
            }
        }
        best
    }

    /// No sum of ranks that is nearer than this is improbable enough: all are nearer to their
    /// ends than a normal one.
    fn too_near(&self) -> f64 {
        if self.ln_each < -8.0 { 3.0 } else { 0.0 }
    }

    /// Logarithm of p of the difference between two sides by Student's t: of the smaller of
    /// those of means and of medians, since one wild run moves the one, and a kernel in two
    /// modes the other.
    fn student(&self, values: &[f64], at: usize) -> f64 {
        let (left, right) = values.split_at(at);
        let mean = |side: &[f64]| side.iter().sum::<f64>() / side.len() as f64;
        let by_mean = mean(right) - mean(left);
        let by_median = middle(right) - middle(left);
        let error = (1.0 / self.worth(left.len()) + 1.0 / self.worth(right.len())).sqrt();
        // Neighbours that remember each other differ by less than runs do.
        let deviation = self.deviation / (1.0 - self.scan.memory).sqrt();
        let t = by_mean.abs().min(by_median.abs()) / (deviation * error);
        let p = 2.0 * t_upper(t, self.degrees);
        match t.is_nan() {
            true => 0.0,
            false => p.max(f64::MIN_POSITIVE).ln(),
        }
    }

    /// True where an interval changes at a place, and not all along: what creeps or drifts has
    /// no day on which it changed.
    fn stands_out(&self, from: usize, to: usize, at: usize) -> bool {
        let (left, right) = (&self.values[from..at], &self.values[at..to]);
        let (low, high) = (middle(left), middle(right));
        let change = high - low;
        // As many runs next to it as tell half of the change from none, by two deviations.
        let memory = self.scan.memory;
        let noise = self.usual / (1.0 - memory).sqrt();
        let runs = 32.0 * (noise / change).powi(2) * (1.0 + memory) / (1.0 - memory);
        let runs = (runs.ceil() as usize).max(self.scan.shortest);
        let beside = &left[left.len().saturating_sub(runs)..];
        let next = &right[..runs.min(right.len())];
        let jump = middle(next) - middle(beside);
        jump / change >= 0.5 && self.is_step(left, right, [low, high])
    }

    /// True where a step fits plainly better than a line does.
    fn is_step(&self, left: &[f64], right: &[f64], [low, high]: [f64; 2]) -> bool {
        let away = left.iter().map(|value| (value - low).abs());
        let away: Vec<f64> = away
            .chain(right.iter().map(|value| (value - high).abs()))
            .collect();
        let reach = CUT * TO_DEVIATION * middle(&away);
        let cut = |side: &[f64], centre: f64| -> Vec<f64> {
            let side = side.iter();
            side.map(|value| value.clamp(centre - reach, centre + reach))
                .collect()
        };
        let (left, right) = (cut(left, low), cut(right, high));
        let by_step = off_mean(&left) + off_mean(&right);
        let by_line = off_line(&[left, right].concat());
        let worth = self.worth(away.len());
        by_step <= 0.0 || worth * (by_line / by_step).ln() >= PLAINLY
    }
}

/// Whether the values before a place and those from it on do not overlap.
struct Apart {
    /// Least and most of the values before each place, and of those from it on.
    before: Vec<(f64, f64)>,
    after: Vec<(f64, f64)>,
}

impl Apart {
    fn of(values: &[f64]) -> Apart {
        let none = (f64::INFINITY, f64::NEG_INFINITY);
        let with = |(least, most): (f64, f64), value: f64| (least.min(value), most.max(value));
        let mut before = vec![none];
        for value in values {
            let last = before[before.len() - 1];
            before.push(with(last, *value));
        }
        let mut after = vec![none];
        for value in values.iter().rev() {
            let last = after[after.len() - 1];
            after.push(with(last, *value));
        }
        after.reverse();
        Apart { before, after }
    }

    fn at(&self, place: usize) -> bool {
        let (before, after) = (self.before[place], self.after[place]);
        before.1 < after.0 || before.0 > after.1
    }
}

/// Ranks from 1; those of equal values are the mean of theirs.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_unstable_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for group in order.chunk_by(|a, b| values[*a as usize] == values[*b as usize]) {
        let rank = before as f64 + (group.len() as f64 + 1.0) / 2.0;
        for place in group {
            ranks[*place as usize] = rank;
        }
        before += group.len();
    }
    ranks
}

/// The median; 0 of none.
pub(super) fn middle(values: &[f64]) -> f64 {
    regatta_core::record::side::median(values).unwrap_or(0.0)
}

/// Sum of the squares of what lies off the mean.
fn off_mean(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// The same of what lies off the line of least squares.
fn off_line(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let centre = (count - 1.0) / 2.0;
    let places = || (0..values.len()).map(|place| place as f64 - centre);
    let along: f64 = places()
        .zip(values)
        .map(|(place, value)| place * value)
        .sum();
    let spread: f64 = places().map(|place| place * place).sum();
    off_mean(values) - along * along / spread.max(1.0)
}

/// From so many ranks on their sum is normal, or a little less far out.
const NORMAL: f64 = 64.0;

/// Logarithm of p against "these `few` ranks among `few + many` are as any others", of their
/// standardised sum, two-sided. Numbers of ranks need not be whole, where values remember those
/// before them.
fn ln_p(z: f64, few: f64, many: f64) -> f64 {
    let z = z.abs();
    let few = few.floor().max(1.0);
    let one_side = match few < NORMAL {
        true => irwin_hall(z, few).unwrap_or_else(|| normal(z)),
        false => normal(z),
    };
    (one_side.max(ln_arrangement(few, many)) + f64::ln(2.0)).min(0.0)
}

/// The least that [`ln_p`] can be: no arrangement is less probable than one of them.
fn ln_least(few: f64, many: f64) -> f64 {
    ln_arrangement(few.floor().max(1.0), many) + f64::ln(2.0)
}

fn normal(z: f64) -> f64 {
    normal_upper(z).max(f64::MIN_POSITIVE).ln()
}

/// Logarithm of one over the number of ways to choose `few` of all.
fn ln_arrangement(few: f64, many: f64) -> f64 {
    ln_gamma(few + 1.0) + ln_gamma(many.max(0.0) + 1.0) - ln_gamma(few + many.max(0.0) + 1.0)
}

/// Against many values, the ranks of few are as good as `few` draws from a uniform distribution,
/// and their sum has the distribution of Irwin (Biometrika 19, 1927) and Hall (ibid.). A sum of
/// five ranks cannot be five deviations away, as a normal one can: where all five are the largest
/// of two hundred, p is that of one arrangement among 2.5 thousand million, and the normal
/// approximation says 1 in 10,000.
///
/// Logarithm of the probability that the sum of `few` uniform draws is at most `z` deviations
/// below its mean, the alternating sum of Irwin and Hall. `None` where its terms cancel.
fn irwin_hall(z: f64, few: f64) -> Option<f64> {
    let sum = few / 2.0 - z * (few / 12.0).sqrt();
    if sum <= 0.0 {
        return Some(f64::NEG_INFINITY);
    }
    let (mut series, mut ways, mut largest) = (0.0, 1.0, 0.0f64);
    let mut taken = 0.0;
    while taken < sum && taken <= few {
        let term: f64 = ways * ((sum - taken) / sum).powf(few);
        series += term;
        largest = largest.max(term.abs());
        taken += 1.0;
        ways *= -(few - taken + 1.0) / taken;
    }
    (series > 1e-10 * largest).then(|| few * sum.ln() - ln_gamma(few + 1.0) + f64::ln(series))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::mann_whitney_tails;

    /// p of a rank sum that is short of its most by so many places, by counting.
    fn exact(few: usize, many: usize, short: usize) -> (f64, f64) {
        let (n, m) = (few as f64, many as f64);
        let u = n * m - short as f64;
        let z = (u - n * m / 2.0) / (n * m * (n + m + 1.0) / 12.0).sqrt();
        (z, 2.0 * mann_whitney_tails(few, many)[short])
    }

    #[test]
    fn far_out_it_is_what_counting_says() {
        for (few, many, short) in [
            (3, 50, 0),
            (5, 50, 0),
            (5, 50, 20),
            (8, 40, 10),
            (20, 40, 30),
        ] {
            let (z, p) = exact(few, many, short);
            let found = ln_p(z, few as f64, many as f64);
            // Where the many are not so many, it is the larger one.
            let off = found - p.ln();
            assert!((-0.8..2.5).contains(&off), "{few} {many} {short}: {off}");
        }
    }

    #[test]
    fn it_falls_with_the_distance_and_has_an_end() {
        for few in [3.0, 5.0, 12.0, 40.0, 63.0, 64.0, 300.0] {
            let mut before = 0.0;
            for step in 0..200 {
                let p = ln_p(f64::from(step) / 10.0, few, 500.0);
                assert!(p <= before + 0.35, "{few} {step}: {p} after {before}");
                assert!(p.is_finite());
                before = p;
            }
            assert!(before >= ln_least(few, 500.0) - 1e-9);
        }
        // Five of two hundred: one arrangement of 2,535,650,040, either way.
        let least = ln_p(10.0, 5.0, 195.0);
        assert!(
            (least - (2.0f64 / 2_535_650_040.0).ln()).abs() < 1e-6,
            "{least}"
        );
    }
}
