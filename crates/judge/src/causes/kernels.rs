//! Other kernels, or the same ones compiled into something else; and more of it in each call:
//! launches, code that is loaded, functions that are entered.

use super::Standing;
use super::call;
use super::facts::{Facts, Found, Source, TOLD};
use crate::counts::{AUTOTUNE, event, host_time};
use crate::judgement::{Account, AccountLine, Cause, Fact, Item};
use regatta_core::machine::{
    Became, KernelChange, KernelRow, LaunchChange, Scope, Sides, moves_data, short,
};
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{Nanoseconds, Ratio, counted};

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
        .filter(|line| call::more_work(&line.item).is_some());
    let told = more.take(TOLD).map(|line| Fact::said(&line.item.told()));
    Found::of(Cause::MoreInstructions, told.collect(), 0.6)
}

/// Kernels that are launched as before and take longer: not their launch's fault.
pub fn same_launch(facts: &Facts) -> Option<Found> {
    let worth = facts.traces()?.head.busy_ns * WORTH;
    let slower = facts.kernels.iter().filter(|kernel| {
        kernel.became == Became::Same
            && kernel.changes.is_empty()
            && kernel.ratio() > Ratio::grown_by(facts.threshold)
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

/// More launches, those that move data aside: they are `copies-added`. None before: the
/// census saw nothing, or the worker runs on the host.
pub fn added(facts: &Facts) -> Option<Found> {
    let (mut count, mut growth) = (Sides::of(0.0, 0.0), Nanoseconds::ZERO);
    for kernel in facts.kernels.iter().filter(|k| !moves_data(k.called())) {
        count.base += kernel.count.base;
        count.head += kernel.count.head;
        if kernel.count.growth() > 0.0 {
            growth += kernel.growth_ns();
        }
    }
    // Each launch comes with a gap before it.
    let idle = facts
        .waits
        .map(|sides| sides.head.idle_ns - sides.base.idle_ns);
    growth += idle.unwrap_or_default().max(Nanoseconds::ZERO);
    (count.base > 0.0 && count.growth() > 0.0).then(|| {
        let told = vec![Fact::count("launches", count, "")];
        let found = Found::new(Cause::LaunchesAdded, told, 0.7);
        found.growing(growth).worse(true)
    })
}

/// More modules loaded in steady state: something is compiled or tuned again each time. Of
/// a whole program it may be no more than another warm-up.
pub fn modules_loaded(facts: &Facts) -> Option<Found> {
    let loads = facts.more("module_loads")?;
    let (what, of, order) = match facts.source {
        Source::Call(_) => {
            let what = "modules loaded by a call in steady state";
            (what, "", facts.if_host(0.94, 0.6))
        }
        Source::Trace(_, Scope::Repetition) => ("modules loaded", " a repetition", 0.92),
        Source::Trace(_, Scope::Whole) => return None,
    };
    let told = vec![Fact::count(what, loads, of)];
    Some(Found::new(Cause::ModulesLoaded, told, order))
}

/// Events of a counted function in one call of each; `None` where they are no more than
/// they were. A side that lacks the count was not counted: it is not 0.
fn more_events(facts: &Facts, count: &str) -> Option<Sides<u64>> {
    let (base, head) = facts.structures()?;
    let count = Sides::of(*base.counts.get(count)?, *head.counts.get(count)?);
    (count.head > count.base).then_some(count)
}

/// Counted functions that a steady call should not enter, or not so often: a backend
/// selected anew, a kernel or graph compiled again. Those of autotuning are `retuned`.
pub fn events_added(facts: &Facts) -> Option<Found> {
    let (pair, (_, head)) = (facts.call()?, facts.structures()?);
    let more = head.counts.keys().filter_map(|name| {
        let function = name
            .strip_prefix("calls.")
            .filter(|name| *name != AUTOTUNE)?;
        let (count, host) = (more_events(facts, name)?, host_time(pair.head, function));
        Some(match event(function) {
            Some(event) => Fact::Events {
                what: event.to_owned(),
                count,
                of: " a call".to_owned(),
                host,
            },
            None => Fact::Calls {
                name: function.to_owned(),
                count,
                host,
            },
        })
    });
    Found::of(Cause::EventsAdded, more.collect(), facts.if_host(0.9, 0.6))
}

/// An autotuner tunes again, told against the lengths that the call saw.
pub fn retuned(facts: &Facts) -> Option<Found> {
    let count = more_events(facts, &format!("calls.{AUTOTUNE}"))?;
    let head = facts.call()?.head;
    let of = match head.effective.get("lengths") {
        Some(ParamValue::Int(1)) => " in a call of one length".to_owned(),
        Some(ParamValue::Int(lengths)) => format!(" in {lengths} lengths"),
        _ => " in a call".to_owned(),
    };
    let told = Fact::Events {
        what: "retuned".to_owned(),
        count,
        of,
        host: host_time(head, AUTOTUNE),
    };
    Some(Found::new(Cause::Retuned, vec![told], 0.97))
}

/// Modules that are loaded late without anything being compiled again: what a program
/// first uses at its end.
const LATE: u64 = 2;

/// Modules a repetition from which code is compiled again and again, rather than loaded
/// when it is first used.
const AGAIN: f64 = 0.05;

/// Code that is still loaded once a program is steady: something is compiled or tuned
/// again.
pub fn still_loading(standing: &Standing) -> Option<Found> {
    let (loads, part) = (standing.late_loads?, standing.late);
    let each = loads as f64 / standing.repeats;
    if loads <= LATE || each < AGAIN {
        return None;
    }
    let each = match standing.is_steady() {
        true => format!(", {each:.2} a repetition"),
        false => String::new(),
    };
    let loads = counted(loads as usize, "module");
    let mut told = vec![Fact::said(&format!("{loads} loaded in {part}{each}"))];
    let kernels = standing.of.kernels.iter();
    let varied = kernels
        .map(|kernel| (versions(kernel), kernel))
        .max_by_key(|(versions, _)| *versions)
        .filter(|(versions, _)| *versions > 1);
    // Loading by itself does not tell why; one kernel in several versions does.
    let cause = match varied {
        None => Cause::ModulesLoaded,
        Some((versions, kernel)) => {
            let name = short(&kernel.name);
            told.push(Fact::said(&format!(
                "{name} ran in {versions} versions of registers, block and shared memory"
            )));
            Cause::Recompiled
        }
    };
    Some(Found::new(cause, told, 0.85))
}

/// In how many ways a kernel was compiled, as far as its launches tell.
fn versions(kernel: &KernelRow) -> usize {
    let shapes = kernel.shapes.iter();
    let versions: std::collections::BTreeSet<_> = shapes
        .map(|shape| {
            (
                shape.block,
                shape.registers,
                shape.shared_bytes,
                shape.local_bytes,
            )
        })
        .collect();
    match moves_data(&kernel.name) {
        // One name of many kernels.
        true => 0,
        false => versions.len(),
    }
}
