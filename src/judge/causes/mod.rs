//! Why a case changed: rules over the differences of two records, a file each.
//!
//! A rule reads two records and says at most one thing, with the figures it saw.
//! Its confidence is a judgement, not a probability: exact facts that suffice to
//! explain a change rank above exact facts that may, and both above conditions
//! that merely came with it.

pub mod clock;
mod copies_added;
mod driver_memory;
mod environment;
pub(super) mod events_added;
mod gaps;
mod host_bound;
mod idle;
mod kernel_replaced;
pub(super) mod launches;
mod launches_added;
mod less_parallel;
mod lost_overlap;
mod lower_clock;
mod modules_loaded;
mod parameter_changed;
mod recompiled;
mod retuned;
mod shared_device;
mod spills;
mod synchronisation;
mod throttled;
mod toolchain;
mod workspace;

pub use clock::Clock;

use super::complete::usable;
use super::floor::beyond;
use super::judgement::{Difference, Finding};
use super::structure;
use crate::attention::{ActivitySummary, Structure};
use crate::record::side::{CaseRecord, median};
use crate::suite::structural::StructurePolicy;

/// The part of what a call takes longer that something must account for to explain it.
pub(super) const EXPLAINS: f64 = 0.5;

/// Two records of one case, and what is known around them.
pub struct Pair<'a> {
    /// The base's record.
    pub base: &'a CaseRecord,
    /// The head's record.
    pub head: &'a CaseRecord,
    /// Nanoseconds of the base, of those that were judged.
    pub base_ns: Option<f64>,
    /// Nanoseconds of the head, of those that were judged.
    pub head_ns: Option<f64>,
    /// What took the base's.
    pub base_clock: Clock,
    /// What took the head's.
    pub clock: Clock,
    /// Head over base, with the machine's share left in.
    pub ratio: f64,
    /// Smallest change that counts.
    pub floor: f64,
    /// Versions in which the case's worker differs.
    pub versions: Vec<&'a Difference>,
    /// Multiprocessors of the device, where it is a GPU that tells them.
    pub sms: Option<u64>,
}

impl<'a> Pair<'a> {
    /// Both structures, where both were counted.
    fn structures(&self) -> Option<(&Structure, &Structure)> {
        self.base
            .structure
            .as_ref()
            .zip(self.head.structure.as_ref())
    }

    /// What the device did in one call of each, where both are known.
    fn activities(&self) -> Option<(&'a ActivitySummary, &'a ActivitySummary)> {
        self.base.activity.as_ref().zip(self.head.activity.as_ref())
    }

    /// A count of both sides; `None` where one of them does not tell it.
    fn counts(&self, name: &str) -> Option<(u64, u64)> {
        structure::count(self.base, name).zip(structure::count(self.head, name))
    }

    /// True when no exact figure of the two structures differs, or both are unknown.
    fn same_structure(&self) -> bool {
        let (base, head) = (&self.base.structure, &self.head.structure);
        let launches = |side: &Option<Structure>| side.as_ref().map(|s| s.launches.is_empty());
        if launches(base) != launches(head) {
            return false;
        }
        let changes = structure::changes(&structure::Pair {
            case: "",
            base: self.base,
            head: self.head,
            sms: self.sms,
            policy: &StructurePolicy::default(),
        });
        match changes {
            Some(changes) => changes.is_empty(),
            None => base.is_none() && head.is_none(),
        }
    }

    /// True when both sides ran the same instructions.
    fn same_code(&self) -> bool {
        let codes = self.structures();
        let codes = codes.and_then(|(base, head)| base.code.as_ref().zip(head.code.as_ref()));
        codes.is_some_and(|(base, head)| base == head)
    }

    /// Nanoseconds that the head takes more of the time that was judged, where it does.
    fn slower_by(&self) -> Option<f64> {
        let more = self.head_ns? - self.base_ns?;
        (self.moved() && more > 0.0).then_some(more)
    }

    /// True when the device's time is judged, and not the host's.
    fn of_device(&self) -> bool {
        self.clock != Clock::Host
    }

    /// True when time changed enough that conditions around it are worth telling.
    fn moved(&self) -> bool {
        beyond(self.ratio, self.floor)
    }

    /// A finding that blames the machine. A change of structure explains better than a
    /// condition that came with it.
    fn finding_of_the_machine(&self, cause: &str, evidence: String) -> Finding {
        let same = self.same_structure();
        finding(cause, evidence, if same { 0.8 } else { 0.5 })
    }
}

/// The slower record and the faster, where time moved and a share of the slower one's
/// invocations is larger than the same share of the faster one's.
fn disturbed<'a>(
    pair: &Pair<'a>,
    share: impl Fn(&CaseRecord) -> f64,
) -> Option<(&'a CaseRecord, &'a CaseRecord)> {
    let (slower, faster) = match pair.ratio > 1.0 {
        true => (pair.head, pair.base),
        false => (pair.base, pair.head),
    };
    let known = faster.conditions.known > 0 && pair.of_device();
    (pair.moved() && known && share(slower) > share(faster)).then_some((slower, faster))
}

/// The median of the times that a clock can have shown.
pub(super) fn median_ns(times: &[f64]) -> Option<f64> {
    median(&usable(times))
}

type Rule = fn(&Pair) -> Option<Finding>;

const RULES: [Rule; 21] = [
    retuned::find,
    less_parallel::find,
    parameter_changed::find,
    kernel_replaced::find,
    copies_added::find,
    events_added::find,
    launches_added::find,
    modules_loaded::find,
    driver_memory::find,
    synchronisation::find,
    spills::find,
    recompiled::find,
    lower_clock::find,
    throttled::find,
    shared_device::find,
    host_bound::find,
    gaps::find,
    lost_overlap::find,
    environment::find,
    toolchain::find,
    workspace::find,
];

/// Everything the rules find, most telling first.
pub fn findings(pair: &Pair) -> Vec<Finding> {
    let mut found: Vec<Finding> = RULES.iter().filter_map(|rule| rule(pair)).collect();
    found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    found
}

/// True for a cause that is read off what a call does, and not off a time or a condition
/// around it.
pub fn is_structural(cause: &str) -> bool {
    const OF_TIMES: [&str; 11] = [
        "host-bound",
        "gaps",
        "lost-overlap",
        "no-overlap",
        "lower-clock",
        "higher-clock",
        "throttled",
        "shared-device",
        "environment",
        "toolchain",
        "same-launch",
    ];
    !OF_TIMES.contains(&cause)
}

fn finding(cause: &str, evidence: String, confidence: f64) -> Finding {
    Finding {
        cause: cause.to_owned(),
        evidence,
        confidence,
    }
}

#[cfg(test)]
mod tests;
