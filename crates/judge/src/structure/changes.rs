//! Differences between the structures of two calls of one case: launches, counts, memory,
//! parameters and instructions.
//!
//! Launches are compared as a set: their order, their streams and the spelling of their
//! names ([`normalised`](regatta_core::machine::normalised)) do not matter.

use std::collections::{BTreeMap, BTreeSet};

use super::instructions;
use super::{Changes, Structures, count, worse_if};
use crate::judgement::{Difference, Direction, StructuralChange};
use regatta_core::machine::{
    BYTES, Became, DRIVER_ALLOCATIONS, DRIVER_FREES, KernelChange, Launch, LaunchChange,
    SYNCHRONISATIONS, Sides, Structure, moves_data, of_calls,
};
use regatta_core::record::CaseRecord;
use regatta_core::suite::{Kind, MEMORY_SHARE, is_steady};
use regatta_worker::case::ParamValue;

/// All differences, sorted by action and then by kind, failures first. `None` if a side has no
/// structure.
pub fn changes(pair: &Structures) -> Option<Vec<StructuralChange>> {
    let (base, head) = (known(pair.base)?, known(pair.head)?);
    let mut changes = Changes {
        pair,
        changes: Vec::new(),
    };
    // Launches that only one side recorded are not new launches.
    let both = !base.launches.is_empty() && !head.launches.is_empty();
    if both && base.launches != head.launches {
        launches(&mut changes, &of_calls(base, head, pair.sms));
        if let Some(spills) = spills_of_other_kernels(base, head) {
            changes.add(Kind::Spills, Direction::Worse, spills);
        }
    }
    if !pair.are_alike() {
        counts(&mut changes, base);
    }
    runs(&mut changes, base, head);
    for (name, value) in parameters(pair.base, pair.head) {
        let (kind, name) = (Kind::Parameters, name.clone());
        changes.add(
            kind,
            Direction::Other,
            Difference::Parameter { name, value },
        );
    }
    instructions::compare(&mut changes);
    changes
        .changes
        .sort_by(|a, b| b.action.cmp(&a.action).then(a.kind.cmp(&b.kind)));
    Some(changes.changes)
}

fn known(record: &CaseRecord) -> Option<&Structure> {
    let structure = record.structure.as_deref();
    structure.filter(|changes| !changes.is_empty())
}

fn launches(changes: &mut Changes, kernels: &[KernelChange]) {
    replaced(changes, kernels);
    for kernel in kernels
        .iter()
        .filter(|kernel| kernel.became == Became::Same)
    {
        number(changes, kernel);
        for change in &kernel.changes {
            figure(changes, kernel, *change);
        }
    }
}

/// The largest local memory of a thread among kernels that only the head launches, if it is larger
/// than among those that only the base launches.
pub fn spills_of_other_kernels(base: &Structure, head: &Structure) -> Option<Difference> {
    let (before, after) = (base.by_kernel(), head.by_kernel());
    let most = |kernels: &BTreeMap<String, Vec<&Launch>>,
                other: &BTreeMap<String, Vec<&Launch>>| {
        let alone = kernels
            .iter()
            .filter(|(name, _)| !other.contains_key(*name));
        let sizes = alone.flat_map(|(name, launches)| {
            let sizes = launches.iter().filter_map(|launch| launch.local_bytes);
            sizes.map(|bytes| (bytes, name.clone()))
        });
        sizes.max()
    };
    let before = most(&before, &after).map_or(0, |(bytes, _)| bytes);
    let (bytes, kernel) = most(&after, &base.by_kernel()).filter(|(bytes, _)| *bytes > before)?;
    let change = LaunchChange::LocalMemory(before, bytes);
    Some(Difference::Launch { kernel, change })
}

/// Adds the difference in a kernel's number of launches.
fn number(changes: &mut Changes, kernel: &KernelChange) {
    let kind = if moves_data(kernel.called()) {
        Kind::Copies
    } else {
        Kind::Launches
    };
    let count = kernel.count;
    changes.add_figure(kind, count, Difference::launches(kernel));
}

/// Adds kernels that only one side launches. Those that compute replace each other; those that move
/// data are counted as added or gone.
fn replaced(changes: &mut Changes, kernels: &[KernelChange]) {
    let one_sided = kernels
        .iter()
        .filter(|kernel| kernel.became != Became::Same);
    let (moving, computing): (Vec<&KernelChange>, Vec<&KernelChange>) =
        one_sided.partition(|kernel| moves_data(kernel.called()));
    moving.iter().for_each(|kernel| number(changes, kernel));
    let is_gone = |kernel: &&KernelChange| kernel.became == Became::Removed;
    let (gone, new): (Vec<&KernelChange>, Vec<&KernelChange>) =
        computing.iter().copied().partition(is_gone);
    let Some(first) = new.first().filter(|_| !gone.is_empty()) else {
        return computing.iter().for_each(|kernel| number(changes, kernel));
    };
    let names = Sides::new(
        names(gone.iter().map(|kernel| &kernel.name.base)),
        names(new.iter().map(|kernel| &kernel.name.head)),
    );
    let kernel = Difference::Kernel { names };
    changes.add(Kind::KernelReplaced, Direction::Other, kernel);
    let sum = |kernels: &[&KernelChange], value: fn(&KernelChange) -> f64| {
        kernels.iter().copied().map(value).sum::<f64>()
    };
    let most = |kernels: &[&KernelChange], value: fn(&KernelChange) -> u64| {
        kernels.iter().copied().map(value).max().unwrap_or(0)
    };
    let (before, after) = (
        most(&gone, |k| k.blocks.base),
        most(&new, |k| k.blocks.head),
    );
    let whole = KernelChange {
        count: Sides::new(sum(&gone, |k| k.count.base), sum(&new, |k| k.count.head)),
        blocks: Sides::new(before, after),
        ..(*first).clone()
    };
    number(changes, &whole);
    fill(changes, &whole);
}

/// The largest number of replaced kernels that are named.
const MAX_NAMED: usize = 3;

/// The first three names of kernels, with `...` if there are more.
pub fn names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = all.cloned().collect();
    if names.len() > MAX_NAMED {
        names.splice(MAX_NAMED.., ["...".to_owned()]);
    }
    names
}

/// A figure of the launches of a kernel that both sides launch.
fn figure(changes: &mut Changes, kernel: &KernelChange, change: LaunchChange) {
    let (kind, direction) = match change {
        LaunchChange::Grid(..) if kernel.fewer > 1.0 => (Kind::Grid, Direction::Worse),
        LaunchChange::Grid(..) => (Kind::Grid, Direction::Other),
        LaunchChange::Block(..) => (Kind::Block, Direction::Other),
        LaunchChange::Registers(before, after) => (Kind::Registers, worse_if(after > before)),
        LaunchChange::LocalMemory(before, after) => (Kind::Spills, worse_if(after > before)),
        LaunchChange::SharedMemory(before, after) => (Kind::SharedMemory, worse_if(after > before)),
        LaunchChange::Occupancy(before, after) => (Kind::Occupancy, worse_if(after < before)),
        // Structures of calls do not record clusters.
        LaunchChange::Cluster(..) => return,
    };
    changes.add(kind, direction, Difference::launch(kernel, change));
    if kind == Kind::Grid {
        fill(changes, kernel);
    }
}

fn fill(changes: &mut Changes, kernel: &KernelChange) {
    let worse = kernel
        .filled()
        .is_some_and(|filled| filled.head < filled.base);
    if let Some(fill) = Difference::fill(kernel) {
        changes.add(Kind::Fill, worse_if(worse), fill);
    }
}

/// The counts that have a kind of their own, in the order of reporting.
const OF_A_KIND: [(&str, Kind); 8] = [
    ("tasks", Kind::Tasks),
    ("threads", Kind::Threads),
    ("copies", Kind::Copies),
    ("allocations", Kind::Memory),
    ("workspace_bytes", Kind::Memory),
    (SYNCHRONISATIONS, Kind::Synchronisation),
    (DRIVER_ALLOCATIONS, Kind::DriverMemory),
    (DRIVER_FREES, Kind::DriverMemory),
];

/// The kind of change of a count, if it is structure.
pub fn kind(count: &str) -> Option<Kind> {
    let own = OF_A_KIND.iter().find(|(name, _)| *name == count);
    let steady = || is_steady(count).then_some(Kind::Counts);
    own.map(|(_, kind)| *kind).or_else(steady)
}

/// Compares counts that both sides have. A count that a side lacks is unknown there, not 0; if the
/// head lacks it, [`super::vanished()`] reports it.
fn counts(changes: &mut Changes, base: &Structure) {
    let pair = changes.pair;
    // Kernels that copy are already reported, and a worker may count them as copies as well.
    let copies_named = changes
        .changes
        .iter()
        .any(|change| change.kind == Kind::Copies);
    let own = OF_A_KIND.iter().map(|(name, kind)| (*name, *kind));
    let asked = [SYNCHRONISATIONS, DRIVER_ALLOCATIONS, DRIVER_FREES];
    let others = base.counts.keys().map(String::as_str);
    let others = others.filter(|name| !asked.contains(name) && is_steady(name));
    for (name, kind) in own.chain(others.map(|name| (name, Kind::Counts))) {
        let both = Sides::both(count(pair.base, name), count(pair.head, name));
        let Some(count) = both.map(|both| both.map(|count| *count as f64)) else {
            continue;
        };
        let difference = Difference::count(name, count, "a call");
        match kind {
            // Under load, the scheduler decides how many threads run.
            Kind::Threads if pair.base.census_disturbed() || pair.head.census_disturbed() => {}
            Kind::Copies if copies_named => {}
            Kind::Tasks | Kind::Threads => {
                let fewer = Sides::new(count.head, count.base);
                changes.add_figure(kind, fewer, difference);
            }
            Kind::Memory if name.ends_with(BYTES) => {
                if count.growth().abs() > count.base * MEMORY_SHARE {
                    changes.add_figure(kind, count, Difference::memory(name, count));
                }
            }
            _ => changes.add_figure(kind, count, difference),
        }
    }
}

/// Compares the operators and Python functions of a call, if both sides recorded them. A side lists
/// everything that it ran, so one that is absent ran 0 times.
fn runs(changes: &mut Changes, base: &Structure, head: &Structure) {
    for (kind, before, after) in [
        (Kind::Operators, &base.operators, &head.operators),
        (Kind::Functions, &base.functions, &head.functions),
    ] {
        if before.is_empty() || after.is_empty() {
            continue;
        }
        // Kernels beyond the listed ones share one entry without a name.
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let count_of = |side: &BTreeMap<String, u64>| side.get(name).copied().unwrap_or(0);
            let (name, count) = (name.clone(), Sides::new(count_of(before), count_of(after)));
            if kind == Kind::Functions && changes.pair.is_counterpart(&name, count) {
                continue;
            }
            let runs = Difference::Runs { kind, name, count };
            changes.add_figure(kind, count, runs);
        }
    }
}

/// The parameters whose effective value differs, if both sides report it. A parameter of one side
/// only may come from a worker that reports more.
pub fn parameters<'a>(
    base: &'a CaseRecord,
    head: &'a CaseRecord,
) -> impl Iterator<Item = (&'a String, Sides<ParamValue>)> {
    base.effective.iter().filter_map(|(name, before)| {
        let after = head.effective.get(name).filter(|after| *after != before)?;
        Some((name, Sides::new(before.clone(), after.clone())))
    })
}
