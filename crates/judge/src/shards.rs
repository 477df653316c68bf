//! What is to be known of a run that was measured in shards.

use std::collections::{BTreeMap, BTreeSet};

use super::judgement::Row;
use regatta_core::record::side::{Side, median};
use regatta_core::suite::shard::deal;
use regatta_worker::attention::{Case, CaseId};
use regatta_worker::units::{Ratio, Share, counted};

/// More machines than these are counted.
const NAMED: usize = 6;

/// Fewer cases than these tell nothing of a machine.
const FEW: usize = 5;

/// What a reader has to know before anything else is read.
pub(super) fn notes(head: &Side, rows: &[Row]) -> Vec<String> {
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
    use crate::{Options, judge};
    use regatta_core::record::side::Side;
    use regatta_core::record::testing::{around, side};

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
        let notes = |slower| {
            let (base, head) = (sharded(1.0), sharded(slower));
            let judged = judge(&head, Some(&base), &Options::default());
            judged.notes.join("\n")
        };
        let same = notes(1.0);
        assert!(same.contains("measured in 2 shards on host-1, host-2"));
        assert!(!same.contains("as a whole"), "{same}");
        let apart = notes(1.2);
        let said = "the 6 cases of host-2 took 20.0 % longer as a whole";
        assert!(apart.contains(said), "{apart}");
    }
}
