//! The call waits for the device by itself: the device is idle until the host goes on.

use super::clock::Clock;
use super::{Pair, finding};
use crate::attention::SYNCHRONISATIONS;
use crate::judge::judgement::{Finding, asked_of_cuda};

/// Finds more waits in a call; or, where they were not counted, a call whose gate had to be
/// opened and had not been.
pub fn find(pair: &Pair) -> Option<Finding> {
    let words = asked_of_cuda(SYNCHRONISATIONS)?;
    let evidence = match pair.counts(SYNCHRONISATIONS) {
        Some((base, head)) => (head > base).then(|| format!("{words} {base} → {head}"))?,
        None => {
            let waits = pair.head.conditions.synchronised;
            let did = pair.base.conditions.synchronised > 0 || pair.base.device_ns.is_empty();
            (waits > 0 && !did && pair.base_clock == Clock::Gated)
                .then(|| "the call waits for the device itself, and did not before".to_owned())?
        }
    };
    // It is behind the waiting of the device for the host, and not the other way round.
    let confidence = if pair.clock.holds_host() { 0.93 } else { 0.4 };
    Some(finding("synchronisation", evidence, confidence))
}
