//! What few invocations may call.

use crate::statistics::reachable_p;

/// The smallest two-sided p of ranks that so many invocations must be able to reach before
/// anything but what is many times beyond is called.
pub const REACHES: f64 = 0.01;

/// Without that, four a side that do not overlap are enough.
pub const APART: usize = 4;

/// From this factor between slowest and fastest on, three a side are enough; from the other
/// on, two: a process that runs four times slower by chance, twice, and never on the other
/// side, is none that was seen.
pub const TWICE: f64 = std::f64::consts::LN_2;

/// See [`TWICE`].
pub const MANY: f64 = 2.0 * TWICE;

/// Invocations without which nothing is said to be the same.
pub const FEWEST: usize = 3;

/// True when so many may call a change that is not many times beyond.
pub fn may_call(base: usize, head: usize, gap: f64) -> bool {
    reachable_p(base, head) <= REACHES || base.min(head) >= APART && gap > 0.0
}

/// True for a difference that needs no test.
pub fn unmistakable(base: usize, head: usize, gap: f64) -> bool {
    let fewest = base.min(head);
    fewest >= FEWEST && gap >= TWICE || fewest >= 2 && gap >= MANY
}

/// True when so many invocations of base and head, which lie apart by `gap`, may call
/// anything.
pub fn enough(base: usize, head: usize, gap: f64) -> bool {
    may_call(base, head, gap) || unmistakable(base, head, gap)
}

/// By how much two sides lie apart: the slowest of the faster against the fastest of the
/// slower; below 0 where they overlap.
pub fn gap(base: &[f64], head: &[f64]) -> f64 {
    let low = |side: &[f64]| side.iter().copied().fold(f64::INFINITY, f64::min);
    let high = |side: &[f64]| side.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low(head) - high(base)).max(low(base) - high(head))
}
