//! What around the samples makes a run's times doubtful, as sentences.

use std::collections::{BTreeMap, BTreeSet};

use super::judgement::{DisturbedCase, Row};
use regatta_core::machine::{CENSUS, CENSUS_FAILED, INSTRUCTIONS};
use regatta_core::record::conditions::Conditions;
use regatta_core::record::disturbance::{told, worst};
use regatta_core::record::side::{CaseRecord, Side, Status, median};
use regatta_core::suite::shard::deal;
use regatta_worker::attention::{Case, CaseId};
use regatta_worker::units::{Ratio, Share, counted};

/// The cases whose times are not judged because the machine was in them: of the head, and of
/// the base those that the head has measured.
pub fn disturbed(head: &Side, base: Option<&Side>) -> Vec<DisturbedCase> {
    let shaken = |record: &CaseRecord| record.status == Status::Measured && record.is_disturbed();
    let told = |base: bool, (case, record): (&_, &CaseRecord)| DisturbedCase {
        case: Clone::clone(case),
        base,
        invocations: record.disturbed_screen().count(),
        of: record.disturbed_screen().count() + record.device_ns.len(),
        by: worst(record.disturbed_screen().flat_map(|one| &one.by)),
    };
    let measured = |case| {
        let record = head.cases.get(case);
        record.is_some_and(|record| record.status == Status::Measured)
    };
    let of_base = base.into_iter().flat_map(|base| &base.cases);
    let of_base = of_base.filter(|(case, record)| shaken(record) && measured(case));
    let of_head = head.cases.iter().filter(|(_, record)| shaken(record));
    let of_head = of_head.map(|found| told(false, found));
    of_head
        .chain(of_base.map(|found| told(true, found)))
        .collect()
}

/// Why a case is not judged by its times, where the machine was in them.
pub fn why_disturbed(record: &CaseRecord, whose: &str) -> Option<String> {
    let lost = record.disturbed_screen().count();
    record.is_disturbed().then(|| {
        format!(
            "not judged because of the machine: {} in {lost} of {}{whose}",
            told(&worst(record.disturbed_screen().flat_map(|one| &one.by))),
            counted(lost + record.device_ns.len(), "invocation"),
        )
    })
}

/// What was measured again or left out because the machine was in it.
fn on_the_ground(head: &Side) -> Vec<String> {
    let all = || head.cases.values();
    let by = told(&worst(
        all().flat_map(|record| &record.conditions.disturbed_by),
    ));
    let again: u32 = all().map(|record| record.conditions.measured_again).sum();
    let cases =
        |met: fn(&CaseRecord) -> bool| counted(all().filter(|record| met(record)).count(), "case");
    let mut notes = Vec::new();
    let left_out: usize = all().map(|record| record.disturbed.len()).sum();
    if left_out > 0 {
        notes.push(format!(
            "{} of {} decide nothing, because the machine was in them ({by})",
            counted(left_out, "invocation"),
            cases(|record| !record.disturbed.is_empty()),
        ));
    }
    if again > 0 {
        notes.push(format!(
            "samples were taken again in {} of {}, because the machine was in the first ones \
             ({by})",
            counted(again as usize, "invocation"),
            cases(|record| record.conditions.measured_again > 0),
        ));
    }
    notes
}

/// Notes on the head: throttling, other processes, calls that wait for the device, samples
/// that the machine was in. Each is a reason to look before believing a verdict.
pub fn notes(head: &Side) -> Vec<String> {
    let of = |met: fn(&Conditions) -> u32| {
        let all = head.cases.values().map(|record| &record.conditions);
        all.filter(|conditions| met(conditions) > 0)
            .collect::<Vec<_>>()
    };
    let mut notes = Vec::new();
    let throttled = of(|conditions| conditions.throttled);
    if !throttled.is_empty() {
        let reasons = throttled.iter().flat_map(|found| &found.throttle_reasons);
        let reasons: BTreeSet<&str> = reasons.map(String::as_str).collect();
        let reasons: Vec<&str> = reasons.into_iter().collect();
        notes.push(format!(
            "{} measured while the device held its clocks back ({})",
            counted(throttled.len(), "case"),
            reasons.join(", ")
        ));
    }
    let shared = of(|conditions| conditions.shared);
    if let Some(most) = shared.iter().map(|found| found.other_processes).max() {
        notes.push(format!(
            "{} measured while up to {most} other {} computed on the device",
            counted(shared.len(), "case"),
            if most == 1 { "process" } else { "processes" }
        ));
    }
    let waits = of(|conditions| conditions.synchronised);
    if !waits.is_empty() {
        notes.push(format!(
            "{} whose call waits for the device itself: its device time holds waits for the host",
            counted(waits.len(), "case")
        ));
    }
    let before_only = of(|conditions| conditions.checked_before_only);
    if !before_only.is_empty() {
        notes.push(format!(
            "{} whose results were checked before timing only: their worker takes no sets of \
             inputs in turn (docs/PROTOCOL.md, `input_sets`), so a result that it keeps passes \
             for one that it computes",
            counted(before_only.len(), "case")
        ));
    }
    let fewer = of(|conditions| conditions.fewer_input_sets);
    let reason = fewer
        .iter()
        .find_map(|found| found.fewer_input_sets_reason.as_deref());
    if let Some(reason) = reason {
        notes.push(format!(
            "{} had fewer sets of inputs than asked for: {reason}",
            counted(fewer.len(), "case")
        ));
    }
    notes.extend(not_counted(head));
    notes.extend(on_the_ground(head));
    notes
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
            "the instructions of {} are not judged: the base has no counts of them, and a base \
             that is saved of a run with --set instructions=true has",
            counted(number, "case")
        )
    })
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

/// Fewer cases than these tell nothing of a machine.
const FEW: usize = 5;

/// What a reader has to know before anything else is read.
pub(super) fn of_shards(head: &Side, rows: &[Row]) -> Vec<String> {
    let hosts = &head.header.hosts;
    let names: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    let on = match names.len() {
        0 => return Vec::new(),
        ..=NAMED => names.into_iter().collect::<Vec<_>>().join(", "),
        several => counted(several, "machine"),
    };
    let mut notes = vec![format!(
        "measured in {} on {on}",
        counted(hosts.len(), "shard")
    )];
    notes.extend(apart(head, rows));
    notes
}

/// The machines whose cases as a whole moved otherwise than those of all others: that is a
/// machine's speed sooner than the code's.
fn apart(head: &Side, rows: &[Row]) -> Vec<String> {
    let (hosts, floor) = (&head.header.hosts, head.header.rules.policy.floor);
    let plan = head.header.plan.iter();
    let cases: Vec<Case> = plan.filter_map(|id| id.case().ok()).collect();
    let shards = deal(&cases, hosts.len() as u32);
    let on = hosts.iter().zip(&shards).flat_map(|(host, shard)| {
        let ids = shard.iter().map(Case::id);
        ids.map(move |id| (id, host.as_str()))
    });
    let on: BTreeMap<CaseId, &str> = on.collect();
    let mut changes: BTreeMap<&str, Vec<Ratio>> = BTreeMap::new();
    for row in rows {
        if let (Some(host), Some(ratio)) = (on.get(&row.case), row.times_ratio()) {
            changes.entry(host).or_default().push(ratio);
        }
    }
    let mut found = Vec::new();
    for (host, own) in &changes {
        let others = changes.iter().filter(|(other, _)| *other != host);
        let others: Vec<Ratio> = others.flat_map(|(_, ratios)| ratios.clone()).collect();
        if own.len() < FEW || others.len() < FEW {
            continue;
        }
        let (Some(own_median), Some(theirs)) = (median(own), median(&others)) else {
            continue;
        };
        let apart = own_median.0 / theirs.0 - 1.0;
        if apart.abs() > floor.0 {
            let word = if apart > 0.0 { "longer" } else { "shorter" };
            found.push(format!(
                "the {} of {host} took {} {word} as a whole than those of the other machines \
                 did: the machine, sooner than the code",
                counted(own.len(), "case"),
                Share(apart.abs()),
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, judge};
    use regatta_core::record::side::Side;
    use regatta_core::record::testing::{around, side};

    #[test]
    fn instructions_that_the_base_never_counted_are_said_to_be_unjudged() {
        let counted = || {
            let mut record = around(1.0);
            record.counters = Some(Box::default());
            record
        };
        let base = side("base", vec![("a", around(1.0)), ("b", counted())]);
        let head = side(
            "head",
            vec![("a", counted()), ("b", counted()), ("c", counted())],
        );
        let told = counted_in_vain(&base, &head).unwrap();
        assert!(
            told.starts_with("the instructions of 1 case are not judged"),
            "{told}"
        );
        assert_eq!(counted_in_vain(&head, &base), None);
    }

    #[test]
    fn a_census_that_failed_is_said_and_one_that_no_worker_has_is_not() {
        let without = |reason: &str| {
            let mut record = around(1.0);
            let structure = record.structure.get_or_insert_default();
            structure
                .uncounted
                .insert(CENSUS.to_owned(), reason.to_owned());
            record
        };
        let failed = without("the census failed: no CUPTI");
        let found = notes(&side("head", vec![("a", failed), ("b", around(1.0))]));
        assert_eq!(
            found,
            [
                "the device's operations in a call of 1 case are not counted, so that only times are \
             judged, and causes are unknown: the census failed: no CUPTI"
            ]
        );
        let none = without("its worker has no census");
        assert!(notes(&side("head", vec![("a", none)])).is_empty());
    }

    #[test]
    fn doubtful_conditions_are_said_and_a_quiet_run_says_nothing() {
        let mut throttled = around(1.0);
        throttled.conditions.known = 5;
        throttled.conditions.throttled = 2;
        throttled.conditions.throttle_reasons = ["software power cap".to_owned()].into();
        let mut shared = throttled.clone();
        shared.conditions.shared = 1;
        shared.conditions.other_processes = 2;
        shared.conditions.synchronised = 5;
        let found = notes(&side("head", vec![("a", throttled), ("b", shared)]));
        assert_eq!(
            found,
            [
                "2 cases measured while the device held its clocks back (software power cap)",
                "1 case measured while up to 2 other processes computed on the device",
                "1 case whose call waits for the device itself: its device time holds waits \
             for the host",
            ]
        );
        assert!(notes(&side("head", vec![("a", around(1.0))])).is_empty());
    }

    /// Twelve cases in two shards, those of the second in so many times as long as the first's.
    fn sharded(slower: f64) -> Side {
        let ids: Vec<String> = (0..12).map(|n| format!("cpu/a:s{},d64", 64 + n)).collect();
        let cases = ids.iter().zip(0..).map(|(id, n)| {
            // The longest is the dearest, and dealt first.
            let slower = if n % 2 == 1 { 1.0 } else { slower };
            (id.as_str(), around(1e5 * slower))
        });
        let mut side = side("whole", cases.collect());
        side.header.hosts = ["host-1", "host-2"].map(str::to_owned).into();
        side
    }

    #[test]
    fn a_machine_whose_cases_moved_as_a_whole_is_named() {
        let told = |slower| {
            let (base, head) = (sharded(1.0), sharded(slower));
            let judged = judge(&head, Some(&base), &Options::default());
            judged.notes.join("\n")
        };
        let same = told(1.0);
        assert!(same.contains("measured in 2 shards on host-1, host-2"));
        assert!(!same.contains("as a whole"), "{same}");
        let apart = told(1.2);
        let said = "the 6 cases of host-2 took 20.0 % longer as a whole";
        assert!(apart.contains(said), "{apart}");
    }
}
