//! The lines of a run file.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::attention::{Activity, CaseId, ParamValue, Structure};
use crate::suite::count::Count;
use crate::suite::rules::Rules;
use crate::suite::{Override, Settings};

pub use crate::worker::protocol::DeviceState;

/// The first line of a run: everything needed to judge it later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// [`super::SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// [`super::METHOD_VERSION`] of the writer.
    pub method: u32,
    /// Version of regatta.
    pub tool: String,
    /// The command line.
    pub argv: Vec<String>,
    /// When it began.
    pub started: Timestamp,
    /// The checkout it was started in, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// What was measured.
    pub suite: SuiteRecord,
    /// What the suite demands.
    pub rules: Rules,
    /// How it was measured.
    pub settings: Settings,
    /// Where it was measured.
    pub machine: Fingerprint,
    /// The workers that took part.
    pub workers: Vec<WorkerRecord>,
    /// Every case that was to be measured, sorted.
    pub plan: Vec<CaseId>,
    /// Present where another tool measured: much of the above is then taken on trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
}

/// Where times come from that regatta did not take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Whose files they were: `criterion`.
    pub format: String,
    /// The folder.
    pub from: String,
    /// The names of the measurements in it, each an invocation or several.
    pub baselines: Vec<String>,
    /// Facts in the header that the files do not hold: they are those of the machine
    /// and the workers at the time of the import.
    pub assumed: Vec<String>,
}

/// State of a git checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Git {
    /// Full hash of HEAD.
    pub revision: String,
    /// True when the working tree differs from it.
    pub dirty: bool,
}

/// Which suite, and what the command line changed in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuiteRecord {
    /// Its name.
    pub name: String,
    /// Its description, in a line.
    pub description: String,
    /// What chooses it on the command line: its name or path, and whatever changes
    /// what is measured (`--set`, `--environment`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// The patterns that left a part of the suite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<String>,
    /// Parameters handed to a variant in place of those its cases ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    /// Functions whose calls were counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<Count>,
}

/// What a machine is. Times are compared only where all `hard` facts agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// A short name for files: `h200-132sm`, `xeon-2c`.
    pub name: String,
    /// Facts that decide speed: models, cores, memory, driver, power limit.
    pub hard: BTreeMap<String, String>,
    /// Facts worth knowing: kernel, host name.
    pub soft: BTreeMap<String, String>,
}

/// A worker as it introduced itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// `worker`, or `worker@environment`.
    pub name: String,
    /// `cpu` or `cuda`.
    pub device_kind: String,
    /// Name of its device.
    pub device: String,
    /// Versions of what decides its speed.
    pub versions: BTreeMap<String, String>,
    /// Everything installed beside it, name and version: the lock of its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub packages: BTreeMap<String, String>,
}

/// One case in one invocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The case.
    pub case: CaseId,
    /// Counts from 0; those from `settings.invocations` on confirm a suspicion.
    pub invocation: u32,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of one case in one invocation.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every entry is a measurement"
)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// Checked and timed; or checked and counted, without a sample, where the run's
    /// settings say `structure_only`.
    Measured(Measurement),
    /// The variant does not do this.
    Unsupported {
        /// In its own words.
        reason: String,
    },
    /// It should, but did not: wrong result, crash, time limit, out of memory.
    Failed {
        /// What happened.
        reason: String,
        /// The last lines the worker printed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        log: String,
    },
}

/// Samples and what belongs to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Nanoseconds the device worked, a sample each.
    pub device_ns: Vec<f64>,
    /// Nanoseconds the host needed to issue the call; empty where the two are one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ns: Vec<f64>,
    /// Clock of the device in MHz; empty where unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_mhz: Vec<f64>,
    /// Nanoseconds of the first call.
    pub first_call_ns: f64,
    /// True when a call works off several problems of about the case's size, so that its
    /// time gives no rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Most device memory in use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// State of the device right after the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<DeviceState>>,
    /// True when the call itself waits for the device, so that `device_ns` holds waits
    /// for the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synchronised: bool,
    /// What each parameter became.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effective: BTreeMap<String, ParamValue>,
    /// Relative L2 difference of each result from the float64 reference.
    pub errors: BTreeMap<String, f64>,
    /// What one call does to the machine; only in the first invocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<Structure>,
    /// What the device did in one call, and when; only in the first invocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Box<Activity>>,
}

/// The last line of a run that was measured to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// When.
    pub finished: Timestamp,
}

/// A run as read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its first line.
    pub header: RunHeader,
    /// Every case in every invocation, in the order measured.
    pub entries: Vec<Entry>,
    /// Present when it was measured to its end.
    pub end: Option<RunEnd>,
    /// Lines that could not be used.
    pub damage: Vec<Damage>,
}

/// A line of a file that could not be used; the others were kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Counts from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}
