//! Conditions around the samples that make a run's times doubtful, as sentences.

use std::collections::BTreeSet;

use crate::causes::processor::{self, FLUSH, FREE, NARROW, THREADS_KEY};
use crate::structure;
use regatta_core::machine::{CENSUS, CENSUS_FAILED, DENORMAL_VALUES, INSTRUCTIONS, WIDER_RESULTS};
use regatta_core::record::disturbance::{describe, worst};
use regatta_core::record::{CaseRecord, Conditions, Side};
use regatta_worker::case::{CaseId, Dtype};
use regatta_worker::joined::Joined;
use regatta_worker::units::{Bytes, counted};

/// The number of disturbed invocations and of their cases, as text.
fn disturbed(head: &Side) -> Option<String> {
    let is_disturbed = |record: &&CaseRecord| record.disturbed().next().is_some();
    let cases: Vec<&CaseRecord> = head.cases.values().filter(is_disturbed).collect();
    let all = || cases.iter().flat_map(|record| record.disturbed());
    let by = worst(all().flat_map(|one| &one.disturbed));
    let advice = by.first()?.advice();
    Some(format!(
        "other programs disturbed {} of {} ({}): {advice}",
        counted(all().count(), "invocation"),
        counted(cases.len(), "case"),
        describe(&by)
    ))
}

/// A condition of invocations, and the note on the cases with invocations under it.
type ConditionNote = (fn(&Conditions) -> u32, fn(&[&Conditions]) -> String);

const NOTES: [ConditionNote; 7] = [
    (
        |conditions| conditions.unchecked,
        |met| {
            let reason = met.iter().find_map(|one| one.unchecked_reason.as_deref());
            let reason = reason.unwrap_or_default();
            format!("whose results were not checked: {reason}")
        },
    ),
    (
        |conditions| conditions.compared_with_base,
        |_| {
            "whose results were compared with the base's on the same inputs: the base is their \
             only reference"
                .to_owned()
        },
    ),
    (
        |conditions| conditions.throttled,
        |met| {
            let reasons = met.iter().flat_map(|condition| &condition.throttle_reasons);
            let reasons: BTreeSet<&String> = reasons.collect();
            let reasons = reasons.into_iter().joined(", ");
            format!("measured while the device held its clocks back ({reasons})")
        },
    ),
    (
        |conditions| conditions.shared,
        |met| {
            let most = met.iter().map(|condition| condition.other_processes).max();
            let (most, noun) = match most.unwrap_or(0) {
                1 => (1, "process"),
                most => (most, "processes"),
            };
            format!("measured while up to {most} other {noun} computed on the device")
        },
    ),
    (
        |conditions| conditions.synchronised,
        |_| {
            "whose call waits for the device itself: its device time holds waits for the host"
                .to_owned()
        },
    ),
    (
        |conditions| conditions.checked_before_only,
        |_| {
            "whose results were checked before timing only: their worker takes no sets of inputs \
             in turn (docs/PROTOCOL.md, `input_sets`), so a result that it keeps passes for one \
             that it computes"
                .to_owned()
        },
    ),
    (
        |conditions| conditions.fewer_input_sets,
        |met| {
            let mut reasons = met
                .iter()
                .filter_map(|one| one.fewer_input_sets_reason.as_deref());
            let reason = reasons.next().unwrap_or_default();
            format!("had fewer sets of inputs than asked for: {reason}")
        },
    ),
];

/// A note on cases of a CPU. The first function returns a case's figure, if the note applies to it;
/// the second makes the sentence, from the number of such cases and the case with the largest
/// figure.
type ProcessorNote = (
    fn(&Side, &CaseId, &CaseRecord) -> Option<f64>,
    fn(&str, &CaseId, &CaseRecord, f64) -> String,
);

const PROCESSOR_NOTES: [ProcessorNote; 5] = [
    (
        |head, _, record| processor::too_many_threads(record, head.header.cores()),
        |cases, id, _, threads| {
            format!(
                "{cases} computed on more threads than the machine has cores ({id}: \
                 {threads:.0}): set OMP_NUM_THREADS {THREADS_KEY}"
            )
        },
    ),
    (
        |_, _, record| processor::much_waiting(record),
        |cases, id, record, part| {
            let words = processor::waiting_words(record, part);
            format!("{cases} waited for cores ({id}): {words}")
        },
    ),
    (
        |_, _, record| count(record, DENORMAL_VALUES),
        |cases, id, _, values| {
            format!("{cases} computed with denormal numbers ({id}: {values:.0} a call): {FLUSH}")
        },
    ),
    (
        // Products of float16 are often summed in float32; a type wider than float32 is a mistake.
        |_, id, record| {
            let results = count(record, WIDER_RESULTS)?;
            let case = id.case().ok()?;
            (case.problem.dtype() == Dtype::F32).then_some(results)
        },
        |cases, id, _, results| {
            format!(
                "{cases} of f32 computed in float64 ({id}: {results:.0} results a call): {NARROW}"
            )
        },
    ),
    (
        |_, _, record| processor::growth(record),
        |cases, id, _, bytes| {
            let bytes = Bytes(bytes as u64);
            format!("the memory of {cases} grew ({id}: {bytes} a call): {FREE}")
        },
    ),
];

fn count(record: &CaseRecord, name: &str) -> Option<f64> {
    let count = structure::count(record, name).filter(|count| *count > 0);
    count.map(|count| count as f64)
}

/// Notes on calls of a CPU that take longer than their code needs, with the remedy.
fn on_processor(head: &Side) -> impl Iterator<Item = String> {
    PROCESSOR_NOTES.iter().filter_map(|(figure, note)| {
        let read = |(id, record)| Some((id, record, figure(head, id, record)?));
        let figures: Vec<(&CaseId, &CaseRecord, f64)> =
            head.cases.iter().filter_map(read).collect();
        let (id, record, largest) = figures.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
        Some(note(&counted(figures.len(), "case"), id, record, *largest))
    })
}

/// Notes on the head: throttling, other processes, calls that wait for the device, disturbed
/// samples. Each is a reason for doubt about a verdict.
pub fn notes(head: &Side) -> Vec<String> {
    let noted = NOTES.iter().filter_map(|(count, note)| {
        let all = head.cases.values().map(|record| &*record.conditions);
        let met: Vec<&Conditions> = all.filter(|conditions| count(conditions) > 0).collect();
        (!met.is_empty()).then(|| format!("{} {}", counted(met.len(), "case"), note(&met)))
    });
    let mut notes: Vec<String> = noted.collect();
    let varying = head.cases.iter();
    let mut varying = varying.filter_map(|(id, one)| Some((id, one.varying.first_key_value()?)));
    let more = varying.clone().count();
    if let Some((id, (name, how))) = varying.next() {
        notes.push(format!(
            "{} whose invocations differ, first {id}: {name} {how}",
            counted(more, "case")
        ));
    }
    notes.extend(fewer_invocations(head));
    notes.extend(on_processor(head));
    notes.extend(not_counted(head));
    notes.extend(disturbed(head));
    notes
}

/// A note on planned invocations that a time limit prevented.
fn fewer_invocations(head: &Side) -> Option<String> {
    let planned = head.header.settings.invocations as usize;
    let measured = head.cases.values();
    let measured = measured.filter(|record| record.status.is_measured());
    let fewest = measured.map(|record| record.invocations.len()).min();
    let fewest = fewest.filter(|fewest| *fewest < planned)?;
    Some(format!(
        "the time limit ended the measurement after {fewest} of {}",
        counted(planned, "invocation")
    ))
}

/// A note on cases whose instructions only the head counted, so that they are not compared.
pub fn counted_in_vain(base: &Side, head: &Side) -> Option<String> {
    let measured = |record: &CaseRecord| record.status.is_measured();
    let vain = head.cases.iter().filter(|(id, record)| {
        let before = || base.cases.get(*id).filter(|before| measured(before));
        record.counters.is_some() && before().is_some_and(|before| before.counters.is_none())
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

/// A sentence on cases whose results were checked after timing in the base and no longer are.
/// Without that check, a result that was kept from an earlier call would pass.
pub fn checked_less(base: &Side, head: &Side) -> Option<String> {
    let [before, now] = [base, head].map(|side| &side.header.settings);
    if now.structure_only || before.structure_only || before.input_sets < 2 {
        return None;
    }
    let measured = |record: &CaseRecord| record.status.is_measured();
    let after = |record: &CaseRecord, sets: u32| {
        let is_checked = sets > 1 && measured(record) && !record.errors.is_empty();
        is_checked && record.conditions.checked_before_only == 0
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

/// Notes on hardware counters that were requested and could not be read, and on calls whose device
/// operations could not be counted.
fn not_counted(head: &Side) -> Vec<String> {
    let reasons = |name: &str, is: fn(&str) -> bool| -> Vec<&str> {
        let records = head.cases.values();
        let reasons = records.filter_map(|one| one.structure.as_ref()?.uncounted.get(name));
        let reasons = reasons.map(String::as_str);
        reasons.filter(|reason| is(reason)).collect()
    };
    let sentence = |what: &str, reasons: Vec<&str>, so: &str| {
        let first = reasons.first()?;
        let cases = counted(reasons.len(), "case");
        Some(format!("{what} of {cases} are not counted{so}: {first}"))
    };
    let failed = |reason: &str| reason.starts_with(CENSUS_FAILED);
    let counts = sentence(
        "the device's operations in a call",
        reasons(CENSUS, failed),
        ", so that only times are judged, and causes are unknown",
    );
    let instructions = sentence("the instructions", reasons(INSTRUCTIONS, |_| true), "");
    counts.into_iter().chain(instructions).collect()
}

/// The largest number of machines that are named; more are counted.
const MAX_NAMED: usize = 6;

/// A note on the shards of a run and their machines.
pub(super) fn of_shards(head: &Side) -> Option<String> {
    let hosts = &head.header.hosts;
    let names: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    let on = match names.len() {
        0 => return None,
        1..=MAX_NAMED => names.into_iter().joined(", "),
        several => counted(several, "machine"),
    };
    Some(format!(
        "measured in {} on {on}",
        counted(hosts.len(), "shard")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{header, written};

    #[test]
    fn calls_on_a_processor_have_notes_with_what_to_set() {
        let case =
            |axes: &str, record: &str| (CaseId(format!("mine/f:{axes}").into()), written(record));
        let waits = "+device=60000 +cpu=200 +threads=8 +waited=50000";
        let mut head = Side {
            label: "head".to_owned(),
            header: header(),
            cases: [
                case("s8,d8", "+threads=3 +device=100 +cpu=190 +waited=1"),
                case("s16,d8", waits),
                case("s32,d8", "denormal_values=7 wider_results=0"),
                case("s64,d8", "denormal_values=9 wider_results=2"),
                case("s64,d8,f16", "wider_results=5 +growth=1"),
            ]
            .into(),
            damage: Vec::new(),
        };
        head.header
            .machine
            .hard
            .insert("cpu.cores".to_owned(), "2".to_owned());
        let notes = Vec::from_iter(on_processor(&head));
        let begins = [
            "1 case computed on more threads than the machine has cores (mine/f:s16,d8: 8): set",
            "1 case waited for cores (mine/f:s16,d8): a call takes 300.0 times its CPU time: \
             threads wait for cores; OMP_NUM_THREADS=1 (polars: POLARS_MAX_THREADS)",
            "2 cases computed with denormal numbers (mine/f:s64,d8: 9 a call): such an operation",
            "1 case of f32 computed in float64 (mine/f:s64,d8: 2 results a call): make",
            "the memory of 1 case grew (mine/f:s64,d8,f16: 1.00 MiB a call): free",
        ];
        assert_eq!(notes.len(), begins.len(), "{notes:#?}");
        for (note, begin) in notes.iter().zip(begins) {
            assert!(note.starts_with(begin), "{note}\n{begin}");
        }
        let grows = head.cases.keys().find(|id| id.0.ends_with("f16")).unwrap();
        let mut record = head.cases[grows].clone();
        for one in record.invocations.iter_mut().skip(2) {
            one.growth_bytes_per_call = None;
        }
        assert_eq!(processor::growth(&record), None, "in two of five");
        head.cases.retain(|id, _| *id.0 == *"mine/f:s8,d8");
        assert_eq!(on_processor(&head).count(), 0);
    }
}
