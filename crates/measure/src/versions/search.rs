//! The search between two versions, a pure function of the comparisons so far.
//!
//! A search by good and bad names a wrong version if a time creeps up (it names the commit that
//! crosses the threshold) or goes back down (good, bad, good). So each version is compared with the
//! first one, the *good end*, and has a *level*: the logarithm of its time as a multiple of the
//! good end's. Between two measured neighbours lies a [`Segment`] of the history; its change is the
//! difference of their levels. The segment with the largest change is split first, in its middle,
//! until it consists of two versions with nothing between them and no other segment can contain as
//! large a change. In a history with one step, this makes the comparisons of a binary search.
//!
//! Changes inside a segment are not seen: a step up and an equal step down between two measured
//! versions cancel. Only if the ends do not differ is the middle version compared too.

use std::collections::BTreeMap;

use serde::Serialize;

use regatta_judge::judgement::{Comparison, Word};
use regatta_worker::units::Ratio;

/// The reading of a comparison for one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioReading {
    /// The logarithm of head over base.
    pub level: f64,
    /// Half the width of its interval, as a logarithm.
    half_width: f64,
    /// The judge's word. Only `regressed` and `improved` are decided changes.
    pub word: Word,
}

impl RatioReading {
    /// Returns a reading if its three numbers are positive and sorted.
    pub fn usable(comparison: &Comparison) -> Option<RatioReading> {
        let (ratio, low, high) = (comparison.ratio, comparison.low?, comparison.high?);
        let numbers = [low, ratio, high];
        let sound = numbers.iter().all(|r| r.is_finite() && r.0 > 0.0) && numbers.is_sorted();
        sound.then(|| RatioReading {
            level: ratio.0.ln(),
            half_width: 0.5 * (high.0 / low.0).ln(),
            word: comparison.word,
        })
    }
}

/// The direction of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Towards {
    /// The largest step up: the first bad version.
    Bad,
    /// The largest step down: the first version that is good again.
    Fixed,
}

impl Towards {
    /// A difference of levels, positive in the direction of the search.
    fn along(self, change: f64) -> f64 {
        match self {
            Towards::Bad => change,
            Towards::Fixed => -change,
        }
    }

    /// The word of a decided change in this direction.
    pub fn word(self) -> Word {
        match self {
            Towards::Bad => Word::Regressed,
            Towards::Fixed => Word::Improved,
        }
    }
}

/// The comparisons in a row of versions, which are numbered from the good end, 0.
#[derive(Clone, Debug, PartialEq)]
pub struct BisectHistory {
    /// The number of the bad end.
    pub last: usize,
    /// The direction of the search.
    pub towards: Towards,
    /// Comparisons by base and head. `None` if the head cannot be made, built or run, or has no
    /// time.
    pub compared: BTreeMap<(usize, usize), Option<RatioReading>>,
}

/// A part of the history between two measured versions, without another measured one between.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The older end.
    pub low: usize,
    /// The newer end.
    pub high: usize,
    /// The change in the direction of the search, as a logarithm.
    change: f64,
    /// The size of its noise: the half-widths of both ends, added as independent errors.
    noise: f64,
    /// Versions inside that may be tried; the one to try first comes first.
    open: Vec<usize>,
    /// True if both ends were compared with each other, and no change in this direction was
    /// decided.
    refuted: bool,
}

impl Segment {
    /// The ratio of the newer end's time to the older end's.
    pub fn ratio(&self, towards: Towards) -> Ratio {
        Ratio(towards.along(self.change).exp())
    }

    /// True if its change is larger than its noise.
    fn stands_out(&self) -> bool {
        !self.refuted && self.change > self.noise
    }
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum NextStep {
    /// Compare two versions: one with the good end, two neighbours to decide the search, or two
    /// between which noise hides a change.
    Compare {
        /// The older version.
        low: usize,
        /// The newer version.
        high: usize,
        /// The approximate number of comparisons to come, including this one.
        left: usize,
    },
    /// The step is between these two, decided by comparing them with each other. Versions between
    /// them could not be measured.
    Found {
        /// The last version before the step.
        low: usize,
        /// The first version measured after the step.
        high: usize,
    },
    /// Neither the bad end nor the version in the middle differs in this direction.
    NoDifference,
    /// The ends differ, but no two neighbours differ by more than noise. The segments with the
    /// largest change come first.
    Spread(Vec<Segment>),
    /// The bad end was not measured.
    NoEnd,
}

/// The number of comparisons without result that are spent on segments that do not stand out.
const VAGUE: usize = 2;

impl BisectHistory {
    /// The next step. If there is one step and all versions run, a search compares both ends and
    /// then about `log2` of the number of versions in between.
    pub fn next(&self) -> NextStep {
        let (last, word) = (self.last, self.towards.word());
        let probe = |high, left| NextStep::Compare { low: 0, high, left };
        let direct = |low, high| NextStep::Compare { low, high, left: 1 };
        let bad = match self.compared.get(&(0, last)) {
            _ if last == 0 => return NextStep::NoDifference,
            None => return probe(last, 2 + halvings(last - 1)),
            Some(None) => return NextStep::NoEnd,
            Some(Some(reading)) => reading,
        };
        let segments = self.segments();
        let best = largest(segments.iter().filter(|segment| segment.stands_out()));
        // The judge's word is required only for the ends: a wrong refusal costs one comparison, but
        // a chance difference costs the whole search.
        if let [whole] = &segments[..]
            && bad.word != word
        {
            return match whole.open.first() {
                Some(&middle) => probe(middle, 1),
                None => NextStep::NoDifference,
            };
        }
        if segments.len() > 1 && !(self.any_decided() && (best.is_some() || self.has_changed())) {
            return NextStep::NoDifference;
        }
        let Some(best) = best else {
            return match self.vague(&segments) {
                Some((low, high)) => direct(low, high),
                None => {
                    let mut parts = segments;
                    parts.sort_by(|a, b| b.change.total_cmp(&a.change));
                    NextStep::Spread(parts)
                }
            };
        };
        let rival = |other: &&Segment| {
            other.stands_out() && !other.open.is_empty() && other.change + other.noise > best.change
        };
        let split = if best.open.is_empty() {
            largest(segments.iter().filter(rival))
        } else {
            Some(best)
        };
        if let Some((segment, &at)) =
            split.and_then(|segment| Some((segment, segment.open.first()?)))
        {
            return probe(at, 1 + halvings(segment.open.len()));
        }
        let (low, high) = (best.low, best.high);
        // A pair that cannot be compared is refuted, so it is not the best segment.
        match self.compared.get(&(low, high)) {
            Some(Some(_)) => NextStep::Found { low, high },
            _ => direct(low, high),
        }
    }

    /// The ends of the largest segment whose change is lost in the noise of two comparisons with
    /// the good end. Comparing its ends with each other may still show it.
    fn vague(&self, segments: &[Segment]) -> Option<(usize, usize)> {
        let pairs = self.compared.iter().filter(|((low, _), _)| *low > 0);
        let shows = |reading: &Option<RatioReading>| {
            reading.is_some_and(|reading| reading.word == self.towards.word())
        };
        let in_vain = pairs.filter(|(_, reading)| !shows(reading)).count();
        let unclear = segments.iter().filter(|segment| {
            let compared = self.compared.contains_key(&(segment.low, segment.high));
            !segment.refuted && segment.change > 0.0 && !compared
        });
        let segment = largest(unclear).filter(|_| in_vain < VAGUE)?;
        Some((segment.low, segment.high))
    }

    /// The measured versions, their levels and half-widths. The good end's level is 0 by
    /// definition.
    fn levels(&self) -> Vec<(usize, f64, f64)> {
        let probes = self.compared.range((0, 1)..=(0, self.last));
        let read = probes.filter_map(|((_, at), reading)| {
            let reading = reading.as_ref()?;
            Some((*at, reading.level, reading.half_width))
        });
        std::iter::once((0, 0.0, 0.0)).chain(read).collect()
    }

    /// True if any change from the good end was decided.
    fn any_decided(&self) -> bool {
        let mut probes = self.compared.iter().filter(|((low, _), _)| *low == 0);
        let decided = |of: RatioReading| matches!(of.word, Word::Regressed | Word::Improved);
        probes.any(|(_, reading)| reading.is_some_and(decided))
    }

    /// True if a later version differs from an earlier one in this direction by more than noise.
    fn has_changed(&self) -> bool {
        let levels = self.levels();
        let mut pairs = levels
            .iter()
            .enumerate()
            .flat_map(|(i, a)| levels[i + 1..].iter().map(move |b| (a, b)));
        pairs.any(|(a, b)| self.towards.along(b.1 - a.1) > together(a.2, b.2))
    }

    /// The segments of the row, starting from the good end.
    fn segments(&self) -> Vec<Segment> {
        let levels = self.levels();
        let segment = |pair: &[(usize, f64, f64)]| {
            let ((low, before, a), (high, after, b)) = (pair[0], pair[1]);
            let own = self.compared.get(&(low, high)).copied();
            let (change, noise) = match own {
                Some(Some(reading)) => (reading.level, reading.half_width),
                _ => (after - before, together(a, b)),
            };
            let open = self.open(low, high);
            // A comparison with the good end does not decide, unless the two are neighbours.
            let last_word = low > 0 || open.is_empty();
            let shown = |reading: Option<RatioReading>| {
                reading.is_some_and(|reading| reading.word == self.towards.word())
            };
            Segment {
                low,
                high,
                change: self.towards.along(change),
                noise,
                refuted: last_word && own.is_some_and(|own| !shown(own)),
                open,
            }
        };
        levels.windows(2).map(segment).collect()
    }

    /// Versions between two that were not tried, the one nearest the middle first. Of two at the
    /// same distance, the newer one comes first.
    fn open(&self, low: usize, high: usize) -> Vec<usize> {
        let within = (low + 1..high).filter(|at| !self.compared.contains_key(&(0, *at)));
        let mut within: Vec<usize> = within.collect();
        within.sort_by_key(|&at| ((2 * at).abs_diff(low + high), usize::MAX - at));
        within
    }
}

fn largest<'a>(segments: impl Iterator<Item = &'a Segment>) -> Option<&'a Segment> {
    segments.max_by(|a, b| a.change.total_cmp(&b.change))
}

/// The number of comparisons in which halving reduces `versions` to nothing.
fn halvings(versions: usize) -> usize {
    (usize::BITS - versions.leading_zeros()) as usize
}

/// The uncertainty of the difference of two values. Not `hypot`, whose symbol needs glibc 2.35: the
/// program has to run with 2.34, as on RHEL 9.
fn together(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}

#[cfg(test)]
mod tests;
