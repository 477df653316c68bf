//! More memory is set aside for a call.

use super::{Pair, finding};
use crate::judge::judgement::Finding;

/// A difference of peak memory below this, or below a tenth, is an allocator's
/// rounding.
const ROUNDING: u64 = 1 << 20;

/// Finds a larger workspace, more allocations, or a higher peak.
pub fn find(pair: &Pair) -> Option<Finding> {
    let mut evidence = Vec::new();
    for (name, what) in [
        ("workspace_bytes", "workspace"),
        ("allocations", "allocations"),
    ] {
        if let Some((base, head)) = pair.counts(name).filter(|(base, head)| head > base) {
            let unit = if name == "workspace_bytes" {
                " bytes"
            } else {
                ""
            };
            evidence.push(format!("{what} {base} → {head}{unit}"));
        }
    }
    if let Some((base, head)) = pair.base.peak_bytes.zip(pair.head.peak_bytes) {
        let more = head.saturating_sub(base);
        if more >= ROUNDING && more >= base / 10 {
            evidence.push(format!("peak memory {base} → {head} bytes"));
        }
    }
    (!evidence.is_empty()).then(|| finding("workspace", evidence.join(", "), 0.45))
}
