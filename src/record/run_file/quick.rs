//! Reads the entries of a run as regatta writes them, many times as quickly as a JSON library
//! may: the memory of one entry serves for all, and what many have in common is read once.
//!
//! Whatever is written otherwise (another order at the beginning, spaces, a member that is not
//! known here, a sign before a time) is `None`, and left to that library: what an entry means,
//! and what is wrong with one, is decided in one place.

use std::collections::BTreeMap;

use super::cursor::Cursor;
use crate::attention::{CaseId, ParamValue};
use crate::machine::{
    Activity, ActivitySummary, Counters, DeviceState, Division, HostTimes, Structure,
};
use crate::record::shared::{Pool, Shared};
use crate::record::types::{Entry, Measurement, Outcome};
use crate::units::{Bytes, Nanoseconds};

/// What the entries of runs have in common.
#[derive(Debug, Default)]
pub struct Known {
    structures: Pool<Structure>,
    parameters: Pool<BTreeMap<String, ParamValue>>,
}

/// What stands beside the times of a measurement, as a side keeps it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// What each parameter became.
    pub effective: Option<Shared<BTreeMap<String, ParamValue>>>,
    /// What one call does to the machine.
    pub structure: Option<Shared<Structure>>,
    /// What the device did in one call.
    pub activity: Option<ActivitySummary>,
    /// Where the host's time of a call goes.
    pub host: Option<Box<HostTimes>>,
    /// What each operation of a call takes.
    pub division: Option<Box<Division>>,
    /// What hardware counted of its kernels.
    pub counters: Option<Box<Counters>>,
}

impl Beside {
    /// The same of an entry that was read whole.
    pub fn of(entry: &Entry) -> Beside {
        let Outcome::Measured(measurement) = &entry.outcome else {
            return Beside::default();
        };
        let some = !measurement.effective.is_empty();
        Beside {
            effective: some.then(|| measurement.effective.clone().into()),
            structure: measurement.structure.clone().map(Shared::from),
            activity: measurement.activity.as_ref().map(|all| all.summary()),
            host: measurement.host.clone(),
            division: measurement.division.clone(),
            counters: measurement.counters.clone(),
        }
    }
}

/// The entry that was read last.
#[derive(Debug)]
pub(super) struct Quick<'k> {
    known: &'k mut Known,
    /// Whether what an entry took is kept.
    keeps_spent: bool,
    /// Without what is in `beside`.
    pub(super) entry: Entry,
    pub(super) beside: Beside,
}

/// Members that every measurement has.
const NEEDED: [&str; 3] = ["device_ns", "first_call_ns", "errors"];

/// Every member that is read here.
const MEMBERS: [&str; 28] = [
    NEEDED[0],
    NEEDED[1],
    NEEDED[2],
    "host_ns",
    "clock_mhz",
    "several",
    "peak_bytes",
    "synchronised",
    "effective",
    "tuned",
    "structure",
    "activity",
    "host",
    "division",
    "counters",
    "input_sets",
    "input_sets_reason",
    "spent",
    "start",
    "cpu_ns",
    "preempted",
    "first_call_parts",
    "first_call_disturbed",
    "ground",
    "disturbed",
    "again",
    "state",
    "errors_after",
];

/// The bits of the last two of them.
const CHECKED_AFTER: u32 = 1 << (MEMBERS.len() - 1);
const STATE: u32 = 1 << (MEMBERS.len() - 2);

impl<'k> Quick<'k> {
    pub(super) fn new(known: &'k mut Known, keeps_spent: bool) -> Quick<'k> {
        Quick {
            known,
            keeps_spent,
            entry: Entry {
                case: CaseId(String::new()),
                invocation: 0,
                outcome: Outcome::Measured(Measurement::default()),
                spent: None,
                start: None,
            },
            beside: Beside::default(),
        }
    }

    /// Reads a line without its checksum and its last brace.
    pub(super) fn read(&mut self, body: &str) -> Option<()> {
        let mut line = Cursor::new(body);
        line.pass("{\"kind\":\"entry\",\"case\":")?;
        let case = line.string()?;
        line.pass(",\"invocation\":")?;
        self.entry.invocation = line.whole()?.try_into().ok()?;
        line.pass(",\"status\":\"measured\"")?;
        self.entry.case.0.clear();
        self.entry.case.0.push_str(case);
        let Outcome::Measured(measurement) = &mut self.entry.outcome else {
            return None;
        };
        clear(measurement);
        self.beside = Beside::default();
        self.entry.spent = None;
        self.entry.start = None;
        let mut seen = 0u32;
        while !line.ends() {
            line.pass(",")?;
            let key = line.key()?;
            let number = MEMBERS.iter().position(|member| *member == key)?;
            if seen & 1 << number != 0 {
                return None;
            }
            seen |= 1 << number;
            match key {
                "spent" if self.keeps_spent => {
                    self.entry.spent = serde_json::from_str(line.whole_value()?).ok()?;
                }
                "spent" => spent(&mut line)?,
                "start" => self.entry.start = serde_json::from_str(line.whole_value()?).ok()?,
                _ => member(key, &mut line, measurement, &mut self.beside, self.known)?,
            }
        }
        // Kept until here for its names.
        if seen & CHECKED_AFTER == 0 {
            measurement.errors_after.clear();
        }
        if seen & STATE == 0 {
            measurement.state = None;
        }
        let needed = (1 << NEEDED.len()) - 1;
        (seen & needed == needed).then_some(())
    }
}

/// As a new one, but for the memory of its lists and the names of its errors.
fn clear(measurement: &mut Measurement) {
    measurement.device_ns.clear();
    measurement.host_ns.clear();
    measurement.cpu_ns.clear();
    measurement.preempted.clear();
    measurement.clock_mhz.clear();
    measurement.first_call_disturbed = false;
    measurement.ground = None;
    measurement.disturbed.clear();
    measurement.again = None;
    measurement.several = false;
    measurement.peak_bytes = None;
    measurement.synchronised = false;
    measurement.tuned.clear();
    measurement.first_call_parts = None;
    measurement.input_sets = 1;
    measurement.input_sets_reason = None;
}

fn member<'t>(
    key: &str,
    line: &mut Cursor<'t>,
    into: &mut Measurement,
    beside: &mut Beside,
    known: &mut Known,
) -> Option<()> {
    match key {
        "device_ns" => line.numbers(|ns| into.device_ns.push(Nanoseconds(ns)))?,
        "host_ns" => line.numbers(|ns| into.host_ns.push(Nanoseconds(ns)))?,
        "clock_mhz" => line.numbers(|mhz| into.clock_mhz.push(mhz))?,
        "cpu_ns" => line.numbers(|ns| into.cpu_ns.push(Nanoseconds(ns)))?,
        "preempted" => into.preempted = serde_json::from_str(line.whole_value()?).ok()?,
        "first_call_parts" => {
            into.first_call_parts = serde_json::from_str(line.whole_value()?).ok()?;
        }
        "first_call_disturbed" => into.first_call_disturbed = line.boolean()?,
        "ground" => into.ground = serde_json::from_str(line.whole_value()?).ok()?,
        "disturbed" => into.disturbed = serde_json::from_str(line.whole_value()?).ok()?,
        "again" => into.again = serde_json::from_str(line.whole_value()?).ok()?,
        "first_call_ns" => into.first_call_ns = Nanoseconds(line.number()?),
        "several" => into.several = line.boolean()?,
        "peak_bytes" => into.peak_bytes = Some(Bytes(line.whole()?)),
        "state" => **into.state.get_or_insert_default() = state(line)?,
        "synchronised" => into.synchronised = line.boolean()?,
        "effective" => beside.effective = Some(known.parameters.value(line.whole_value()?)?),
        "tuned" => into.tuned = serde_json::from_str(line.whole_value()?).ok()?,
        "errors" => errors(line, &mut into.errors)?,
        "structure" => {
            let structure = known.structures.value(line.whole_value()?)?;
            // As for counters.
            beside.structure = structure.objection().is_none().then_some(structure);
            beside.structure.as_ref()?;
        }
        "activity" => {
            let activity: Activity = serde_json::from_str(line.whole_value()?).ok()?;
            beside.activity = Some(activity.summary());
        }
        "host" => beside.host = serde_json::from_str(line.whole_value()?).ok()?,
        "division" => beside.division = serde_json::from_str(line.whole_value()?).ok()?,
        "counters" => {
            let counters: Box<Counters> = serde_json::from_str(line.whole_value()?).ok()?;
            // What cannot be is the whole reader's to say.
            beside.counters = counters.objection().is_none().then_some(counters);
            beside.counters.as_ref()?;
        }
        "input_sets" => into.input_sets = line.whole()?.try_into().ok()?,
        "input_sets_reason" => into.input_sets_reason = Some(line.string()?.to_owned()),
        "errors_after" => errors(line, &mut into.errors_after)?,
        _ => return None,
    }
    Some(())
}

/// Errors by result. Where they have the names that are there, no memory is asked for.
fn errors(line: &mut Cursor, into: &mut BTreeMap<String, f64>) -> Option<()> {
    const MOST: usize = 8;
    let mut found = [("", 0.0); MOST];
    let mut number = 0;
    line.members(|line, name| {
        *found.get_mut(number)? = (name, line.number()?);
        number += 1;
        Some(())
    })?;
    let found = &found[..number];
    let names = into.keys().map(String::as_str);
    if names.eq(found.iter().map(|(name, _)| *name)) {
        for (error, (_, read)) in into.values_mut().zip(found) {
            *error = *read;
        }
        return Some(());
    }
    into.clear();
    for (name, error) in found {
        into.insert((*name).to_owned(), *error);
    }
    (into.len() == number).then_some(())
}

fn state(line: &mut Cursor) -> Option<DeviceState> {
    let mut state = DeviceState::default();
    let before = line.clone();
    let read = line.members(|line, name| match name {
        "sm_mhz" => once(&mut state.sm_mhz, line.number()?),
        "memory_mhz" => once(&mut state.memory_mhz, line.number()?),
        "throttle_bits" => once(&mut state.throttle_bits, line.whole()?),
        "power_w" => once(&mut state.power_w, line.number()?),
        "temperature_c" => once(&mut state.temperature_c, line.number()?),
        "other_processes" => once(&mut state.other_processes, line.whole()?.try_into().ok()?),
        _ => None,
    });
    if read.is_none() {
        *line = before;
        state = serde_json::from_str(line.whole_value()?).ok()?;
    }
    Some(state)
}

/// Puts a value where there is none.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// Passes what an entry took, where that can be.
fn spent(line: &mut Cursor) -> Option<()> {
    const BEYOND: f64 = 1e23;
    line.pass("{\"from_ns\":")?;
    let from = line.number()?;
    line.pass(",\"phases\":")?;
    let mut possible = from < BEYOND;
    line.members(|line, _| {
        possible &= line.number()? < BEYOND;
        Some(())
    })?;
    line.pass("}")?;
    possible.then_some(())
}

#[cfg(test)]
mod tests;
