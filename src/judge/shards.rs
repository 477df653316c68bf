//! What is to be known of a run that is a part, or was made of parts.

use std::collections::BTreeMap;

use super::judgement::Row;
use crate::attention::CaseId;
use crate::record::shard::Merged;
use crate::record::side::{Side, median};
use crate::units::{Ratio, Share, counted};

/// More machines than these are counted.
const NAMED: usize = 6;

/// Fewer cases than these tell nothing of a machine.
const FEW: usize = 5;

/// What a reader has to know before anything else is read.
pub(super) fn notes(head: &Side, rows: &[Row]) -> Vec<String> {
    let header = &head.header;
    if let Some(shard) = &header.shard {
        let (cases, all) = (
            header.plan.len(),
            shard.parts.iter().map(|part| part.cases).sum::<usize>(),
        );
        return vec![format!(
            "{} is shard {}: {cases} of {all} cases; of the others nothing is said",
            head.label, shard.place
        )];
    }
    let Some(merged) = &header.merged else {
        return Vec::new();
    };
    let mut machines: BTreeMap<String, usize> = BTreeMap::new();
    for shard in &merged.shards {
        *machines.entry(shard.machine()).or_default() += 1;
    }
    let names = machines.iter();
    let names = names.map(|(machine, shards)| format!("{machine} ({})", counted(*shards, "shard")));
    let on = match machines.len() {
        1 => machines.keys().cloned().collect(),
        ..=NAMED => names.collect::<Vec<_>>().join(", "),
        several => counted(several, "machine"),
    };
    let mut notes = vec![format!(
        "measured in {} on {on}",
        counted(merged.shards.len(), "shard")
    )];
    let floor = header.rules.policy.floor;
    notes.extend(apart(&header.plan, merged, rows, floor));
    notes
}

/// The machines whose cases as a whole moved otherwise than those of all others: that is a
/// machine's speed sooner than the code's.
fn apart(plan: &[CaseId], merged: &Merged, rows: &[Row], floor: Share) -> Vec<String> {
    let places: BTreeMap<&CaseId, usize> = plan.iter().zip(0..).collect();
    let mut changes: BTreeMap<String, Vec<Ratio>> = BTreeMap::new();
    for row in rows {
        let shard = places.get(&row.case).and_then(|place| merged.of(*place));
        let ratio = row.times_ratio();
        if let (Some(shard), Some(ratio)) = (shard, ratio) {
            changes.entry(shard.machine()).or_default().push(ratio);
        }
    }
    let mut found = Vec::new();
    for (machine, own) in &changes {
        let others = changes.iter().filter(|(other, _)| *other != machine);
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
                "the {} of {machine} took {} {word} as a whole than those of the other machines \
                 did: the machine, sooner than the code",
                counted(own.len(), "case"),
                Share(apart.abs()),
            ));
        }
    }
    found
}
