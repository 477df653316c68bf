//! What differs between the structures of two calls of one case.
//!
//! Launches are compared as a set: their order, their streams and the spelling of their
//! names ([`normalised`](regatta_core::machine::normalised)) are no difference.

use super::found::{Found, Pair, worse_if};
use super::{counts, instructions};
use crate::judgement::{Direction, StructuralChange};
use regatta_core::machine::{Became, KernelChange, LaunchChange, Sides, Structure};
use regatta_core::machine::{moves_data, of_calls, short, sizes};
use regatta_core::record::side::CaseRecord;
use regatta_core::suite::structural::Kind;

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
    counts::compare(&mut found, base);
    counts::watched(&mut found, base, head);
    counts::memory(&mut found);
    counts::parameters(&mut found);
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

#[cfg(test)]
mod tests;
