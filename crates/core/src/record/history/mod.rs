//! The history of a suite on a machine: what came of each case in each run, for trends.
//!
//! `history/SUITE/MACHINE.jsonl`: a line that says what it is of, then a line a run in the
//! order of adding, each with a checksum as those of run files. Nothing in it is ever changed.

mod file;
mod reduce;

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use file::{Added, Book, Store, Stored};
pub use reduce::{Reduced, reduced};

use super::RecordError;
use super::types::{Damage, Git, VerdictOutcome};
use crate::suite::FILE_NAME_RULE;
use regatta_worker::attention::CaseId;
use regatta_worker::units::Nanoseconds;

/// Everything that is kept of a suite on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The suite.
    pub suite: String,
    /// Short name of the machine.
    pub machine: String,
    /// Its runs, the oldest first.
    pub runs: Vec<Kept>,
    /// The cases by their numbers.
    pub cases: Vec<CaseId>,
    /// Lines that could not be used.
    pub damage: Vec<Damage>,
}

/// A run, and what came of its cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// What is kept of the run itself.
    pub about: About,
    /// What came of its cases, by their numbers, sorted.
    pub results: Vec<(u32, Came)>,
}

/// What is kept of a run itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Checksum and length of its file.
    pub id: String,
    /// Where it stands on the axis of time.
    pub at: Timestamp,
    /// When it was measured, where it was put at another time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Where it was found: a path.
    pub label: String,
    /// The checkout, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// Version of regatta.
    pub tool: String,
    /// What was said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictOutcome>,
    /// Versions by worker.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, BTreeMap<String, String>>,
    /// What a time depends on beside the code: hard facts of the machine, and the ways in which
    /// times were taken, as `measure.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

impl About {
    /// When it was measured.
    pub fn measured(&self) -> Timestamp {
        self.started.unwrap_or(self.at)
    }
}

/// What came of a case in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Came {
    /// It was timed.
    Timed(Figures),
    /// Its variant does not do this.
    Unsupported,
    /// It failed, for this reason.
    Failed(String),
    /// A time is missing, for this reason.
    Missing(String),
    /// The machine was in all of its times.
    Disturbed,
}

/// Times of a case in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Figures {
    /// Median device time of its invocations.
    pub device_ns: Nanoseconds,
    /// That of each of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invocations_ns: Vec<Nanoseconds>,
    /// Median of the host's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<Nanoseconds>,
    /// Median of the processor's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<Nanoseconds>,
}

/// Which of its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The device's.
    #[default]
    Device,
    /// The host's, to issue a call.
    Host,
    /// That of the worker's process on all processors.
    Processor,
}

impl Clock {
    /// As it is called in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Device => "device time",
            Clock::Host => "host time",
            Clock::Processor => "processor time",
        }
    }
}

impl Figures {
    /// The time of a clock in each invocation, or else its median.
    pub fn values(&self, clock: Clock) -> Vec<Nanoseconds> {
        match clock {
            Clock::Device if !self.invocations_ns.is_empty() => self.invocations_ns.clone(),
            clock => self.time(clock).into_iter().collect(),
        }
    }

    /// The time of a clock.
    pub fn time(&self, clock: Clock) -> Option<Nanoseconds> {
        match clock {
            Clock::Device => Some(self.device_ns),
            Clock::Host => self.host_ns,
            Clock::Processor => self.cpu_ns,
        }
    }
}

/// Why a run is not added, or a history not read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The run did not come to its end.
    #[error(
        "{0}: the run is not finished; the command that began it goes on with it, and then it \
         can be added"
    )]
    Unfinished(PathBuf),
    /// No time was taken in it.
    #[error("{0}: the run took structure alone, and a history is of times")]
    Untimed(PathBuf),
    /// A baseline.
    #[error("{0} is a baseline; a history is of runs, so name the run it was made of")]
    Baseline(PathBuf),
    /// A suite's name that cannot be a folder's.
    #[error("suite `{0}` cannot name a folder; call it by {rule}", rule = FILE_NAME_RULE)]
    Suite(String),
    /// Another process adds to it.
    #[error("{0}: another regatta is adding to this history; try again when it has ended")]
    Busy(PathBuf),
    /// It cannot be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

#[cfg(test)]
mod tests;
