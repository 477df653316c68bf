//! The floor: the smallest change that counts.

use crate::suite::rules::Policy;

/// The floor of a policy; the default where an edited file holds nonsense.
pub fn floor(policy: &Policy) -> f64 {
    if policy.floor.is_finite() && policy.floor >= 0.0 {
        policy.floor
    } else {
        Policy::default().floor
    }
}

/// True when a ratio is a change that counts.
pub fn beyond(ratio: f64, floor: f64) -> bool {
    ratio > 1.0 + floor || ratio < 1.0 / (1.0 + floor)
}
