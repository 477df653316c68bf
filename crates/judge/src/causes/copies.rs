//! More copying, copies that no longer run beside kernels, and kernels of two streams that no
//! longer run at once.

use super::OneTrace;
use super::facts::{EXPLAINS, FactSource, Facts, Found};
use crate::judgement::{AT_ONCE, Cause, Difference, Fact};
use regatta_core::machine::{ActivitySummary, KernelChange, SideFigures, Sides, moves_data};
use regatta_worker::units::{Nanoseconds, Share, part_of};

/// Finds more kernels that move data, or more copies, with their time where it is known.
pub fn added(facts: &Facts) -> Option<Found> {
    let moving = || facts.kernels.iter().filter(|k| moves_data(k.called()));
    let more = moving().filter(|kernel| kernel.count.growth() > 0.0);
    let more: Vec<&KernelChange> = more.collect();
    let growth = |kernels: &mut dyn Iterator<Item = &KernelChange>| -> f64 {
        kernels.map(|kernel| kernel.count.growth()).sum()
    };
    let kernels = match facts.source {
        // In a call it is unknown which kernel replaced which, so all are summed.
        FactSource::Call(_) => growth(&mut moving()),
        FactSource::Trace(..) => growth(&mut more.iter().copied()),
    };
    let mut evidence: Vec<Fact> = Vec::new();
    if kernels >= 0.5 {
        evidence.extend(
            more.iter()
                .map(|kernel| Difference::launches(kernel).into()),
        );
    }
    match facts.source {
        FactSource::Call(_) => {
            // Kernels that copy may already be in the evidence: a worker may count them as copies too.
            let counts = facts.count("copies");
            let counts = counts.filter(|count| count.growth() > kernels.max(0.0));
            evidence.extend(counts.map(|count| facts.counted("copies", count)));
            if evidence.is_empty() {
                return None;
            }
            let time = moved_more(facts);
            let part = time.zip(call_time(facts));
            evidence.extend(part.map(|(time, whole)| Fact::Figure(part_of(time, whole))));
            // Copies that account for less than half of the slowdown came with its cause.
            let both = time.zip(facts.slower_by());
            let aside = both.is_some_and(|(time, slower)| time < slower * EXPLAINS);
            let order = if aside { 0.55 } else { 0.9 };
            Found::resting_on(Cause::CopiesAdded, evidence, order)
        }
        FactSource::Trace(sides, _) => {
            let growths = more.iter().map(|kernel| kernel.growth_ns());
            let time = growths.sum::<Nanoseconds>() + driver_copies(facts, sides, &mut evidence);
            if evidence.is_empty() {
                return None;
            }
            let part = time.max(Nanoseconds::ZERO);
            evidence.push(Fact::Figure(part_of(part, sides.head.busy_ns)));
            let candidate = Found::new(Cause::CopiesAdded, evidence, 0.9);
            Some(candidate.growing(time).worse(true))
        }
    }
}

/// Adds new copies by the driver to the evidence, one fact for each direction, and returns their
/// additional time.
fn driver_copies(
    facts: &Facts,
    sides: &Sides<SideFigures>,
    evidence: &mut Vec<Fact>,
) -> Nanoseconds {
    let mut time = Nanoseconds::ZERO;
    for (direction, &(after, time_after)) in &sides.head.copies {
        let before = sides.base.copies.get(direction).copied();
        let (before, time_before) = before.unwrap_or_default();
        // In a whole program, or one whose repetitions differ, less than one copy more does not count.
        if after >= before + 0.5 {
            time += time_after - time_before;
            evidence.push(facts.counted(direction, Sides::new(before, after)));
        }
    }
    time
}

/// The growth of the time in which a call moves data, by kernels or by the driver, where both sides
/// recorded it.
fn moved_more(facts: &Facts) -> Option<Nanoseconds> {
    let moved = |activity: &ActivitySummary| {
        let moved = activity.moving_ns?.checked_add(activity.time.copying_ns?)?;
        Some(Nanoseconds::whole(moved))
    };
    let sides = facts.call()?.activities()?;
    let moved = Sides::both(moved(sides.base), moved(sides.head))?;
    Some(moved.growth().max(Nanoseconds::ZERO))
}

/// The device time of the head's call: the judged one, or else the recorded busy time.
fn call_time(facts: &Facts) -> Option<Nanoseconds> {
    let activity = || facts.call()?.head.activity.as_ref();
    let busy = || Some(Nanoseconds::whole(activity()?.time.busy_ns));
    facts.ns.head.filter(|_| facts.of_device()).or_else(busy)
}

/// Finds lost overlap: copies that ran beside kernels and no longer do, kernels of one stream that
/// ran beside those of another, or, in a call, added copies that never overlapped.
pub fn lost(facts: &Facts) -> Option<Found> {
    match facts.source {
        FactSource::Trace(sides, _) => {
            let at_once = sides.map(|side| side.streams_at_once_ns);
            exposed(sides).or_else(|| serialised(facts, at_once))
        }
        FactSource::Call(pair) => {
            let sides = pair.activities().filter(|_| facts.of_device())?;
            facts.slower_by()?;
            let at_once = sides.map(|side| side.time.streams_at_once_ns.map(Nanoseconds::whole));
            unhidden(facts, &sides)
                .or_else(|| serialised(facts, at_once))
                .or_else(|| never(facts, &sides))
        }
    }
}

/// Copies of a trace that kernels overlapped before and no longer do.
fn exposed(sides: &Sides<SideFigures>) -> Option<Found> {
    /// The share of the copying time whose overlap must be lost.
    const LOST: Share = Share(0.2);
    let share = Sides::both(sides.base.overlap, sides.head.overlap)?;
    let copies = sides.head.copies.values();
    let copying: Nanoseconds = copies.map(|(_, time)| *time).sum();
    let lost = share.base - share.head;
    let growth = copying * lost;
    (lost > LOST && growth > sides.head.busy_ns * WORTH).then(|| {
        let evidence = vec![
            Difference::Overlap { share }.into(),
            Fact::Figure(format!("{growth} no longer hidden")),
        ];
        let candidate = Found::new(Cause::LostOverlap, evidence, 0.8);
        candidate.growing(growth).worse(true)
    })
}

/// The share of a traced device's busy time that a lost overlap must cost.
const WORTH: f64 = 0.02;

/// The share of the concurrent time of two streams that must be lost to be reported.
const OF_STREAMS: f64 = 0.2;

/// Kernels of one stream that ran beside those of another and no longer do, such as a collective
/// that moved to the stream of the computation. In a call, the loss must account for at least half
/// of the slowdown.
fn serialised(facts: &Facts, at_once: Sides<Option<Nanoseconds>>) -> Option<Found> {
    let at_once = Sides::both(at_once.base, at_once.head)?;
    let lost = at_once.base - at_once.head;
    let (costs, each, order) = match facts.source {
        FactSource::Trace(sides, _) => (lost > sides.head.busy_ns * WORTH, "", 0.8),
        FactSource::Call(_) => (facts.explained_by(lost), " a call", 0.87),
    };
    let evidence = vec![Difference::time("kernels of two streams at once", at_once, each).into()];
    let candidate = Found::new(Cause::LostOverlap, evidence, order);
    (lost > at_once.base * OF_STREAMS && costs).then(|| match facts.source {
        // No loss regardless of times: kernels that share the device each take longer.
        FactSource::Trace(..) => candidate.growing(lost),
        FactSource::Call(_) => candidate,
    })
}

/// Less overlap of copies and kernels, by at least half of the call's slowdown.
fn unhidden(facts: &Facts, sides: &Sides<&ActivitySummary>) -> Option<Found> {
    let overlap = sides.map(|activity| Nanoseconds::whole(activity.time.overlap_ns));
    let evidence = vec![Difference::time(AT_ONCE, overlap, " a call").into()];
    let explains = facts.explained_by(overlap.base - overlap.head);
    explains.then(|| Found::new(Cause::LostOverlap, evidence, 0.87))
}

/// More copying, never at the same time as a kernel. If it explains less than half of the growth
/// of the call, it is not a cause on its own but evidence for another one.
fn never(facts: &Facts, sides: &Sides<&ActivitySummary>) -> Option<Found> {
    /// The part of copying that may run beside a kernel and still count as none: pieces
    /// that meet by chance, not a pipeline.
    const NONE: f64 = 0.25;
    /// The part of a call that copying must take to be worth a word.
    const OF_CALL: f64 = 0.05;
    let overlap = sides.map(|activity| Nanoseconds::whole(activity.time.overlap_ns));
    let copying = Sides::both(copying(sides.base), copying(sides.head))?;
    let more = copying.head - overlap.head - (copying.base - overlap.base);
    let worth = facts.ns.head? * OF_CALL;
    let order = if facts.explained_by(more) { 0.87 } else { 0.72 };
    let not_hidden = overlap.head <= copying.head * NONE && more >= worth;
    not_hidden.then(|| no_overlap(overlap.head, copying.head, " a call", order))
}

/// The time in which the driver copied; that it did not is known without.
fn copying(activity: &ActivitySummary) -> Option<Nanoseconds> {
    let no_copies = (activity.copies == 0).then_some(0);
    activity
        .time
        .copying_ns
        .or(no_copies)
        .map(Nanoseconds::whole)
}

fn no_overlap(part: Nanoseconds, whole: Nanoseconds, each: &str, order: f64) -> Found {
    let evidence = format!("{AT_ONCE} {} of copying{each}", part_of(part, whole));
    Found::new(Cause::NoOverlap, vec![Fact::Figure(evidence)], order)
}

/// Copies that no kernel hides, in one trace.
pub fn exposed_copies(standing: &OneTrace) -> Option<Found> {
    /// The share of the elapsed time from which copying is reported.
    const COPYING: f64 = 0.1;
    /// The share of the copying time that may overlap kernels and still counts as no overlap.
    const NONE: Share = Share(0.05);
    let time = &standing.of.time;
    let copying = time.copying_ns?;
    let share = copying as f64 / time.span_ns.max(1) as f64;
    let not_hidden = time.overlap().is_some_and(|overlap| overlap <= NONE);
    let [part, whole] = [time.overlap_ns, copying].map(|ns| standing.time(ns));
    (share >= COPYING && not_hidden).then(|| no_overlap(part, whole, standing.each, 0.7))
}
