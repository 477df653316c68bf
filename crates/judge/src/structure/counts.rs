//! Differences of counts, memory and parameters.

use std::collections::{BTreeMap, BTreeSet};

use super::found::{Found, worse_if};
use crate::counts::count;
use crate::judgement::{Direction, StructuralChange};
use regatta_core::machine::{BYTES, DRIVER_ALLOCATIONS, DRIVER_FREES, SYNCHRONISATIONS, Structure};
use regatta_core::suite::structural::{Kind, StructurePolicy};
use regatta_worker::units::Bytes;

/// A difference of memory below this is an allocator's rounding.
const ROUNDING: u64 = 1 << 20;

/// Counts that are of a kind of their own, in the order in which they are told.
const OF_A_KIND: [(&str, Kind); 8] = [
    ("tasks", Kind::Tasks),
    ("threads", Kind::Threads),
    ("copies", Kind::Copies),
    ("allocations", Kind::Memory),
    (WORKSPACE, Kind::Memory),
    (SYNCHRONISATIONS, Kind::Synchronisation),
    (DRIVER_ALLOCATIONS, Kind::DriverMemory),
    (DRIVER_FREES, Kind::DriverMemory),
];

const WORKSPACE: &str = "workspace_bytes";

/// The kind that changes of a count are of, where they are of one.
pub fn kind(policy: &StructurePolicy, count: &str) -> Option<Kind> {
    let own = OF_A_KIND.iter().find(|(name, _)| *name == count);
    let steady = || policy.is_steady(count).then_some(Kind::Counts);
    own.map(|(_, kind)| *kind).or_else(steady)
}

/// Compares counts that both sides have. What one side lacks is not 0 there: where it is the
/// head, [`super::vanished()`] tells.
pub fn compare(found: &mut Found, base: &Structure) {
    let (pair, told) = (found.pair, found.changes.len());
    let both = |name: &str| Some((count(pair.base, name)?, count(pair.head, name)?));
    for (name, kind) in OF_A_KIND {
        let Some((before, after)) = both(name).filter(|(before, after)| before != after) else {
            continue;
        };
        // Kernels that copy are named already, and a worker may count them here as well.
        let named = |change: &StructuralChange| change.kind == Kind::Copies;
        match kind {
            // Who gets to work is the scheduler's choice, which had others to serve.
            Kind::Threads if pair.base.census_disturbed() || pair.head.census_disturbed() => {}
            Kind::Tasks | Kind::Threads => {
                found.add(kind, worse_if(after < before), name, before, after);
            }
            Kind::Copies if found.changes[..told].iter().any(named) => {}
            Kind::Memory if name == WORKSPACE => add_memory(found, name, before, after),
            _ => found.add_figure(kind, name, before, after),
        }
    }
    let asked = [SYNCHRONISATIONS, DRIVER_ALLOCATIONS, DRIVER_FREES];
    let others = base.counts.keys().map(String::as_str);
    for name in others.filter(|name| !asked.contains(name) && pair.policy.is_steady(name)) {
        if let Some((before, after)) = both(name) {
            found.add_figure(Kind::Counts, name, before, after);
        }
    }
}

/// Operators and Python functions of a call, where both sides watched them. One that a side did
/// not run at all it ran 0 times: each tells all that it ran.
pub fn watched(found: &mut Found, base: &Structure, head: &Structure) {
    for (kind, before, after) in [
        (Kind::Operators, &base.operators, &head.operators),
        (Kind::Functions, &base.functions, &head.functions),
    ] {
        if before.is_empty() || after.is_empty() {
            continue;
        }
        // Those beyond the most that are told are told as one, which names nothing.
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let count = |side: &BTreeMap<String, u64>| side.get(name).copied().unwrap_or(0);
            found.add_figure(kind, name, count(before), count(after));
        }
    }
}

/// Most memory in use, beyond the share that the policy lets pass.
pub fn memory(found: &mut Found) {
    let (base, head) = (found.pair.base, found.pair.head);
    if let Some((Bytes(before), Bytes(after))) = base.peak_bytes.zip(head.peak_bytes)
        && before.abs_diff(after) >= ROUNDING
    {
        add_memory(found, "peak_bytes", before, after);
    }
}

/// A change of memory beyond the share that counts: sizes in their units, of which the names tell
/// that they are some, and how often.
fn add_memory(found: &mut Found, name: &str, before: u64, after: u64) {
    let counts = before as f64 * found.pair.policy.memory_share.0;
    if before.abs_diff(after) as f64 <= counts {
        return;
    }
    match name.ends_with(BYTES) {
        true => {
            let worse = worse_if(after > before);
            found.add(Kind::Memory, worse, name, Bytes(before), Bytes(after));
        }
        false => found.add_figure(Kind::Memory, name, before, after),
    }
}

/// Parameters whose effective value differs where both sides tell it.
pub fn parameters(found: &mut Found) {
    let (base, head) = (&found.pair.base.effective, &found.pair.head.effective);
    for (name, before) in base.iter() {
        if let Some(after) = head.get(name).filter(|after| *after != before) {
            found.add(Kind::Parameters, Direction::Other, name, before, after);
        }
    }
}
