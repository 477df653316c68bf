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

use super::judgement::Word;
use super::rule::{BothSides, LOOKS, RuleResult, Terms, compare, needed_pairs, next_look};

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

/// The verdict and the test that decided it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The word.
    pub word: Word,
    /// The result of the rule for the values.
    pub result: RuleResult,
    /// The result of the rule for CPU time, if it can decide.
    pub cpu: Option<RuleResult>,
    /// True where other programs disturbed the values and waits for a core may be in them.
    pub diluted: bool,
    /// True where CPU time decided.
    pub by_cpu: bool,
    /// True where it may be worse, and nothing decided it.
    pub may_be_worse: bool,
    /// True where more pairs could decide it.
    pub open: bool,
}

/// Decides one comparison; `None` where a side has no value.
pub fn decide(observed: &Observed<'_>, terms: &Terms) -> Option<Decision> {
    let Observed { values, .. } = *observed;
    let result = compare(values, *terms)?;
    let cpu = observed.cpu.and_then(|cpu| compare(cpu, *terms));
    let disturbed = observed.base_disturbed || observed.head_disturbed;
    let pairs = values.base.len().min(values.head.len());
    let threshold = terms.threshold;
    let diluted = disturbed && observed.waits;
    let decided = |word, by_cpu| Decision {
        word,
        result,
        cpu,
        diluted,
        by_cpu,
        may_be_worse: false,
        open: false,
    };

    if !values.paired && disturbed {
        // Load only adds. So a disturbed head that is not slower is not, and a disturbed base
        // tells nothing.
        let not_slower = !observed.base_disturbed && result.high <= threshold;
        let word = match result.word {
            Word::Improved if not_slower => Word::Improved,
            _ if not_slower && !result.slow_starts.likely => Word::Same,
            _ => Word::Inconclusive,
        };
        let undecided = word == Word::Inconclusive;
        return Some(Decision {
            may_be_worse: undecided,
            open: undecided && observed.some_quiet && pairs < max_pairs(),
            ..decided(word, false)
        });
    }
    let (fewer, more) = (
        disturbed && observed.threads == Ordering::Less,
        disturbed && observed.threads == Ordering::Greater,
    );
    match result.word {
        Word::Regressed if !more => return Some(decided(Word::Regressed, false)),
        Word::Improved if !fewer => return Some(decided(Word::Improved, false)),
        _ => {}
    }
    let lies_below = result.high <= threshold && !result.slow_starts.likely && !fewer;
    if lies_below && !diluted {
        // An improvement that a second look may show is waited for.
        let improves = result.change < -threshold && pairs < SECOND_LOOK && !terms.last;
        if result.word == Word::Same || !improves {
            return Some(decided(Word::Same, false));
        }
    }
    if let Some(word) = cpu.and_then(|cpu| word_by_cpu(&result, &cpu, diluted, pairs, terms)) {
        return Some(decided(word, true));
    }
    // A time that is added to both sides does not turn a change round.
    if diluted && lies_below && result.high <= 0.0 {
        return Some(decided(Word::Same, false));
    }
    let may_be_worse = match cpu {
        Some(cpu) if diluted => cpu.may_be_worse(threshold) || result.low > threshold,
        _ if more || fewer => true,
        _ if lies_below && !diluted => false,
        None if diluted => true,
        _ => result.may_be_worse(threshold),
    };
    // More values with waits can show that the sides differ, and not that they do not.
    let can_decide = cpu.is_some()
        || !diluted
        || observed.some_quiet
        || result.change > threshold && needed_pairs(&result, terms, pairs) <= MAX_NEEDED;
    // A case that may not be worse passes as it is: beside load, where pairs cost most, from the
    // second look on; against a stored run, which keeps its own spread, where more of the head does not
    // show more.
    let enough = !may_be_worse
        && if values.paired {
            disturbed && pairs >= SECOND_LOOK
        } else {
            !narrows_enough(&result, values, threshold)
        };
    Some(Decision {
        may_be_worse,
        open: pairs < max_pairs() && can_decide && !enough,
        ..decided(Word::Inconclusive, false)
    })
}

/// The word by CPU time, where it decides and the values do not say otherwise.
fn word_by_cpu(
    result: &RuleResult,
    cpu: &RuleResult,
    diluted: bool,
    pairs: usize,
    terms: &Terms,
) -> Option<Word> {
    let Terms {
        threshold, last, ..
    } = *terms;
    // The few values of a first look lie beyond the threshold by chance as well.
    let agrees = result.low <= threshold
        && (diluted || !result.slow_starts.likely)
        && (result.change <= 2.0 * threshold || pairs >= SECOND_LOOK || last);
    match cpu.word {
        Word::Regressed if diluted || result.high >= cpu.low => Some(Word::Regressed),
        Word::Improved if agrees && (diluted || result.low <= cpu.high) => Some(Word::Improved),
        Word::Same | Word::Improved if agrees => Some(Word::Same),
        _ => None,
    }
}

/// True if the head's values at the next look could show that it is not slower, should the estimate
/// stay.
fn narrows_enough(result: &RuleResult, values: BothSides<'_>, threshold: f64) -> bool {
    let error = |head: usize| (1.0 / values.base.len() as f64 + 1.0 / head as f64).sqrt();
    let head = values.head.len();
    let next = next_look(head as u32).map_or(head, |next| next as usize);
    let half = (result.high - result.change) * error(next) / error(head);
    result.change + half <= threshold
}

/// The pairs of the last look.
pub fn max_pairs() -> usize {
    LOOKS[LOOKS.len() - 1] as usize
}

impl Decision {
    /// The same comparison, in which nothing got worse.
    pub fn same(self) -> Decision {
        Decision {
            word: Word::Same,
            by_cpu: false,
            may_be_worse: false,
            open: false,
            ..self
        }
    }
}
