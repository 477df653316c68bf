//! What a worker's answer, or its silence, makes of a case.

use crate::verify::Rejected;
use crate::worker::host::{HostError, Origin};
use regatta_core::record::types::{Fault, How, Outcome, Start};
use regatta_worker::protocol::ReplyBody;

/// Characters that are kept of a worker's reason: nobody reads more, and a run file is read
/// whole.
pub(super) const LONGEST_REASON: usize = 4_000;

impl From<Rejected> for Outcome {
    fn from(rejected: Rejected) -> Outcome {
        failed(rejected.fault, rejected.reason)
    }
}

/// The variant does not do this.
pub(super) fn unsupported(reason: String) -> Outcome {
    Outcome::Unsupported {
        reason: clipped(reason),
    }
}

/// It should, but did not.
pub(super) fn failed(fault: Fault, reason: String) -> Outcome {
    Outcome::Failed {
        reason: clipped(reason),
        fault,
        log: String::new(),
    }
}

/// An answer to another question.
pub(super) fn out_of_turn(reply: &ReplyBody) -> Outcome {
    failed(Fault::Other, out_of_turn_text(reply))
}

/// The same in words.
pub(super) fn out_of_turn_text(reply: &ReplyBody) -> String {
    let text = serde_json::to_string(reply).unwrap_or_default();
    let start: String = text.chars().take(120).collect();
    format!("the worker answered out of turn: {start}")
}

/// How a process came to be; with the reason where this is its `first` case.
pub(super) fn start_of(origin: Option<&Origin>, first: bool) -> Option<Start> {
    Some(match origin? {
        Origin::Forked => Start {
            how: How::Forked,
            because: None,
        },
        Origin::Started { because } => Start {
            how: How::Exec,
            because: because.clone().filter(|_| first).map(clipped),
        },
    })
}

/// The worker gave no answer.
pub(super) fn lost(error: &HostError, fault: Fault) -> Outcome {
    Outcome::Failed {
        reason: clipped(error.to_string()),
        fault,
        log: error.log().to_owned(),
    }
}

/// As much of a worker's words as is kept.
pub(super) fn clipped(mut words: String) -> String {
    if let Some((end, _)) = words.char_indices().nth(LONGEST_REASON) {
        words.truncate(end);
        words.push('…');
    }
    words
}

/// What a case failed of whose worker gave no answer.
pub(super) fn fault_of(error: &HostError) -> Fault {
    match error {
        HostError::Died { .. } | HostError::Lost { .. } => Fault::Crash,
        HostError::TimedOut { .. } => Fault::Hang,
        HostError::Missing { .. }
        | HostError::Forked { .. }
        | HostError::Orphaned { .. }
        | HostError::CannotFork { .. }
        | HostError::Log { .. }
        | HostError::Channel { .. }
        | HostError::Version { .. }
        | HostError::Refused { .. } => Fault::Refused,
        HostError::Garbage { .. } => Fault::Other,
    }
}
