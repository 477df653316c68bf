//! What calls do, each kind of call once: most cases of a variant launch alike.

use crate::device;
use crate::text::one_line;
use regatta_core::machine::{Counters, METRICS, Structure, short};
use regatta_worker::units::{Bytes, NONE};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Launches and counts by their place.
#[derive(Default)]
pub(super) struct Calls {
    places: HashMap<String, usize>,
    calls: Vec<Value>,
}

impl Calls {
    /// The place of what one call does, and of what hardware counted of it. A launch is its kernel, grid, blocks, multiprocessors,
    /// blocks that one holds at once, waves, block, registers and shared memory, as texts.
    pub(super) fn place(
        &mut self,
        (structure, counters): (&Structure, Option<&Counters>),
        sms: Option<u32>,
        strings: &mut Strings,
    ) -> usize {
        let call = call((structure, counters), sms, strings);
        let key = call.to_string();
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let place = self.calls.len();
        self.calls.push(call);
        self.places.insert(key, place);
        place
    }

    /// All of them.
    pub(super) fn into_calls(self) -> Vec<Value> {
        self.calls
    }
}

fn call(
    (structure, counters): (&Structure, Option<&Counters>),
    sms: Option<u32>,
    strings: &mut Strings,
) -> Value {
    let unknown = || NONE.to_owned();
    let triple = |sizes: [u32; 3]| sizes.map(|size| size.to_string()).join(" × ");
    let launches: Vec<[usize; 9]> = structure
        .launches
        .iter()
        .map(|launch| {
            let waves = sms.and_then(|sms| launch.waves(sms));
            let at_once = launch.blocks_per_sm.map(|blocks| blocks.to_string());
            let registers = launch.registers.map(|count| count.to_string());
            let shared = launch.shared_bytes.map(|bytes| Bytes(bytes).to_string());
            [
                one_line(&launch.name),
                triple(launch.grid),
                launch.blocks().to_string(),
                device::used(launch, sms).unwrap_or_else(unknown),
                at_once.unwrap_or_else(unknown),
                waves.map_or_else(unknown, |waves| format!("{waves:.2}")),
                triple(launch.block),
                registers.unwrap_or_else(unknown),
                shared.unwrap_or_else(unknown),
            ]
            .map(|text| strings.place(text))
        })
        .collect();
    let counts = structure.counts.iter();
    let counts = counts.map(|(name, count)| format!("{} {count}", one_line(name)));
    let uncounted = structure.uncounted.iter();
    let uncounted = uncounted
        .map(|(name, reason)| format!("{} not counted: {}", one_line(name), one_line(reason)));
    let counts: Vec<String> = counts
        .chain(uncounted)
        .chain(instructions(counters))
        .collect();
    json!([launches, strings.place(counts.join(", "))])
}

/// Instructions that kernels execute, and whether all countings read the same.
fn instructions(counters: Option<&Counters>) -> impl Iterator<Item = String> {
    let calls = counters.map_or(0, |counters| counters.calls);
    let kernels = counters.into_iter().flat_map(|counters| &counters.kernels);
    kernels.filter_map(move |(name, kernel)| {
        let counts = kernel.instructions.get(METRICS[0].name)?;
        let exact = match counts.is_exact() {
            true => format!(" (exact, {calls} calls)"),
            false => format!(" ({calls} calls)"),
        };
        let name = one_line(&short(name));
        Some(format!("instructions {counts}{exact} of {name}"))
    })
}

/// Each text once, in the order in which they came.
#[derive(Default)]
pub(super) struct Strings {
    places: HashMap<String, usize>,
    texts: Vec<String>,
}

impl Strings {
    /// The place of a text.
    pub(super) fn place(&mut self, text: impl Into<String>) -> usize {
        let text = text.into();
        if let Some(place) = self.places.get(&text) {
            return *place;
        }
        let place = self.texts.len();
        self.texts.push(text.clone());
        self.places.insert(text, place);
        place
    }

    /// All of them.
    pub(super) fn into_texts(self) -> Vec<String> {
        self.texts
    }
}
