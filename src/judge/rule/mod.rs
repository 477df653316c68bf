//! The rule for times, and for whatever else varies: which of four words a case gets.
//!
//! Pure: logarithms of the values of invocations in, rulings out. It is read from top to
//! bottom, and simulated as it stands (`regatta verdicts`, `docs/EVIDENCE.md`).
//!
//! 1. **What an invocation shares** is taken out of it ([`level`]): a process or a moment
//!    that was slower for all cases is no case's own.
//! 2. **What a side shares** is judged as one thing, the suite's ([`suite`]). A case is then
//!    called only for what it does beyond the others, and only where its whole change, the
//!    suite's included, lies beyond its floor.
//! 3. **How much a case varies** is learned from all cases ([`moderated`]), and whether
//!    invocations remember each other as well ([`memory`]).
//! 4. **A change is called** when it is shown, by one of two ways to look:
//!    a moderated t (Smyth 2004; Welch's, since a side may be noisier), or exact ranks (Mann
//!    and Whitney), which see where tails are heavy. Two things must hold: that it is no
//!    chance at all, at an error of one in a hundred over all cases, looks and both ways
//!    (Bonferroni: nothing was screened first, so nothing was chosen by its luck); and that
//!    it lies **beyond the floor**, by the end of its interval that leaves one in twenty out.
//! 5. **Same** is shown likewise: both ends of that interval within the floor, which is
//!    equivalence by two one-sided tests (Schuirmann 1987).
//! 6. What is neither is **inconclusive**, gets more invocations while these could decide
//!    ([`Looks`]), and looks worse where it is slower beyond the floor.
//! 7. **Earlier sessions** tell what differs from day to day: from three on, a case is held
//!    to the spread of sessions ([`sessions`]). With one alone nobody can tell a day from a
//!    change: then nothing is called *improved* that a day could do.
//!
//! Too few invocations call nothing but what lies many times beyond.

mod evidence;
mod level;
mod looks;
mod memory;
mod moderated;
mod ranks;
mod sessions;
mod suite;
#[cfg(test)]
mod tests;

pub use looks::Looks;
pub use suite::SuiteRuling;

use super::judgement::Word;
use evidence::{Evidence, Known};
use level::{Levelled, level};
use memory::Memory;
use moderated::{Prior, Variance, pooled, variance};
use ranks::Tables;
use sessions::Between;
use suite::suite;

/// The error a gate allows itself over all cases and looks, in each direction.
pub const ERROR: f64 = 0.01;

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
    /// A relative change: 0.02.
    pub floor: f64,
}

/// What the rule has to know of how the values came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// When one looks.
    pub looks: Looks,
    /// True when both sides were measured in turn: then no day lies between them.
    pub beside: bool,
    /// Part of [`ERROR`] that these values may spend; the rest is for other metrics.
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

/// Rules over all cases of a sweep. Every series has a value on both sides.
pub fn rule(series: &[Series], plan: &Plan) -> Rulings {
    let Levelled {
        cases,
        base: base_levels,
        head: head_levels,
        shared,
    } = level(series);
    let own = |case: &Series| pooled(variance(&case.base.regular), variance(&case.head.regular));
    let prior = Prior::fit(&cases.iter().map(own).collect::<Vec<Variance>>());
    let between = Between::of(&cases, &prior);
    let memory = remembered(&cases, &prior);
    let suite = suite(&cases, between.as_ref(), (&base_levels, &head_levels), plan);
    let mut tables = Tables::default();
    let known = Known {
        prior,
        memory,
        between: between.as_ref(),
        suite: suite.as_ref(),
        error: ERROR * plan.part / cases.len().max(1) as f64,
        plan,
    };
    let judged = cases.iter().enumerate().map(|(at, case)| {
        let raw = &series[at];
        Evidence::of(at, case, raw, &known, &mut tables).ruling()
    });
    Rulings {
        cases: judged.collect(),
        suite: suite.map(|(ruling, _)| ruling),
        memory: memory.0,
        sessions: between.map_or(1, |between| between.sessions()),
        needs_company: shared > 0.3,
    }
}

/// Whether invocations remember each other, in any of the series that are there.
fn remembered(cases: &[Series], prior: &Prior) -> Memory {
    let regular = |side: fn(&Series) -> &Trace| {
        let series = cases.iter().map(move |case| side(case).regular.as_slice());
        Memory::of(series, prior).0
    };
    let long: Vec<Vec<f64>> = cases
        .iter()
        .filter(|case| case.head.fresh.len() > 4)
        .map(|case| case.head.all())
        .collect();
    let long = Memory::of(long.iter().map(Vec::as_slice), prior).0;
    let found = regular(|case| &case.base).max(regular(|case| &case.head));
    Memory(found.max(long))
}
