//! What the rule is given, and what it says.

use super::looks::Looks;
use crate::judgement::Word;
use crate::statistics::reachable_p;

/// The error a gate allows itself over all cases and looks, in each direction.
pub const ERROR: f64 = 0.01;

/// Fewer cases than these share nothing that could be told from their own changes.
pub const FEWEST_CASES: usize = 5;

/// One in so many is left out at the end of an interval that decides.
pub const END: f64 = 0.05;

/// What a case may differ by from one session to the next where nobody knows: with a single
/// stored session nothing is called improved that is not faster by as much beyond its floor.
pub const BETWEEN_SESSIONS: f64 = 0.03;

/// The values of one side, an invocation each, as logarithms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Of the invocations that every case has, in their order.
    pub regular: Vec<f64>,
    /// Of those that were taken after them, in their order.
    pub fresh: Vec<f64>,
}

impl Trace {
    /// All of them.
    pub fn all(&self) -> Vec<f64> {
        [self.regular.as_slice(), &self.fresh].concat()
    }
}

/// One case: both sides, and the smallest change that counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What was.
    pub base: Trace,
    /// What is.
    pub head: Trace,
    /// Sessions of the base before the one that `base` is, the oldest first.
    pub earlier: Vec<Trace>,
    /// Of sides that were measured in turn: which value of the base (of all, regular ones
    /// first) stands beside which of the head. None where they were not.
    pub pairs: Vec<(usize, usize)>,
    /// A relative change: 0.02.
    pub floor: f64,
}

impl Series {
    /// By how much each value of the head lies above the one beside it.
    pub fn differences(&self) -> Vec<f64> {
        if self.pairs.is_empty() {
            return Vec::new();
        }
        let (base, head) = (self.base.all(), self.head.all());
        let pairs = self.pairs.iter();
        pairs.map(|&(b, h)| head[h] - base[b]).collect()
    }
}

/// What the rule has to know of how the values came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// When one looks.
    pub looks: Looks,
    /// True when both sides were measured in turn: then no day lies between them.
    pub beside: bool,
    /// Part of `ERROR` that these values may spend; the rest is for other metrics.
    pub part: f64,
}

/// What is said of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruling {
    /// Regressed, improved, same or inconclusive.
    pub word: Word,
    /// Why it is inconclusive, or called although it could not have been.
    pub because: Because,
    /// Logarithm of head over base, as judged.
    pub change: f64,
    /// Interval of it that leaves one in forty out at each end.
    pub interval: (f64, f64),
    /// Two-sided, against no change of its own.
    pub p: f64,
    /// Relative change that would have been called in 95 of 100, had the gate gone on to its
    /// last look; infinite where none would.
    pub seen: f64,
    /// True when it is slower beyond the floor, or slower than the others beyond it, and
    /// nothing decided.
    pub looks_worse: bool,
    /// True when more invocations could decide.
    pub open: bool,
    /// Invocations of base and head behind it.
    pub sizes: (usize, usize),
    /// How many more of the head could decide it; `None`: the base is too small for any.
    pub takes: Option<u32>,
}

/// Why a word is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The values decide.
    Decided,
    /// Few invocations, but many times beyond.
    Unmistakable,
    /// Too few invocations to call or clear anything.
    TooFew,
    /// Its interval reaches across the floor.
    Wide,
    /// It is as the whole suite is.
    WithTheSuite,
    /// It is faster, by no more than a day could do.
    OneSession,
    /// It is slower than the rest of a suite that got faster.
    AgainstTheSuite,
}

/// What is said of all cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Rulings {
    /// In the order of the series.
    pub cases: Vec<Ruling>,
    /// What they share; `None` for few.
    pub suite: Option<SuiteRuling>,
    /// Correlation of an invocation with the next; 0 where none was found.
    pub memory: f64,
    /// Sessions of the base that were judged by.
    pub sessions: usize,
    /// True when fresh invocations need cases that nothing is wrong with, to know what all
    /// of them share.
    pub needs_company: bool,
}

/// What all cases have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteRuling {
    /// Regressed, improved, same or inconclusive.
    pub word: Word,
    /// Logarithm of head over base.
    pub change: f64,
    /// Interval that leaves one in forty out at each end.
    pub interval: (f64, f64),
    /// Two-sided.
    pub p: f64,
    /// Relative change that would have been called in 95 of 100.
    pub seen: f64,
    /// True when it is chance, and is taken out of every case.
    pub removed: bool,
    /// Cases that take part.
    pub sharing: usize,
    /// Of so many.
    pub of: usize,
    /// True where it is slower beyond the floor and nothing decided whether it is the day
    /// or the code.
    pub looks_worse: bool,
}

/// The smallest two-sided p of ranks that so many invocations must be able to reach before
/// anything but what is many times beyond is called.
pub const REACHES: f64 = 0.01;

/// Without that, four a side that do not overlap are enough.
pub const APART: usize = 4;

/// From this factor between slowest and fastest on, three a side are enough; from the other
/// on, two: a process that runs four times slower by chance, twice, and never on the other
/// side, is none that was seen.
pub const TWICE: f64 = std::f64::consts::LN_2;

/// See [`TWICE`].
pub const MANY: f64 = 2.0 * TWICE;

/// Invocations without which nothing is said to be the same.
pub const FEWEST: usize = 3;

/// True when so many may call a change that is not many times beyond.
pub fn may_call(base: usize, head: usize, gap: f64) -> bool {
    reachable_p(base, head) <= REACHES || base.min(head) >= APART && gap > 0.0
}

/// True for a difference that needs no test.
pub fn unmistakable(base: usize, head: usize, gap: f64) -> bool {
    let fewest = base.min(head);
    fewest >= FEWEST && gap >= TWICE || fewest >= 2 && gap >= MANY
}

/// True when so many invocations of base and head, which lie apart by `gap`, may call
/// anything.
pub fn enough(base: usize, head: usize, gap: f64) -> bool {
    may_call(base, head, gap) || unmistakable(base, head, gap)
}

/// By how much two sides lie apart: the slowest of the faster against the fastest of the
/// slower; below 0 where they overlap.
pub fn gap(base: &[f64], head: &[f64]) -> f64 {
    let low = |side: &[f64]| side.iter().copied().fold(f64::INFINITY, f64::min);
    let high = |side: &[f64]| side.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low(head) - high(base)).max(low(base) - high(head))
}
