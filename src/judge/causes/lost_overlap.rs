//! Copies and compute no longer run at once.

use super::{Pair, finding};
use crate::judge::judgement::Finding;
use crate::judge::phrase::time;

/// The part of a slowdown that the lost overlap must account for.
const PART: f64 = 0.5;

/// Finds less time in which a copy and a kernel ran at once (`overlap_ns`), by at least
/// half of what the call takes longer.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.counts("overlap_ns")?;
    let lost = base.checked_sub(head)? as f64;
    let slower = pair.slower_by()?;
    let evidence = format!(
        "copies and compute at once {} -> {} a call",
        time(base as f64),
        time(head as f64)
    );
    (lost >= PART * slower).then(|| finding("lost-overlap", evidence, 0.87))
}
