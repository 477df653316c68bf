//! The device waits: for the host, which cannot issue work as fast as the device does it, or
//! for something else.

use super::clock::Clock;
use super::facts::{EXPLAINS, Facts, Found, Pair, Source, Waits};
use super::standing::Standing;
use crate::judgement::{Cause, Fact};
use regatta_core::machine::Sides;
use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// Waiting for the host, or else gaps, where the host is in the time at all: behind a gate
/// it is not.
pub fn waiting(facts: &Facts) -> Option<Found> {
    let in_it = facts.clock.holds_host();
    in_it.then(|| host_bound(facts).or_else(|| gaps(facts)))?
}

/// A host time that grew beyond the floor, by at least half of what takes longer, where the
/// device waits for it: inside a call or repetition, as its idle time tells, or from one
/// call to the next, because the host needs at least as long as the device. Where host times
/// are not known, idle time alone tells.
fn host_bound(facts: &Facts) -> Option<Found> {
    let grew = facts.host_ns.map(|host| {
        let enough = facts.slower_by().unwrap_or_default() * EXPLAINS;
        host.head > host.base * Ratio::grown_by(facts.floor) && host.growth() >= enough
    });
    if grew == Some(false) {
        return None;
    }
    let idle = grown(facts);
    let inside = idle.filter(|idle| explains(facts, idle));
    let hosts = inside.map(|idle| is_the_hosts(&idle));
    match (facts.call(), hosts) {
        // It waits for something else, and so may the host.
        (_, Some(Some(false))) => None,
        (Some(pair), hosts) => {
            let order = match hosts {
                Some(Some(true)) => 0.88,
                _ => between_calls(facts, pair)?,
            };
            let host = facts
                .host_ns
                .map(|host| Fact::times("host", host, " a call"));
            let mut told: Vec<Fact> = host.into_iter().collect();
            told.extend(idle.into_iter().flat_map(idle_facts));
            told.extend(device(facts, pair));
            Found::of(Cause::HostBound, told, order)
        }
        (None, _) => {
            let idle = inside?;
            let waits = Sides::both(idle.base.host_bound_ns, idle.head.host_bound_ns)?;
            let what = "device idle waiting for the host";
            in_a_trace(facts, Cause::HostBound, what, waits, 0.75)
        }
    }
}

/// Idle time that grew by at least half of what takes longer.
fn gaps(facts: &Facts) -> Option<Found> {
    let idle = grown(facts).filter(|idle| explains(facts, idle))?;
    match facts.source {
        Source::Call(_) => Some(Found::new(Cause::Gaps, idle_facts(idle), 0.85)),
        Source::Trace(..) => {
            let times = idle.map(|side| side.idle_ns);
            in_a_trace(facts, Cause::Gaps, "device idle", times, 0.5)
        }
    }
}

/// Idle time that grew, where it is known.
fn grown(facts: &Facts) -> Option<Sides<Waits>> {
    facts.waits.filter(|idle| growth(idle) > Nanoseconds::ZERO)
}

fn growth(idle: &Sides<Waits>) -> Nanoseconds {
    idle.head.idle_ns - idle.base.idle_ns
}

fn explains(facts: &Facts, idle: &Sides<Waits>) -> bool {
    facts.explained_by(growth(idle))
}

/// True when at least half of the growth is waiting for the host; `None` where launches
/// are not known.
fn is_the_hosts(idle: &Sides<Waits>) -> Option<bool> {
    let waits = idle.head.host_bound_ns? - idle.base.host_bound_ns?;
    Some(waits * 2.0 >= growth(idle))
}

/// The order that the device waits for the next call.
fn between_calls(facts: &Facts, pair: &Pair) -> Option<f64> {
    let device = match facts.clock {
        // The host's time is what is judged: it cannot but be in it.
        Clock::Host => pair.medians(|record| &record.device_ns).map(|ns| ns.head),
        _ => facts.ns.head,
    };
    (facts.host_ns?.head >= device?).then_some(0.75)
}

/// `device idle between launches 3.00 → 210 µs of 267 µs, 88.0 % of it waiting for the
/// host`. The call was recorded, which stretches it.
fn idle_facts(idle: Sides<Waits>) -> Vec<Fact> {
    let of = format!(" of {}", idle.head.span_ns);
    let times = idle.map(|side| side.idle_ns);
    let mut told = vec![Fact::times("device idle between launches", times, &of)];
    told.extend(idle.head.host_bound_ns.map(|time| Fact::Share {
        share: time.share_of(idle.head.idle_ns.max(Nanoseconds(1.0))),
        of: " of it waiting for the host".to_owned(),
    }));
    told
}

/// `device time 75.8 → 267 µs`, or what it is where it hardly changed.
fn device(facts: &Facts, pair: &Pair) -> Option<Fact> {
    let device = match facts.clock {
        Clock::Host => pair.medians(|record| &record.device_ns)?,
        _ => Sides::both(facts.ns.base, facts.ns.head)?,
    };
    Some(match facts.of_device() && facts.moved() {
        true => Fact::times("device time", device, ""),
        false => Fact::Time {
            what: "device time ".to_owned(),
            time: device.head,
            of: String::new(),
        },
    })
}

/// A trace knows no more of the host's time than what the device waits for it.
fn in_a_trace(
    facts: &Facts,
    cause: Cause,
    what: &str,
    waits: Sides<Nanoseconds>,
    order: f64,
) -> Option<Found> {
    let head = &facts.traces()?.head;
    let of = format!(" of {} {}", head.elapsed_ns, facts.each());
    let works = Fact::Time {
        what: "and works ".to_owned(),
        time: head.busy_ns,
        of: String::new(),
    };
    let told = vec![Fact::times(what, waits, &of), works];
    Some(Found::new(cause, told, order).growing(waits.growth()))
}

/// Share of the time that passes from which idle time stands out.
const IDLE: Share = Share(0.2);

/// Idle time of one trace, and whether the host is waited for.
pub fn idle(standing: &Standing) -> Option<Found> {
    let time = &standing.of.time;
    if time.idle_share() < IDLE {
        return None;
    }
    let host = time.host_bound_ns;
    let host = host.filter(|_| time.host_bound().is_some_and(|share| share >= IDLE));
    let (cause, what, ns, order) = match host {
        Some(ns) => (
            Cause::HostBound,
            "device idle waiting for the host ",
            ns,
            0.75,
        ),
        None => (Cause::Gaps, "device idle ", time.idle_ns(), 0.6),
    };
    let [part, whole] = [ns, time.span_ns].map(|ns| standing.time(ns));
    let of = format!("{} ({})", standing.each, part.share_of(whole));
    let longest = Fact::Time {
        what: "the longest gap ".to_owned(),
        time: Nanoseconds::whole(time.longest_gap_ns.unwrap_or(0)),
        of: String::new(),
    };
    let told = vec![Fact::part(what, part, whole, &of), longest];
    Some(Found::new(cause, told, order))
}
