//! What around the samples makes a run's times doubtful, as sentences.

use std::collections::BTreeSet;

use regatta_core::machine::{CENSUS, CENSUS_FAILED, INSTRUCTIONS};
use regatta_core::record::disturbance::{describe, worst};
use regatta_core::record::side::{CaseRecord, Conditions, Side, Status};
use regatta_worker::attention::CaseId;
use regatta_worker::units::counted;

/// How many invocations other programs disturbed, of how many cases.
fn disturbed(head: &Side) -> Option<String> {
    let cases = head
        .cases
        .values()
        .filter(|record| record.disturbed().next().is_some());
    let cases: Vec<&CaseRecord> = cases.collect();
    let all = || cases.iter().flat_map(|record| record.disturbed());
    let by = describe(&worst(all().flat_map(|one| &one.disturbed)));
    (!cases.is_empty()).then(|| {
        format!(
            "other programs disturbed {} of {} ({by})",
            counted(all().count(), "invocation"),
            counted(cases.len(), "case"),
        )
    })
}

/// A condition of invocations, and the note on the cases of which some were under it.
type ConditionNote = (fn(&Conditions) -> u32, fn(&[&Conditions]) -> String);

const NOTES: [ConditionNote; 5] = [
    (
        |of| of.throttled,
        |met| {
            let reasons = met.iter().flat_map(|found| &found.throttle_reasons);
            let reasons: BTreeSet<&str> = reasons.map(String::as_str).collect();
            let reasons: Vec<&str> = reasons.into_iter().collect();
            let reasons = reasons.join(", ");
            format!("measured while the device held its clocks back ({reasons})")
        },
    ),
    (
        |of| of.shared,
        |met| {
            let most = met.iter().map(|found| found.other_processes).max();
            let (most, noun) = match most.unwrap_or(0) {
                1 => (1, "process"),
                most => (most, "processes"),
            };
            format!("measured while up to {most} other {noun} computed on the device")
        },
    ),
    (
        |of| of.synchronised,
        |_| {
            "whose call waits for the device itself: its device time holds waits for the host"
                .to_owned()
        },
    ),
    (
        |of| of.checked_before_only,
        |_| {
            "whose results were checked before timing only: their worker takes no sets of inputs \
             in turn (docs/PROTOCOL.md, `input_sets`), so a result that it keeps passes for one \
             that it computes"
                .to_owned()
        },
    ),
    (
        |of| of.fewer_input_sets,
        |met| {
            let mut reasons = met
                .iter()
                .filter_map(|of| of.fewer_input_sets_reason.as_deref());
            let reason = reasons.next().unwrap_or_default();
            format!("had fewer sets of inputs than asked for: {reason}")
        },
    ),
];

/// Notes on the head: throttling, other processes, calls that wait for the device, samples
/// that the machine was in. Each is a reason to look before believing a verdict.
pub fn notes(head: &Side) -> Vec<String> {
    let noted = NOTES.iter().filter_map(|(count, note)| {
        let all = head.cases.values().map(|record| &record.conditions);
        let met: Vec<&Conditions> = all.filter(|of| count(of) > 0).collect();
        (!met.is_empty()).then(|| format!("{} {}", counted(met.len(), "case"), note(&met)))
    });
    let mut notes: Vec<String> = noted.collect();
    let varying = head.cases.iter();
    let mut varying = varying.filter_map(|(id, one)| Some((id, one.varying.first_key_value()?)));
    let more = varying.clone().count();
    if let Some((id, (name, how))) = varying.next() {
        notes.push(format!(
            "{} that not every invocation ran alike, first {id}: {name} {how}",
            counted(more, "case")
        ));
    }
    notes.extend(fewer_invocations(head));
    notes.extend(not_counted(head));
    notes.extend(disturbed(head));
    notes
}

/// The invocations that a time limit left no time for.
fn fewer_invocations(head: &Side) -> Option<String> {
    let planned = head.header.settings.invocations as usize;
    let measured = head.cases.values();
    let measured = measured.filter(|record| record.status == Status::Measured);
    let fewest = measured.map(|record| record.invocations.len()).min();
    let fewest = fewest.filter(|fewest| *fewest < planned)?;
    Some(format!(
        "the time limit ended the measurement after {fewest} of {}",
        counted(planned, "invocation")
    ))
}

/// Cases whose instructions the head counted and the base did not, as nobody judges them then.
pub fn counted_in_vain(base: &Side, head: &Side) -> Option<String> {
    let measured = |record: &CaseRecord| record.status == Status::Measured;
    let vain = head.cases.iter().filter(|(id, record)| {
        let before = base.cases.get(*id).filter(|before| measured(before));
        record.counters.is_some() && before.is_some_and(|before| before.counters.is_none())
    });
    let number = vain.count();
    (number > 0).then(|| {
        format!(
            "the instructions of {} are not compared: the base has no counts of them, and a base \
             that is saved of a run with --set instructions=true has",
            counted(number, "case")
        )
    })
}

/// Cases whose results were checked after timing in the base, and are not now: a result that is
/// kept from an earlier call would pass.
pub fn checked_less(base: &Side, head: &Side) -> Option<String> {
    let [before, now] = [base, head].map(|side| &side.header.settings);
    if now.structure_only || before.structure_only || before.input_sets < 2 {
        return None;
    }
    let measured = |record: &CaseRecord| record.status == Status::Measured;
    let after = |record: &CaseRecord, sets: u32| {
        sets > 1 && measured(record) && record.conditions.checked_before_only == 0
    };
    let less = head.cases.iter().filter(|(id, record)| {
        let before = base.cases.get(*id);
        let checked = before.is_some_and(|before| after(before, 2));
        checked && measured(record) && !after(record, now.input_sets)
    });
    let less: Vec<&CaseId> = less.map(|(id, _)| id).collect();
    let first = less.first()?;
    Some(format!(
        "the results of {} were checked after timing in the base, and before it only now, first \
         {first}: measure with input_sets = {}, by a worker that takes as many",
        counted(less.len(), "case"),
        before.input_sets,
    ))
}

/// Where hardware counters were asked for and cannot be read, or counting what a call does on the
/// device failed, as nothing is then known of it.
fn not_counted(head: &Side) -> Vec<String> {
    let reasons = |name: &str, is: fn(&str) -> bool| -> Vec<&str> {
        let structures = head
            .cases
            .values()
            .filter_map(|one| one.structure.as_deref());
        let reasons = structures.filter_map(|one| one.uncounted.get(name));
        reasons
            .map(String::as_str)
            .filter(|reason| is(reason))
            .collect()
    };
    let told = |what: &str, reasons: Vec<&str>, so: &str| {
        let first = reasons.first()?;
        let cases = counted(reasons.len(), "case");
        Some(format!("{what} of {cases} are not counted{so}: {first}"))
    };
    let failed = |reason: &str| reason.starts_with(CENSUS_FAILED);
    let counts = told(
        "the device's operations in a call",
        reasons(CENSUS, failed),
        ", so that only times are judged, and causes are unknown",
    );
    let instructions = told("the instructions", reasons(INSTRUCTIONS, |_| true), "");
    counts.into_iter().chain(instructions).collect()
}

/// More machines than these are counted.
const NAMED: usize = 6;

/// What a reader has to know before anything else is read.
pub(super) fn of_shards(head: &Side) -> Option<String> {
    let hosts = &head.header.hosts;
    let names: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    let on = match names.len() {
        0 => return None,
        1..=NAMED => names.into_iter().collect::<Vec<_>>().join(", "),
        several => counted(several, "machine"),
    };
    Some(format!(
        "measured in {} on {on}",
        counted(hosts.len(), "shard")
    ))
}
