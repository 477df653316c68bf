//! The floor: the smallest change that counts.

use regatta_core::suite::rules::{Metric, Policy};
use regatta_worker::units::{Ratio, Share};

/// The floor of a policy; the default where an edited file holds nonsense.
pub fn floor(policy: &Policy) -> Share {
    if policy.floor.is_finite() && policy.floor >= Share(0.0) {
        policy.floor
    } else {
        Policy::default().floor
    }
}

/// The floor of a metric. The processor's time is a witness in place of the device's, and is
/// held to what that would be.
pub fn of_metric(metric: Metric, policy: &Policy) -> Share {
    match metric {
        Metric::Device | Metric::Processor => floor(policy),
        Metric::Host | Metric::FirstCall => policy.metric(metric).floor,
    }
}

/// True when a ratio is a change that counts.
pub fn beyond(ratio: Ratio, floor: Share) -> bool {
    let limit = Ratio::grown_by(floor);
    ratio > limit || ratio < limit.inverse()
}
