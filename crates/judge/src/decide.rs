//! One comparison decided: the [rule](super::rule) on the values of a metric, and beside load on
//! CPU time.
//!
//! The time that passes is the verdict. CPU time decides in its place only where
//!
//! - both sides ran on as many threads, and the call does not wait for anything but a core,
//! - the time that passes leaves it open, or is of no use beside load, and
//! - it does not say otherwise: its interval does not lie beyond the threshold.
//!
//! Load works on values in two ways. Waits for a core *add* to a call, and what is added to both
//! sides hides a change: 10 % of a call that waits twice as long as it works is 3 % of what
//! passes. Caches, memory and clocks that are shared *multiply*, and hide nothing. So of values
//! that hold waits, an interval within the threshold shows nothing alone; of values that do not
//! it does. Load also slows a call of more threads more, so beside it a side of more threads is not
//! shown to be slower, and one of fewer not to be as fast. How often this is wrong, by the noises of
//! load: `rule/tests.rs`.

use std::cmp::Ordering;

use super::judgement::{Comparison, Word};
use super::rule::{BothSides, LOOKS, SlowStarts, Terms, compare, needed_pairs, next_look};
use regatta_worker::units::Ratio;

/// Pairs from which on CPU time decides even if the wall-clock time lies beyond two thresholds, and
/// no more pairs are taken to show an improvement: the second look.
const SECOND_LOOK: usize = LOOKS[1] as usize;

/// Values that hold waits are measured again only if at most this many pairs, as estimated, would
/// show a regression.
const MAX_NEEDED: f64 = 2.0 * LOOKS[LOOKS.len() - 1] as f64;

/// The values of one comparison, and what is known beside them.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The values that are judged: the time that passes, of a time.
    pub values: BothSides<'a>,
    /// Other programs disturbed values of the base; of pairs, of either side.
    pub base_disturbed: bool,
    /// Other programs disturbed values of the head.
    pub head_disturbed: bool,
    /// Disturbed values may hold waits for a core.
    pub waits: bool,
    /// Some of the values were not disturbed, so that more of them may be had.
    pub some_quiet: bool,
    /// Compares the head's number of threads with the base's, where values were disturbed.
    pub threads: Ordering,
    /// CPU time, where it can decide in place of the values.
    pub cpu: Option<BothSides<'a>>,
}

/// A comparison decided, and what its reason is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The values compared by the rule, with the word that all of this gives.
    pub comparison: Comparison,
    /// Slow starts in the values.
    pub slow_starts: SlowStarts,
    /// CPU time compared by the rule, if it can decide.
    pub cpu: Option<Comparison>,
    /// True where other programs disturbed the values and waits for a core may be in them.
    pub diluted: bool,
}

impl Decision {
    /// CPU time compared, where it decided.
    pub fn by_cpu(&self) -> Option<Comparison> {
        self.cpu.filter(|_| self.comparison.by_cpu_time)
    }
}

/// Decides one comparison; `None` where a side has no value.
pub fn decide(observed: &Observed<'_>, terms: &Terms) -> Option<Decision> {
    let Observed { values, .. } = *observed;
    let (comparison, slow_starts) = compare(values, *terms)?;
    let cpu = observed.cpu.and_then(|cpu| Some(compare(cpu, *terms)?.0));
    let disturbed = observed.base_disturbed || observed.head_disturbed;
    let pairs = values.base.len().min(values.head.len());
    let limit = comparison.limit();
    let diluted = disturbed && observed.waits;
    let decided = |word, by_cpu_time| Decision {
        comparison: Comparison {
            word,
            by_cpu_time,
            may_be_worse: false,
            ..comparison
        },
        slow_starts,
        cpu,
        diluted,
    };

    if !values.paired && disturbed {
        // Load only adds. So a disturbed head that is not slower is not, and a disturbed base
        // tells nothing.
        let not_slower = !observed.base_disturbed && comparison.is_at_most(limit);
        let word = match comparison.word {
            Word::Improved if not_slower => Word::Improved,
            _ if not_slower && !slow_starts.likely => Word::Same,
            _ => Word::Inconclusive,
        };
        let mut decision = decided(word, false);
        decision.comparison.may_be_worse = word == Word::Inconclusive;
        decision.comparison.open =
            word == Word::Inconclusive && observed.some_quiet && pairs < max_pairs();
        return Some(decision);
    }
    let (fewer, more) = (
        disturbed && observed.threads == Ordering::Less,
        disturbed && observed.threads == Ordering::Greater,
    );
    match comparison.word {
        Word::Regressed if !more => return Some(decided(Word::Regressed, false)),
        Word::Improved if !fewer => return Some(decided(Word::Improved, false)),
        _ => {}
    }
    let lies_below = comparison.is_at_most(limit) && !slow_starts.likely && !fewer;
    // An improvement that a second look may show is waited for.
    let may_improve =
        lies_below && comparison.ratio < limit.inverse() && pairs < SECOND_LOOK && !terms.last;
    if lies_below && !diluted && (comparison.word == Word::Same || !may_improve) {
        return Some(decided(Word::Same, false));
    }
    let by_cpu = cpu.and_then(|cpu| {
        // The few values of a first look lie beyond the threshold by chance as well.
        let agrees = !comparison.is_above(limit)
            && (diluted || !slow_starts.likely)
            && (comparison.ratio <= limit * limit || pairs >= SECOND_LOOK || terms.last);
        word_by_cpu(&comparison, &cpu, diluted, agrees)
    });
    if let Some(word) = by_cpu {
        return Some(decided(word, true));
    }
    // A time that is added to both sides does not turn a change round.
    let is_not_slower = diluted && lies_below && comparison.is_at_most(Ratio::ONE);
    if is_not_slower && !may_improve {
        return Some(decided(Word::Same, false));
    }
    let may_be_worse = match cpu {
        _ if is_not_slower => false,
        Some(cpu) if diluted => cpu.may_be_worse || comparison.is_above(limit),
        _ if more || fewer => true,
        _ if lies_below && !diluted => false,
        None if diluted => true,
        _ => comparison.may_be_worse,
    };
    // More values with waits can show that the sides differ, and not that they do not.
    let can_decide = cpu.is_some()
        || !diluted
        || observed.some_quiet
        || may_improve
        || comparison.ratio > limit && needed_pairs(&comparison, terms, pairs) <= MAX_NEEDED;
    // A case that may not be worse passes as it is: beside load, where pairs cost most, from the
    // second look on; against a stored run, which keeps its own spread, where more of the head does not
    // show more.
    let enough = !may_be_worse
        && if values.paired {
            disturbed && pairs >= SECOND_LOOK
        } else {
            !narrows_enough(&comparison)
        };
    let mut decision = decided(Word::Inconclusive, false);
    decision.comparison.may_be_worse = may_be_worse;
    decision.comparison.open = pairs < max_pairs() && can_decide && !enough;
    Some(decision)
}

/// The word by CPU time, where it decides and the values do not say otherwise. They agree where they
/// do not show a regression themselves.
fn word_by_cpu(
    comparison: &Comparison,
    cpu: &Comparison,
    diluted: bool,
    agrees: bool,
) -> Option<Word> {
    let reaches = |low: Option<Ratio>, high: Option<Ratio>| {
        diluted || low.zip(high).is_none_or(|(low, high)| low <= high)
    };
    match cpu.word {
        Word::Regressed if reaches(cpu.low, comparison.high) => Some(Word::Regressed),
        Word::Improved if agrees && reaches(comparison.low, cpu.high) => Some(Word::Improved),
        Word::Same | Word::Improved if agrees => Some(Word::Same),
        _ => None,
    }
}

/// True if the head's values at the next look could show that it is not slower, should the estimate
/// stay.
fn narrows_enough(comparison: &Comparison) -> bool {
    let (base, head) = comparison.invocations;
    let error = |head: u32| (1.0 / f64::from(base) + 1.0 / f64::from(head)).sqrt();
    let next = next_look(head).unwrap_or(head);
    comparison.high.is_some_and(|high| {
        let half = (high / comparison.ratio).0.powf(error(next) / error(head));
        comparison.ratio * half <= comparison.limit()
    })
}

/// The pairs of the last look.
pub fn max_pairs() -> usize {
    LOOKS[LOOKS.len() - 1] as usize
}
