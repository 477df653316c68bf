//! The first line of a run file.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::suite::plan::Place;
use crate::suite::{Count, Override, Rules, Settings};
use regatta_worker::case::{Case, CaseId, VariantId};
use regatta_worker::operator::Operators;
use regatta_worker::protocol::Cache;
pub use regatta_worker::protocol::Peak;
use regatta_worker::units::{Elapsed, Nanoseconds};

/// The first line of a run file: everything needed to judge the run later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RunHeader {
    /// [`super::SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// [`super::METHOD_VERSION`] of the writer.
    pub method: u32,
    /// Version of regatta.
    pub tool: String,
    /// The command line.
    pub argv: Vec<String>,
    /// The time at which the run began.
    pub started: Timestamp,
    /// The git checkout in which it was started, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// The suite that was measured.
    pub suite: SuiteRecord,
    /// The declared operators of its cases, by name.
    #[serde(default, skip_serializing_if = "Operators::is_empty")]
    pub operators: Operators,
    /// The demands of the suite.
    pub rules: Rules,
    /// The settings of the measurement.
    pub settings: Settings,
    /// The machine of the measurement.
    pub machine: Fingerprint,
    /// The workers that took part.
    pub workers: Vec<WorkerRecord>,
    /// Every planned case, sorted.
    pub plan: Vec<CaseId>,
    /// Which code was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The builds for the run and their cost, by name: `suite`, or `environment NAME`. Empty if
    /// nothing is known of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub built: BTreeMap<String, Built>,
    /// The measured peaks of the workers' devices, by worker; empty unless the suite asks for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peaks: BTreeMap<String, Peak>,
    /// Present if the run was measured in pairs with another run, invocation by invocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing: Option<Pairing>,
    /// Present if only a part of the suite was measured, whose other parts are other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// For a run that was merged from shards, the machine of each shard, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl RunHeader {
    /// The variants that are compared with another variant of `head`, if the two runs were measured
    /// in pairs.
    pub fn counterparts_in(&self, head: &RunHeader) -> Option<&BTreeMap<VariantId, VariantId>> {
        let pairing = self.pairing.as_ref().filter(|_| in_turn(self, head));
        pairing.map(|pairing| &pairing.counterparts)
    }

    /// The id under which `head` has the case `id` of this run, if the two were measured in pairs.
    pub fn named_in(&self, head: &RunHeader, id: &CaseId) -> CaseId {
        let (Some(counterparts), Ok(case)) = (self.counterparts_in(head), id.case()) else {
            return id.clone();
        };
        match counterparts.get(&case.variant) {
            None => id.clone(),
            Some(variant) => {
                let variant = variant.clone();
                Case {
                    variant,
                    ..(*case).clone()
                }
                .id()
            }
        }
    }
}

/// One of two runs that were measured in pairs: in each invocation the processes of both sides run
/// and take turns, on the same machine and day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Pairing {
    /// The id that only these two runs share.
    pub pair: String,
    /// The side that this run is.
    pub side: PairSide,
    /// The versions on this side, as the user wrote them: `pypi:jax==0.5.0`.
    pub version: Vec<String>,
    /// Variants that are compared with another variant of the other side, each with that one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counterparts: BTreeMap<VariantId, VariantId>,
    /// Cases that the suite of this side's revision has and the other side's does not. They are
    /// not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<CaseId>,
    /// The settings that the suite of this side's revision declares. Both sides are measured with
    /// those of the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Settings>,
    /// Why the suite of this side's revision could not be read. The head's serves both sides then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite_unread: Option<String>,
    /// True where the suite of this side's revision has no `[build]`, and the head's built it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub built_by_head: bool,
    /// The number of cases of the whole gate, if only a part of them is measured in pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cases: Option<u32>,
}

/// The two sides of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PairSide {
    /// The older side.
    Base,
    /// The newer side.
    #[default]
    Head,
}

/// True for two runs that were measured in pairs with each other.
pub fn in_turn(base: &RunHeader, head: &RunHeader) -> bool {
    let sides = (base.pairing.as_ref(), head.pairing.as_ref());
    matches!(sides, (Some(base), Some(head)) if base.pair == head.pair && base.side != head.side)
}

/// State of a git checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Git {
    /// Full hash of HEAD.
    pub revision: String,
    /// True when the working tree differs from it.
    pub dirty: bool,
    /// Checksum of changed and untracked files, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
}

/// The first 12 digits of a revision, which are printed.
pub fn short_revision(revision: &str) -> String {
    revision.chars().take(12).collect()
}

/// The suite of a run, and the changes of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SuiteRecord {
    /// The name of the suite.
    pub name: String,
    /// The description, in one line.
    pub description: String,
    /// The arguments that choose it on the command line: its name or path, and the options that change
    /// what is measured (`--set`, `--environment`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// The patterns of `--filter`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<String>,
    /// The number of cases that they left out; absent in older runs, which did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered_out: Option<usize>,
    /// Parameters of a variant that replace those of its cases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    /// Functions whose calls were counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<Count>,
}

/// The identity of a machine. Times are compared only where all `hard` facts agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct WorkerRecord {
    /// `worker`, or `worker@environment`.
    pub name: String,
    /// `cpu` or `cuda`.
    pub device_kind: String,
    /// Name of its device.
    pub device: String,
    /// State of the last-level cache before each of its samples; if absent, the settings apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Versions of the software that decides its speed.
    pub versions: BTreeMap<String, String>,
    /// All packages installed in its environment, with their versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub packages: BTreeMap<String, String>,
}

/// The key of the machine fact that is the number of cores.
pub const CORES: &str = "cpu.cores";

impl RunHeader {
    /// The number of hardware threads that the workers could use, where it is known.
    pub fn cores(&self) -> Option<u32> {
        let [hard, soft] = [&self.machine.hard, &self.machine.soft].map(|facts| facts.get(CORES));
        hard.or(soft)?.parse().ok()
    }
}

/// The start of an invocation's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Start {
    /// The way in which it was started.
    pub how: How,
    /// The reason for a start instead of a fork; recorded once for each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// The ways to start a worker's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It was started as a new program.
    Exec,
    /// It was forked from a process that had imported its library.
    Forked,
}

/// The key of a suite's `[build]` in [`RunHeader::built`].
pub const SUITE_BUILD: &str = "suite";

/// The key of an environment's build in [`RunHeader::built`].
pub fn environment_build(name: &str) -> String {
    format!("environment {name}")
}

/// The cost of a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Built {
    /// The time from its start to its end.
    pub wall_ns: Nanoseconds,
}

impl Built {
    /// The impossible value in it, as a sentence.
    pub(super) fn objection(&self) -> Option<String> {
        let time = self.wall_ns.0;
        let wild = !(0.0..1e23).contains(&time);
        wild.then(|| format!("wall_ns is {time}: no build takes it"))
    }
}

/// `41.2 s`.
impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Elapsed(self.wall_ns).fmt(f)
    }
}

/// The header of a run that measured a part of a suite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Shard {
    /// The number of this shard, and of all shards.
    #[serde(flatten)]
    pub place: Place,
    /// Checksum of the ids of all cases, including those of the other shards.
    pub whole: String,
}

/// Checksum of the ids of cases.
pub fn plan_checksum(cases: impl IntoIterator<Item = CaseId>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    for case in cases {
        hasher.update(case.0.as_bytes());
        hasher.update(b"\n");
    }
    format!("{:08x}", hasher.finalize())
}

/// A baseline at the time when a run was compared with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct BaseId {
    /// The name of the base.
    pub name: String,
    /// Checksum of its file.
    pub sum: String,
}

impl BaseId {
    /// No base: the run was judged alone.
    pub fn none() -> BaseId {
        BaseId {
            name: String::new(),
            sum: "none".to_owned(),
        }
    }

    /// The other side of a comparison, which is measured in pairs and stored nowhere.
    pub fn in_turn(label: String) -> BaseId {
        BaseId {
            name: label,
            sum: "measured in turn".to_owned(),
        }
    }
}
