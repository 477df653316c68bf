//! Instructions that kernels execute, from hardware counters. They are exact even on a shared
//! device, if repeated counts agree.

use std::collections::BTreeSet;

use super::{Changes, Structures, worse_if};
use crate::judgement::{Difference, Uncounted};
use regatta_core::machine::{
    Counters, Counts, HardwareCounter, INSTRUCTIONS, METRICS, Sides, Structure, short,
};
use regatta_core::suite::{Action, Kind};
use regatta_worker::units::ARROW;

/// The name for a change of the whole call, used if the two sides run different kernels.
const WHOLE: &str = "the whole call";

/// Compares each kernel that both sides run, and the whole call if they run different kernels. A
/// difference within the range of one side's repeated counts is not a change.
pub fn compare(changes: &mut Changes) {
    for (metric, kernel, counts, word) in all_compared(changes.pair) {
        let more = match word {
            RangeChange::More => true,
            RangeChange::Less => false,
            RangeChange::Same | RangeChange::Inconclusive => continue,
        };
        let difference = Difference::Instructions {
            kernel,
            what: metric.words.to_owned(),
            counts,
        };
        changes.add(Kind::Instructions, worse_if(more), difference);
    }
}

/// A counter, the kernel or the whole call, the ranges of its counts on both sides, and their
/// relation.
type ComparedCounts = (&'static HardwareCounter, String, Sides<Counts>, RangeChange);

fn all_compared(pair: &Structures) -> Vec<ComparedCounts> {
    let (Some(base), Some(head)) = (counters(pair.base), counters(pair.head)) else {
        return Vec::new();
    };
    let others = base.kernels.keys().ne(head.kernels.keys());
    let one_process = one_process(base, head);
    let all = METRICS.iter().flat_map(|metric| {
        let kernels = base.kernels.iter().map(move |(name, kernel)| {
            let head = head.kernels.get(name);
            let after = head.and_then(|kernel| kernel.instructions.get(metric.name));
            let before = kernel.instructions.get(metric.name);
            (name.as_str(), before.copied(), after.copied())
        });
        let total = |side: &Counters| side.total(metric.name).filter(|_| others);
        let whole = (WHOLE, total(base), total(head));
        kernels
            .chain([whole])
            .filter_map(move |(name, before, after)| {
                let (before, after) = before.zip(after)?;
                let word = compared(before, after, one_process);
                Some((metric, name.to_owned(), Sides::new(before, after), word))
            })
    });
    all.collect()
}

fn counters(record: &regatta_core::record::CaseRecord) -> Option<&Counters> {
    record.counters.as_deref()
}

/// The relation of two ranges of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeChange {
    More,
    Less,
    Same,
    /// The head may execute more; the counts do not decide it.
    Inconclusive,
}

/// Relates two ranges of a few repeated counts. A gap that is wider than the wider range is not
/// chance. If the head reaches beyond the base with a narrower gap, that is inconclusive, unless
/// the base's own counts spread by as much. A base whose counts spread by more than a tenth cannot
/// be compared with. Counts of a single process may be exact in it alone, so a gap of up to a
/// thousandth is inconclusive as well.
fn compared(before: Counts, after: Counts, one_process: bool) -> RangeChange {
    let chance = before.spread().max(after.spread());
    let few = if one_process { before.most / 1000 } else { 0 };
    if after.least > before.most.saturating_add(chance.max(few)) {
        return RangeChange::More;
    }
    if before.least > after.most.saturating_add(chance.max(few)) {
        return RangeChange::Less;
    }
    let beyond = after.most.saturating_sub(before.most);
    let wide = before.spread().saturating_mul(10) > before.most;
    if beyond > before.spread() || (beyond > 0 && wide) {
        RangeChange::Inconclusive
    } else {
        RangeChange::Same
    }
}

fn one_process(base: &Counters, head: &Counters) -> bool {
    base.processes.min(head.processes) < 2
}

/// The first kernel whose counts do not decide whether it executes more.
pub fn inconclusive(pair: &Structures) -> Option<Uncounted> {
    let taken = |kernel: &str| pair.policy.action(Kind::Instructions, kernel) != Action::Ignore;
    let all = all_compared(pair).into_iter();
    let mut open = all.filter(|(_, name, _, word)| {
        *word == RangeChange::Inconclusive && name != WHOLE && taken(name)
    });
    let (metric, name, Sides { base, head }, _) = open.next()?;
    let what = if one_process(counters(pair.base)?, counters(pair.head)?) {
        "count in several processes, without --structure-only"
    } else {
        "countings of the same code differ too much to tell"
    };
    let (words, name) = (metric.words, short(&name));
    let reason = format!("{words} of {name} {base} {ARROW} {head}, inconclusive: {what}");
    Some(Uncounted::inconclusive(INSTRUCTIONS, reason))
}

/// The counts of the base that the head lacks: all of them, or a metric of a kernel.
pub fn vanished(pair: &Structures, head: &Structure) -> Option<Uncounted> {
    let base = counters(pair.base)?;
    let taken = |kernel: &str| pair.policy.action(Kind::Instructions, kernel) != Action::Ignore;
    let lost: BTreeSet<&str> = match counters(pair.head) {
        None => base.kernels.keys().map(String::as_str).collect(),
        Some(head) => {
            let both = base.kernels.iter().filter_map(|(name, kernel)| {
                let now = &head.kernels.get(name)?.instructions;
                let lost = kernel
                    .instructions
                    .keys()
                    .any(|metric| !now.contains_key(metric));
                lost.then_some(name.as_str())
            });
            both.collect()
        }
    };
    lost.iter().any(|kernel| taken(kernel)).then(|| {
        let asked = counters(pair.head).is_some().then_some(NOT_ALL);
        let why = head.why_uncounted(INSTRUCTIONS).or(asked);
        let total = base.total(METRICS[0].name);
        let before = total.filter(Counts::is_exact).map(|total| total.least);
        let reason = why.map_or_else(not_asked, str::to_owned);
        Uncounted::new(INSTRUCTIONS, before, Some(reason))
    })
}

/// The reason for missing counters if the worker gave no other.
const NOT_ALL: &str = "this run counted, and its worker reported no such figure";

fn not_asked() -> String {
    "ask for them with --set instructions=true, or `instructions = true` under [measure]".to_owned()
}
