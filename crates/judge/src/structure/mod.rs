//! Structure: the exact figures of a single call, and their differences.
//!
//! Exact figures need no statistics: one call shows them, also on a device that is throttled or
//! shared. The suite's policy sets the action for each kind of change
//! ([`regatta_core::suite::Kind`]).

mod changes;
mod instructions;
mod vanished;

pub use changes::{changes, names, parameters, spills_of_other_kernels};
pub use vanished::vanished;

use std::collections::BTreeMap;

use crate::judgement::{Difference, Direction, Mismatch, StructuralChange};
use crate::tuners;
use regatta_core::machine::{ASKED_OF_CUDA, Sides};
use regatta_core::record::{CaseRecord, RunHeader};
use regatta_core::suite::{Action, Kind, Policy};
use regatta_worker::case::{CaseId, VariantId};
use regatta_worker::units::Nanoseconds;

/// Two records of one case whose structures may be compared.
pub struct Structures<'a> {
    /// The base's record.
    pub base: &'a CaseRecord,
    /// The head's record.
    pub head: &'a CaseRecord,
    /// The number of multiprocessors of the device, if it is a GPU.
    pub sms: Option<u32>,
    /// The suite's policy on changes.
    pub policy: &'a Policy,
    /// The variants of the base that are compared with another variant of the head.
    pub counterparts: Option<&'a BTreeMap<VariantId, VariantId>>,
}

impl Structures<'_> {
    /// True for the function of a variant that is compared with another one: each side runs only
    /// its own.
    fn is_counterpart(&self, function: &str, count: Sides<u64>) -> bool {
        let name = function.rsplit(':').next();
        let pairs = self.counterparts.into_iter().flatten();
        pairs.into_iter().any(|(base, head)| {
            let only_head = count.base == 0 && name == Some(&head.name);
            only_head || count.head == 0 && name == Some(&base.name)
        })
    }

    /// True where both sides counted the same, as most do, so that nothing needs comparing.
    fn are_alike(&self) -> bool {
        let [before, after] =
            [self.base, self.head].map(|record| record.activity.as_ref().map(|all| &all.calls));
        self.base.structure == self.head.structure && before == after
    }

    /// True where an unsteady tuner chose differently in the counted calls of the two sides.
    fn tuned_by_chance(&self) -> bool {
        tuners::counted_otherwise(self.base, self.head)
    }
}

/// The differences found so far.
pub struct Changes<'a> {
    /// The two structures that are compared.
    pub pair: &'a Structures<'a>,
    /// The changes, each with the policy's action.
    pub changes: Vec<StructuralChange>,
}

impl Changes<'_> {
    /// Adds a difference, with the policy's action.
    pub fn add(&mut self, kind: Kind, direction: Direction, difference: Difference) {
        let policy = self.pair.policy;
        let action = match policy.action(kind, difference.name()) {
            _ if direction == Direction::Better => Action::Ignore,
            // The tuner's choice in the counted call was chance.
            Action::Fail if kind.follows_tuning() && self.pair.tuned_by_chance() => Action::Warn,
            action => action,
        };
        self.changes.push(StructuralChange {
            kind,
            direction,
            action,
            difference,
        });
    }

    /// Adds the difference of a figure for which more is worse, if the two sides differ.
    pub fn add_figure<N: PartialOrd>(
        &mut self,
        kind: Kind,
        sides: Sides<N>,
        difference: Difference,
    ) {
        if sides.base != sides.head {
            self.add(kind, worse_if(sides.head > sides.base), difference);
        }
    }
}

/// The direction of a change: worse if `worse`, else better.
pub fn worse_if(worse: bool) -> Direction {
    if worse {
        Direction::Worse
    } else {
        Direction::Better
    }
}

/// The device facts that launch heuristics use: grids follow from them by design.
const GPU_FACTS: [&str; 2] = ["sms", "compute_capability"];

/// The facts that keep the structures of two runs from being compared, if any. `differ` are the
/// hard facts in which the runs differ.
pub fn not_comparable(differ: &[Mismatch]) -> Vec<Mismatch> {
    let decides = |field: &str| {
        let gpu = field
            .split_once('.')
            .is_some_and(|(_, fact)| GPU_FACTS.contains(&fact));
        gpu || ["schema", "suite", "cpu.cores"].contains(&field)
    };
    let differ = differ
        .iter()
        .filter(|difference| decides(&difference.field));
    differ.cloned().collect()
}

/// The number of multiprocessors of the device that a case runs on, where it reports it.
pub fn multiprocessors(header: &RunHeader, case: &CaseId) -> Option<u32> {
    let case = case.case().ok()?;
    let kind = &header.worker_of(&case)?.device_kind;
    let sms = header.machine.hard.get(&format!("{kind}.sms"))?;
    sms.parse().ok().filter(|sms| *sms > 0)
}

/// The counted function that runs when an autotuner has no configuration for a call.
pub const AUTOTUNE: &str = "triton_autotune";

/// A count of a record, if it was counted. Older files have the calls to CUDA in the activity
/// instead of the counts.
pub fn count(record: &CaseRecord, name: &str) -> Option<u64> {
    let counts = &record.structure.as_ref()?.counts;
    let counted = counts.get(name).copied();
    counted.or_else(|| asked(record).find_map(|(asked, n)| (asked == name).then_some(n)))
}

/// The calls to CUDA in a call, from its activity, by the names of the counts.
pub fn asked(record: &CaseRecord) -> impl Iterator<Item = (&'static str, u64)> {
    let calls = record.activity.as_ref().map(|activity| &activity.calls);
    ASKED_OF_CUDA
        .into_iter()
        .filter_map(move |(call, count)| Some((count, *calls?.get(call)?)))
}

/// The number of runs of a counted function in a call, and their cost on the host: `backend
/// re-selected 8 times a call, 660 µs of the host a call in it`.
pub fn events(record: &CaseRecord, name: &str, events: u64) -> String {
    let event = event(name).unwrap_or(name);
    let often = match events {
        1 => "once".to_owned(),
        _ => format!("{events} times"),
    };
    let host = host_time(record, name);
    let host = host.map_or(String::new(), |time| format!(", {time}{OF_THE_HOST}"));
    format!("{event} {often} a call{host}")
}

/// The text after a time that is spent in a counted function.
pub const OF_THE_HOST: &str = " of the host a call in it";

/// The text for the event that a counted function stands for, if its name has one.
pub fn event(name: &str) -> Option<&'static str> {
    let getter = name.strip_prefix("get_").unwrap_or_default();
    // Older runs call the count by its purpose.
    if getter.ends_with("_backend") || name == "backend_selections" {
        return Some("backend re-selected");
    }
    (name == AUTOTUNE).then_some("retuned")
}

/// The host time that a call spends in a counted function, where it is known.
pub fn host_time(record: &CaseRecord, name: &str) -> Option<Nanoseconds> {
    let counts = &record.structure.as_ref()?.counts;
    let time = counts.get(&format!("ns.{name}")).copied();
    time.map(Nanoseconds::whole)
}

#[cfg(test)]
mod tests;
