//! The host cannot issue work as fast as the device does it, and the device waits.

use super::idle::Idle;
use super::{Clock, EXPLAINS, Pair, finding, median_ns};
use crate::judge::judgement::Finding;
use crate::judge::phrase::{from_to, time};
use crate::record::side::CaseRecord;

/// Finds a host time that grew beyond the floor, by at least half of what a call takes
/// longer on the device, where the device waits for it: inside a call, as its activity
/// tells, or from one call to the next, because the host needs at least as long as the
/// device. Where host times are not known, the activity alone tells. Behind a gate the
/// host is not in the time at all.
pub fn find(pair: &Pair) -> Option<Finding> {
    if !pair.clock.holds_host() {
        return None;
    }
    let host = both(pair, |record| &record.host_ns);
    let grew = host.map(|(before, after)| {
        let enough = EXPLAINS * pair.slower_by().unwrap_or(0.0);
        after > before * (1.0 + pair.floor) && after - before >= enough
    });
    if grew == Some(false) {
        return None;
    }
    let idle = Idle::grown(pair);
    let inside = idle.as_ref().filter(|idle| idle.explains(pair));
    let confidence = match inside.map(Idle::is_the_hosts) {
        Some(Some(true)) => 0.88,
        // It waits for something else, and so may the host.
        Some(Some(false)) => return None,
        _ => between_calls(pair, host?)?,
    };
    let host = host.map(|(before, after)| format!("host {} a call", from_to(before, after)));
    let facts = [host, idle.map(|idle| idle.told()), device(pair)];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    Some(finding("host-bound", facts.join(", "), confidence))
}

/// The confidence that the device waits for the next call.
fn between_calls(pair: &Pair, (_, host): (f64, f64)) -> Option<f64> {
    // The host's time is what is judged: it cannot but be in it.
    let device = match pair.clock {
        Clock::Host => median_ns(&pair.head.device_ns)?,
        _ => pair.head_ns?,
    };
    (host >= device).then_some(0.75)
}

/// `device time 75.8 → 267 µs`, or what it is where it hardly changed.
fn device(pair: &Pair) -> Option<String> {
    let (before, after) = match pair.clock {
        Clock::Host => both(pair, |record| &record.device_ns)?,
        _ => (pair.base_ns?, pair.head_ns?),
    };
    let moved = pair.clock != Clock::Host && pair.moved();
    Some(match moved {
        true => format!("device time {}", from_to(before, after)),
        false => format!("device time {}", time(after)),
    })
}

/// The medians of both sides.
fn both(pair: &Pair, times: fn(&CaseRecord) -> &Vec<f64>) -> Option<(f64, f64)> {
    median_ns(times(pair.base)).zip(median_ns(times(pair.head)))
}
