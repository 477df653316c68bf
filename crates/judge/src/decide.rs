//! Decides one comparison, by the [rule](super::rule) on the values of a metric and, under load, on
//! CPU time.
//!
//! The wall-clock time is judged. CPU time decides in its place only where
//!
//! - both sides ran on the same number of threads, and the call waits for nothing but a core,
//! - the wall-clock time is inconclusive, or of no use because of load, and
//! - the wall-clock time does not contradict it: its interval does not lie beyond the threshold.
//!
//! Load changes values in two ways. Waits for a core *add* to a call, and a time that is added to
//! both sides hides a change: if a call waits twice as long as it works, a slowdown of 10 % is 3 %
//! of the wall-clock time. Shared caches, memory and clocks *multiply* a time, and hide nothing. So
//! an interval within the threshold shows that nothing changed if the values contain no waits, and
//! shows nothing alone if they do. Load also slows a call on more threads more. Under load, a side
//! with more threads is therefore not shown to be slower, nor one with fewer threads to be as fast.
//! The error rates for each kind of load: `rule/tests.rs`.

use std::cmp::Ordering;

use super::judgement::{Comparison, Word};
use super::rule::{BothSides, LOOKS, SlowStarts, Terms, compare, needed_pairs, next_look};
use regatta_worker::units::Ratio;

/// The number of pairs at the second look. From it on, CPU time decides even if the wall-clock time
/// lies beyond two thresholds, and no more pairs are taken to show an improvement.
const SECOND_LOOK: usize = LOOKS[1] as usize;

/// Values that contain waits are measured again only if at most this many pairs, by estimate, would
/// show a regression.
const MAX_NEEDED: f64 = 2.0 * LOOKS[LOOKS.len() - 1] as f64;

/// The values of one comparison, and the facts about load that go with them.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The judged values; for a time, the wall-clock time.
    pub values: BothSides<'a>,
    /// Other programs disturbed values of the base; for pairs, values of either side.
    pub base_disturbed: bool,
    /// Other programs disturbed values of the head.
    pub head_disturbed: bool,
    /// Disturbed values may contain waits for a core.
    pub waits: bool,
    /// Some values were not disturbed, so that more such values can be measured.
    pub some_quiet: bool,
    /// Compares the head's number of threads with the base's, where values were disturbed.
    pub threads: Ordering,
    /// CPU time, if it can decide in place of the values.
    pub cpu: Option<BothSides<'a>>,
}

/// A decided comparison, with the facts for its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The rule's comparison of the values, with the word that was decided.
    pub comparison: Comparison,
    /// Slow starts in the values.
    pub slow_starts: SlowStarts,
    /// The rule's comparison of CPU time, if that can decide.
    pub cpu: Option<Comparison>,
    /// True where the values may contain waits for a core, because other programs disturbed them.
    pub diluted: bool,
}

impl Decision {
    /// The comparison of CPU time, if it decided.
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
        // Load only slows. So a disturbed head that looks no slower is not slower, and a disturbed
        // base shows nothing.
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
    // More pairs are taken for an improvement that the second look may show.
    let may_improve =
        lies_below && comparison.ratio < limit.inverse() && pairs < SECOND_LOOK && !terms.last;
    if lies_below && !diluted && (comparison.word == Word::Same || !may_improve) {
        return Some(decided(Word::Same, false));
    }
    let by_cpu = cpu.and_then(|cpu| {
        // The few values of the first look may lie beyond the threshold by chance.
        let agrees = !comparison.is_above(limit)
            && (diluted || !slow_starts.likely)
            && (comparison.ratio <= limit * limit || pairs >= SECOND_LOOK || terms.last);
        word_by_cpu(&comparison, &cpu, diluted, agrees)
    });
    if let Some(word) = by_cpu {
        return Some(decided(word, true));
    }
    // A time that is added to both sides does not reverse the sign of a change.
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
    // More values with waits can show that the sides differ, but not that they are the same.
    let can_decide = cpu.is_some()
        || !diluted
        || observed.some_quiet
        || may_improve
        || comparison.ratio > limit && needed_pairs(&comparison, terms, pairs) <= MAX_NEEDED;
    // An inconclusive case that may not be worse passes without more measurements. Under load,
    // where pairs cost most, it does so from the second look on. Against a stored run, whose spread
    // stays, it does so if more invocations of the head would not narrow the interval enough.
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

/// The word by CPU time, where it decides and the values do not contradict it. `agrees` is true
/// where the values themselves show no regression.
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

/// True if the head's values at the next look could show that it is not slower, assuming the same
/// estimate.
fn narrows_enough(comparison: &Comparison) -> bool {
    let (base, head) = comparison.invocations;
    let error = |head: u32| (1.0 / f64::from(base) + 1.0 / f64::from(head)).sqrt();
    let next = next_look(head).unwrap_or(head);
    comparison.high.is_some_and(|high| {
        let half = (high / comparison.ratio).0.powf(error(next) / error(head));
        comparison.ratio * half <= comparison.limit()
    })
}

/// The number of pairs at the last look.
pub fn max_pairs() -> usize {
    LOOKS[LOOKS.len() - 1] as usize
}
