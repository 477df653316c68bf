//! Waits of the device, for a host that issues work too slowly or for something else; and requests
//! of a call to the driver, for memory and for waits.

use super::OneTrace;
use super::facts::TimeSource;
use super::facts::{EXPLAINS, FactSource, Facts, Found, Pair, Waits};
use super::processor::explains_time;
use crate::judgement::{Cause, Difference, Fact, Item};
use regatta_core::machine::{
    ASKED_OF_CUDA, CALL_PEAK, DRIVER_ALLOCATIONS, DRIVER_FREES, NUMBA_ALLOCATIONS,
    SYNCHRONISATIONS, Scope, SideFigures, Sides,
};
use regatta_core::suite::Metric;
use regatta_worker::units::{Nanoseconds, Ratio, Share, part_of};

/// Finds waits for the host, or else other gaps, if the judged time includes the host at all.
pub fn waiting(facts: &Facts) -> Option<Found> {
    let in_it = facts.clock.holds_host();
    in_it.then(|| host_bound(facts).or_else(|| gaps(facts)))?
}

/// The device waits for the host. The host time must have grown beyond the threshold, and by at
/// least half of the slowdown. The device waits either inside a call or repetition, which its idle
/// time shows, or from one call to the next, if the host needs at least as long as the device. If
/// host times are unknown, idle time alone decides.
fn host_bound(facts: &Facts) -> Option<Found> {
    let grew = facts.host_ns.map(|host| {
        let enough = facts.slower_by().unwrap_or_default() * EXPLAINS;
        host.head > host.base * Ratio::grown_by(facts.threshold) && host.growth() >= enough
    });
    if grew == Some(false) {
        return None;
    }
    let idle = grown(facts);
    let inside = idle.filter(|idle| explains(facts, idle));
    let hosts = inside.map(|idle| is_the_hosts(&idle));
    match (facts.call(), hosts) {
        // The device waits for something else, and the host may wait for the same.
        (_, Some(Some(false))) => None,
        (Some(pair), hosts) => {
            let order = match hosts {
                Some(Some(true)) => 0.88,
                _ => between_calls(facts, pair)?,
            };
            let host = facts.host_ns;
            let host = host.map(|host| Difference::time("host", host, " a call"));
            let mut evidence: Vec<Fact> = host.into_iter().map(Fact::from).collect();
            evidence.extend(idle.into_iter().flat_map(idle_facts));
            evidence.extend(device(facts, pair));
            Found::resting_on(Cause::HostBound, evidence, order)
        }
        (None, _) => {
            let idle = inside?;
            let waits = Sides::both(idle.base.host_bound_ns, idle.head.host_bound_ns)?;
            let what = "device idle waiting for the host";
            in_a_trace(facts, Cause::HostBound, what, waits, 0.75)
        }
    }
}

/// Idle time that grew by at least half of the slowdown.
fn gaps(facts: &Facts) -> Option<Found> {
    let idle = grown(facts).filter(|idle| explains(facts, idle))?;
    match facts.source {
        FactSource::Call(_) => Some(Found::new(Cause::Gaps, idle_facts(idle), 0.85)),
        FactSource::Trace(..) => {
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

/// True if at least half of the growth is waiting for the host; `None` where launches are unknown.
fn is_the_hosts(idle: &Sides<Waits>) -> Option<bool> {
    let waits = idle.head.host_bound_ns? - idle.base.host_bound_ns?;
    Some(waits * 2.0 >= growth(idle))
}

/// The order of the finding that the device waits for the next call; `None` if the host is faster.
fn between_calls(facts: &Facts, pair: &Pair) -> Option<f64> {
    let device = match facts.clock {
        // The judged time is the host's, so the device time comes from the record.
        TimeSource::Host => pair.medians(Metric::Device).map(|ns| ns.head),
        _ => facts.ns.head,
    };
    (facts.host_ns?.head >= device?).then_some(0.75)
}

/// `device idle between launches 3.00 → 210 µs of 267 µs, 88.0 % of it waiting for the
/// host`. The call was recorded, which stretches it.
fn idle_facts(idle: Sides<Waits>) -> Vec<Fact> {
    let span = format!(" of {}", idle.head.span_ns);
    let times = idle.map(|side| side.idle_ns);
    let mut evidence = vec![Difference::time("device idle between launches", times, &span).into()];
    evidence.extend(idle.head.host_bound_ns.map(|time| {
        let part = match time.share_of(idle.head.idle_ns.max(Nanoseconds(1.0))) {
            Share(0.0) => "none".to_owned(),
            share => share.to_string(),
        };
        Fact::Figure(format!("{part} of it waiting for the host"))
    }));
    evidence
}

/// `device time 75.8 → 267 µs`, or only the head's time if it hardly changed.
fn device(facts: &Facts, pair: &Pair) -> Option<Fact> {
    let device = match facts.clock {
        TimeSource::Host => pair.medians(Metric::Device)?,
        _ => Sides::both(facts.ns.base, facts.ns.head)?,
    };
    Some(if facts.of_device() && facts.moved() {
        Difference::time("device time", device, "").into()
    } else {
        Fact::Figure(format!("device time {}", device.head))
    })
}

/// A trace knows only the part of the host's time for which the device waits.
fn in_a_trace(
    facts: &Facts,
    cause: Cause,
    what: &str,
    waits: Sides<Nanoseconds>,
    order: f64,
) -> Option<Found> {
    let head = &facts.traces()?.head;
    let elapsed = format!(" of {} {}", head.elapsed_ns, facts.each());
    let works = Fact::Figure(format!("and works {}", head.busy_ns));
    let evidence = vec![Difference::time(what, waits, &elapsed).into(), works];
    Some(Found::new(cause, evidence, order).growing(waits.growth()))
}

/// The share of the elapsed time from which idle time is reported.
const IDLE: Share = Share(0.2);

/// Finds idle time of a single trace, and whether the device waits for the host in it.
pub fn idle(standing: &OneTrace) -> Option<Found> {
    let time = &standing.of.time;
    if time.idle_share() < IDLE {
        return None;
    }
    let host = time.host_bound_ns;
    let host = host.filter(|_| time.host_bound().is_some_and(|share| share >= IDLE));
    let (cause, waiting, ns, order) = match host {
        Some(ns) => (Cause::HostBound, " waiting for the host", ns, 0.75),
        None => (Cause::Gaps, "", time.idle_ns(), 0.6),
    };
    let [part, whole] = [ns, time.span_ns].map(|ns| standing.time(ns));
    let (times, share) = (part_of(part, whole), part.share_of(whole));
    let idle = format!("device idle{waiting} {times}{} ({share})", standing.each);
    let longest = Nanoseconds::whole(time.longest_gap_ns.unwrap_or(0));
    let longest = Fact::Figure(format!("the longest gap {longest}"));
    Some(Found::new(cause, vec![Fact::Figure(idle), longest], order))
}

/// A request to CUDA that a call, or a repetition of a program, makes more often.
fn asked_more(facts: &Facts, name: &str) -> Option<Fact> {
    let count = match facts.source {
        FactSource::Call(_) => facts.more(name)?,
        FactSource::Trace(_, Scope::Repetition) => {
            let (call, _) = ASKED_OF_CUDA.iter().find(|(_, count)| *count == name)?;
            facts.count(call).filter(|count| one_more(facts, *count))?
        }
        FactSource::Trace(_, Scope::Whole) => return None,
    };
    Some(facts.counted(name, count))
}

/// True where a repetition has one more. Its counts are scaled from a few readings a second, so a
/// smaller growth may be none.
fn one_more(facts: &Facts, count: Sides<f64>) -> bool {
    count.growth() >= 0.9 && count.head > count.base * (1.0 + facts.threshold.0)
}

/// More copies to the host, which waits for them where it uses them. Reported if the device waits
/// for the host in turn, and waits themselves were not counted.
fn fetched(facts: &Facts) -> Option<Fact> {
    const TO_HOST: &str = "DtoH";
    let sides = facts.traces()?;
    let waits = facts
        .account
        .as_ref()?
        .growth(|item| *item == Item::Waiting);
    let number = |side: &SideFigures| side.copies.get(TO_HOST).map_or(0.0, |(count, _)| *count);
    let count = sides.map(number);
    let counted = facts.count(SYNCHRONISATIONS).is_some();
    let more = count.growth() >= 0.9 && facts.explained_by(waits) && !counted;
    let what = "copies to the host, which waits for them, a repetition";
    more.then(|| facts.counted(what, count))
}

/// Finds calls that allocate memory from the driver, or free it, instead of keeping it. That costs
/// host time, and a free waits for the device.
pub fn memory(facts: &Facts) -> Option<Found> {
    let names = [DRIVER_ALLOCATIONS, DRIVER_FREES].into_iter();
    let more = names.filter_map(|name| asked_more(facts, name)).collect();
    // This comes before the waits that it causes.
    let worse = facts.traces().is_some();
    let candidate = Found::resting_on(Cause::DriverMemory, more, facts.if_host(0.935, 0.4))?;
    Some(candidate.worse(worse))
}

/// Finds a call that itself waits for the device, so that the device is idle until the host
/// continues. Where waits were not counted, the evidence is that its gate had to be opened in the
/// head and not in the base.
pub fn synchronisation(facts: &Facts) -> Option<Found> {
    let Some(pair) = facts.call() else {
        let asked = asked_more(facts, SYNCHRONISATIONS);
        let fact = asked.or_else(|| fetched(facts))?;
        return Some(Found::new(Cause::Synchronisation, vec![fact], 0.93).worse(true));
    };
    let fact = match facts.count(SYNCHRONISATIONS) {
        Some(_) => asked_more(facts, SYNCHRONISATIONS)?,
        None => {
            let waits = pair.head.conditions.synchronised > 0;
            let did =
                pair.base.conditions.synchronised > 0 || pair.base.median(Metric::Device).is_none();
            let now = waits && !did && pair.base_clock == TimeSource::Gated;
            let words = "the call waits for the device itself, and did not before";
            now.then(|| Fact::words(words))?
        }
    };
    // It causes the device's waits for the host, and not the other way round.
    let order = facts.if_host(0.93, 0.4);
    Some(Found::new(Cause::Synchronisation, vec![fact], order))
}

/// A smaller growth of peak memory in bytes, or one below a tenth, is rounding of the allocator.
const ROUNDING: f64 = 1048576.0;

/// A smaller growth of a call's allocations in bytes is due to Python's own objects.
const PAGE: f64 = 4096.0;

/// Finds a larger workspace, more allocations, or higher peak memory.
pub fn workspace(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let in_python = facts.count(CALL_PEAK).is_some();
    let peak = pair.values(Metric::PeakMemory).filter(|peak| {
        let more = peak.growth();
        more >= ROUNDING && more >= peak.base / 10.0 && (!in_python || explains_time(facts, more))
    });
    let workspace = "workspace_bytes";
    let allocations = |name| Some(facts.counted(name, facts.more(name)?));
    let memory = |name, size: Option<Sides<f64>>| Some(Difference::memory(name, size?).into());
    let call_peak = facts.more(CALL_PEAK).filter(|size| {
        let more = size.growth();
        more >= PAGE.max(size.base / 10.0) && explains_time(facts, more)
    });
    let evidence = [
        memory(workspace, facts.more(workspace)),
        memory(CALL_PEAK, call_peak),
        allocations("allocations"),
        allocations(NUMBA_ALLOCATIONS),
        memory("peak_memory", peak),
    ];
    let evidence = evidence.into_iter().flatten().collect();
    Found::resting_on(Cause::Workspace, evidence, 0.45)
}

/// Finds requests of a whole program to CUDA that grew: modules loaded, memory allocated, waits.
/// The reason may just be another warm-up.
pub fn calls_added(facts: &Facts) -> Option<Found> {
    let FactSource::Trace(_, Scope::Whole) = facts.source else {
        return None;
    };
    let names = ["module_loads", "allocations", "synchronisations"];
    let evidence = names.iter().filter_map(|name| {
        let count = facts.more(name)?;
        let beyond = count.head > count.base * (1.0 + facts.threshold.0);
        beyond.then(|| facts.counted(name, count))
    });
    Found::resting_on(Cause::CallsAdded, evidence.collect(), 0.6)
}
