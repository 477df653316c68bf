//! What two records of one case tell of a call.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::facts::{Facts, Pair, Source, Waits};
use crate::attention::{ActivitySummary, Launch, Structure};
use crate::judge::census::{Became, KernelChange, LaunchChange, Sides};
use crate::judge::complete::median_ns;
use crate::judge::kernels::{by_kernel, threads};
use crate::judge::structure;
use crate::record::side::CaseRecord;
use crate::suite::structural::StructurePolicy;
use crate::units::Nanoseconds;

impl<'a> Pair<'a> {
    /// The two records as the rules see them.
    pub fn facts(&'a self) -> Facts<'a> {
        let structures = self
            .base
            .structure
            .as_ref()
            .zip(self.head.structure.as_ref());
        let kernels = structures.map(|(base, head)| kernels(base, head, self.sms));
        Facts {
            source: Source::Call(self),
            clock: self.clock,
            ns: Sides::of(self.base_ns, self.head_ns),
            ratio: self.ratio,
            floor: self.floor,
            host_ns: self.medians(|record| &record.host_ns),
            waits: self
                .activities()
                .map(|sides| sides.map(|activity| waits(activity))),
            kernels: Cow::Owned(kernels.unwrap_or_default()),
        }
    }

    /// The medians of times of both sides, in nanoseconds.
    pub fn medians(&self, times: fn(&CaseRecord) -> &Vec<Nanoseconds>) -> Option<Sides<f64>> {
        let median = |record| median_ns(times(record)).map(|time| time.0);
        Sides::both(median(self.base), median(self.head))
    }

    /// What the device did in one call of each, where both are known.
    pub fn activities(&self) -> Option<Sides<&'a ActivitySummary>> {
        Sides::both(self.base.activity.as_ref(), self.head.activity.as_ref())
    }

    /// True when no exact figure of the two structures differs, or both are unknown.
    pub fn same_structure(&self) -> bool {
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
}

fn waits(activity: &ActivitySummary) -> Waits {
    Waits {
        idle_ns: activity.idle_ns() as f64,
        host_bound_ns: activity.host_bound_ns.map(|ns| ns as f64),
        span_ns: activity.span_ns as f64,
    }
}

/// Every kernel of either side, by name.
fn kernels(base: &Structure, head: &Structure, sms: Option<u64>) -> Vec<KernelChange> {
    let (before, after) = (by_kernel(base), by_kernel(head));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let kernels = names.into_iter().map(|name| {
        kernel(
            name,
            before.get(name).map_or(&[], Vec::as_slice),
            after.get(name).map_or(&[], Vec::as_slice),
            sms,
        )
    });
    kernels.collect()
}

fn kernel(name: &str, before: &[&Launch], after: &[&Launch], sms: Option<u64>) -> KernelChange {
    let launched = Sides::of(before, after);
    let mut change = KernelChange {
        became: match (before.is_empty(), after.is_empty()) {
            (true, _) => Became::Added,
            (_, true) => Became::Removed,
            _ => Became::Same,
        },
        name: launched.map(|side| side.first().map_or("", |_| name).to_owned()),
        count: launched.map(|side| side.len() as f64),
        mean_ns: Sides::default(),
        changes: compiled(before, after),
        filled: None,
        sms: sms.and_then(|sms| u32::try_from(sms).ok()),
        fewer: 1.0,
    };
    if let Some((before, after)) = shrunk(before, after) {
        let grid = LaunchChange::Grid(before.grid, after.grid);
        change.changes.insert(0, grid);
        change.fewer = threads(before) as f64 / threads(after).max(1) as f64;
        change.filled =
            sms.map(|sms| Sides::of(before.blocks(), after.blocks()).map(|b| sms.min(*b)));
    }
    change
}

/// The largest launches of a kernel, where there are fewer blocks and threads than there
/// were. The same work in more launches is not done by less of the device.
fn shrunk<'a>(before: &[&'a Launch], after: &[&'a Launch]) -> Option<(&'a Launch, &'a Launch)> {
    let all = |launches: &[&Launch]| {
        let blocks = launches.iter().map(|launch| launch.blocks());
        blocks.fold(0, u64::saturating_add)
    };
    if after.len() > before.len() && all(after) >= all(before) {
        return None;
    }
    let largest = |launches: &[&'a Launch]| launches.iter().copied().max_by_key(|l| l.blocks());
    let (before, after) = (largest(before)?, largest(after)?);
    let fewer = after.blocks() < before.blocks() && threads(after) < threads(before);
    fewer.then_some((before, after))
}

/// What else differs between the first launches of a kernel; of local memory, the most of
/// any launch counts where that grew.
fn compiled(before: &[&Launch], after: &[&Launch]) -> Vec<LaunchChange> {
    let (Some(first), Some(now)) = (before.first(), after.first()) else {
        return Vec::new();
    };
    let both = |figure: fn(&Launch) -> Option<u64>| figure(first).zip(figure(now));
    let most = |launches: &[&Launch]| launches.iter().filter_map(|l| l.local_bytes).max();
    let less = both(|launch| launch.local_bytes).filter(|(before, after)| after < before);
    let more = most(before)
        .zip(most(after))
        .filter(|(before, after)| after > before);
    let local = |(before, after)| LaunchChange::LocalMemory(before, after);
    let changes = [
        both(|l| l.registers.map(u64::from)).map(|(b, a)| LaunchChange::Registers(b, a)),
        both(|l| l.shared_bytes).map(|(b, a)| LaunchChange::SharedMemory(b, a)),
        less.map(local),
        more.map(local),
        Some(LaunchChange::Block(first.block, now.block)),
    ];
    let changes = changes.into_iter().flatten();
    changes.filter(LaunchChange::differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record may hold anything.
    #[test]
    fn grids_that_no_device_has_are_compared_all_the_same() {
        let huge = Launch {
            grid: [u32::MAX; 3],
            ..Launch::default()
        };
        assert!(shrunk(&[&huge], &[&huge, &huge]).is_none());
        assert!(shrunk(&[&huge, &huge], &[&huge]).is_none());
    }
}
