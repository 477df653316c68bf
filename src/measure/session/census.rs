//! What one call does, asked of the worker.

use std::time::Duration;

use super::outcome::out_of_turn_text;
use crate::attention::Case;
use crate::machine::{ASKED_OF_CUDA, CENSUS};
use crate::measure::occupancy;
use crate::suite::Suite;
use crate::suite::count::Count;
use crate::worker::host::{Conversation, HostError};
use crate::worker::protocol::{Census, Counter, ReplyBody, RequestBody};

/// What the census is to count in this case.
pub(super) fn counters(suite: &Suite, case: &Case) -> Vec<Counter> {
    let counts = suite.counts.iter().filter(|count| count.selects(case));
    let counter = |count: &Count| Counter {
        name: count.name.clone(),
        functions: count.functions.clone(),
    };
    counts.map(counter).collect()
}

/// What one call does. A worker that cannot count loses nothing by it but that; the reason is
/// kept, because what is not counted is not 0.
pub(super) fn counted(worker: &mut dyn Conversation, limit: Duration) -> Result<Census, HostError> {
    let reason = match worker.ask(RequestBody::Census, limit)? {
        ReplyBody::Census(mut census) => {
            occupancy::complete(&mut census.structure, &worker.hello().device);
            // What was asked of CUDA is exact; the activity's other figures stay with it.
            let calls = census.activity.as_ref().map(|activity| &activity.calls);
            for (call, count) in ASKED_OF_CUDA {
                if let Some(&number) = calls.and_then(|calls| calls.get(call)) {
                    let counts = &mut census.structure.counts;
                    counts.entry(count.to_owned()).or_insert(number);
                }
            }
            return Ok(census);
        }
        ReplyBody::Unsupported { reason } => reason,
        ReplyBody::Failed { reason } => format!("the census failed: {reason}"),
        other => out_of_turn_text(&other),
    };
    let mut census = Census::default();
    census.structure.uncounted.insert(CENSUS.to_owned(), reason);
    Ok(census)
}
