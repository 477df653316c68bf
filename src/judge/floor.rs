//! The floor: the smallest change that counts.

use crate::suite::rules::Policy;
use crate::units::{Ratio, Share};

/// The floor of a policy; the default where an edited file holds nonsense.
pub fn floor(policy: &Policy) -> Share {
    if policy.floor.is_finite() && policy.floor >= Share(0.0) {
        policy.floor
    } else {
        Policy::default().floor
    }
}

/// True when a ratio is a change that counts.
pub fn beyond(ratio: Ratio, floor: Share) -> bool {
    let limit = Ratio::grown_by(floor);
    ratio > limit || ratio < limit.inverse()
}
