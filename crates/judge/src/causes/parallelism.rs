//! Less of the device does the work: fewer blocks, threads or independent pieces.
//!
//! This is the bug the tool exists for: a sentinel lost on its way made one block
//! do what 157 had done, with the same kernel and the same result.

use super::Standing;
use super::facts::{Facts, Found, Pair, TOLD};
use super::kernels::launch;
use crate::judgement::{Cause, Fact};
use crate::tuners;
use regatta_core::machine::{Became, KernelChange, KernelRow, LaunchChange, Shape, Sides, short};
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// How many times fewer explain much; losing a tenth of the blocks explains little.
const MUCH: f64 = 1.5;

/// Parts of the names of parameters that say into how many pieces work is cut.
const PIECES: [&str; 7] = ["split", "thread", "block", "task", "worker", "cta", "warp"];

/// Finds what went down: of a call everything together, of traces a finding for each
/// kernel, with its times.
pub fn less_parallel(facts: &Facts) -> Vec<Found> {
    let lost = |kernel: &&KernelChange| kernel.became == Became::Same && kernel.fewer > 1.0;
    let lost = facts.kernels.iter().filter(lost);
    match facts.call() {
        Some(pair) => in_a_call(facts, pair, lost).into_iter().collect(),
        None => lost.take(TOLD).map(|k| in_a_trace(facts, k)).collect(),
    }
}

fn in_a_call<'a>(
    facts: &Facts,
    pair: &Pair,
    lost: impl Iterator<Item = &'a KernelChange>,
) -> Option<Found> {
    let counts = ["threads", "tasks"].into_iter().filter_map(|name| {
        let count = facts.count(name).filter(|count| count.growth() < 0.0)?;
        Some((
            Fact::count(name, count, ""),
            count.base / count.head.max(1.0),
        ))
    });
    let grids = lost.map(|kernel| {
        let is_grid = |change: &LaunchChange| matches!(change, LaunchChange::Grid(..));
        let grid = kernel.changes.iter().copied().filter(is_grid).collect();
        let idle = |(filled, sms): &(u64, u32)| *filled < u64::from(*sms);
        let fact = launch(facts, kernel, grid, head_filled(kernel).filter(idle));
        (fact, kernel.fewer)
    });
    let pieces = parameters(pair).filter_map(|(fact, fewer)| Some((fact, fewer?)));
    let (told, fewer): (Vec<Fact>, Vec<f64>) = counts.chain(grids).chain(pieces).unzip();
    let much = fewer.into_iter().any(|fewer| fewer >= MUCH);
    Found::of(Cause::LessParallel, told, if much { 0.95 } else { 0.6 })
}

/// Multiprocessors with a block now, and all of them.
fn head_filled(kernel: &KernelChange) -> Option<(u64, u32)> {
    Some((kernel.filled()?.head, kernel.sms?))
}

fn in_a_trace(facts: &Facts, kernel: &KernelChange) -> Found {
    let slower = kernel.ratio() > Ratio::grown_by(facts.threshold);
    let order = match (slower, kernel.fewer >= MUCH) {
        (true, true) => 0.95,
        (true, false) => 0.6,
        (false, _) => 0.4,
    };
    let told = launch(facts, kernel, kernel.changes.clone(), head_filled(kernel));
    let found = Found::new(Cause::LessParallel, vec![told], order);
    found.growing(kernel.growth_ns()).worse(slower)
}

/// A tuner chose another configuration: what else differs of its kernel follows from that, and
/// says nothing of the code.
pub fn tuner_chose(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let value = tuners::changed(pair.base, pair.head);
    let told = Fact::Chosen { value };
    let chosen = matches!(&told, Fact::Chosen { value } if !value.is_empty());
    chosen.then(|| Found::new(Cause::TunerChose, vec![told], 0.98))
}

/// The same request became another parameter: a default or a heuristic changed. Those that
/// cut work into fewer pieces are `less-parallel`.
pub fn parameter_changed(facts: &Facts) -> Option<Found> {
    let changed = parameters(facts.call()?).filter(|(_, fewer)| fewer.is_none());
    let changed = changed.map(|(fact, _)| fact).collect();
    Found::of(Cause::ParameterChanged, changed, 0.85)
}

/// Parameters whose effective value changed, and how many times fewer pieces work is cut
/// into, where one says that. What only one side reports may be a worker that reports more,
/// not a change.
fn parameters(pair: &Pair) -> impl Iterator<Item = (Fact, Option<f64>)> {
    let head = &pair.head.effective;
    let tuned = tuners::changed(pair.base, pair.head);
    pair.base
        .effective
        .iter()
        .filter_map(move |(name, before)| {
            let after = head.get(name).filter(|after| *after != before)?;
            if tuned.contains_key(name) {
                return None;
            }
            let cuts_work = PIECES.iter().any(|pieces| name.contains(pieces));
            let fewer = match (before, after) {
                (ParamValue::Int(before), ParamValue::Int(after))
                    if *after > 0 && after < before =>
                {
                    cuts_work.then_some(*before as f64 / *after as f64)
                }
                _ => None,
            };
            let fact = Fact::Parameter {
                name: name.clone(),
                value: Sides::of(before.clone(), after.clone()),
            };
            Some((fact, fewer))
        })
}

/// Share of all kernels' time from which a launch dominates.
const DOMINATES: Share = Share(0.2);

/// Launches with fewer blocks than the device has multiprocessors, in a kernel that
/// dominates.
pub fn few_blocks<'a>(standing: &'a Standing) -> impl Iterator<Item = Found> + 'a {
    let of = standing.of;
    of.kernels.iter().filter_map(move |kernel| {
        let shape = few(kernel)?;
        let (filled, sms) = shape.filled()?;
        let (part, whole) = (standing.time(shape.total_ns), standing.time(of.kernel_ns));
        let told = Fact::Standing {
            kernel: short(&kernel.name),
            grid: shape.grid,
            filled: (filled, sms),
            part,
            whole,
            of: standing.each.to_owned(),
        };
        // A few multiprocessors without a block cost little.
        let half = 2 * filled <= u64::from(sms);
        let order = if half { 0.9 } else { 0.4 };
        let dominates = whole > Nanoseconds::ZERO && part.share_of(whole) >= DOMINATES;
        dominates.then(|| Found::new(Cause::FewBlocks, vec![told], order))
    })
}

/// The costliest launch of a kernel that leaves multiprocessors without a block.
fn few(kernel: &KernelRow) -> Option<&Shape> {
    let few = |shape: &&Shape| {
        let filled = shape.filled();
        filled.is_some_and(|(filled, sms)| filled < u64::from(sms))
    };
    kernel.shapes.iter().find(few)
}
