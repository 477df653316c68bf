//! What one call does, asked of the worker.

use std::time::Duration;

use super::outcome::out_of_turn_text;
use crate::attention::{Case, CaseId};
use crate::machine::{ASKED_OF_CUDA, Activity, CENSUS, Division, Structure};
use crate::measure::known::Known;
use crate::measure::occupancy;
use crate::suite::Suite;
use crate::suite::count::Count;
use crate::worker::host::{Conversation, HostError};
use crate::worker::protocol::{Counter, ReplyBody, RequestBody};

/// What the census is to count in this case.
pub(super) fn counters(suite: &Suite, case: &Case) -> Vec<Counter> {
    let counts = suite.counts.iter().filter(|count| count.selects(case));
    let counter = |count: &Count| Counter {
        name: count.name.clone(),
        functions: count.functions.clone(),
    };
    counts.map(counter).collect()
}

/// What the case does, of the first invocation; of the next ones what its operations take,
/// where the first could tell.
pub(super) fn of_invocation(
    worker: &mut dyn Conversation,
    known: &mut Known,
    case: &CaseId,
    invocation: u32,
    limit: Duration,
) -> Result<Counted, HostError> {
    let counted = match invocation {
        0 => counted(worker, limit)?,
        1..DIVIDED if known.is_divided(case) => times(worker, limit)?,
        _ => Counted::default(),
    };
    if invocation == 0 && counted.division.is_some() {
        known.divided(case);
    }
    Ok(counted)
}

/// Invocations in which the times of single operations are recorded: the first ones. What a
/// kernel takes differs little between processes, and recording costs each of them.
const DIVIDED: u32 = 3;

/// What an invocation tells of a case apart from its times.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) structure: Option<Structure>,
    pub(super) activity: Option<Box<Activity>>,
    pub(super) division: Option<Box<Division>>,
}

/// What one call does. A worker that cannot count loses nothing by it but that; the reason is
/// kept, because what is not counted is not 0.
fn counted(worker: &mut dyn Conversation, limit: Duration) -> Result<Counted, HostError> {
    let reason = match worker.ask(RequestBody::Census { times_only: false }, limit)? {
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
            return Ok(Counted {
                division: Division::of(&census.recorded).map(Box::new),
                structure: Some(census.structure),
                activity: census.activity.map(Box::new),
            });
        }
        ReplyBody::Unsupported { reason } => reason,
        ReplyBody::Failed { reason } => format!("the census failed: {reason}"),
        other => out_of_turn_text(&other),
    };
    let mut structure = Structure::default();
    structure.uncounted.insert(CENSUS.to_owned(), reason);
    Ok(Counted {
        structure: Some(structure),
        ..Counted::default()
    })
}

/// The times of the operations of some calls, of a worker that told them before. Where it does
/// not tell them once more, those are what is known.
fn times(worker: &mut dyn Conversation, limit: Duration) -> Result<Counted, HostError> {
    let reply = worker.ask(RequestBody::Census { times_only: true }, limit)?;
    let ReplyBody::Census(census) = reply else {
        return Ok(Counted::default());
    };
    Ok(Counted {
        division: Division::of(&census.recorded).map(Box::new),
        ..Counted::default()
    })
}
