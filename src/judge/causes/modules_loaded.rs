//! Code is loaded or compiled in every call, not only in the first.

use super::{Pair, finding};
use crate::judge::judgement::Finding;

/// Finds more modules loaded in steady state.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.counts("module_loads")?;
    let evidence = format!("modules loaded by a call in steady state {base} → {head}");
    // The host loads them: behind a gate its time is not in the call's.
    let confidence = if pair.clock.holds_host() { 0.94 } else { 0.6 };
    (head > base).then(|| finding("modules-loaded", evidence, confidence))
}
