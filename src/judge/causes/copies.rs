//! Data that is moved: more of it, or no longer beside kernels.

use super::facts::{EXPLAINS, Facts, Found, Source, became};
use super::standing::Standing;
use crate::judge::judgement::Cause;
use crate::judge::phrase::{count, from_to, part_of, percent, time};
use crate::machine::{ActivitySummary, moves_data};
use crate::machine::{Became, KernelChange, SideFigures, Sides};
use crate::machine::{normalised, plain};

/// More kernels that move data, or more copies, with the time that they take where it is
/// known.
pub fn added(facts: &Facts) -> Option<Found> {
    let moving = || facts.kernels.iter().filter(|k| moves_data(k.called()));
    let more = moving().filter(|kernel| kernel.count.growth() > 0.0);
    let more: Vec<&KernelChange> = more.collect();
    let kernels: f64 = match facts.source {
        // Which of them is for which is unknown.
        Source::Call(_) => moving().map(|kernel| kernel.count.growth()).sum(),
        Source::Trace(..) => more.iter().map(|kernel| kernel.count.growth()).sum(),
    };
    let mut evidence = Vec::new();
    if kernels >= 0.5 {
        let example = example(facts, &more);
        let example = example.map_or_else(String::new, |kernel| plain(kernel.called()));
        let kernels = count(kernels.round() as usize, "copy kernel");
        evidence.push(format!("{kernels} added ({example})"));
    }
    match facts.source {
        Source::Call(_) => {
            // A worker may count kernels that copy as well: they are told already.
            let counts = facts.count("copies");
            let counts = counts.filter(|(before, after)| after - before > kernels.max(0.0));
            evidence.extend(counts.map(|counts| format!("copies {}", became(counts))));
            if evidence.is_empty() {
                return None;
            }
            let ns = moved_more_ns(facts);
            evidence.extend(ns.zip(call_ns(facts)).map(|(ns, whole)| part_of(ns, whole)));
            // Copies that take a small part of what a call takes longer came with its cause.
            let both = ns.zip(facts.slower_by());
            let aside = both.is_some_and(|(ns, slower)| ns < EXPLAINS * slower);
            let confidence = if aside { 0.55 } else { 0.9 };
            Found::of(Cause::CopiesAdded, &evidence, ", ", confidence)
        }
        Source::Trace(sides, _) => {
            let growths = more.iter().map(|kernel| kernel.growth_ns());
            let ns = growths.sum::<f64>() + driver_copies(sides, &mut evidence);
            if evidence.is_empty() {
                return None;
            }
            evidence.push(part_of(ns.max(0.0), sides.head.busy_ns));
            let found = Found::of(Cause::CopiesAdded, &evidence, ", ", 0.9)?;
            Some(found.growing(ns).worse(true))
        }
    }
}

/// One of the kernels that are launched more often: of a call, one that is new to it, the
/// first that it launches.
fn example<'a>(facts: &Facts, more: &[&'a KernelChange]) -> Option<&'a KernelChange> {
    let Some((_, head)) = facts.structures() else {
        return more.first().copied();
    };
    let names: Vec<String> = head.launches.iter().map(|l| normalised(&l.name)).collect();
    more.iter().copied().min_by_key(|kernel| {
        let place = names.iter().position(|name| *name == kernel.name.head);
        (kernel.became != Became::Added, place)
    })
}

/// Tells copies by the driver that were added, by direction; the nanoseconds they take more.
fn driver_copies(sides: &Sides<SideFigures>, evidence: &mut Vec<String>) -> f64 {
    let mut ns = 0.0;
    for (direction, &(after, after_ns)) in &sides.head.copies {
        let before = sides.base.copies.get(direction).copied();
        let (before, before_ns) = before.unwrap_or_default();
        // Of a whole program, or one whose repetitions differ, a part of one is none.
        if after >= before + 0.5 {
            ns += after_ns - before_ns;
            evidence.push(format!("{direction} {}", became((before, after))));
        }
    }
    ns
}

/// Nanoseconds of a call in which more data is moved than was, by kernels or the driver,
/// where both activities tell them.
fn moved_more_ns(facts: &Facts) -> Option<f64> {
    let moved =
        |activity: &ActivitySummary| Some((activity.moving_ns? + activity.time.copying_ns?) as f64);
    let sides = facts.call()?.activities()?;
    Some((moved(sides.head)? - moved(sides.base)?).max(0.0))
}

/// Nanoseconds of the head's call on the device: as timed, or else in which it was busy.
fn call_ns(facts: &Facts) -> Option<f64> {
    let busy = || Some(facts.call()?.head.activity.as_ref()?.time.busy_ns as f64);
    facts.ns.head.filter(|_| facts.of_device()).or_else(busy)
}

/// Copies that ran beside kernels and do so no longer; or, of a call, that were added and
/// never did.
pub fn lost_overlap(facts: &Facts) -> Option<Found> {
    match facts.source {
        Source::Trace(sides, _) => exposed(sides),
        Source::Call(pair) => {
            let sides = pair.activities().filter(|_| facts.of_device())?;
            facts.slower_by()?;
            lost(facts, &sides).or_else(|| never(facts, &sides))
        }
    }
}

/// Copies that the kernels of a trace hid, and that they hide no longer.
fn exposed(sides: &Sides<SideFigures>) -> Option<Found> {
    /// The part of the time of copying that must be lost.
    const LOST: f64 = 0.2;
    /// The part of the time in which the device works that this must cost.
    const WORTH: f64 = 0.02;
    let (before, after) = (sides.base.overlap?, sides.head.overlap?);
    let copying: f64 = sides.head.copies.values().map(|(_, ns)| ns).sum();
    let growth = (before - after) * copying;
    (before - after > LOST && growth > WORTH * sides.head.busy_ns).then(|| {
        let evidence = format!(
            "copies and compute at once {} → {} of copying, {} no longer hidden",
            percent(before),
            percent(after),
            time(growth)
        );
        let found = Found::new(Cause::LostOverlap, evidence, 0.8);
        found.growing(growth).worse(true)
    })
}

/// Less time in which a copy and a kernel ran at once, by at least half of what the call
/// takes longer.
fn lost(facts: &Facts, sides: &Sides<&ActivitySummary>) -> Option<Found> {
    let overlap = sides.map(|activity| activity.time.overlap_ns as f64);
    let times = from_to(overlap.base, overlap.head);
    let evidence = format!("copies and compute at once {times} a call");
    let explains = facts.explained_by(-overlap.growth());
    explains.then(|| Found::new(Cause::LostOverlap, evidence, 0.87))
}

/// More copying, and none of it beside a kernel. Where it takes less than half of what the
/// call takes longer it is no cause by itself, but a fact that belongs to one.
fn never(facts: &Facts, sides: &Sides<&ActivitySummary>) -> Option<Found> {
    /// The part of copying that may run beside a kernel and still count as none: pieces
    /// that meet by chance, not a pipeline.
    const NONE: f64 = 0.25;
    /// The part of a call that copying must take to be worth a word.
    const WORTH: f64 = 0.05;
    let overlapped = sides.head.time.overlap_ns as f64;
    let copying = copying_ns(sides.head)?;
    let alone_before = copying_ns(sides.base)? - sides.base.time.overlap_ns as f64;
    let more = copying - overlapped - alone_before;
    let worth = WORTH * facts.ns.head?;
    let confidence = if facts.explained_by(more) { 0.87 } else { 0.72 };
    let none = overlapped <= NONE * copying && more >= worth;
    none.then(|| no_overlap(part_of(overlapped, copying), " a call", confidence))
}

/// Nanoseconds in which the driver copied; older files tell no more than that it did not.
fn copying_ns(activity: &ActivitySummary) -> Option<f64> {
    let none = (activity.copies == 0).then_some(0);
    activity.time.copying_ns.or(none).map(|ns| ns as f64)
}

fn no_overlap(part: String, each: &str, confidence: f64) -> Found {
    let evidence = format!("copies and compute at once {part} of copying{each}");
    Found::new(Cause::NoOverlap, evidence, confidence)
}

/// Copies that no kernel hides, in one trace.
pub fn exposed_copies(standing: &Standing) -> Option<Found> {
    /// Share of the time that passes from which copying stands out.
    const COPYING: f64 = 0.1;
    /// Part of the copying that may run beside kernels and still count as none.
    const NONE: f64 = 0.05;
    let time = &standing.of.time;
    let copying = time.copying_ns?;
    let share = copying as f64 / time.span_ns.max(1) as f64;
    let none = time.overlap().is_some_and(|overlap| overlap <= NONE);
    let ns = |ns| standing.ns(ns);
    let part = part_of(ns(time.overlap_ns), ns(copying));
    (share >= COPYING && none).then(|| no_overlap(part, standing.each, 0.7))
}
