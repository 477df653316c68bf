//! Other kernels, the same kernels compiled differently, and more work in each call: launches,
//! loaded code, entered functions.

use std::collections::BTreeSet;

use super::OneTrace;
use super::facts::{FactSource, Facts, Found, MAX_NAMED, more_work};
use crate::judgement::{Account, AccountLine, CALLS, Cause, Difference, Fact, Item};
use crate::structure::{AUTOTUNE, OF_THE_HOST, host_time, names, spills_of_other_kernels};
use regatta_core::machine::{
    Became, KernelChange, KernelRow, LaunchChange, Scope, Sides, moves_data, short,
};
use regatta_worker::case::ParamValue;
use regatta_worker::units::{Nanoseconds, Ratio, counted};

/// The share of a repetition's time below which a slower kernel is not reported.
const WORTH: f64 = 0.02;

/// Finds kernels that were replaced by others.
pub fn replaced(facts: &Facts) -> Option<Found> {
    let in_place = facts.account.as_ref().and_then(replaced_in_an_account);
    // A trace is only known by its sequence of operations; a call has its structure as well.
    let accounted = facts.account.is_some() && facts.traces().is_some();
    if accounted || in_place.is_some() {
        in_place
    } else {
        replaced_by_name(facts)
    }
}

/// Kernels that replace others at the same place of two aligned sequences, with their times.
fn replaced_in_an_account(account: &Account) -> Option<Found> {
    let in_place = |line: &&AccountLine| match &line.item {
        Item::InPlace { names, .. } => !names.head.iter().all(|name| moves_data(name)),
        _ => false,
    };
    let lines: Vec<&AccountLine> = account.lines.iter().filter(in_place).collect();
    let evidence = lines
        .iter()
        .take(MAX_NAMED)
        .flat_map(|line| match &line.item {
            // One kernel replaced one other, equally often.
            Item::InPlace {
                names, count, time, ..
            } if names.base.len() == 1 && names.head.len() == 1 && count.base == count.head => {
                let times = f64::from(count.base.max(1));
                let mean = Difference::Mean {
                    kernel: names.head[0].clone(),
                    time: time.map(|time| *time / times),
                };
                let names = names.clone();
                vec![Difference::Kernel { names }.into(), mean.into()]
            }
            item => vec![Fact::Words(item.to_string())],
        });
    let candidate = Found::resting_on(Cause::KernelReplaced, evidence.collect(), 0.8)?;
    Some(candidate.growing(lines.iter().map(|line| line.growth_ns).sum()))
}

/// Kernels that are gone, together with kernels that are new. In a call it is unknown which
/// replaced which.
fn replaced_by_name(facts: &Facts) -> Option<Found> {
    let is_call = facts.call().is_some();
    let kernels_that = |alone: Became| {
        let is = |kernel: &&KernelChange| match kernel.became {
            Became::Replaced => true,
            became => is_call && became == alone && !moves_data(kernel.called()),
        };
        facts.kernels.iter().filter(is).collect::<Vec<_>>()
    };
    let (gone, new) = (kernels_that(Became::Removed), kernels_that(Became::Added));
    let names = Sides::new(
        names(gone.iter().map(|kernel| &kernel.name.base)),
        names(new.iter().map(|kernel| &kernel.name.head)),
    );
    let both = !gone.is_empty() && !new.is_empty();
    let evidence = || vec![Difference::Kernel { names }.into()];
    let candidate = both.then(|| Found::new(Cause::KernelReplaced, evidence(), 0.8))?;
    Some(if is_call {
        candidate
    } else {
        candidate.growing(growth(&new))
    })
}

fn growth(kernels: &[&KernelChange]) -> Nanoseconds {
    kernels.iter().map(|kernel| kernel.growth_ns()).sum()
}

/// The facts of these launch changes of a kernel, with the mean time of a launch in a trace.
pub fn launch<'a>(
    facts: &Facts,
    kernel: &KernelChange,
    changes: impl IntoIterator<Item = &'a LaunchChange>,
) -> Vec<Fact> {
    let changes = changes.into_iter();
    let changes = changes.map(|change| Difference::launch(kernel, *change));
    let mean = facts.traces().map(|_| Difference::mean(kernel));
    changes.chain(mean).map(Fact::from).collect()
}

/// True for a change of the grid.
pub fn is_grid(change: &LaunchChange) -> bool {
    matches!(change, LaunchChange::Grid(..))
}

/// Finds kernels that were compiled differently: other registers, memory or blocks. In a call,
/// grids and larger local memory are causes of their own, and occupancy follows from the other
/// figures.
pub fn recompiled(facts: &Facts) -> Option<Found> {
    let follows = |change: &LaunchChange| matches!(change, LaunchChange::Occupancy(..));
    let of_a_call = facts.call().is_some();
    let most = if of_a_call { usize::MAX } else { MAX_NAMED };
    let (mut kernels, mut evidence) = (Vec::new(), Vec::new());
    for kernel in facts
        .kernels
        .iter()
        .filter(|kernel| kernel.became == Became::Same)
    {
        let mut changes = kernel.changes.clone();
        if of_a_call {
            changes.retain(|c| !is_grid(c) && !spilled(c) && !follows(c));
        }
        if changes.iter().all(is_grid) || !of_a_call && kernel.fewer > 1.0 {
            continue;
        }
        if kernels.len() < most {
            evidence.extend(launch(facts, kernel, &changes));
        }
        kernels.push(kernel);
    }
    let candidate = Found::resting_on(Cause::Recompiled, evidence, 0.65)?;
    Some(candidate.growing(growth(&kernels)))
}

/// True for a growth of local memory.
fn spilled(change: &LaunchChange) -> bool {
    matches!(*change, LaunchChange::LocalMemory(before, after) if after > before)
}

/// Finds more local memory of threads in a call: spilled registers go through the caches at each
/// use.
pub fn spills(facts: &Facts) -> Option<Found> {
    facts.call()?;
    let kernels = facts.kernels.iter();
    let evidence = kernels
        .flat_map(|kernel| launch(facts, kernel, kernel.changes.iter().find(|c| spilled(c))));
    let others = facts.structures();
    let others = others.and_then(|(base, head)| spills_of_other_kernels(base, head));
    let evidence = evidence.chain(others.map(Fact::from));
    Found::resting_on(Cause::Spills, evidence.collect(), 0.85)
}

/// Finds kernels that execute more instructions, where hardware counters were read.
pub fn more_instructions(facts: &Facts) -> Option<Found> {
    let lines = &facts.account.as_ref()?.lines;
    let more = lines.iter().filter(|line| more_work(&line.item).is_some());
    let evidence = more.take(MAX_NAMED).map(|line| Fact::words(&line.item));
    Found::resting_on(Cause::MoreInstructions, evidence.collect(), 0.6)
}

/// Finds kernels with equal launches that take longer, for which the launch is not the reason.
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
    let named = slower.iter().take(MAX_NAMED);
    let named = named.flat_map(|kernel| launch(facts, kernel, []));
    let words = "launched as before: other inputs, a lower clock, or another user of the device";
    let evidence = named.chain([Fact::words(words)]).collect();
    Some(Found::new(Cause::SameLaunch, evidence, 0.35).growing(growth(&slower)))
}

/// Finds more launches of kernels that compute; those that move data are `copies-added`. A base
/// without any launch has no census, or its worker runs on the host.
pub fn added(facts: &Facts) -> Option<Found> {
    let (mut count, mut growth) = (Sides::new(0.0, 0.0), Nanoseconds::ZERO);
    for kernel in facts.kernels.iter().filter(|k| !moves_data(k.called())) {
        count.base += kernel.count.base;
        count.head += kernel.count.head;
        if kernel.count.growth() > 0.0 {
            growth += kernel.growth_ns();
        }
    }
    // Each launch has a gap before it.
    let idle = facts
        .waits
        .map(|sides| sides.head.idle_ns - sides.base.idle_ns);
    growth += idle.unwrap_or_default().max(Nanoseconds::ZERO);
    (count.base > 0.0 && count.growth() > 0.0).then(|| {
        let evidence = vec![facts.counted("launches", count)];
        let candidate = Found::new(Cause::LaunchesAdded, evidence, 0.7);
        candidate.growing(growth).worse(true)
    })
}

/// Finds modules that are loaded in steady state, because something is compiled or tuned again each
/// time. Not reported for a whole program, where it may just be another warm-up.
pub fn modules_loaded(facts: &Facts) -> Option<Found> {
    let loads = facts.more("module_loads")?;
    let order = match facts.source {
        FactSource::Call(_) => facts.if_host(0.94, 0.6),
        FactSource::Trace(_, Scope::Repetition) => 0.92,
        FactSource::Trace(_, Scope::Whole) => return None,
    };
    let evidence = vec![facts.counted("module_loads", loads)];
    Some(Found::new(Cause::ModulesLoaded, evidence, order))
}

/// A counted function that the head's call enters more often, with the host time spent in it.
/// `None` if a side lacks the count, which does not mean 0.
fn entered(facts: &Facts, name: &str) -> Option<Vec<Fact>> {
    let (base, head) = facts.structures()?;
    let both = Sides::both(base.counts.get(name), head.counts.get(name))?;
    let count = both.map(|count| **count as f64);
    let function = name.strip_prefix(CALLS)?;
    let host = host_time(facts.call()?.head, function);
    let host = host.map(|time| Fact::Figure(format!("{time}{OF_THE_HOST}")));
    let evidence = std::iter::once(facts.counted(name, count)).chain(host);
    (count.growth() > 0.0).then(|| evidence.collect())
}

/// Finds counted functions that a steady call enters more often: a backend is selected again, or a
/// kernel or graph is compiled again. Autotuning is `retuned`.
pub fn events_added(facts: &Facts) -> Option<Found> {
    let (_, head) = facts.structures()?;
    let retuned = [CALLS, AUTOTUNE].concat();
    let others = head.counts.keys().filter(|name| **name != retuned);
    let evidence = others.filter_map(|name| entered(facts, name)).flatten();
    let order = facts.if_host(0.9, 0.6);
    Found::resting_on(Cause::EventsAdded, evidence.collect(), order)
}

/// Finds an autotuner that tunes again; the evidence has the number of lengths in the call.
pub fn retuned(facts: &Facts) -> Option<Found> {
    let mut evidence = entered(facts, &[CALLS, AUTOTUNE].concat())?;
    if let Some(ParamValue::Int(lengths)) = facts.call()?.head.effective.get("lengths") {
        let lengths = counted(*lengths as usize, "length");
        evidence.push(Fact::Words(format!("a call has {lengths}")));
    }
    Some(Found::new(Cause::Retuned, evidence, 0.97))
}

/// The number of modules that a program may load late, without compiling anything again, because it
/// first uses them at its end.
const LATE: u64 = 2;

/// The number of modules per repetition from which code is compiled again and again, rather than
/// loaded at its first use.
const AGAIN: f64 = 0.05;

/// Finds code that is still loaded in the steady part of a program, because something is compiled
/// or tuned again.
pub fn still_loading(standing: &OneTrace) -> Option<Found> {
    let (loads, part) = (standing.late_loads?, standing.late);
    let each = loads as f64 / standing.repeats;
    if loads <= LATE || each < AGAIN {
        return None;
    }
    let each = if standing.is_steady() {
        format!(", {each:.2} a repetition")
    } else {
        String::new()
    };
    let loads = counted(loads as usize, "module");
    let mut evidence = vec![Fact::Words(format!("{loads} loaded in {part}{each}"))];
    let kernels = standing.of.kernels.iter();
    let varied = kernels
        .map(|kernel| (versions(kernel), kernel))
        .max_by_key(|(versions, _)| *versions)
        .filter(|(versions, _)| *versions > 1);
    // Loading alone does not show why; a kernel in several versions does.
    let cause = match varied {
        None => Cause::ModulesLoaded,
        Some((versions, kernel)) => {
            let name = short(&kernel.name);
            let words = "versions of registers, block and shared memory";
            evidence.push(Fact::Words(format!("{name} ran in {versions} {words}")));
            Cause::Recompiled
        }
    };
    Some(Found::new(cause, evidence, 0.85))
}

/// The number of versions in which a kernel was compiled, as far as its launches show.
fn versions(kernel: &KernelRow) -> usize {
    let shapes = kernel.shapes.iter();
    if moves_data(&kernel.name) {
        // Many different kernels share such a name.
        return 0;
    }
    let versions = shapes.map(|shape| {
        let memory = (shape.shared_bytes, shape.local_bytes);
        (shape.block, shape.registers, memory)
    });
    BTreeSet::from_iter(versions).len()
}
