//! What differs between the structures of two calls of one case.
//!
//! Launches are compared as a set: their order, their streams and the spelling of their
//! names ([`normalised`](crate::judge::kernels::normalised)) are no difference.

use std::collections::BTreeMap;

use super::counts;
use super::found::{Found, Pair, worse_if};
use crate::attention::{Launch, Structure, moves_data};
use crate::judge::judgement::{Direction, StructuralChange};
use crate::judge::kernels::{by_kernel, short, sizes, threads};
use crate::record::side::CaseRecord;
use crate::suite::structural::Kind;

/// Every difference, what fails first, then by kind. `None` where a side has no structure.
pub fn changes(pair: &Pair) -> Option<Vec<StructuralChange>> {
    let (base, head) = (known(pair.base)?, known(pair.head)?);
    let mut found = Found {
        pair,
        changes: Vec::new(),
    };
    // Launches of one side alone were not counted on the other: that is no change from none.
    if !base.launches.is_empty() && !head.launches.is_empty() {
        launches(&mut found, base, head);
    }
    counts::compare(&mut found, base);
    counts::memory(&mut found);
    counts::parameters(&mut found);
    found
        .changes
        .sort_by(|a, b| b.action.cmp(&a.action).then(a.kind.cmp(&b.kind)));
    Some(found.changes)
}

fn known(record: &CaseRecord) -> Option<&Structure> {
    record.structure.as_ref().filter(|found| !found.is_empty())
}

type Kernels<'a> = BTreeMap<String, Vec<&'a Launch>>;

/// Launches by normalised name, each list in an order of its own figures.
fn sorted(structure: &Structure) -> Kernels<'_> {
    let mut kernels = by_kernel(structure);
    for launches in kernels.values_mut() {
        launches.sort_by_key(|launch| (launch.blocks(), launch.grid, launch.block));
    }
    kernels
}

fn launches(found: &mut Found, base: &Structure, head: &Structure) {
    let (before, after) = (sorted(base), sorted(head));
    replaced(found, &before, &after);
    for (name, before) in &before {
        let Some(after) = after.get(name) else {
            continue;
        };
        if before.len() == after.len() {
            alike(found, name, before, after);
        } else {
            number(found, name, before.len(), after.len());
            // Which of them is which is unknown; the largest stand for all.
            alike(
                found,
                name,
                &before[before.len() - 1..],
                &after[after.len() - 1..],
            );
        }
    }
}

/// Another number of launches of one kernel.
fn number(found: &mut Found, name: &str, before: usize, after: usize) {
    let kind = match moves_data(name) {
        true => Kind::Copies,
        false => Kind::Launches,
    };
    found.add_figure(kind, name, before as u64, after as u64);
}

/// Kernels that one side alone has. Those that compute replace each other; one that
/// moves data is one more or one less.
fn replaced(found: &mut Found, before: &Kernels, after: &Kernels) {
    let only = |here: &Kernels, there: &Kernels| -> Vec<(String, u64, usize)> {
        let here = here.iter().filter(|(name, _)| !there.contains_key(*name));
        here.map(|(name, launches)| {
            let blocks = launches.iter().map(|launch| launch.blocks()).max();
            (name.clone(), blocks.unwrap_or(0), launches.len())
        })
        .collect()
    };
    let (moved_gone, gone): (Vec<_>, Vec<_>) = only(before, after)
        .into_iter()
        .partition(|k| moves_data(&k.0));
    let (moved_new, new): (Vec<_>, Vec<_>) = only(after, before)
        .into_iter()
        .partition(|k| moves_data(&k.0));
    for (name, _, launches) in &moved_gone {
        number(found, name, *launches, 0);
    }
    for (name, _, launches) in &moved_new {
        number(found, name, 0, *launches);
    }
    let total = |kernels: &[(String, u64, usize)]| kernels.iter().map(|k| k.2).sum::<usize>();
    let (Some(first_gone), Some(first_new)) = (gone.first(), new.first()) else {
        for (name, _, launches) in &gone {
            number(found, name, *launches, 0);
        }
        for (name, _, launches) in &new {
            number(found, name, 0, *launches);
        }
        return;
    };
    let names = |kernels: &[(String, u64, usize)]| {
        let names: Vec<String> = kernels.iter().map(|kernel| short(&kernel.0)).collect();
        names.join(", ")
    };
    let (was, is) = (names(&gone), names(&new));
    found.add(
        Kind::KernelReplaced,
        Direction::Other,
        &first_new.0,
        was,
        is,
    );
    if total(&gone) != total(&new) {
        number(found, &first_new.0, total(&gone), total(&new));
    }
    let largest = |kernels: &[(String, u64, usize)], first: &(String, u64, usize)| {
        kernels.iter().map(|k| k.1).max().unwrap_or(first.1)
    };
    fill(
        found,
        &first_new.0,
        largest(&gone, first_gone),
        largest(&new, first_new),
    );
}

/// Reads a figure off a launch, where it is known.
type Read = fn(&Launch) -> Option<u64>;

/// Differences of one kernel that both sides launch; the gravest pair of each kind.
fn alike(found: &mut Found, name: &str, before: &[&Launch], after: &[&Launch]) {
    let pairs = || before.iter().copied().zip(after.iter().copied());
    let differing = |figure: Read| {
        let both = pairs().filter_map(|(b, a)| Some((figure(b)?, figure(a)?)));
        both.filter(|(b, a)| a != b)
            .max_by_key(|(b, a)| b.abs_diff(*a))
    };
    if let Some((b, a)) = pairs()
        .filter(|(b, a)| b.grid != a.grid)
        .max_by_key(|(b, a)| b.blocks().abs_diff(a.blocks()))
    {
        let direction = match a.blocks() < b.blocks() && threads(a) < threads(b) {
            true => Direction::Worse,
            false => Direction::Other,
        };
        found.add(Kind::Grid, direction, name, sizes(b.grid), sizes(a.grid));
        fill(found, name, b.blocks(), a.blocks());
    }
    if let Some((b, a)) = pairs().find(|(b, a)| b.block != a.block) {
        let (b, a) = (sizes(b.block), sizes(a.block));
        found.add(Kind::Block, Direction::Other, name, b, a);
    }
    let more_is_worse: [(Kind, Read); 3] = [
        (Kind::Registers, |launch| launch.registers.map(u64::from)),
        (Kind::Spills, |launch| launch.local_bytes),
        (Kind::SharedMemory, |launch| launch.shared_bytes),
    ];
    for (kind, figure) in more_is_worse {
        if let Some((b, a)) = differing(figure) {
            found.add_figure(kind, name, b, a);
        }
    }
    if let Some((b, a)) = differing(|launch| launch.blocks_per_sm.map(u64::from)) {
        found.add(Kind::Occupancy, worse_if(a < b), name, b, a);
    }
}

/// Multiprocessors that a grid has a block for, where that changed. Kernels that move data
/// are left out: wider accesses take fewer blocks and are the better for it.
fn fill(found: &mut Found, name: &str, before: u64, after: u64) {
    let Some(sms) = found.pair.sms.filter(|_| !moves_data(name)) else {
        return;
    };
    let (b, a) = (before.min(sms), after.min(sms));
    if a != b {
        let of = |busy: u64| format!("{busy} of {sms} SMs");
        found.add(Kind::Fill, worse_if(a < b), name, of(b), of(a));
    }
}

#[cfg(test)]
mod tests;
