//! Other kernels, or the same ones compiled into something else.

use super::accounted;
use super::facts::{Facts, Found, TOLD};
use crate::judgement::{Account, AccountLine, Cause, Fact, Item};
use regatta_core::machine::{Became, KernelChange, LaunchChange, Sides, moves_data, short};
use regatta_worker::units::{Nanoseconds, Ratio};

/// Share of a repetition's time below which a change of one kernel is not worth a finding
/// by its time alone.
const WORTH: f64 = 0.02;

/// Another kernel does the work.
pub fn replaced(facts: &Facts) -> Option<Found> {
    let in_place = facts.account.as_ref().and_then(replaced_in_an_account);
    // A trace has no more than its operations in their order; a call has its structure as well.
    let told = facts.account.is_some() && facts.traces().is_some();
    if told || in_place.is_some() {
        return in_place;
    }
    match facts.call() {
        Some(_) => replaced_in_a_call(facts),
        None => replaced_in_a_trace(facts),
    }
}

/// What stands in the place of what, with its times, where both sides are laid side by side.
fn replaced_in_an_account(account: &Account) -> Option<Found> {
    let in_place = |line: &&AccountLine| match &line.item {
        Item::InPlace { names, .. } => !names.head.iter().all(|name| moves_data(name)),
        _ => false,
    };
    let lines: Vec<&AccountLine> = account.lines.iter().filter(in_place).collect();
    let told = lines.iter().take(TOLD).map(|line| match &line.item {
        // One for one, as often.
        Item::InPlace {
            names, count, time, ..
        } if names.base.len() == 1 && names.head.len() == 1 && count.base == count.head => {
            Fact::Replaced {
                kernels: names.map(|names| names.join(", ")),
                mean: Some(time.map(|time| *time / f64::from(count.base.max(1)))),
            }
        }
        item => Fact::said(&item.told()),
    });
    let found = Found::of(Cause::KernelReplaced, told.collect(), 0.8)?;
    Some(found.growing(lines.iter().map(|line| line.growth_ns).sum()))
}

/// Kernels that are gone together with kernels that are new: which is for which is unknown.
fn replaced_in_a_call(facts: &Facts) -> Option<Found> {
    let names = |became: Became| {
        let of = |kernel: &&KernelChange| kernel.became == became && !moves_data(kernel.called());
        let kernels = facts.kernels.iter().filter(of);
        let mut names: Vec<String> = kernels.map(|kernel| short(kernel.called())).collect();
        if names.len() > TOLD {
            names.splice(TOLD.., ["...".to_owned()]);
        }
        names.join(", ")
    };
    let kernels = Sides::of(names(Became::Removed), names(Became::Added));
    let both = !kernels.base.is_empty() && !kernels.head.is_empty();
    let told = Fact::Replaced {
        kernels,
        mean: None,
    };
    both.then(|| Found::new(Cause::KernelReplaced, vec![told], 0.8))
}

/// Kernels in the place of others.
fn replaced_in_a_trace(facts: &Facts) -> Option<Found> {
    let replaced = |kernel: &&KernelChange| kernel.became == Became::Replaced;
    let replaced: Vec<&KernelChange> = facts.kernels.iter().filter(replaced).collect();
    let told = replaced.iter().take(TOLD).map(|kernel| Fact::Replaced {
        kernels: kernel.name.map(|name| short(name)),
        mean: Some(kernel.mean_ns),
    });
    let mut told: Vec<Fact> = told.collect();
    if replaced.len() > TOLD {
        let more = replaced.len() - TOLD;
        told.push(Fact::said(&format!("and {more} more")));
    }
    let found = Found::of(Cause::KernelReplaced, told, 0.8)?;
    Some(found.growing(growth(&replaced)))
}

fn growth(kernels: &[&KernelChange]) -> Nanoseconds {
    kernels.iter().map(|kernel| kernel.growth_ns()).sum()
}

/// A kernel with these changes of its launches, and the time of one where a trace tells it;
/// `filled` are the multiprocessors with a block and all of them, where that is worth a word.
pub fn launch(
    facts: &Facts,
    kernel: &KernelChange,
    changes: Vec<LaunchChange>,
    filled: Option<(u64, u32)>,
) -> Fact {
    Fact::Launch {
        kernel: short(&kernel.name.head),
        changes,
        filled,
        mean: facts.traces().map(|_| kernel.mean_ns),
    }
}

/// The same kernels with other registers, memory or blocks. What a call says of grids and of
/// local memory that grew are causes of their own, and occupancy follows from the others.
pub fn recompiled(facts: &Facts) -> Option<Found> {
    let is_grid = |change: &LaunchChange| matches!(change, LaunchChange::Grid(..));
    let follows = |change: &LaunchChange| matches!(change, LaunchChange::Occupancy(..));
    let of_a_call = facts.call().is_some();
    let changed = facts.kernels.iter().filter_map(|kernel| {
        let mut changes = kernel.changes.clone();
        if of_a_call {
            changes.retain(|c| !is_grid(c) && !grown(c) && !follows(c));
        }
        let compiled = kernel.became == Became::Same && !changes.iter().all(is_grid);
        (compiled && (of_a_call || kernel.fewer <= 1.0)).then_some((kernel, changes))
    });
    let (kernels, told): (Vec<&KernelChange>, Vec<Fact>) = changed
        .map(|(kernel, changes)| (kernel, launch(facts, kernel, changes, None)))
        .unzip();
    let most = if of_a_call { usize::MAX } else { TOLD };
    let told = told.into_iter().take(most).collect();
    let found = Found::of(Cause::Recompiled, told, 0.65)?;
    Some(found.growing(growth(&kernels)))
}

/// True where there is more local memory.
fn grown(change: &LaunchChange) -> bool {
    matches!(*change, LaunchChange::LocalMemory(before, after) if after > before)
}

/// Threads have more local memory in a call: registers that spill go through the caches at
/// each use.
pub fn spills(facts: &Facts) -> Option<Found> {
    facts.call()?;
    let spilled = facts.kernels.iter().filter_map(|kernel| {
        let change = kernel.changes.iter().copied().find(grown)?;
        Some(launch(facts, kernel, vec![change], None))
    });
    Found::of(Cause::Spills, spilled.collect(), 0.85)
}

/// Kernels that execute more instructions, where hardware counted them.
pub fn more_instructions(facts: &Facts) -> Option<Found> {
    let lines = &facts.account.as_ref()?.lines;
    let more = lines
        .iter()
        .filter(|line| accounted::more_work(&line.item).is_some());
    let told = more.take(TOLD).map(|line| Fact::said(&line.item.told()));
    Found::of(Cause::MoreInstructions, told.collect(), 0.6)
}

/// Kernels that are launched as before and take longer: not their launch's fault.
pub fn same_launch(facts: &Facts) -> Option<Found> {
    let worth = facts.traces()?.head.busy_ns * WORTH;
    let slower = facts.kernels.iter().filter(|kernel| {
        kernel.became == Became::Same
            && kernel.changes.is_empty()
            && kernel.ratio() > Ratio::grown_by(facts.floor)
            && kernel.growth_ns() > worth
    });
    let slower: Vec<&KernelChange> = slower.collect();
    if slower.is_empty() {
        return None;
    }
    let told = slower.iter().take(TOLD);
    let mut told: Vec<Fact> = told.map(|k| launch(facts, k, Vec::new(), None)).collect();
    told.push(Fact::said(
        "launched as before: other inputs, a lower clock, or another user of the device",
    ));
    Some(Found::new(Cause::SameLaunch, told, 0.35).growing(growth(&slower)))
}
