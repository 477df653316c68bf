//! The search between two versions: pure, a function of what is known.
//!
//! A search by good and bad names a wrong version where a time creeps (whichever commit crosses
//! the threshold) and where it came back (good, bad, good). So each version is compared with the
//! first one, the *good end*, and has a *level*: the logarithm of how many times as long it takes.
//! Between two measured neighbours lies a [`Part`] of the history with a change, the difference of
//! their levels. The part with the largest change is split first, in its middle, until that part
//! is two versions with nothing between them and no other part could hold as large a change. In a
//! history of one step that is what a binary search asks.
//!
//! What a part hides is not seen: a step up and the same step down between two measured versions
//! look like nothing. Only where the ends themselves do not differ the middle is looked at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use regatta_judge::judgement::Word;
use regatta_worker::units::Ratio;

/// What a comparison said of one case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Head over base.
    pub ratio: Ratio,
    /// Lower end of its interval.
    pub low: Ratio,
    /// Upper end of its interval.
    pub high: Ratio,
    /// What the judge says: only `regressed` and `improved` are decided changes.
    pub word: Word,
}

impl Reading {
    /// True when it can be reckoned with: three positive numbers in order.
    pub fn is_usable(&self) -> bool {
        let Reading {
            ratio, low, high, ..
        } = *self;
        let numbers = [low, ratio, high];
        numbers.iter().all(|r| r.is_finite() && r.0 > 0.0) && low <= ratio && ratio <= high
    }

    /// True when a change was decided, either way.
    pub fn is_decided(&self) -> bool {
        matches!(self.word, Word::Regressed | Word::Improved)
    }

    fn level(&self) -> f64 {
        self.ratio.0.ln()
    }

    /// Half of its interval, of logarithms.
    fn half(&self) -> f64 {
        0.5 * (self.high.0 / self.low.0).ln()
    }
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Towards {
    /// The largest step up: the first bad version.
    Bad,
    /// The largest step down: the first version that is good again.
    Fixed,
}

impl Towards {
    /// A difference of levels, positive when it is the way that is looked for.
    fn along(self, change: f64) -> f64 {
        match self {
            Towards::Bad => change,
            Towards::Fixed => -change,
        }
    }

    /// The word of a decided change that way.
    pub fn word(self) -> Word {
        match self {
            Towards::Bad => Word::Regressed,
            Towards::Fixed => Word::Improved,
        }
    }
}

/// What came of trying a version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Probe {
    /// It was measured.
    Read(Reading),
    /// It cannot be made, built or run, or gave no time.
    Skipped,
}

/// What is known of a row of versions, which are numbered from the good end, 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Versions compared with the good end.
    pub probes: BTreeMap<usize, Probe>,
    /// Versions compared with one that is not the good end.
    pub direct: BTreeMap<(usize, usize), Probe>,
}

/// A stretch between two measured versions with none between them that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The older end.
    pub low: usize,
    /// The newer end.
    pub high: usize,
    /// How many times as long the newer one takes.
    pub ratio: Ratio,
    /// The change the way that is looked for, as a logarithm.
    change: f64,
    /// What of it may be noise: the half-widths of both ends, added as independent errors.
    noise: f64,
    /// Versions within that may be tried, the one to try first at the front.
    open: Vec<usize>,
    /// True when both ends were compared with each other, and no change that way was decided.
    refuted: bool,
}

impl Part {
    /// True when its change is more than noise.
    fn stands_out(&self) -> bool {
        !self.refuted && self.change > self.noise
    }
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Compare this version with the good end.
    Probe {
        /// Which.
        at: usize,
        /// About how many comparisons there are still to come, this one included.
        left: usize,
    },
    /// Compare two versions with each other: neighbours for the last word, others where noise
    /// hides what lies between them.
    Direct {
        /// The older one.
        low: usize,
        /// The newer one.
        high: usize,
    },
    /// Nothing: this is the answer.
    Done(Answer),
}

/// What a search comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The step is between these two, decided by comparing them with each other.
    Found {
        /// The last version before it.
        low: usize,
        /// The first version measured after it.
        high: usize,
        /// Versions between the two that could not be measured; empty: `high` it is.
        skipped: Vec<usize>,
        /// `high` against `low`.
        reading: Reading,
    },
    /// Neither the ends differ that way, nor the version in the middle.
    NoDifference,
    /// The ends differ, but no two neighbours by more than noise: many small steps. The parts
    /// with the largest change first.
    Spread(Vec<Part>),
    /// The bad end was not measured.
    NoEnd,
}

/// What to do next in a row of `versions` (both ends among them), as far as it is known.
///
/// Ends and `log2` of what is between them, for one step among versions that all run.
pub fn next(versions: usize, towards: Towards, known: &Known) -> Next {
    let last = versions.saturating_sub(1);
    let bad = match known.probes.get(&last) {
        _ if last == 0 => return Next::Done(Answer::NoDifference),
        None => {
            return Next::Probe {
                at: last,
                left: 2 + halvings(last - 1),
            };
        }
        Some(Probe::Skipped) => return Next::Done(Answer::NoEnd),
        Some(Probe::Read(reading)) => reading,
    };
    let parts = parts(last, towards, known);
    let best = largest(parts.iter().filter(|part| part.stands_out()));
    let differs = match parts.as_slice() {
        // Of the ends alone the judge's word is asked for: a refusal costs a probe, and a
        // difference that is none costs all of the search.
        [_] => bad.word == towards.word(),
        _ => any_decided(known) && (best.is_some() || has_changed(last, towards, known)),
    };
    if !differs {
        let middle = match parts.as_slice() {
            [whole] => whole.open.first(),
            _ => None,
        };
        return match middle {
            Some(&at) => Next::Probe { at, left: 1 },
            None => Next::Done(Answer::NoDifference),
        };
    }
    let Some(best) = best else {
        return match vague(&parts, towards, known) {
            Some((low, high)) => Next::Direct { low, high },
            None => Next::Done(Answer::Spread(by_size(parts))),
        };
    };
    let rival = |part: &&Part| {
        part.stands_out() && !part.open.is_empty() && part.change + part.noise > best.change
    };
    let split = match best.open.is_empty() {
        false => Some(best),
        true => largest(parts.iter().filter(rival)),
    };
    if let Some(part) = split
        && let Some(&at) = part.open.first()
    {
        let left = 1 + halvings(part.open.len());
        return Next::Probe { at, left };
    }
    let (low, high) = (best.low, best.high);
    match direct(low, high, known) {
        Some(Probe::Read(reading)) => Next::Done(Answer::Found {
            low,
            high,
            skipped: (low + 1..high).collect(),
            reading,
        }),
        // A pair that cannot be compared is refuted, and is not the best part.
        Some(Probe::Skipped) | None => Next::Direct { low, high },
    }
}

/// So many comparisons that show nothing are spent on parts that do not stand out.
const VAGUE: usize = 2;

/// The largest part, where its change is lost in the noise of two comparisons with the good end:
/// one of its ends with each other may still show it.
fn vague(parts: &[Part], towards: Towards, known: &Known) -> Option<(usize, usize)> {
    let shows =
        |probe: &&Probe| matches!(probe, Probe::Read(reading) if reading.word == towards.word());
    let in_vain = known.direct.values().filter(|probe| !shows(probe)).count();
    let unclear = parts.iter().filter(|part| {
        !part.refuted && part.change > 0.0 && direct(part.low, part.high, known).is_none()
    });
    let part = largest(unclear).filter(|_| in_vain < VAGUE)?;
    Some((part.low, part.high))
}

/// How often a number of versions can be halved until one is left, and that one's probe.
fn halvings(versions: usize) -> usize {
    (usize::BITS - versions.leading_zeros()) as usize
}

/// What two versions are to each other where they were compared themselves.
fn direct(low: usize, high: usize, known: &Known) -> Option<Probe> {
    match low {
        0 => known.probes.get(&high).copied(),
        _ => known.direct.get(&(low, high)).copied(),
    }
}

fn largest<'a>(parts: impl Iterator<Item = &'a Part>) -> Option<&'a Part> {
    parts.max_by(|a, b| a.change.total_cmp(&b.change))
}

fn by_size(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by(|a, b| b.change.total_cmp(&a.change));
    parts
}

/// The levels that are known, with half their intervals; the good end's is 0 by definition.
fn levels(known: &Known) -> Vec<(usize, f64, f64)> {
    let read = known.probes.iter().filter_map(|(&at, probe)| match probe {
        Probe::Read(reading) => Some((at, reading.level(), reading.half())),
        Probe::Skipped => None,
    });
    std::iter::once((0, 0.0, 0.0)).chain(read).collect()
}

/// True when a change from the good end was decided at all.
fn any_decided(known: &Known) -> bool {
    let mut probes = known.probes.values();
    probes.any(|probe| matches!(probe, Probe::Read(reading) if reading.is_decided()))
}

/// True when some later version lies beyond noise that way from some earlier one.
fn has_changed(last: usize, towards: Towards, known: &Known) -> bool {
    let mut levels = levels(known);
    levels.retain(|level| level.0 <= last);
    let mut pairs = levels
        .iter()
        .enumerate()
        .flat_map(|(i, a)| levels[i + 1..].iter().map(move |b| (a, b)));
    pairs.any(|(a, b)| towards.along(b.1 - a.1) > together(a.2, b.2))
}

/// The uncertainty of a difference of two. Not `hypot`, whose symbol is of glibc 2.35: the
/// program is to run where 2.34 is, as on RHEL 9.
fn together(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}

/// The parts of a row, from the good end on.
fn parts(last: usize, towards: Towards, known: &Known) -> Vec<Part> {
    let levels = levels(known);
    let pairs = levels.windows(2).filter(|pair| pair[1].0 <= last);
    let part = |pair: &[(usize, f64, f64)]| {
        let ((low, before, a), (high, after, b)) = (pair[0], pair[1]);
        let own = match direct(low, high, known) {
            Some(Probe::Read(reading)) => Some((reading.level(), reading.half())),
            _ => None,
        };
        let (change, noise) = own.unwrap_or((after - before, together(a, b)));
        Part {
            low,
            high,
            ratio: Ratio(change.exp()),
            change: towards.along(change),
            noise,
            open: open(low, high, known),
            refuted: is_refuted(low, high, towards, known),
        }
    };
    pairs.map(part).collect()
}

/// True when two versions were compared with each other, and did not show the change. Of a
/// comparison with the good end that is not the last word, unless they are neighbours.
fn is_refuted(low: usize, high: usize, towards: Towards, known: &Known) -> bool {
    let last_word = low > 0 || open(low, high, known).is_empty();
    last_word
        && match direct(low, high, known) {
            Some(Probe::Read(reading)) => reading.word != towards.word(),
            Some(Probe::Skipped) => true,
            None => false,
        }
}

/// Versions between two that were not tried, the nearest to the middle first, of two as near
/// the upper one.
fn open(low: usize, high: usize, known: &Known) -> Vec<usize> {
    let within = (low + 1..high).filter(|at| !known.probes.contains_key(at));
    let mut within: Vec<usize> = within.collect();
    within.sort_by_key(|&at| ((2 * at).abs_diff(low + high), usize::MAX - at));
    within
}

#[cfg(test)]
mod tests;
