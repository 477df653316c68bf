//! The host cannot issue calls as fast as the device works them off.

use super::{Pair, finding};
use crate::judge::complete::usable;
use crate::judge::judgement::Finding;
use crate::judge::phrase::time;
use crate::record::side::median;

/// Finds a host time that grew beyond the floor and is at least the device's.
pub fn find(pair: &Pair) -> Option<Finding> {
    let before = median(&usable(&pair.base.host_ns))?;
    let after = median(&usable(&pair.head.host_ns))?;
    let device = median(&usable(&pair.head.device_ns))?;
    let grew = after > before * (1.0 + pair.floor);
    let evidence = format!(
        "host time {} -> {} a call, and the device needs {}",
        time(before),
        time(after),
        time(device)
    );
    (grew && after >= device).then(|| finding("host-bound", evidence, 0.75))
}
