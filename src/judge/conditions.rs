//! What around the samples makes a run's times doubtful, as sentences.

use std::collections::BTreeSet;

use crate::record::conditions::Conditions;
use crate::record::side::Side;
use crate::units::counted;

/// Notes on the head: throttling, other processes, calls that wait for the device. None
/// of them changes a verdict; each is a reason to look before believing one.
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
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::testing::{around, side};

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
}
