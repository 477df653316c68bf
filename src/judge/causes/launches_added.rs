//! More kernels are launched for one call.

use super::copies_added::moving;
use super::{Pair, finding};
use crate::judge::judgement::Finding;

/// Finds more launches than before, those that move data aside: they are
/// `copies-added`.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.structures()?;
    let before = base.launches.len() - moving(base).len();
    let after = head.launches.len() - moving(head).len();
    // No launch before: the census saw nothing, or the worker runs on the host.
    (before > 0 && after > before).then(|| {
        finding(
            "launches-added",
            format!("launches {before} → {after}"),
            0.7,
        )
    })
}
