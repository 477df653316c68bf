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
    notes.extend(other_days(merged));
    let floor = header.rules.policy.floor;
    notes.extend(apart(&header.plan, merged, rows, floor));
    notes
}

/// That parts are of several days: one that was measured long ago and lay there is taken for what
/// it says, and whoever reads of the whole has to know.
fn other_days(merged: &Merged) -> Option<String> {
    let begun = || {
        merged
            .shards
            .iter()
            .map(|shard| (shard.started, shard.index))
    };
    let ((first, index), (last, _)) = (begun().min()?, begun().max()?);
    let days = first.duration_until(last).as_hours() / 24;
    (days > 0).then(|| {
        format!(
            "shard {index} was begun {} before the last: what other days change is in it",
            counted(days as usize, "day")
        )
    })
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

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use crate::judge::{Options, judge};
    use crate::record::shard::{Merged, MergedShard};
    use crate::record::side::Side;
    use crate::record::testing::{around, side};

    /// Twelve cases of which six each were measured on two machines, those of the second in so
    /// many times as long as the first's.
    fn merged(slower: f64, hours: i64) -> Side {
        let ids: Vec<String> = (0..12).map(|n| format!("cpu/a:s{},d64", 64 + n)).collect();
        let cases = ids.iter().zip(0..).map(|(id, n)| {
            let slower = if n < 6 { 1.0 } else { slower };
            (id.as_str(), around(1e5 * slower))
        });
        let mut side = side("whole", cases.collect());
        let started = side.header.started;
        let shard = |index: u32, started| MergedShard {
            index,
            started,
            hosts: vec![format!("host-{index}")],
            cases: 6,
        };
        side.header.merged = Some(Merged {
            merged: started,
            shards: vec![shard(1, started), shard(2, started + hours.hours())],
            shard_of: [vec![1; 6], vec![2; 6]].concat(),
        });
        side
    }

    fn notes(slower: f64, hours: i64) -> String {
        let (base, head) = (merged(1.0, 0), merged(slower, hours));
        judge(&head, Some(&base), &Options::default())
            .notes
            .join("\n")
    }

    #[test]
    fn a_machine_whose_cases_moved_as_a_whole_is_named() {
        let same = notes(1.0, 0);
        assert!(same.contains("measured in 2 shards on host-1 (1 shard), host-2 (1 shard)"));
        assert!(!same.contains("as a whole"), "{same}");
        let apart = notes(1.2, 0);
        let said = "the 6 cases of host-2 took 20.0 % longer as a whole";
        assert!(apart.contains(said), "{apart}");
    }

    #[test]
    fn parts_of_other_days_are_told() {
        assert!(!notes(1.0, 23).contains("before the last"));
        let said = "shard 1 was begun 6 days before the last";
        assert!(notes(1.0, 6 * 24 + 3).contains(said));
    }
}
