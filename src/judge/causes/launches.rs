//! More of it in each call: launches, code that is loaded, functions that are entered.

use super::facts::{Facts, Found, Source, became};
use super::standing::Standing;
use crate::attention::ParamValue;
use crate::judge::counts::{AUTOTUNE, event, times, within};
use crate::judge::judgement::Cause;
use crate::judge::phrase::count;
use crate::machine::moves_data;
use crate::machine::short;
use crate::machine::{KernelRow, Scope};

/// More launches, those that move data aside: they are `copies-added`. None before: the
/// census saw nothing, or the worker runs on the host.
pub fn added(facts: &Facts) -> Option<Found> {
    let computing = facts.kernels.iter().filter(|k| !moves_data(k.called()));
    let (mut before, mut after, mut growth) = (0.0, 0.0, 0.0);
    for kernel in computing {
        before += kernel.count.base;
        after += kernel.count.head;
        if kernel.count.growth() > 0.0 {
            growth += kernel.growth_ns();
        }
    }
    // Each launch comes with a gap before it.
    let idle = facts
        .waits
        .map(|sides| sides.head.idle_ns - sides.base.idle_ns);
    growth += idle.unwrap_or(0.0).max(0.0);
    (before > 0.0 && after > before).then(|| {
        let evidence = format!("launches {}", became((before, after)));
        let found = Found::new(Cause::LaunchesAdded, evidence, 0.7);
        found.growing(growth).worse(true)
    })
}

/// More modules loaded in steady state: something is compiled or tuned again each time. Of
/// a whole program it may be no more than another warm-up.
pub fn modules_loaded(facts: &Facts) -> Option<Found> {
    let loads = became(facts.more("module_loads")?);
    match facts.source {
        Source::Call(_) => {
            let evidence = format!("modules loaded by a call in steady state {loads}");
            let confidence = facts.if_host(0.94, 0.6);
            Some(Found::new(Cause::ModulesLoaded, evidence, confidence))
        }
        Source::Trace(_, Scope::Repetition) => {
            let evidence = format!("modules loaded {loads} a repetition");
            Some(Found::new(Cause::ModulesLoaded, evidence, 0.92))
        }
        Source::Trace(_, Scope::Whole) => None,
    }
}

/// Events of a counted function in one call of each; `None` where they are no more than
/// they were. A side that lacks the count was not counted: it is not 0.
fn more_events(facts: &Facts, count: &str) -> Option<(u64, u64)> {
    let (base, head) = facts.structures()?;
    let (before, after) = (*base.counts.get(count)?, *head.counts.get(count)?);
    (after > before).then_some((before, after))
}

/// Counted functions that a steady call should not enter, or not so often: a backend
/// selected anew, a kernel or graph compiled again. Those of autotuning are `retuned`.
pub fn events_added(facts: &Facts) -> Option<Found> {
    let (pair, (_, head)) = (facts.call()?, facts.structures()?);
    let more = head.counts.keys().filter_map(|count| {
        let name = count
            .strip_prefix("calls.")
            .filter(|name| *name != AUTOTUNE)?;
        let (before, after) = more_events(facts, count)?;
        let within = within(pair.head, name);
        Some(match event(name) {
            Some(event) => format!("{event} {} a call, was {before}{within}", times(after)),
            None => format!("{name} {before} → {after} a call{within}"),
        })
    });
    let more: Vec<String> = more.collect();
    Found::of(Cause::EventsAdded, &more, "; ", facts.if_host(0.9, 0.6))
}

/// An autotuner tunes again, told against the lengths that the call saw.
pub fn retuned(facts: &Facts) -> Option<Found> {
    let (before, after) = more_events(facts, &format!("calls.{AUTOTUNE}"))?;
    let head = facts.call()?.head;
    let of = match head.effective.get("lengths") {
        Some(ParamValue::Int(1)) => " in a call of one length".to_owned(),
        Some(ParamValue::Int(lengths)) => format!(" in {lengths} lengths"),
        _ => " in a call".to_owned(),
    };
    let (times, within) = (times(after), within(head, AUTOTUNE));
    let evidence = format!("retuned {times}{of}, was {before}{within}");
    Some(Found::new(Cause::Retuned, evidence, 0.97))
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
    let part = match standing.is_steady() {
        true => format!("{part}, {each:.2} a repetition"),
        false => part.to_owned(),
    };
    let kernels = standing.of.kernels.iter();
    let varied = kernels
        .map(|kernel| (versions(kernel), kernel))
        .max_by_key(|(versions, _)| *versions)
        .filter(|(versions, _)| *versions > 1)
        .map(|(versions, kernel)| {
            let name = short(&kernel.name);
            format!("; {name} ran in {versions} versions of registers, block and shared memory")
        });
    // Loading by itself does not tell why; one kernel in several versions does.
    let cause = match varied {
        Some(_) => Cause::Recompiled,
        None => Cause::ModulesLoaded,
    };
    (loads > LATE && each >= AGAIN).then(|| {
        let loads = count(loads as usize, "module");
        let evidence = format!("{loads} loaded in {part}{}", varied.unwrap_or_default());
        Found::new(cause, evidence, 0.85)
    })
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
