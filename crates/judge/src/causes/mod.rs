//! The causes of a slowdown: rules, one file for each subject, that read one view of the facts.
//!
//! [`facts`] has that view of two records of a case (`Pair`) or of two traces; [`OneTrace`] is the
//! view of a single trace. A rule returns at most one finding with the figures that it read, and
//! each cause is decided and reported in one place. A trace has the time of each launch, so its
//! evidence has times, and a launch that costs no time is not a cause.
//!
//! If a change has a breakdown, a finding gets the share of the lines that it concerns
//! ([`facts::accounted`]). Findings that account for less than half of a slowdown come after those
//! that account for more, ordered by their share. Of two with the same share, the one nearer to the
//! root comes first: exact facts that suffice to explain a change, then exact facts that may, then
//! conditions that came with it.

mod copies;
mod facts;
mod host;
mod kernels;
mod machine;
mod parallelism;
pub(crate) mod processor;

pub use facts::{Facts, Found, Pair, TimeSource};

use std::collections::BTreeMap;
use std::ops::Range;

use crate::judgement::{Account, Finding};
use facts::EXPLAINS;
use regatta_core::machine::{MODULE_LOADS, Recording, SteadyPart, Summary, calls_within};
use regatta_worker::units::{Nanoseconds, Ratio};

/// The factor on the order of a finding that accounts for just under half of a slowdown; it falls
/// with the share.
const MINOR: f64 = 0.55;

/// The smallest factor, for findings that account for almost nothing; among these, the one nearest
/// to the root comes first.
const MIN_FACTOR: f64 = 0.1;

type Rule = fn(&Facts) -> Option<Found>;

const RULES: [Rule; 32] = [
    parallelism::tuner_chose,
    kernels::retuned,
    parallelism::parameter_changed,
    kernels::replaced,
    copies::added,
    kernels::events_added,
    kernels::added,
    kernels::modules_loaded,
    host::memory,
    host::synchronisation,
    kernels::spills,
    kernels::recompiled,
    kernels::more_instructions,
    machine::clock,
    machine::throttled,
    machine::shared_device,
    host::waiting,
    copies::lost,
    machine::environment,
    machine::versions,
    host::calls_added,
    host::workspace,
    kernels::same_launch,
    processor::oversubscribed,
    processor::waiting_for_cores,
    processor::blocked,
    processor::denormals,
    processor::wider_type,
    processor::memory_growth,
    processor::garbage,
    processor::page_faults,
    processor::slower_function,
];

/// Applies all rules; the most likely cause comes first.
pub fn found(facts: &Facts) -> Vec<Found> {
    let mut candidates = parallelism::less_parallel(facts);
    candidates.extend(RULES.iter().filter_map(|rule| rule(facts)));
    facts::accounted(facts, &mut candidates);
    rank_by_share(facts, &mut candidates);
    candidates.sort_by(|a, b| b.order.total_cmp(&a.order));
    candidates
}

/// Orders findings by their share. One that accounts for less than half of a slowdown, or for a
/// gain, accompanied it rather than caused it. One whose time is unknown keeps its order. Of two
/// with the same order, the one that accounts for more comes first.
fn rank_by_share(facts: &Facts, candidates: &mut [Found]) {
    let slower = facts.ratio > Ratio::grown_by(facts.threshold);
    for one in candidates.iter_mut() {
        let Some(time) = one
            .growth
            .filter(|time| slower && !facts.explained_by(*time))
        else {
            continue;
        };
        let most = facts
            .slower_by()
            .map_or(0.0, |all| time.0 / (all.0 * EXPLAINS));
        one.order *= MINOR * most.clamp(MIN_FACTOR, 1.0);
    }
    let change = facts.account.as_ref().map(|account| account.change_ns);
    if let Some(change) = change.filter(|change| *change != Nanoseconds::ZERO) {
        for one in candidates.iter_mut() {
            one.finding.share = one.growth.map(|time| time.share_of(change));
        }
    }
    let growth = |candidate: &Found| candidate.growth.unwrap_or_default();
    candidates.sort_by(|a, b| growth(b).total_cmp(&growth(a)));
}

/// The causes of a change between two records, the most likely first, and the breakdown of the
/// time.
pub fn explained(pair: &Pair) -> (Vec<Finding>, Option<Account>) {
    let facts = pair.facts();
    let candidates = found(&facts).into_iter();
    (
        candidates.map(|candidate| candidate.finding).collect(),
        facts.account,
    )
}

/// The findings in a single trace, the most important first. Without a second trace, a finding only
/// says that something costs time, not that it got worse.
pub fn standing_out(standing: &OneTrace) -> Vec<Finding> {
    let mut candidates: Vec<Found> = parallelism::few_blocks(standing).collect();
    candidates.extend(kernels::still_loading(standing));
    candidates.extend(host::idle(standing));
    candidates.extend(copies::exposed_copies(standing));
    candidates.sort_by(|a, b| b.order.total_cmp(&a.order));
    candidates
        .into_iter()
        .map(|candidate| candidate.finding)
        .collect()
}

/// A single trace, in the form that the rules read: its steady part, or else all of it.
pub struct OneTrace<'a> {
    /// The figures of that part.
    pub of: &'a Summary,
    /// The number of repetitions.
    pub repeats: f64,
    /// The unit of the figures: ` a repetition`, or empty for a whole recording.
    pub each: &'static str,
    /// Modules loaded once the program should be steady, where that is known.
    pub late_loads: Option<u64>,
    /// The part of the program in which `late_loads` were counted, as text.
    pub late: &'static str,
}

impl<'a> OneTrace<'a> {
    /// The view of `recording`, whose summary is `whole` and whose repeating part is `steady`.
    pub fn new(
        recording: &Recording,
        whole: &'a Summary,
        steady: Option<&'a SteadyPart>,
    ) -> OneTrace<'a> {
        let loads = |calls: &BTreeMap<String, u64>| calls.get(MODULE_LOADS).copied();
        match steady {
            Some(part) => OneTrace {
                of: &part.summary,
                repeats: part.steady.repeats as f64,
                each: " a repetition",
                late_loads: loads(&part.summary.calls),
                late: "the steady part",
            },
            None => OneTrace {
                of: whole,
                repeats: 1.0,
                each: "",
                late_loads: second_half(recording)
                    .and_then(|half| loads(&calls_within(recording, &half))),
                late: "the second half of the recording",
            },
        }
    }

    /// True if the view is of a part that repeats.
    pub fn is_steady(&self) -> bool {
        !self.each.is_empty()
    }

    /// The time of one repetition, from the total over all.
    pub fn time(&self, total_ns: u64) -> Nanoseconds {
        Nanoseconds::whole(total_ns) / self.repeats
    }
}

/// The time range of the second half of a recording.
fn second_half(recording: &Recording) -> Option<Range<u64>> {
    let first = recording.operations.first()?.start_ns;
    let last = recording.operations.iter().map(|o| o.end_ns).max()?;
    Some(first + (last - first) / 2..last)
}

#[cfg(test)]
mod tests;
