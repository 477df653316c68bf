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
        (after > before && name != AUTOTUNE).then(|| match event(name) {
            Some(event) => format!("{event} {}, was {before}{within}", times(after)),
            None => format!("{name} {before} → {after} a call{within}"),
        })
    });
    let more: Vec<String> = more.collect();
    // They are events of the host: behind a gate its time is not in the call's.
    let confidence = if pair.clock.holds_host() { 0.9 } else { 0.6 };
    (!more.is_empty()).then(|| finding("events-added", more.join("; "), confidence))
}

/// How often in a call, and what it costs the host, of one record alone: `backend
/// re-selected 8 times a call, 660 µs of the host a call in it`.
pub(in crate::judge) fn told(record: &CaseRecord, name: &str, events: u64) -> String {
    let event = event(name).unwrap_or(name);
    format!("{event} {}{}", times(events), within(record, name))
}

/// The event in words, where the counter's name says what it is.
fn event(name: &str) -> Option<&'static str> {
    match name {
        "backend_selections" => Some("backend re-selected"),
        AUTOTUNE => Some("retuned"),
        _ => None,
    }
}

fn times(events: u64) -> String {
    match events {
        1 => "once a call".to_owned(),
        _ => format!("{events} times a call"),
    }
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
