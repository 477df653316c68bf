//! Whole tensors are copied that were not copied before.

use super::launches::plain;
use super::{Clock, EXPLAINS, Pair, finding};
use crate::attention::{Launch, Structure, moves_data};
use crate::judge::judgement::Finding;
use crate::judge::phrase::{count, part_of};
use crate::judge::structure::normalised;
use crate::record::side::CaseRecord;

/// Finds more kernels that move data, or more copies as the worker counts them, with the
/// time that they take of a call where it is known.
pub fn find(pair: &Pair) -> Option<Finding> {
    let mut evidence = Vec::new();
    let (base, head) = pair.structures()?;
    let (before, after) = (moving(base), moving(head));
    let added = after.len().saturating_sub(before.len());
    if added > 0 {
        let known = |launch: &&&Launch| {
            let name = normalised(&launch.name);
            before.iter().any(|other| normalised(&other.name) == name)
        };
        let new = after.iter().find(|launch| !known(launch)).or(after.last());
        let example = new.map_or_else(String::new, |launch| plain(&launch.name));
        evidence.push(format!("{} added ({example})", count(added, "copy kernel")));
    }
    // A worker may count kernels that copy as well: they are told already.
    if let Some((base, head)) = pair.counts("copies")
        && head.saturating_sub(base) > added as u64
    {
        evidence.push(format!("copies {base} → {head}"));
    }
    if evidence.is_empty() {
        return None;
    }
    let ns = moved_ns(pair.head).zip(moved_ns(pair.base));
    let ns = ns.map(|(after, before)| (after - before).max(0.0));
    if let (Some(ns), Some(whole)) = (ns, call_ns(pair)) {
        evidence.push(part_of(ns, whole));
    }
    // Copies that take a small part of what a call takes longer came with its cause.
    let aside = ns
        .zip(pair.slower_by())
        .is_some_and(|(ns, slower)| ns < EXPLAINS * slower);
    let confidence = if aside { 0.55 } else { 0.9 };
    Some(finding("copies-added", evidence.join(", "), confidence))
}

/// Launches that move data.
pub fn moving(structure: &Structure) -> Vec<&Launch> {
    let launches = structure.launches.iter();
    launches.filter(|launch| moves_data(&launch.name)).collect()
}

/// Nanoseconds of a call in which data is moved, by kernels or the driver, where its
/// activity tells them.
fn moved_ns(record: &CaseRecord) -> Option<f64> {
    let activity = record.activity.as_ref()?;
    Some((activity.moving_ns? + activity.copying_ns?) as f64)
}

/// Nanoseconds of the head's call on the device: as timed, or else in which it was busy.
fn call_ns(pair: &Pair) -> Option<f64> {
    let busy = || Some(pair.head.activity.as_ref()?.busy_ns as f64);
    let timed = pair.head_ns.filter(|_| pair.clock != Clock::Host);
    timed.or_else(busy)
}
