//! The device does nothing between the operations of a call, and it is not the host's fault.

use super::idle::Idle;
use super::{Pair, finding, host_bound};
use crate::judge::judgement::Finding;

/// Finds idle time that grew by at least half of what a call takes longer, where the host
/// is not known to be late ([`host_bound`]). Behind a gate no gap is in the time.
pub fn find(pair: &Pair) -> Option<Finding> {
    if !pair.clock.holds_host() {
        return None;
    }
    let idle = Idle::grown(pair).filter(|idle| idle.explains(pair))?;
    let gaps = || finding("gaps", idle.told(), 0.85);
    host_bound::find(pair).is_none().then(gaps)
}
