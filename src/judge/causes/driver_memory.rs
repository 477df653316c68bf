//! Memory is taken from the driver in each call, or given back to it, and not kept.

use super::{Pair, finding};
use crate::attention::{DRIVER_ALLOCATIONS, DRIVER_FREES};
use crate::judge::judgement::{Finding, asked_of_cuda};

/// Finds more allocations or frees that reach the driver. They cost the host, and a free
/// waits for the device.
pub fn find(pair: &Pair) -> Option<Finding> {
    let more = [DRIVER_ALLOCATIONS, DRIVER_FREES]
        .into_iter()
        .filter_map(|name| {
            let (base, head) = pair.counts(name).filter(|(base, head)| head > base)?;
            Some(format!("{} {base} → {head}", asked_of_cuda(name)?))
        });
    let more: Vec<String> = more.collect();
    // Above the waits that it brings with it.
    let confidence = if pair.clock.holds_host() { 0.935 } else { 0.4 };
    (!more.is_empty()).then(|| finding("driver-memory", more.join(", "), confidence))
}
