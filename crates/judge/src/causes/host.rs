//! The device waits: for the host, which cannot issue work as fast as the device does it, or
//! for something else. And what a call asks of the driver: memory, and waits for the device.

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

/// Waiting for the host, or else gaps, where the host is in the time at all: behind a gate
/// it is not.
pub fn waiting(facts: &Facts) -> Option<Found> {
    let in_it = facts.clock.holds_host();
    in_it.then(|| host_bound(facts).or_else(|| gaps(facts)))?
}

/// A host time that grew beyond the threshold, by at least half of what takes longer, where the
/// device waits for it: inside a call or repetition, as its idle time tells, or from one
/// call to the next, because the host needs at least as long as the device. Where host times
/// are not known, idle time alone tells.
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
        // It waits for something else, and so may the host.
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

/// Idle time that grew by at least half of what takes longer.
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

/// `device time 75.8 → 267 µs`, or what it is where it hardly changed.
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

/// A trace knows no more of the host's time than what the device waits for it.
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

/// Share of the time that passes from which idle time stands out.
const IDLE: Share = Share(0.2);

/// Idle time of one trace, and whether the host is waited for.
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

/// The CUDA functions that a call, or a repetition of a program, enters more often.
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

/// True where a repetition has one more: counts are taken a few times a second and scaled, so
/// less may be none.
fn one_more(facts: &Facts, count: Sides<f64>) -> bool {
    count.growth() >= 0.9 && count.head > count.base * (1.0 + facts.threshold.0)
}

/// Copies to the host, for which the host waits where it uses them: reported if the device waits
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

/// Memory is taken from the driver in each call, or given back to it, and not kept. It costs
/// the host, and a free waits for the device.
pub fn memory(facts: &Facts) -> Option<Found> {
    let names = [DRIVER_ALLOCATIONS, DRIVER_FREES].into_iter();
    let more = names.filter_map(|name| asked_more(facts, name)).collect();
    // Above the waits that it brings with it.
    let worse = facts.traces().is_some();
    let candidate = Found::resting_on(Cause::DriverMemory, more, facts.if_host(0.935, 0.4))?;
    Some(candidate.worse(worse))
}

/// The call itself waits for the device: the device is idle until the host continues. If
/// waits were not counted, its gate had to be opened and had not been.
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
    // It is behind the waiting of the device for the host, and not the other way round.
    let order = facts.if_host(0.93, 0.4);
    Some(Found::new(Cause::Synchronisation, vec![fact], order))
}

/// A difference of peak memory below this, or below a tenth, is an allocator's rounding.
const ROUNDING: f64 = 1048576.0;

/// A difference of what a call allocates below this is of Python's own objects.
const PAGE: f64 = 4096.0;

/// A larger workspace, more allocations, or a higher peak.
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

/// Calls of a whole program: modules loaded, memory allocated, waits. It may be no more than
/// another warm-up.
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
