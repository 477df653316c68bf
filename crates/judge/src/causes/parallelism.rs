//! Less of the device does the work: fewer blocks, threads or independent pieces.
//!
//! The tool exists for this bug: a sentinel value was lost, and one block did the work of 157, with
//! the same kernel and the same result.

use super::OneTrace;
use super::facts::{Facts, Found, MAX_NAMED, Pair};
use super::kernels::{is_grid, launch};
use crate::judgement::{Cause, Difference, Fact};
use crate::{structure, tuners};
use regatta_core::machine::{Became, KernelChange, KernelRow, LaunchShape, short};
use regatta_worker::case::ParamValue;
use regatta_worker::units::{Nanoseconds, Ratio, Share, part_of};

/// The loss of blocks, as a factor, from which it explains much; losing a tenth of them explains
/// little.
const MUCH: f64 = 1.5;

/// Substrings of parameter names whose value is the number of pieces that work is divided into.
const PIECES: [&str; 7] = ["split", "thread", "block", "task", "worker", "cta", "warp"];

/// Finds kernels, threads and parameters that divide the work into fewer pieces: one finding for a
/// call, and one for each kernel of a trace, with its times.
pub fn less_parallel(facts: &Facts) -> Vec<Found> {
    let lost = |kernel: &&KernelChange| kernel.became == Became::Same && kernel.fewer > 1.0;
    let lost = facts.kernels.iter().filter(lost);
    match facts.call() {
        Some(pair) => in_a_call(facts, pair, lost).into_iter().collect(),
        None => lost.take(MAX_NAMED).map(|k| in_a_trace(facts, k)).collect(),
    }
}

fn in_a_call<'a>(
    facts: &Facts,
    pair: &Pair,
    lost: impl Iterator<Item = &'a KernelChange>,
) -> Option<Found> {
    let (mut evidence, mut most) = (Vec::new(), 1.0);
    for name in ["threads", "tasks"] {
        let timed = || pair.threads().filter(|_| name == "threads");
        let count = facts.count(name).or_else(timed);
        if let Some(count) = count.filter(|count| count.growth() < 0.0) {
            evidence.push(facts.counted(name, count));
            most = f64::max(most, count.base / count.head.max(1.0));
        }
    }
    for kernel in lost {
        let grid = kernel.changes.iter().filter(|change| is_grid(change));
        evidence.extend(grid.map(|change| Difference::launch(kernel, *change).into()));
        evidence.extend(Difference::fill(kernel).map(Fact::from));
        most = most.max(kernel.fewer);
    }
    for (parameter, fewer) in parameters(pair) {
        if let Some(fewer) = fewer {
            evidence.push(parameter);
            most = most.max(fewer);
        }
    }
    let order = if most >= MUCH { 0.95 } else { 0.6 };
    Found::resting_on(Cause::LessParallel, evidence, order)
}

fn in_a_trace(facts: &Facts, kernel: &KernelChange) -> Found {
    let slower = kernel.ratio() > Ratio::grown_by(facts.threshold);
    let order = match (slower, kernel.fewer >= MUCH) {
        (true, true) => 0.95,
        (true, false) => 0.6,
        (false, _) => 0.4,
    };
    let mut evidence = launch(facts, kernel, &kernel.changes);
    let mean = evidence.len() - 1;
    evidence.splice(mean..mean, Difference::fill(kernel).map(Fact::from));
    let candidate = Found::new(Cause::LessParallel, evidence, order);
    candidate.growing(kernel.growth_ns()).worse(slower)
}

/// Finds another configuration chosen by a tuner. Other differences of its kernel follow from that,
/// and say nothing about the code.
pub fn tuner_chose(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let tuned = tuners::changed(pair.base, pair.head).into_iter();
    let evidence = tuned.map(|(name, value)| Difference::Parameter { name, value }.into());
    Found::resting_on(Cause::TunerChose, evidence.collect(), 0.98)
}

/// Finds effective parameters that differ for the same request, because a default or a heuristic
/// changed. Those that divide the work into fewer pieces are `less-parallel`.
pub fn parameter_changed(facts: &Facts) -> Option<Found> {
    let changed = parameters(facts.call()?).filter(|(_, fewer)| fewer.is_none());
    let changed = changed.map(|(parameter, _)| parameter).collect();
    Found::resting_on(Cause::ParameterChanged, changed, 0.85)
}

/// Parameters that changed without a tuner; for one that divides work, the factor by which the
/// number of pieces fell.
fn parameters(pair: &Pair) -> impl Iterator<Item = (Fact, Option<f64>)> {
    let tuned = tuners::changed(pair.base, pair.head);
    let changed = structure::parameters(pair.base, pair.head);
    let changed = changed.filter(move |(name, _)| !tuned.contains_key(*name));
    changed.map(|(name, value)| {
        let cuts_work = PIECES.iter().any(|pieces| name.contains(pieces));
        let fewer = match (&value.base, &value.head) {
            (ParamValue::Int(before), ParamValue::Int(after))
                if cuts_work && *after > 0 && after < before =>
            {
                Some(*before as f64 / *after as f64)
            }
            _ => None,
        };
        let name = name.clone();
        (Difference::Parameter { name, value }.into(), fewer)
    })
}

/// The share of all kernels' time from which a launch is reported.
const DOMINATES: Share = Share(0.2);

/// Finds launches of a single trace that have fewer blocks than the device has multiprocessors and
/// take much of the time.
pub fn few_blocks<'a>(standing: &'a OneTrace) -> impl Iterator<Item = Found> + 'a {
    let summary = standing.of;
    summary.kernels.iter().filter_map(move |kernel| {
        let shape = few(kernel)?;
        let (filled, sms) = shape.filled()?;
        let (part, whole) = (
            standing.time(shape.total_ns),
            standing.time(summary.kernel_ns),
        );
        let ([x, y, z], name) = (shape.grid, short(&kernel.name));
        let evidence = Fact::Figure(format!(
            "grid {x}x{y}x{z} of {name}, {filled} of {sms} SMs, {} of kernels{} ({})",
            part_of(part, whole),
            standing.each,
            part.share_of(whole)
        ));
        // A few idle multiprocessors cost little.
        let half = 2 * filled <= u64::from(sms);
        let order = if half { 0.9 } else { 0.4 };
        let dominates = whole > Nanoseconds::ZERO && part.share_of(whole) >= DOMINATES;
        dominates.then(|| Found::new(Cause::FewBlocks, vec![evidence], order))
    })
}

/// The costliest launch of a kernel that leaves multiprocessors without a block.
fn few(kernel: &KernelRow) -> Option<&LaunchShape> {
    let few = |shape: &&LaunchShape| {
        let filled = shape.filled();
        filled.is_some_and(|(filled, sms)| filled < u64::from(sms))
    };
    kernel.shapes.iter().find(few)
}
