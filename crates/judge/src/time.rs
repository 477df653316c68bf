//! The metrics of all cases, held to those of the base by [`rule`](super::rule).

use std::borrow::Cow;

use super::complete::usable;
use super::judgement::{Change, CommonShift, Stage, Word};
use super::reasons;
use super::rule::{Looks, Plan, Ruling, Rulings, Series, SuiteRuling, Trace, rule};
use super::statistics::reachable_p;
use regatta_core::record::side::CaseRecord;
use regatta_core::suite::rules::{Metric, MetricPolicy, Policy};
use regatta_core::suite::structural::Action;
use regatta_worker::units::{Nanoseconds, Probability, Ratio, Share};

/// Coverage of the intervals that are shown.
const INTERVAL: Share = Share(0.95);

/// How the invocations were taken that are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In batches, and each look at them is paid for.
    pub batches: bool,
    /// Those of base and head in turn, so that no day lies between them.
    pub beside: bool,
}

/// What a metric says of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Regressed, improved, same or inconclusive.
    pub word: Word,
    /// Why.
    pub reason: Option<String>,
    /// The figures.
    pub change: Change,
    /// True when it is slower beyond the floor, as it looks, and nothing decided it.
    pub looks_worse: bool,
    /// True when more invocations could decide it.
    pub open: bool,
    /// Invocations of base and head behind it.
    pub sizes: (usize, usize),
}

/// What a metric says of all cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// In the order of the pairs; `None` where a side has no value.
    pub cases: Vec<Option<Compared>>,
    /// What all cases share.
    pub suite: Option<CommonShift>,
    /// Sentences on how the values came to be that decide what can be said of them.
    pub notes: Vec<String>,
    /// True when fresh invocations need the company of other cases.
    pub needs_company: bool,
}

/// Judges one metric of all cases together. Pairs are base and head, each with at least one
/// usable time.
pub fn compare(
    pairs: &[(&CaseRecord, &CaseRecord)],
    metric: Metric,
    policy: &Policy,
    taken: Taken,
) -> Together {
    let floor = super::floor::of_metric(metric, policy);
    let series: Vec<Option<Series>> = pairs
        .iter()
        .map(|pair| series(*pair, metric, floor, taken.beside))
        .collect();
    let there: Vec<Series> = series.iter().flatten().cloned().collect();
    let Rulings {
        cases,
        suite,
        memory,
        sessions,
        needs_company,
    } = rule(&there, &plan(policy, taken));
    let one_session = sessions == 1 && !taken.beside;
    let mut rulings = cases.into_iter();
    let compared = pairs.iter().zip(&series).map(|((_, head), series)| {
        let series = series.as_ref()?;
        let lost = head.unconfirmed.as_ref().map(|lost| lost.reason.as_str());
        Some(compared(&rulings.next()?, series, suite.as_ref(), lost))
    });
    let cases: Vec<Option<Compared>> = compared.collect();
    let mut notes = Vec::new();
    if metric == Metric::Device {
        notes.extend((memory > 0.0).then(|| reasons::memory(memory)));
        let called = |case: &Compared| matches!(case.word, Word::Regressed | Word::Improved);
        let any = cases.iter().flatten().any(called);
        notes.extend((one_session && any).then(reasons::one_session));
    }
    Together {
        suite: suite.map(|suite| common(&suite, floor)),
        cases,
        notes,
        needs_company,
    }
}

/// How a metric's policy is told from a change too small to count by its size alone.
pub fn too_small(policy: &MetricPolicy, base: Nanoseconds, head: Nanoseconds) -> bool {
    head - base < policy.least_ns
}

/// How values are looked at under a policy. The error of the gate is shared by the metrics
/// that may fail it.
pub fn plan(policy: &Policy, taken: Taken) -> Plan {
    let beside = Metric::BESIDE.into_iter();
    let failing = beside.filter(|metric| policy.metric(*metric).action == Action::Fail);
    Plan {
        looks: match taken.batches {
            true => Looks::up_to(policy.confirm),
            false => Looks::once(),
        },
        beside: taken.beside,
        part: 1.0 / (1 + failing.count() + usize::from(taken.beside && policy.processor)) as f64,
    }
}

/// The values of both sides; `None` where a side has none. Fresh invocations that did not all
/// come to a time decide nothing.
fn series(
    (base, head): (&CaseRecord, &CaseRecord),
    metric: Metric,
    floor: Share,
    beside: bool,
) -> Option<Series> {
    let before = trace(base, metric);
    let mut after = trace(head, metric);
    if head.unconfirmed.is_some() {
        after.fresh.clear();
    }
    let pairs = match beside {
        true => pairs((base, head), metric, (&before, &after)),
        false => Vec::new(),
    };
    let session = |session: &Vec<Nanoseconds>| Trace {
        regular: logarithms(session),
        fresh: Vec::new(),
    };
    let earlier = match metric {
        Metric::Device if !beside => base.earlier.iter().map(session).collect(),
        _ => Vec::new(),
    };
    let earlier: Vec<Trace> = earlier;
    let kept = earlier.into_iter();
    let earlier = kept.filter(|session| !session.regular.is_empty()).collect();
    let both = !before.regular.is_empty() && !after.regular.is_empty();
    both.then_some(Series {
        base: before,
        head: after,
        earlier,
        pairs,
        floor: floor.0,
    })
}

/// Which value of the base stands beside which of the head: those of one invocation. None
/// where so many invocations are on one side alone that the rest says little.
fn pairs(
    (base, head): (&CaseRecord, &CaseRecord),
    metric: Metric,
    (before, after): (&Trace, &Trace),
) -> Vec<(usize, usize)> {
    let numbers = |record: &CaseRecord, trace: &Trace| {
        let regular = all(record, metric).len() - fresh(record, metric);
        // One that no clock can have shown was left out, and nobody knows which.
        let whole = trace.regular.len() == regular;
        let mut numbers = numbers(record, metric).filter(|_| whole)?;
        numbers.truncate(trace.regular.len() + trace.fresh.len());
        Some(numbers)
    };
    let (Some(base), Some(head)) = (numbers(base, before), numbers(head, after)) else {
        return Vec::new();
    };
    let beside = head.iter().enumerate().filter_map(|(at, number)| {
        let other = base.iter().position(|of_base| of_base == number)?;
        Some((other, at))
    });
    let found: Vec<(usize, usize)> = beside.collect();
    match 3 * found.len() >= 2 * base.len().min(head.len()) {
        true => found,
        false => Vec::new(),
    }
}

/// The numbers of the invocations that a metric's values are of; `None` where that is not
/// known.
fn numbers(record: &CaseRecord, metric: Metric) -> Option<Vec<u32>> {
    let times = all(record, metric).len();
    match metric {
        Metric::Processor => Some((0..times as u32).collect()),
        // A first call may be disturbed where the samples are not, and the other way round.
        Metric::FirstCall if !record.disturbed.is_empty() => None,
        _ => Some(record.invocations()).filter(|numbers| numbers.len() == times),
    }
}

/// What a record has of a metric, an invocation each, fresh ones last.
pub fn all(record: &CaseRecord, metric: Metric) -> Cow<'_, [Nanoseconds]> {
    match metric {
        Metric::Device if record.confirm_ns.is_empty() => Cow::Borrowed(&record.device_ns),
        Metric::Device => Cow::Owned([&record.device_ns[..], &record.confirm_ns].concat()),
        Metric::Host => Cow::Borrowed(&record.host_ns),
        Metric::FirstCall => Cow::Borrowed(&record.first_call_ns),
        Metric::Processor => Cow::Owned(record.processor_ns()),
    }
}

/// How many of those are fresh.
fn fresh(record: &CaseRecord, metric: Metric) -> usize {
    let all = all(record, metric).len();
    let regular = match metric {
        Metric::Processor => record.device_ns.len() + record.disturbed_screen().count(),
        _ => record.device_ns.len(),
    };
    all - regular.min(all)
}

/// What a record has of a metric, an invocation each.
fn trace(record: &CaseRecord, metric: Metric) -> Trace {
    let all = all(record, metric);
    let (regular, fresh) = all.split_at(all.len() - fresh(record, metric));
    Trace {
        regular: logarithms(regular),
        fresh: logarithms(fresh),
    }
}

fn logarithms(values: &[Nanoseconds]) -> Vec<f64> {
    usable(values).iter().map(|value| value.0.ln()).collect()
}

fn compared(
    ruling: &Ruling,
    series: &Series,
    suite: Option<&SuiteRuling>,
    lost: Option<&str>,
) -> Compared {
    let said = reasons::told(ruling, Share(series.floor), suite);
    // Some of its fresh invocations are lost: nobody may say that it is what it was.
    let (word, reason) = match (lost, ruling.word, said) {
        (Some(lost), word, said) => {
            let said = said.map_or_else(String::new, |said| format!("{said}; "));
            let word = match word {
                Word::Same => Word::Inconclusive,
                word => word,
            };
            (word, Some(format!("{said}it was to be confirmed: {lost}")))
        }
        (None, word, said) => (word, said),
    };
    let (base, head) = ruling.sizes;
    Compared {
        word,
        reason,
        change: Change {
            ratio: Ratio(ruling.change.exp()),
            low: finite(ruling.interval.0, ruling.change),
            high: finite(ruling.interval.1, ruling.change),
            confidence: INTERVAL,
            p: Probability(ruling.p.max(f64::MIN_POSITIVE)),
            reachable_p: Probability(reachable_p(base, head)),
            smallest_effect: Share(ruling.seen),
            stage: match series.head.fresh.is_empty() {
                true => Stage::Screen,
                false => Stage::Confirm,
            },
        },
        looks_worse: ruling.looks_worse,
        open: ruling.open && lost.is_none(),
        sizes: ruling.sizes,
    }
}

/// An end of an interval as a ratio: that of the change itself where it has none.
fn finite(end: f64, change: f64) -> Ratio {
    let end = Ratio(end.exp());
    match end.is_finite() && end.0 > 0.0 {
        true => end,
        false => Ratio(change.exp()),
    }
}

fn common(suite: &SuiteRuling, floor: Share) -> CommonShift {
    let ratio = Ratio(suite.change.exp());
    CommonShift {
        ratio,
        cases: suite.of,
        removed: suite.removed,
        beyond_floor: super::floor::beyond(ratio, floor),
        word: suite.word,
        low: finite(suite.interval.0, suite.change),
        high: finite(suite.interval.1, suite.change),
        p: Probability(suite.p.max(f64::MIN_POSITIVE)),
        smallest_effect: Share(suite.seen),
        sharing: suite.sharing,
        looks_worse: suite.looks_worse,
    }
}

#[cfg(test)]
mod tests;
