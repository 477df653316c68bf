//! Why a worker gave no answer.

use std::io;
use std::time::Duration;

use super::protocol::PROTOCOL_VERSION;

/// Why a worker gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It could not be started.
    #[error("worker {name}: cannot start {program}: {why}; {fix}")]
    Missing {
        /// The worker.
        name: String,
        /// The program.
        program: String,
        /// The reason.
        why: String,
        /// What to do.
        fix: String,
    },
    /// What it prints cannot be kept.
    #[error("worker {name}: its log {path} cannot be written: {error}; move what is in the way")]
    Log {
        /// The worker.
        name: String,
        /// The file.
        path: String,
        /// The system's words.
        error: io::Error,
    },
    /// The process that forks it did not.
    #[error("worker {name}: the process that forks its invocations forked none: {error}")]
    Forked {
        /// The worker.
        name: String,
        /// The words of one of the two.
        error: io::Error,
    },
    /// It was ended from outside: with the process that forked it, for the most part.
    #[error(
        "worker {name} was ended before it answered {asked}, and not by itself: what forked it \
         is gone, or its supervisor is"
    )]
    Orphaned {
        /// The worker.
        name: String,
        /// What was asked.
        asked: &'static str,
        /// The last lines it printed.
        log: String,
    },
    /// It is to be forked, and that cannot be.
    #[error(
        "worker {name} is to be forked, and cannot be: {reason}; write `start = \"auto\"` or \
         `\"exec\"` in [workers.{worker}]"
    )]
    CannotFork {
        /// The worker.
        name: String,
        /// The same without its environment.
        worker: String,
        /// Why.
        reason: String,
    },
    /// Nothing of it is wrong: this process could not make what a worker needs.
    #[error("worker {name}: no channel to it could be made: {error}")]
    Channel {
        /// The worker.
        name: String,
        /// The system's words.
        error: io::Error,
    },
    /// Its process ended.
    #[error("worker {name} ended ({status}) before it answered {asked}")]
    Died {
        /// The worker.
        name: String,
        /// How it ended.
        status: String,
        /// What was asked.
        asked: &'static str,
        /// The last lines it printed.
        log: String,
    },
    /// It took too long, and was killed with its children.
    #[error(
        "worker {name} did not answer {asked} within {limit:?}; it was killed{}",
        advice(asked)
    )]
    TimedOut {
        /// The worker.
        name: String,
        /// What was asked.
        asked: &'static str,
        /// The limit.
        limit: Duration,
        /// The last lines it printed.
        log: String,
    },
    /// What it wrote is no reply, or not one to what was asked.
    #[error("worker {name} answered {asked} with something else: {problem}")]
    Garbage {
        /// The worker.
        name: String,
        /// What was asked.
        asked: &'static str,
        /// What is wrong with it.
        problem: String,
        /// The last lines it printed.
        log: String,
    },
    /// It speaks another version of the protocol.
    #[error(
        "worker {name} speaks protocol {theirs}, this regatta {PROTOCOL_VERSION}; \
         update whichever is older"
    )]
    Version {
        /// The worker.
        name: String,
        /// Its version.
        theirs: u32,
    },
    /// It lost its device in the middle of the work, and was ended.
    #[error("worker {name} lost its device: {reason}")]
    Lost {
        /// The worker.
        name: String,
        /// In its own words.
        reason: String,
        /// The last lines it printed.
        log: String,
    },
    /// It cannot work, and says why.
    #[error("worker {name}: {reason}")]
    Refused {
        /// The worker.
        name: String,
        /// In its own words.
        reason: String,
    },
}

impl HostError {
    /// The last lines the worker printed; empty when there are none.
    pub fn log(&self) -> &str {
        match self {
            HostError::Died { log, .. }
            | HostError::TimedOut { log, .. }
            | HostError::Lost { log, .. }
            | HostError::Garbage { log, .. } => log,
            _ => "",
        }
    }
}

/// A library takes its time to load, and that is when it does.
fn advice(asked: &str) -> &'static str {
    match asked {
        "hello" => {
            " (loading its library counts: where that takes longer, raise `timeout_s` under \
             [measure])"
        }
        _ => "",
    }
}
