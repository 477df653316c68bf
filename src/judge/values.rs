//! What the invocations of two sides say of one case, and how sure that is.

use super::complete::usable;
use super::floor::beyond;
use super::judgement::{Change, Stage};
use super::statistics::{Estimate, mann_whitney, reachable_p, two_sample_ratio};
use crate::units::{Nanoseconds, Probability, Ratio, Share, numbers};

/// p at which the screen suspects: 0.05 in each direction. A suspicion costs a few
/// invocations and accuses nobody, so the screen may be generous; what it misses
/// is never looked at again.
pub const SCREEN_P: Probability = Probability(0.10);

/// p at which Holm calls on fresh invocations.
pub const CONFIRM_P: Probability = Probability(0.05);

/// p at which a change is called without fresh invocations.
pub const UNCONFIRMED_P: Probability = Probability(0.01);

/// Coverage of the intervals shown, where the number of invocations allows it.
const INTERVAL: f64 = 0.95;

/// Coverage without which nobody may say "same".
const EQUIVALENCE: Share = Share(0.90);

/// Slowest against fastest: from this factor on, [`FEWEST`] a side are enough.
const UNMISTAKABLE: Ratio = Ratio(2.0);

/// Invocations on each side from which a factor of two is called.
pub const FEWEST: usize = 3;

/// Slowest against fastest: from this factor on, two invocations a side are enough. A
/// process that runs four times slower by chance, twice, and never on the other side, is
/// none that was seen.
const MANY_TIMES: Ratio = Ratio(4.0);

/// Invocations on each side that may be called without overlap, below p 0.01.
const FEW: usize = 4;

/// Rounding must not decide whether a p that equals its limit is below it.
pub fn reaches(p: Probability, limit: Probability) -> bool {
    p.0 <= limit.0 * (1.0 + 1e-9)
}

/// The values of two sides and what ranks say of them.
pub struct Values {
    base: Vec<Nanoseconds>,
    head: Vec<Nanoseconds>,
    /// Ratio and interval.
    pub estimate: Estimate,
    /// Two-sided exact p.
    pub p: Probability,
}

impl Values {
    /// Takes what is usable of both sides; the head's is divided by the common shift.
    /// `None` when a side has nothing.
    pub fn of(base: &[Nanoseconds], head: &[Nanoseconds], divisor: Ratio) -> Option<Values> {
        let base = usable(base);
        let head: Vec<Nanoseconds> = usable(head).iter().map(|&time| time / divisor).collect();
        let (before, after) = (numbers(&base), numbers(&head));
        Some(Values {
            estimate: two_sample_ratio(&before, &after, INTERVAL)?,
            p: Probability(mann_whitney(&before, &after)?.two_sided),
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
                ratio: Ratio::ONE,
                low: Ratio::ONE,
                high: Ratio::ONE,
                confidence: Share(0.0),
            },
            p: Probability(1.0),
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
    pub fn reachable(&self) -> Probability {
        Probability(reachable_p(self.base.len(), self.head.len()))
    }

    /// By what factor the sides lie apart: the slowest of the faster side against
    /// the fastest of the slower; below 1 where they overlap.
    fn gap(&self) -> Ratio {
        let (none, longest) = (Nanoseconds::ZERO, Nanoseconds(f64::INFINITY));
        let low = |side: &[Nanoseconds]| side.iter().copied().fold(longest, Nanoseconds::min);
        let high = |side: &[Nanoseconds]| side.iter().copied().fold(none, Nanoseconds::max);
        let slower = low(&self.head) / high(&self.base);
        slower.max(low(&self.base) / high(&self.head))
    }

    /// True for a difference that needs no test.
    pub fn unmistakable(&self) -> bool {
        let gap = self.gap();
        self.fewest() >= FEWEST && gap >= UNMISTAKABLE || self.fewest() >= 2 && gap >= MANY_TIMES
    }

    /// True for few invocations that lie as far apart as ranks can tell.
    pub fn fully_apart(&self, floor: Share) -> bool {
        self.reachable() > UNCONFIRMED_P && self.separated(floor)
    }

    /// True when the sides do not overlap at all and the whole interval lies beyond
    /// the floor.
    pub fn separated(&self, floor: Share) -> bool {
        let Estimate { low, high, .. } = self.estimate;
        let limit = Ratio::grown_by(floor);
        self.fewest() >= FEW
            && reaches(self.p, self.reachable())
            && (low > limit || high < limit.inverse())
    }

    /// True when the change is shown to be smaller than the floor.
    pub fn equivalent(&self, floor: Share) -> bool {
        let Estimate {
            low,
            high,
            confidence,
            ..
        } = self.estimate;
        confidence.0 >= EQUIVALENCE.0 - 1e-9 && !beyond(low, floor) && !beyond(high, floor)
    }

    /// The figures as they are shown. `calling_p` is the p that a call asks for.
    pub fn change(&self, stage: Stage, floor: Share, calling_p: Probability) -> Change {
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
    fn smallest_effect(&self, stage: Stage, floor: Share, calling_p: Probability) -> Share {
        let none = Share(f64::INFINITY);
        let past = match self.fewest() {
            _ if self.reachable() <= calling_p => Ratio::ONE,
            few if few >= FEW && stage == Stage::Screen => Ratio::grown_by(floor),
            few if few >= FEWEST => UNMISTAKABLE,
            2 => MANY_TIMES,
            _ => return none,
        };
        // What is past the whole range is past any interval.
        let nominal = if past > Ratio::ONE {
            1.0
        } else {
            1.0 - calling_p.0
        };
        let wide = two_sample_ratio(&numbers(&self.base), &numbers(&self.head), nominal);
        wide.map_or(none, |wide| {
            let spread = (wide.ratio / wide.low).max(wide.high / wide.ratio);
            (past * spread).growth().max(floor)
        })
    }
}
