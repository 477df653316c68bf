//! What a call asks of the driver and sets aside: memory, and waits for the device.

use super::clock::Clock;
use super::facts::{Facts, Found, Source};
use crate::judgement::{Cause, Fact, Item, asked_of_cuda};
use regatta_core::machine::{
    ASKED_OF_CUDA, DRIVER_ALLOCATIONS, DRIVER_FREES, SYNCHRONISATIONS, Scope, SideFigures, Sides,
};
use regatta_worker::units::Bytes;

/// `cudaMalloc a call 0 → 2`, of a count that a call has more of, or a repetition of a program.
fn asked_more(facts: &Facts, name: &str) -> Option<Fact> {
    let what = asked_of_cuda(name)?;
    match facts.source {
        Source::Call(_) => Some(Fact::count(what, facts.more(name)?, "")),
        Source::Trace(_, Scope::Repetition) => {
            let (call, _) = ASKED_OF_CUDA.iter().find(|(_, count)| *count == name)?;
            let count = facts.count(call)?;
            let what = what.replace("call", "repetition");
            one_more(facts, count).then(|| Fact::count(&what, count, ""))
        }
        Source::Trace(_, Scope::Whole) => None,
    }
}

/// True where a repetition has one more: counts are taken a few times a second and scaled, so
/// less may be none.
fn one_more(facts: &Facts, count: Sides<f64>) -> bool {
    count.growth() >= 0.9 && count.head > count.base * (1.0 + facts.floor.0)
}

/// Copies to the host, for which the host waits where it uses them: told where the device waits
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
    let told = facts.count(SYNCHRONISATIONS).is_some();
    let more = count.growth() >= 0.9 && facts.explained_by(waits) && !told;
    let what = "copies to the host, which waits for them, a repetition";
    more.then(|| Fact::count(what, count, ""))
}

/// Memory is taken from the driver in each call, or given back to it, and not kept. It costs
/// the host, and a free waits for the device.
pub fn memory(facts: &Facts) -> Option<Found> {
    let names = [DRIVER_ALLOCATIONS, DRIVER_FREES].into_iter();
    let more = names.filter_map(|name| asked_more(facts, name)).collect();
    // Above the waits that it brings with it.
    let worse = facts.traces().is_some();
    let found = Found::of(Cause::DriverMemory, more, facts.if_host(0.935, 0.4))?;
    Some(found.worse(worse))
}

/// The call waits for the device by itself: the device is idle until the host goes on. Where
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
            let did = pair.base.conditions.synchronised > 0 || pair.base.device_ns.is_empty();
            let now = waits && !did && pair.base_clock == Clock::Gated;
            now.then(|| Fact::said("the call waits for the device itself, and did not before"))?
        }
    };
    // It is behind the waiting of the device for the host, and not the other way round.
    let order = facts.if_host(0.93, 0.4);
    Some(Found::new(Cause::Synchronisation, vec![fact], order))
}

/// A difference of peak memory below this, or below a tenth, is an allocator's rounding.
const ROUNDING: Bytes = Bytes(1 << 20);

/// A larger workspace, more allocations, or a higher peak.
pub fn workspace(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let size = |what: &str, size| Fact::Size {
        what: what.to_owned(),
        size,
    };
    let workspace = facts.more("workspace_bytes");
    let workspace = workspace.map(|bytes| bytes.map(|bytes| Bytes(*bytes as u64)));
    let allocations = facts.more("allocations");
    let peak = Sides::both(pair.base.peak_bytes, pair.head.peak_bytes);
    let peak = peak.filter(|peak| {
        let more = Bytes(peak.head.0.saturating_sub(peak.base.0));
        more >= ROUNDING && more.0 >= peak.base.0 / 10
    });
    let told = [
        workspace.map(|bytes| size("workspace", bytes)),
        allocations.map(|count| Fact::count("allocations", count, "")),
        peak.map(|bytes| size("peak memory", bytes)),
    ];
    Found::of(Cause::Workspace, told.into_iter().flatten().collect(), 0.45)
}

/// Calls of a whole program: modules loaded, memory allocated, waits. It may be no more than
/// another warm-up.
pub fn calls_added(facts: &Facts) -> Option<Found> {
    let Source::Trace(_, Scope::Whole) = facts.source else {
        return None;
    };
    let names = ["module_loads", "allocations", "synchronisations"];
    let more = names.iter().filter_map(|name| {
        let count = facts.more(name)?;
        let beyond = count.head > count.base * (1.0 + facts.floor.0);
        beyond.then_some((name.replace('_', " "), count))
    });
    let more: Vec<(String, Sides<f64>)> = more.collect();
    let last = more.len().saturating_sub(1);
    let each = format!(" {}", facts.each());
    let told = more.into_iter().enumerate().map(|(place, (what, count))| {
        let of = if place == last { &each } else { "" };
        Fact::count(&what, count, of)
    });
    Found::of(Cause::CallsAdded, told.collect(), 0.6)
}
