//! What ran at once and does so no longer: copies beside kernels, kernels of two streams.

use super::facts::{Facts, Found, Source};
use super::standing::Standing;
use crate::judgement::{Cause, Fact};
use regatta_core::machine::{ActivitySummary, SideFigures, Sides};
use regatta_worker::units::{Nanoseconds, Share};

/// Copies that ran beside kernels and do so no longer, or kernels of one stream beside those of
/// another; or, of a call, copies that were added and never did.
pub fn lost(facts: &Facts) -> Option<Found> {
    match facts.source {
        Source::Trace(sides, _) => exposed(sides).or_else(|| behind_each_other(sides)),
        Source::Call(pair) => {
            let sides = pair.activities().filter(|_| facts.of_device())?;
            facts.slower_by()?;
            unhidden(facts, &sides)
                .or_else(|| serialised(facts, &sides))
                .or_else(|| never(facts, &sides))
        }
    }
}

const AT_ONCE: &str = "copies and compute at once";

/// Copies that the kernels of a trace hid, and that they hide no longer.
fn exposed(sides: &Sides<SideFigures>) -> Option<Found> {
    /// The part of the time of copying that must be lost.
    const LOST: Share = Share(0.2);
    /// The part of the time in which the device works that this must cost.
    const WORTH: f64 = 0.02;
    let share = Sides::both(sides.base.overlap, sides.head.overlap)?;
    let copies = sides.head.copies.values();
    let copying: Nanoseconds = copies.map(|(_, time)| *time).sum();
    let lost = share.base - share.head;
    let growth = copying * lost;
    (lost > LOST && growth > sides.head.busy_ns * WORTH).then(|| {
        let told = vec![
            Fact::Shares {
                what: AT_ONCE.to_owned(),
                share,
                of: " of copying".to_owned(),
            },
            Fact::Time {
                what: String::new(),
                time: growth,
                of: " no longer hidden".to_owned(),
            },
        ];
        let found = Found::new(Cause::LostOverlap, told, 0.8);
        found.growing(growth).worse(true)
    })
}

const STREAMS: &str = "kernels of two streams at once";

/// The part of what ran at once that must be lost to be worth a word.
const OF_STREAMS: f64 = 0.2;

/// Kernels of one stream of a trace that ran beside those of another, and do so no longer: a
/// collective on the stream that computes.
fn behind_each_other(sides: &Sides<SideFigures>) -> Option<Found> {
    /// The part of the time in which the device works that this must cost.
    const WORTH: f64 = 0.02;
    let at_once = Sides::both(sides.base.streams_at_once_ns, sides.head.streams_at_once_ns)?;
    let lost = at_once.base - at_once.head;
    let worth = lost > at_once.base * OF_STREAMS && lost > sides.head.busy_ns * WORTH;
    worth.then(|| {
        let told = vec![Fact::times(STREAMS, at_once, "")];
        // No loss by itself: two that share the device take longer each.
        Found::new(Cause::LostOverlap, told, 0.8).growing(lost)
    })
}

/// The same of a call, by at least half of what it takes longer.
fn serialised(facts: &Facts, sides: &Sides<&ActivitySummary>) -> Option<Found> {
    let ns = |activity: &ActivitySummary| activity.time.streams_at_once_ns.map(Nanoseconds::whole);
    let at_once = Sides::both(ns(sides.base), ns(sides.head))?;
    let lost = at_once.base - at_once.head;
    let worth = lost > at_once.base * OF_STREAMS && facts.explained_by(lost);
    let told = vec![Fact::times(STREAMS, at_once, " a call")];
    worth.then(|| Found::new(Cause::LostOverlap, told, 0.87))
}

/// Less time in which a copy and a kernel ran at once, by at least half of what the call
/// takes longer.
fn unhidden(facts: &Facts, sides: &Sides<&ActivitySummary>) -> Option<Found> {
    let overlap = sides.map(|activity| Nanoseconds::whole(activity.time.overlap_ns));
    let told = vec![Fact::times(AT_ONCE, overlap, " a call")];
    let explains = facts.explained_by(overlap.base - overlap.head);
    explains.then(|| Found::new(Cause::LostOverlap, told, 0.87))
}

/// More copying, and none of it beside a kernel. Where it takes less than half of what the
/// call takes longer it is no cause by itself, but a fact that belongs to one.
fn never(facts: &Facts, sides: &Sides<&ActivitySummary>) -> Option<Found> {
    /// The part of copying that may run beside a kernel and still count as none: pieces
    /// that meet by chance, not a pipeline.
    const NONE: f64 = 0.25;
    /// The part of a call that copying must take to be worth a word.
    const WORTH: f64 = 0.05;
    let overlap = sides.map(|activity| Nanoseconds::whole(activity.time.overlap_ns));
    let copying = Sides::both(copying(sides.base), copying(sides.head))?;
    let more = copying.head - overlap.head - (copying.base - overlap.base);
    let worth = facts.ns.head? * WORTH;
    let order = if facts.explained_by(more) { 0.87 } else { 0.72 };
    let none = overlap.head <= copying.head * NONE && more >= worth;
    none.then(|| no_overlap(overlap.head, copying.head, " a call", order))
}

/// The time in which the driver copied; that it did not is known without.
fn copying(activity: &ActivitySummary) -> Option<Nanoseconds> {
    let none = (activity.copies == 0).then_some(0);
    activity.time.copying_ns.or(none).map(Nanoseconds::whole)
}

fn no_overlap(part: Nanoseconds, whole: Nanoseconds, each: &str, order: f64) -> Found {
    let (what, of) = (format!("{AT_ONCE} "), format!(" of copying{each}"));
    let told = vec![Fact::part(&what, part, whole, &of)];
    Found::new(Cause::NoOverlap, told, order)
}

/// Copies that no kernel hides, in one trace.
pub fn exposed_copies(standing: &Standing) -> Option<Found> {
    /// Share of the time that passes from which copying stands out.
    const COPYING: f64 = 0.1;
    /// Part of the copying that may run beside kernels and still count as none.
    const NONE: Share = Share(0.05);
    let time = &standing.of.time;
    let copying = time.copying_ns?;
    let share = copying as f64 / time.span_ns.max(1) as f64;
    let none = time.overlap().is_some_and(|overlap| overlap <= NONE);
    let [part, whole] = [time.overlap_ns, copying].map(|ns| standing.time(ns));
    (share >= COPYING && none).then(|| no_overlap(part, whole, standing.each, 0.7))
}
