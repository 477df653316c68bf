//! More of it in each call: launches, code that is loaded, functions that are entered.

use super::facts::{Facts, Found, Source};
use super::standing::Standing;
use crate::counts::{AUTOTUNE, event, host_time};
use crate::judgement::{Cause, Fact};
use regatta_core::machine::{KernelRow, Scope, Sides, moves_data, short};
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{Nanoseconds, counted};

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
