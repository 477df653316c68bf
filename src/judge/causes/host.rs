//! The device waits: for the host, which cannot issue work as fast as the device does it, or
//! for something else.

use super::clock::Clock;
use super::facts::{EXPLAINS, Facts, Found, Pair, Source, Waits};
use super::standing::Standing;
use crate::judge::judgement::Cause;
use crate::judge::phrase::{from_to, part_of, percent, time};
use crate::machine::Sides;

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
        let enough = EXPLAINS * facts.slower_by().unwrap_or(0.0);
        host.head > host.base * (1.0 + facts.floor) && host.growth() >= enough
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
            let confidence = match hosts {
                Some(Some(true)) => 0.88,
                _ => between_calls(facts, pair)?,
            };
            let host = facts
                .host_ns
                .map(|host| format!("host {} a call", of(host)));
            let facts = [host, idle.map(told), device(facts, pair)];
            let told: Vec<String> = facts.into_iter().flatten().collect();
            Found::of(Cause::HostBound, &told, ", ", confidence)
        }
        (None, _) => {
            let idle = inside?;
            let waits = Sides::both(idle.base.host_bound_ns, idle.head.host_bound_ns)?;
            let why = " waiting for the host";
            in_a_trace(facts, Cause::HostBound, why, waits, 0.75)
        }
    }
}

/// Idle time that grew by at least half of what takes longer.
fn gaps(facts: &Facts) -> Option<Found> {
    let idle = grown(facts).filter(|idle| explains(facts, idle))?;
    match facts.source {
        Source::Call(_) => Some(Found::new(Cause::Gaps, told(idle), 0.85)),
        Source::Trace(..) => in_a_trace(facts, Cause::Gaps, "", idle.map(|side| side.idle_ns), 0.5),
    }
}

/// Idle time that grew, where it is known.
fn grown(facts: &Facts) -> Option<Sides<Waits>> {
    facts.waits.filter(|idle| growth(idle) > 0.0)
}

fn growth(idle: &Sides<Waits>) -> f64 {
    idle.head.idle_ns - idle.base.idle_ns
}

fn explains(facts: &Facts, idle: &Sides<Waits>) -> bool {
    facts.explained_by(growth(idle))
}

/// True when at least half of the growth is waiting for the host; `None` where launches
/// are not known.
fn is_the_hosts(idle: &Sides<Waits>) -> Option<bool> {
    let waits = idle.head.host_bound_ns? - idle.base.host_bound_ns?;
    Some(2.0 * waits >= growth(idle))
}

/// The confidence that the device waits for the next call.
fn between_calls(facts: &Facts, pair: &Pair) -> Option<f64> {
    let device = match facts.clock {
        // The host's time is what is judged: it cannot but be in it.
        Clock::Host => pair.medians(|record| &record.device_ns).map(|ns| ns.head),
        _ => facts.ns.head,
    };
    (facts.host_ns?.head >= device?).then_some(0.75)
}

fn of(ns: Sides<f64>) -> String {
    from_to(ns.base, ns.head)
}

/// `device idle between launches 3.00 → 210 µs of 267 µs, 88.0 % of it waiting for the
/// host`. The call was recorded, which stretches it.
fn told(idle: Sides<Waits>) -> String {
    let waiting = idle.head.host_bound_ns.map(|ns| {
        let share = match ns == 0.0 {
            true => "none".to_owned(),
            false => percent(ns / idle.head.idle_ns.max(1.0)),
        };
        format!(", {share} of it waiting for the host")
    });
    format!(
        "device idle between launches {} of {}{}",
        of(idle.map(|side| side.idle_ns)),
        time(idle.head.span_ns),
        waiting.unwrap_or_default()
    )
}

/// `device time 75.8 → 267 µs`, or what it is where it hardly changed.
fn device(facts: &Facts, pair: &Pair) -> Option<String> {
    let device = match facts.clock {
        Clock::Host => pair.medians(|record| &record.device_ns)?,
        _ => Sides::both(facts.ns.base, facts.ns.head)?,
    };
    Some(match facts.of_device() && facts.moved() {
        true => format!("device time {}", of(device)),
        false => format!("device time {}", time(device.head)),
    })
}

/// A trace knows no more of the host's time than what the device waits for it.
fn in_a_trace(
    facts: &Facts,
    cause: Cause,
    why: &str,
    waits: Sides<f64>,
    confidence: f64,
) -> Option<Found> {
    let head = &facts.traces()?.head;
    let evidence = format!(
        "device idle{why} {} of {} {}, and works {}",
        of(waits),
        time(head.elapsed_ns),
        facts.each(),
        time(head.busy_ns)
    );
    Some(Found::new(cause, evidence, confidence).growing(waits.growth()))
}

/// Share of the time that passes from which idle time stands out.
const IDLE: f64 = 0.2;

/// Idle time of one trace, and whether the host is waited for.
pub fn idle(standing: &Standing) -> Option<Found> {
    let time_of = &standing.of.time;
    if time_of.idle_share() < IDLE {
        return None;
    }
    let told = |why: &str, ns: u64, share: f64| {
        format!(
            "device idle{why} {}{} ({}), the longest gap {}",
            part_of(standing.ns(ns), standing.ns(time_of.span_ns)),
            standing.each,
            percent(share),
            time(time_of.longest_gap_ns.unwrap_or(0) as f64)
        )
    };
    let waits = time_of.host_bound().zip(time_of.host_bound_ns);
    let host = waits.filter(|(share, _)| *share >= IDLE);
    Some(match host {
        Some((share, ns)) => {
            let evidence = told(" waiting for the host", ns, share);
            Found::new(Cause::HostBound, evidence, 0.75)
        }
        None => {
            let evidence = told("", time_of.idle_ns(), time_of.idle_share());
            Found::new(Cause::Gaps, evidence, 0.6)
        }
    })
}
