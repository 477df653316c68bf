//! Functions that a steady call should not enter, or not so often: a backend selected
//! anew, a kernel or graph compiled again.

use super::retuned::AUTOTUNE;
use super::{Pair, finding};
use crate::judge::judgement::Finding;
use crate::judge::phrase::time;
use crate::record::side::CaseRecord;

/// Finds counted functions that run more often in a call. Those of autotuning are
/// `retuned`.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (_, head) = pair.structures()?;
    let more = head.counts.keys().filter_map(|count| {
        let name = count.strip_prefix("calls.")?;
        let (before, after) = calls(pair, name)?;
        let within = within(pair.head, name);
        (after > before && name != AUTOTUNE)
            .then(|| format!("{name} {before} -> {after} a call{within}"))
    });
    let more: Vec<String> = more.collect();
    (!more.is_empty()).then(|| finding("events-added", more.join("; "), 0.9))
}

/// Events a call in both records. A side that lacks the count was not counted: it is not 0.
pub(super) fn calls(pair: &Pair, name: &str) -> Option<(u64, u64)> {
    let (base, head) = pair.structures()?;
    let count = format!("calls.{name}");
    Some((*base.counts.get(&count)?, *head.counts.get(&count)?))
}

/// `, 52.2 ms of the host a call in it`, where that is known.
pub(super) fn within(record: &CaseRecord, name: &str) -> String {
    let counts = record.structure.as_ref().map(|structure| &structure.counts);
    match counts.and_then(|counts| counts.get(&format!("ns.{name}"))) {
        Some(ns) => format!(", {} of the host a call in it", time(*ns as f64)),
        None => String::new(),
    }
}
