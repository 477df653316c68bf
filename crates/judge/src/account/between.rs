//! What a time holds beside its operations: the device's way from one to the next, and waiting
//! for the host.

use super::asked::Asked;
use crate::judgement::{AccountLine, Item};
use regatta_core::machine::{Division, Sides};
use regatta_worker::units::Nanoseconds;

/// Lines of what lies between operations.
pub fn lines(asked: &Asked) -> Vec<AccountLine> {
    let beyond = Sides::of(
        asked.times.base - asked.divisions.base.busy_ns(),
        asked.times.head - asked.divisions.head.busy_ns(),
    );
    let beyond = beyond.growth();
    let idle = asked.divisions.map(|of| of.idle_ns()).growth();
    let waiting = waiting(asked);
    // As far as both the clock and the recording go.
    let seen = within(beyond, idle);
    let part = match idle.0 == 0.0 {
        true => 0.0,
        false => seen.0 / idle.0,
    };
    let mut waited = waiting * part;
    let own = seen - waited;
    if asked.holds_host.head {
        // Before the first operation the device waits too, which no recording shows.
        let host = asked.host.map_or(Nanoseconds::ZERO, Sides::growth);
        waited += within(beyond - seen, host);
    }
    let count = asked.divisions.map(|of| of.parts.len() as u32);
    let item = match count.base == count.head {
        true => Item::Gaps,
        false => Item::Starts { count },
    };
    vec![
        AccountLine::of(item, own),
        AccountLine::of(Item::Waiting, waited),
    ]
}

/// What the device waits more for the host between operations, in a time that holds it.
fn waiting(asked: &Asked) -> Nanoseconds {
    let side = |division: &Division, holds: bool| match holds {
        false => Some(Nanoseconds::ZERO),
        true => division.parts.iter().map(|part| part.host_ns).sum(),
    };
    let base = side(asked.divisions.base, asked.holds_host.base);
    let head = side(asked.divisions.head, asked.holds_host.head);
    match (base, head) {
        (Some(base), Some(head)) => head - base,
        _ => Nanoseconds::ZERO,
    }
}

/// As much of the first as goes the way of the second, and no further.
fn within(one: Nanoseconds, other: Nanoseconds) -> Nanoseconds {
    match one.0 * other.0 > 0.0 {
        true => Nanoseconds(one.0.signum() * one.0.abs().min(other.0.abs())),
        false => Nanoseconds::ZERO,
    }
}
