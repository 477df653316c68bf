//! Differences of counts, memory and parameters.

use std::collections::BTreeSet;

use super::found::{Found, worse_if};
use crate::attention::{DRIVER_ALLOCATIONS, DRIVER_FREES, ParamValue, SYNCHRONISATIONS, Structure};
use crate::judge::counts::count;
use crate::judge::judgement::Direction;
use crate::suite::structural::Kind;

/// A difference of memory below this is an allocator's rounding.
const ROUNDING: u64 = 1 << 20;

/// Compares counts that both sides have. What one side lacks is not 0 there: where it is the
/// head, [`super::vanished`] tells.
pub fn compare(found: &mut Found, base: &Structure) {
    let (before, after) = (found.pair.base, found.pair.head);
    let both = |name: &str| Some((count(before, name)?, count(after, name)?));
    if let Some((before, after)) = both("tasks") {
        add_fewer(found, Kind::Tasks, "tasks", before, after);
    }
    if let Some((before, after)) = both("threads") {
        add_fewer(found, Kind::Threads, "threads", before, after);
    }
    // Kernels that copy are named already, and a worker may count them here as well.
    let copies_told = found
        .changes
        .iter()
        .any(|change| change.kind == Kind::Copies);
    if let (Some((before, after)), false) = (both("copies"), copies_told) {
        found.add_figure(Kind::Copies, "copies", before, after);
    }
    if let Some((before, after)) = both("allocations") {
        found.add_figure(Kind::Memory, "allocations", before, after);
    }
    if let Some((before, after)) = both("workspace_bytes") {
        add_memory(found, "workspace_bytes", before, after);
    }
    for (kind, name) in [
        (Kind::Synchronisation, SYNCHRONISATIONS),
        (Kind::DriverMemory, DRIVER_ALLOCATIONS),
        (Kind::DriverMemory, DRIVER_FREES),
    ] {
        if let Some((before, after)) = both(name) {
            found.add_figure(kind, name, before, after);
        }
    }
    let has_a_kind =
        |name: &str| [SYNCHRONISATIONS, DRIVER_ALLOCATIONS, DRIVER_FREES].contains(&name);
    for name in base.counts.keys().filter(|name| !has_a_kind(name)) {
        if let (Some((before, after)), true) = (both(name), found.pair.policy.is_steady(name)) {
            found.add_figure(Kind::Counts, name, before, after);
        }
    }
}

/// A figure of which less is worse.
fn add_fewer(found: &mut Found, kind: Kind, name: &str, before: u64, after: u64) {
    if before != after {
        found.add(kind, worse_if(after < before), name, before, after);
    }
}

/// Most memory in use, beyond the share that the policy lets pass.
pub fn memory(found: &mut Found) {
    let (base, head) = (found.pair.base, found.pair.head);
    if let Some((before, after)) = base.peak_bytes.zip(head.peak_bytes)
        && before.abs_diff(after) >= ROUNDING
    {
        add_memory(found, "peak_bytes", before, after);
    }
}

fn add_memory(found: &mut Found, name: &str, before: u64, after: u64) {
    let counts = before as f64 * found.pair.policy.memory_share;
    if before.abs_diff(after) as f64 > counts {
        found.add_figure(Kind::Memory, name, before, after);
    }
}

/// Parameters whose effective value differs where both sides tell it.
pub fn parameters(found: &mut Found) {
    let (base, head) = (&found.pair.base.effective, &found.pair.head.effective);
    let names: BTreeSet<&String> = base.keys().collect();
    let changed: Vec<(&String, &ParamValue, &ParamValue)> = names
        .into_iter()
        .filter_map(|name| Some((name, base.get(name)?, head.get(name)?)))
        .filter(|(_, before, after)| before != after)
        .collect();
    for (name, before, after) in changed {
        found.add(Kind::Parameters, Direction::Other, name, before, after);
    }
}
