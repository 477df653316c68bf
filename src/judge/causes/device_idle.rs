//! The device waits between the launches of a call.

use super::{Pair, finding};
use crate::judge::judgement::Finding;
use crate::judge::phrase::{percent, time};

/// The part of a slowdown that a longer wait must account for.
const PART: f64 = 0.5;

/// Finds gaps between launches that grew by at least half of what the call takes longer.
/// `gap_ns` is the device's idle time in a call; `host_bound_permille`, where it is
/// known, the part of a call in which it waits for the host.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.counts("gap_ns")?;
    let more = head.checked_sub(base)? as f64;
    let slower = pair.slower_by()?;
    if more < PART * slower {
        return None;
    }
    let mut evidence = format!(
        "device idle between launches {} -> {} a call",
        time(base as f64),
        time(head as f64)
    );
    let waits = pair.counts("host_bound_permille");
    let waits = waits.filter(|(base, head)| head > base);
    if let Some((base, head)) = waits {
        let share = |permille: u64| percent(permille as f64 / 1000.0);
        evidence += &format!(
            ", of the call it waits for the host {} -> {}",
            share(base),
            share(head)
        );
    }
    let cause = if waits.is_some() {
        "host-bound"
    } else {
        "gaps"
    };
    Some(finding(cause, evidence, 0.85))
}
