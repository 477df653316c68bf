//! What differs between the structures of two calls of one case: launches, counts, memory and
//! parameters.
//!
//! Launches are compared as a set: their order, their streams and the spelling of their
//! names ([`normalised`](regatta_core::machine::normalised)) are no difference.

use std::collections::{BTreeMap, BTreeSet};

use super::instructions;
use super::{Found, Pair, worse_if};
use crate::counts::count;
use crate::judgement::{Direction, StructuralChange};
use regatta_core::machine::{
    BYTES, Became, DRIVER_ALLOCATIONS, DRIVER_FREES, KernelChange, LaunchChange, SYNCHRONISATIONS,
    Sides, Structure, moves_data, of_calls, short, sizes,
};
use regatta_core::record::side::CaseRecord;
use regatta_core::suite::structural::{Kind, StructurePolicy};
use regatta_worker::units::Bytes;

/// Every difference, what fails first, then by kind. `None` where a side has no structure.
pub fn changes(pair: &Pair) -> Option<Vec<StructuralChange>> {
    let (base, head) = (known(pair.base)?, known(pair.head)?);
    changes_of(pair, &of_calls(base, head, pair.sms))
}

/// The same, where the launches of both calls were compared before.
pub fn changes_of(pair: &Pair, kernels: &[KernelChange]) -> Option<Vec<StructuralChange>> {
    let (base, head) = (known(pair.base)?, known(pair.head)?);
    let mut found = Found {
        pair,
        changes: Vec::new(),
    };
    // Launches of one side alone were not counted on the other: that is no change from none.
    if !base.launches.is_empty() && !head.launches.is_empty() {
        launches(&mut found, kernels);
    }
    compare(&mut found, base);
    watched(&mut found, base, head);
    parameters(&mut found);
    instructions::compare(&mut found);
    found
        .changes
        .sort_by(|a, b| b.action.cmp(&a.action).then(a.kind.cmp(&b.kind)));
    Some(found.changes)
}

fn known(record: &CaseRecord) -> Option<&Structure> {
    record
        .structure
        .as_deref()
        .filter(|found| !found.is_empty())
}

fn launches(found: &mut Found, kernels: &[KernelChange]) {
    replaced(found, kernels);
    for kernel in of(kernels, Became::Same) {
        number(found, kernel);
        for change in &kernel.changes {
            differs(found, kernel, *change);
        }
    }
}

fn of(kernels: &[KernelChange], became: Became) -> impl Iterator<Item = &KernelChange> {
    kernels.iter().filter(move |kernel| kernel.became == became)
}

/// Another number of launches of one kernel.
fn number(found: &mut Found, kernel: &KernelChange) {
    let name = kernel.called();
    let kind = match moves_data(name) {
        true => Kind::Copies,
        false => Kind::Launches,
    };
    let [before, after] = [kernel.count.base, kernel.count.head].map(|count| count as u64);
    found.add_figure(kind, name, before, after);
}

/// Kernels that one side alone has. Those that compute replace each other; one that
/// moves data is one more or one less.
fn replaced(found: &mut Found, kernels: &[KernelChange]) {
    let only = |became| -> (Vec<&KernelChange>, Vec<&KernelChange>) {
        of(kernels, became).partition(|kernel| moves_data(kernel.called()))
    };
    let ((moved_gone, gone), (moved_new, new)) = (only(Became::Removed), only(Became::Added));
    for kernel in moved_gone.iter().chain(&moved_new) {
        number(found, kernel);
    }
    let Some(first) = new.first().filter(|_| !gone.is_empty()) else {
        for kernel in gone.iter().chain(&new) {
            number(found, kernel);
        }
        return;
    };
    let names = |kernels: &[&KernelChange]| {
        let names: Vec<String> = kernels
            .iter()
            .map(|kernel| short(kernel.called()))
            .collect();
        names.join(", ")
    };
    let (was, is) = (names(&gone), names(&new));
    found.add(
        Kind::KernelReplaced,
        Direction::Other,
        first.called(),
        was,
        is,
    );
    let sum = |kernels: &[&KernelChange], of: fn(&KernelChange) -> f64| {
        kernels.iter().copied().map(of).sum::<f64>()
    };
    let most = |kernels: &[&KernelChange], of: fn(&KernelChange) -> u64| {
        kernels.iter().copied().map(of).max().unwrap_or(0)
    };
    let whole = KernelChange {
        count: Sides::of(sum(&gone, |k| k.count.base), sum(&new, |k| k.count.head)),
        blocks: Sides::of(
            most(&gone, |k| k.blocks.base),
            most(&new, |k| k.blocks.head),
        ),
        ..(*first).clone()
    };
    number(found, &whole);
    fill(found, &whole);
}

/// A figure of the launches of a kernel that both sides launch.
fn differs(found: &mut Found, kernel: &KernelChange, change: LaunchChange) {
    let name = kernel.called();
    match change {
        LaunchChange::Grid(before, after) => {
            let direction = match kernel.fewer > 1.0 {
                true => Direction::Worse,
                false => Direction::Other,
            };
            found.add(Kind::Grid, direction, name, sizes(before), sizes(after));
            fill(found, kernel);
        }
        LaunchChange::Block(before, after) => {
            let (before, after) = (sizes(before), sizes(after));
            found.add(Kind::Block, Direction::Other, name, before, after);
        }
        LaunchChange::Registers(before, after) => {
            found.add_figure(Kind::Registers, name, before, after);
        }
        LaunchChange::LocalMemory(before, after) => {
            found.add_figure(Kind::Spills, name, before, after);
        }
        LaunchChange::SharedMemory(before, after) => {
            found.add_figure(Kind::SharedMemory, name, before, after);
        }
        LaunchChange::Occupancy(before, after) => {
            found.add(
                Kind::Occupancy,
                worse_if(after < before),
                name,
                before,
                after,
            );
        }
        // Calls do not tell of it.
        LaunchChange::Cluster(..) => {}
    }
}

/// Multiprocessors that a grid has a block for, where that changed. Kernels that move data
/// are left out: wider accesses take fewer blocks and are the better for it.
fn fill(found: &mut Found, kernel: &KernelChange) {
    let filled = kernel.filled().filter(|_| !moves_data(kernel.called()));
    if let (Some(filled), Some(sms)) = (filled.filter(|f| f.base != f.head), kernel.sms) {
        let told = filled.map(|busy| format!("{busy} of {sms} SMs"));
        let worse = worse_if(filled.head < filled.base);
        found.add(Kind::Fill, worse, kernel.called(), told.base, told.head);
    }
}

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
