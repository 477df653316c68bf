//! The lines of a run file after its first, the [header](super::header).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::machine::{Activity, Counters, Division, Structure};
use crate::metric::Metric;
use regatta_worker::case::{CaseId, ParamValue};
use regatta_worker::protocol::{Measured, Taken};
use regatta_worker::units::Nanoseconds;

pub use super::disturbance::{Disturbance, MachineLoad};
use super::{BaseId, Choices, RunHeader, Start};
pub use crate::input::Damage;
pub use crate::machine::DeviceState;

/// One case in one invocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Entry {
    /// The case.
    pub case: CaseId,
    /// The number of the invocation, from 0. Those from `settings.invocations` on were added for
    /// open cases.
    pub invocation: u32,
    /// The outcome.
    pub outcome: Outcome,
    /// The start of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
}

/// The outcome of a case: in one invocation, over those of a run, or as a history keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schemas",
    derive(schemars::JsonSchema),
    schemars(rename = "Outcome")
)]
#[serde(rename_all = "lowercase")]
pub enum Outcome<M = Measurement> {
    /// Checked and timed; or checked and counted, without a sample, where the run's
    /// settings say `structure_only`.
    Measured(M),
    /// The variant does not do this.
    Unsupported {
        /// The variant's reason.
        reason: String,
    },
    /// It failed in at least one invocation: wrong result, crash, time limit, out of memory.
    Failed {
        /// The reason for the failure.
        reason: String,
        /// The kind of failure.
        fault: Fault,
        /// The last lines the worker printed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        log: String,
    },
    /// It is planned, but has no time in at least one invocation. A single invocation never has
    /// this outcome.
    Missing {
        /// Which part is missing.
        reason: String,
    },
}

impl<M> Outcome<M> {
    /// A case that the variant does not support.
    pub fn unsupported(reason: impl Into<String>) -> Outcome<M> {
        let reason = reason.into();
        Outcome::Unsupported { reason }
    }

    /// A case that failed, without a log of its worker.
    pub fn failed(reason: impl Into<String>, fault: Fault) -> Outcome<M> {
        let (reason, log) = (reason.into(), String::new());
        Outcome::Failed { reason, fault, log }
    }

    /// A case that lacks a time.
    pub fn missing(reason: impl Into<String>) -> Outcome<M> {
        let reason = reason.into();
        Outcome::Missing { reason }
    }

    /// True where the case was measured.
    pub fn is_measured(&self) -> bool {
        matches!(self, Outcome::Measured(_))
    }

    /// The measurement.
    pub fn measured(&self) -> Option<&M> {
        match self {
            Outcome::Measured(measured) => Some(measured),
            _ => None,
        }
    }

    /// The fault of a failed case.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Outcome::Failed { fault, .. } => Some(*fault),
            _ => None,
        }
    }

    /// The reason why it was not measured.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Outcome::Measured(_) => None,
            Outcome::Unsupported { reason }
            | Outcome::Failed { reason, .. }
            | Outcome::Missing { reason } => Some(reason),
        }
    }
}

impl<M: Default> Default for Outcome<M> {
    fn default() -> Outcome<M> {
        Outcome::Measured(M::default())
    }
}

/// The fault of a failed case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The result is wrong, found before the case was timed or after.
    WrongResult,
    /// The process ended, or lost its device, in the middle of the work.
    Crash,
    /// It did not answer within its time limit.
    Hang,
    /// The harness could not check its result; whether it is right is not known.
    Unchecked,
    /// The worker could not be started, or was not used.
    Refused,
    /// It answered that it failed, or an exception ended it.
    Failed,
    /// The machine lacks what it needs, such as memory or a compiler.
    Unavailable,
    /// The answer cannot be used.
    Other,
}

/// The samples of a case in one invocation, with the facts about them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Measurement {
    /// The samples, and how they were taken.
    #[serde(default)]
    pub samples: Measured,
    /// The ratios of a head's metrics to the base's, where their samples were taken in turns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ratios: BTreeMap<Metric, f64>,
    /// The first call.
    pub first_call_ns: Nanoseconds,
    /// The parts of it, such as compiling and loading; `None` if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_call_parts: Option<Parts>,
    /// True where other programs disturbed the first call, by the machine's counters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_call_disturbed: bool,
    /// The load of the CPU around the samples, for a worker that runs on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Box<MachineLoad>>,
    /// The disturbances of these samples by other programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<Disturbance>,
    /// True if a call covers several problems of about the case's size, so that its
    /// time gives no rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// The effective value of each parameter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effective: BTreeMap<String, ParamValue>,
    /// The parameters that a tuner chose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tuned: Choices,
    /// Relative L2 difference of each result from the float64 reference.
    pub errors: BTreeMap<String, f64>,
    /// The structure of one call; recorded in the first, the third and the fifth invocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<Structure>,
    /// The device's work in that call, with its times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Box<Activity>>,
    /// The time of each operation of a call; recorded in the first invocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<Box<Division>>,
    /// The hardware counters of its kernels; read in the first invocations, if the suite asks for
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Box<Counters>>,
    /// The check of a script call's results, which has no float64 reference; `errors`
    /// are then differences from the base's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// `errors` of the last timed call; empty where results were checked before timing only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors_after: BTreeMap<String, f64>,
}

/// The comparison of a script call's results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Compared {
    /// They were compared with the base's results on the same inputs.
    Base,
    /// They were compared with nothing, for this reason.
    Nothing(String),
}

/// The parts of a first call, by name: `compiling`, `loading`.
pub type Parts = BTreeMap<String, Taken>;

/// The last line of a run that was measured to its end, judged, and reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RunEnd {
    /// The time at which the measurement ended.
    pub finished: Timestamp,
    /// The verdict at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<Judged>,
}

/// The verdict of `run` or `gate` on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Judged {
    /// The base of the comparison; `None` if the run was judged only by its own expectations and
    /// limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseId>,
    /// The outcome.
    pub outcome: VerdictOutcome,
    /// The reasons, the most severe first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// A batch of extra invocations that a gate has to measure. It is decided once, from the entries
/// before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct OpenCases {
    /// The base of the cases.
    pub base: BaseId,
    /// The cases of the batch, control cases included.
    pub cases: Vec<CaseId>,
    /// The number of extra invocations that each case has after this batch.
    pub fresh: u32,
}

/// Passed, failed or inconclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum VerdictOutcome {
    /// Everything was measured and checked, and nothing is worse or may be worse: exit code 0.
    Passed,
    /// A regression, a violated expectation or limit, worse structure, a wrong result, a crash or a
    /// hang: exit code 1.
    Failed,
    /// A case is missing, the sides are not comparable, the baseline is missing, or an inconclusive
    /// case may be worse: exit code 3.
    #[default]
    Inconclusive,
}

impl VerdictOutcome {
    /// The exit code of `docs/ARCHITECTURE.md`'s contract.
    pub fn exit_code(self) -> u8 {
        match self {
            VerdictOutcome::Passed => 0,
            VerdictOutcome::Failed => 1,
            VerdictOutcome::Inconclusive => 3,
        }
    }

    /// The word as it is printed.
    pub fn text(self) -> &'static str {
        match self {
            VerdictOutcome::Passed => "passed",
            VerdictOutcome::Failed => "FAILED",
            VerdictOutcome::Inconclusive => "INCONCLUSIVE",
        }
    }
}

/// The time limit ended a run before all of its planned invocations were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Limited {
    /// Invocations that every case has.
    pub invocations: u32,
}

/// A run that was read from its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The first line of the file.
    pub header: RunHeader,
    /// Every case in every invocation, in the order measured.
    pub entries: Vec<Entry>,
    /// Batches of extra invocations of open cases, in their order.
    pub open: Vec<OpenCases>,
    /// Present where a time limit ended it early.
    pub limited: Option<Limited>,
    /// Present when it was measured to its end.
    pub end: Option<RunEnd>,
    /// Lines that could not be used.
    pub damage: Vec<Damage>,
}

impl Run {
    /// The cases that were measured, each in its invocations.
    pub fn done(&self) -> BTreeSet<(u32, CaseId)> {
        let entries = self.entries.iter();
        entries.map(|e| (e.invocation, e.case.clone())).collect()
    }

    /// A run without entries.
    pub fn begun(header: RunHeader) -> Run {
        Run {
            header,
            ..Run::default()
        }
    }
}
