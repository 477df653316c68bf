//! What a call asks of the driver and sets aside: memory, and waits for the device.

use super::clock::Clock;
use super::facts::{Facts, Found, Source, became};
use crate::judge::judgement::{Cause, asked_of_cuda};
use crate::machine::Scope;
use crate::machine::{DRIVER_ALLOCATIONS, DRIVER_FREES, SYNCHRONISATIONS};
use crate::units::ARROW;

/// `cudaMalloc a call 0 → 2`, of a count that a call has more of.
fn asked_more(facts: &Facts, name: &str) -> Option<String> {
    let counts = facts.more(name)?;
    Some(format!("{} {}", asked_of_cuda(name)?, became(counts)))
}

/// Memory is taken from the driver in each call, or given back to it, and not kept. It costs
/// the host, and a free waits for the device.
pub fn memory(facts: &Facts) -> Option<Found> {
    facts.call()?;
    let names = [DRIVER_ALLOCATIONS, DRIVER_FREES].into_iter();
    let more: Vec<String> = names.filter_map(|name| asked_more(facts, name)).collect();
    // Above the waits that it brings with it.
    let confidence = facts.if_host(0.935, 0.4);
    Found::of(Cause::DriverMemory, &more, ", ", confidence)
}

/// The call waits for the device by itself: the device is idle until the host goes on. Where
/// waits were not counted, its gate had to be opened and had not been.
pub fn synchronisation(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let evidence = match facts.count(SYNCHRONISATIONS) {
        Some(_) => asked_more(facts, SYNCHRONISATIONS)?,
        None => {
            let waits = pair.head.conditions.synchronised > 0;
            let did = pair.base.conditions.synchronised > 0 || pair.base.device_ns.is_empty();
            (waits && !did && pair.base_clock == Clock::Gated)
                .then(|| "the call waits for the device itself, and did not before".to_owned())?
        }
    };
    // It is behind the waiting of the device for the host, and not the other way round.
    let confidence = facts.if_host(0.93, 0.4);
    Some(Found::new(Cause::Synchronisation, evidence, confidence))
}

/// A difference of peak memory below this, or below a tenth, is an allocator's rounding.
const ROUNDING: u64 = 1 << 20;

/// A larger workspace, more allocations, or a higher peak.
pub fn workspace(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let more = |name, what, unit| {
        let counts = facts.more(name)?;
        Some(format!("{what} {}{unit}", became(counts)))
    };
    let peak = pair.base.peak_bytes.zip(pair.head.peak_bytes);
    let peak = peak.map(|(before, after)| (before.0, after.0));
    let peak = peak.filter(|(before, after)| {
        let more = after.saturating_sub(*before);
        more >= ROUNDING && more >= before / 10
    });
    let told = [
        more("workspace_bytes", "workspace", " bytes"),
        more("allocations", "allocations", ""),
        peak.map(|(before, after)| format!("peak memory {before} {ARROW} {after} bytes")),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    Found::of(Cause::Workspace, &told, ", ", 0.45)
}

/// Calls that the steady part of a program does without: memory allocated, waits; of a whole
/// program modules loaded.
pub fn calls_added(facts: &Facts) -> Option<Found> {
    let names: &[&str] = match facts.source {
        Source::Call(_) => return None,
        Source::Trace(_, Scope::Repetition) => &["allocations", "synchronisations"],
        Source::Trace(_, Scope::Whole) => &["module_loads", "allocations", "synchronisations"],
    };
    let told = names.iter().filter_map(|name| {
        let counts = facts.more(name);
        let counts = counts.filter(|(before, after)| *after > before * (1.0 + facts.floor))?;
        Some(format!("{} {}", name.replace('_', " "), became(counts)))
    });
    let told: Vec<String> = told.collect();
    let evidence = format!("{} {}", told.join(", "), facts.each());
    (!told.is_empty()).then(|| Found::new(Cause::CallsAdded, evidence, 0.6))
}
