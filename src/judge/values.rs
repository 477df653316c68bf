//! What the invocations of two sides say of one case, and how sure that is.

use super::complete::usable;
use super::floor::beyond;
use super::judgement::{Change, Stage};
use super::statistics::{Estimate, mann_whitney, reachable_p, two_sample_ratio};

/// p at which the screen suspects: 0.05 in each direction. A suspicion costs a few
/// invocations and accuses nobody, so the screen may be generous; what it misses
/// is never looked at again.
pub const SCREEN_P: f64 = 0.10;

/// p at which Holm calls on fresh invocations.
pub const CONFIRM_P: f64 = 0.05;

/// p at which a change is called without fresh invocations.
pub const UNCONFIRMED_P: f64 = 0.01;

/// Coverage of the intervals shown, where the number of invocations allows it.
const INTERVAL: f64 = 0.95;

/// Coverage without which nobody may say "same".
const EQUIVALENCE: f64 = 0.90;

/// Slowest against fastest: from this factor on, [`FEWEST`] a side are enough.
const UNMISTAKABLE: f64 = 2.0;

/// Invocations on each side from which a factor of two is called.
pub const FEWEST: usize = 3;

/// Slowest against fastest: from this factor on, two invocations a side are enough. A
/// process that runs four times slower by chance, twice, and never on the other side, is
/// none that was seen.
const MANY_TIMES: f64 = 4.0;

/// Invocations on each side that may be called without overlap, below p 0.01.
const FEW: usize = 4;

/// Rounding must not decide whether a p that equals its limit is below it.
pub fn reaches(p: f64, limit: f64) -> bool {
    p <= limit * (1.0 + 1e-9)
}

/// The values of two sides and what ranks say of them.
pub struct Values {
    base: Vec<f64>,
    head: Vec<f64>,
    /// Ratio and interval.
    pub estimate: Estimate,
    /// Two-sided exact p.
    pub p: f64,
}

impl Values {
    /// Takes what is usable of both sides; the head's is divided by the common shift.
    /// `None` when a side has nothing.
    pub fn of(base: &[f64], head: &[f64], divisor: f64) -> Option<Values> {
        let base = usable(base);
        let head: Vec<f64> = usable(head).iter().map(|ns| ns / divisor).collect();
        Some(Values {
            estimate: two_sample_ratio(&base, &head, INTERVAL)?,
            p: mann_whitney(&base, &head)?.two_sided,
            base,
            head,
        })
    }

    /// No values at all: nothing can be said.
    pub fn none() -> Values {
        Values {
            base: Vec::new(),
            head: Vec::new(),
            estimate: Estimate {
                ratio: 1.0,
                low: 1.0,
                high: 1.0,
                confidence: 0.0,
            },
            p: 1.0,
        }
    }

    /// Invocations of the base and of the head.
    pub fn sizes(&self) -> (usize, usize) {
        (self.base.len(), self.head.len())
    }

    fn fewest(&self) -> usize {
        self.base.len().min(self.head.len())
    }

    /// The smallest p that could have come out.
    pub fn reachable(&self) -> f64 {
        reachable_p(self.base.len(), self.head.len())
    }

    /// By what factor the sides lie apart: the slowest of the faster side against
    /// the fastest of the slower; below 1 where they overlap.
    fn gap(&self) -> f64 {
        let low = |side: &[f64]| side.iter().copied().fold(f64::INFINITY, f64::min);
        let high = |side: &[f64]| side.iter().copied().fold(0.0, f64::max);
        let slower = low(&self.head) / high(&self.base);
        slower.max(low(&self.base) / high(&self.head))
    }

    /// True for a difference that needs no test.
    pub fn unmistakable(&self) -> bool {
        let gap = self.gap();
        self.fewest() >= FEWEST && gap >= UNMISTAKABLE || self.fewest() >= 2 && gap >= MANY_TIMES
    }

    /// True for few invocations that lie as far apart as ranks can tell.
    pub fn fully_apart(&self, floor: f64) -> bool {
        self.reachable() > UNCONFIRMED_P && self.separated(floor)
    }

    /// True when the sides do not overlap at all and the whole interval lies beyond
    /// the floor.
    pub fn separated(&self, floor: f64) -> bool {
        let Estimate { low, high, .. } = self.estimate;
        self.fewest() >= FEW
            && reaches(self.p, self.reachable())
            && (low > 1.0 + floor || high < 1.0 / (1.0 + floor))
    }

    /// True when the change is shown to be smaller than the floor.
    pub fn equivalent(&self, floor: f64) -> bool {
        let Estimate {
            low,
            high,
            confidence,
            ..
        } = self.estimate;
        confidence >= EQUIVALENCE - 1e-9 && !beyond(low, floor) && !beyond(high, floor)
    }

    /// The figures as they are shown. `calling_p` is the p that a call asks for.
    pub fn change(&self, stage: Stage, floor: f64, calling_p: f64) -> Change {
        Change {
            ratio: self.estimate.ratio,
            low: self.estimate.low,
            high: self.estimate.high,
            confidence: self.estimate.confidence,
            p: self.p,
            reachable_p: self.reachable(),
            smallest_effect: self.smallest_effect(stage, floor, calling_p),
            stage,
        }
    }

    /// The change these invocations would have to show to be called, as spread
    /// out as they are: the factor that moves the end of the interval, at the
    /// coverage which the rule asks for, past where the rule wants it. Infinite
    /// where no change whatever would be called.
    fn smallest_effect(&self, stage: Stage, floor: f64, calling_p: f64) -> f64 {
        let past = match self.fewest() {
            _ if self.reachable() <= calling_p => 1.0,
            few if few >= FEW && stage == Stage::Screen => 1.0 + floor,
            few if few >= FEWEST => UNMISTAKABLE,
            2 => MANY_TIMES,
            _ => return f64::INFINITY,
        };
        // What is past the whole range is past any interval.
        let nominal = if past > 1.0 { 1.0 } else { 1.0 - calling_p };
        two_sample_ratio(&self.base, &self.head, nominal).map_or(f64::INFINITY, |wide| {
            let spread = (wide.ratio / wide.low).max(wide.high / wide.ratio);
            (past * spread - 1.0).max(floor)
        })
    }
}
