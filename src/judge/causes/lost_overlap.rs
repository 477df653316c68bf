//! Copies and compute do not run at once.

use super::{EXPLAINS, Pair, finding};
use crate::attention::ActivitySummary;
use crate::judge::judgement::Finding;
use crate::judge::phrase::{from_to, part_of};

/// The part of copying that may run beside a kernel and still count as none: pieces that
/// meet by chance, not a pipeline.
const NONE: f64 = 0.25;

/// The part of a call that copying must take to be worth a word.
const WORTH: f64 = 0.05;

/// Finds copies that ran beside kernels and do so no longer, or that were added and never
/// did.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.activities().filter(|_| pair.of_device())?;
    let slower = pair.slower_by()?;
    lost(base, head, slower).or_else(|| none(pair, base, head, slower))
}

/// Less time in which a copy and a kernel ran at once, by at least half of what the call
/// takes longer.
fn lost(base: &ActivitySummary, head: &ActivitySummary, slower: f64) -> Option<Finding> {
    let lost = base.overlap_ns.checked_sub(head.overlap_ns)? as f64;
    let times = from_to(base.overlap_ns as f64, head.overlap_ns as f64);
    let evidence = format!("copies and compute at once {times} a call");
    (lost >= EXPLAINS * slower).then(|| finding("lost-overlap", evidence, 0.87))
}

/// More copying, and none of it beside a kernel. Where it takes less than half of what the
/// call takes longer it is no cause by itself, but a fact that belongs to one.
fn none(
    pair: &Pair,
    base: &ActivitySummary,
    head: &ActivitySummary,
    slower: f64,
) -> Option<Finding> {
    let copying = copying_ns(head)?;
    let overlapped = head.overlap_ns as f64;
    let more = (copying - overlapped) - (copying_ns(base)? - base.overlap_ns as f64);
    let worth = WORTH * pair.head_ns?;
    let evidence = format!(
        "copies and compute at once {} of copying a call",
        part_of(overlapped, copying)
    );
    let confidence = if more >= EXPLAINS * slower {
        0.87
    } else {
        0.72
    };
    (overlapped <= NONE * copying && more >= worth)
        .then(|| finding("no-overlap", evidence, confidence))
}

/// Nanoseconds in which the driver copied; older files tell no more than that it did not.
fn copying_ns(activity: &ActivitySummary) -> Option<f64> {
    let none = (activity.copies == 0).then_some(0);
    activity.copying_ns.or(none).map(|ns| ns as f64)
}
