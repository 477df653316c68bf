//! Other kernels, or the same ones compiled into something else.

use super::facts::{Facts, Found, TOLD};
use crate::judge::judgement::Cause;
use crate::judge::phrase::{change, from_to};
use crate::machine::moves_data;
use crate::machine::short;
use crate::machine::{Became, KernelChange, LaunchChange};

/// Share of a repetition's time below which a change of one kernel is not worth a finding
/// by its time alone.
const WORTH: f64 = 0.02;

/// `2.60 → 268.0 ms, 103.1x slower`, of a launch in a trace.
pub fn times(kernel: &KernelChange) -> String {
    let times = from_to(kernel.mean_ns.base, kernel.mean_ns.head);
    format!("{times}, {}", change(kernel.ratio()))
}

/// Another kernel does the work.
pub fn replaced(facts: &Facts) -> Option<Found> {
    match facts.call() {
        Some(_) => replaced_in_a_call(facts),
        None => replaced_in_a_trace(facts),
    }
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
    let (before, after) = (names(Became::Removed), names(Became::Added));
    let evidence = match before == after {
        true => format!("{before}: its arguments differ further on in the name"),
        false => format!("{before} → {after}"),
    };
    let both = !before.is_empty() && !after.is_empty();
    both.then(|| Found::new(Cause::KernelReplaced, evidence, 0.8))
}

/// Kernels in the place of others.
fn replaced_in_a_trace(facts: &Facts) -> Option<Found> {
    let replaced = facts
        .kernels
        .iter()
        .filter(|k| k.became == Became::Replaced);
    let replaced: Vec<&KernelChange> = replaced.collect();
    let told = replaced.iter().take(TOLD).map(|kernel| {
        let (before, after) = (short(&kernel.name.base), short(&kernel.name.head));
        let names = match before == after {
            true => format!("{before} (differs further on in its name)"),
            false => format!("{before} → {after}"),
        };
        format!("{names}: {}", times(kernel))
    });
    let mut told: Vec<String> = told.collect();
    if replaced.len() > TOLD {
        told.push(format!("and {} more", replaced.len() - TOLD));
    }
    let found = Found::of(Cause::KernelReplaced, &told, "; ", 0.8)?;
    Some(found.growing(growth(&replaced)))
}

fn growth(kernels: &[&KernelChange]) -> f64 {
    kernels.iter().map(|kernel| kernel.growth_ns()).sum()
}

/// The same kernels with other registers, memory or blocks. What a call says of grids and of
/// local memory that grew are causes of their own.
pub fn recompiled(facts: &Facts) -> Option<Found> {
    let is_grid = |change: &LaunchChange| matches!(change, LaunchChange::Grid(..));
    let of_a_call = facts.call().is_some();
    let changed = facts.kernels.iter().filter_map(|kernel| {
        let mut changes = kernel.changes.clone();
        if of_a_call {
            let follows = |change: &LaunchChange| matches!(change, LaunchChange::Occupancy(..));
            changes.retain(|c| !is_grid(c) && grown(c).is_none() && !follows(c));
        }
        let compiled = kernel.became == Became::Same && !changes.iter().all(is_grid);
        (compiled && (of_a_call || kernel.fewer <= 1.0)).then_some((kernel, changes))
    });
    let changed: Vec<(&KernelChange, Vec<LaunchChange>)> = changed.collect();
    let told = changed.iter().map(|(kernel, changes)| {
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let text = format!("{} of {}", changes.join(", "), short(&kernel.name.head));
        match of_a_call {
            true => text,
            false => format!("{text}: {}", times(kernel)),
        }
    });
    let told: Vec<String> = told
        .take(if of_a_call { usize::MAX } else { TOLD })
        .collect();
    let kernels: Vec<&KernelChange> = changed.iter().map(|(kernel, _)| *kernel).collect();
    let found = Found::of(Cause::Recompiled, &told, "; ", 0.65)?;
    Some(found.growing(growth(&kernels)))
}

/// Local memory before and after, where there is more of it.
fn grown(change: &LaunchChange) -> Option<(u64, u64)> {
    match *change {
        LaunchChange::LocalMemory(before, after) if after > before => Some((before, after)),
        _ => None,
    }
}

/// Threads have more local memory in a call: registers that spill go through the caches at
/// each use.
pub fn spills(facts: &Facts) -> Option<Found> {
    facts.call()?;
    let spilled = facts.kernels.iter().filter_map(|kernel| {
        let (before, after) = kernel.changes.iter().find_map(grown)?;
        let name = short(&kernel.name.head);
        Some(format!("{before} → {after} bytes a thread of {name}"))
    });
    let spilled: Vec<String> = spilled.collect();
    let evidence = format!("local memory {}", spilled.join("; "));
    (!spilled.is_empty()).then(|| Found::new(Cause::Spills, evidence, 0.85))
}

/// Kernels that are launched as before and take longer: not their launch's fault.
pub fn same_launch(facts: &Facts) -> Option<Found> {
    let worth = WORTH * facts.traces()?.head.busy_ns;
    let slower = facts.kernels.iter().filter(|kernel| {
        kernel.became == Became::Same
            && kernel.changes.is_empty()
            && kernel.ratio() > 1.0 + facts.floor
            && kernel.growth_ns() > worth
    });
    let slower: Vec<&KernelChange> = slower.collect();
    let told = slower.iter().take(TOLD);
    let told = told.map(|kernel| format!("{}: {}", short(&kernel.name.head), times(kernel)));
    let evidence = format!(
        "{}; launched as before: other inputs, a lower clock, or another user of the device",
        told.collect::<Vec<_>>().join("; ")
    );
    let found = || Found::new(Cause::SameLaunch, evidence, 0.35).growing(growth(&slower));
    (!slower.is_empty()).then(found)
}
