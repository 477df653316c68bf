//! The history of a suite on a machine: the outcome of each case in each run, for trends.
//!
//! `history/SUITE/MACHINE.jsonl` has a header line, then a line for each run in the order of
//! adding, each with a checksum like those of run files. Lines are never changed.

mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use file::{Added, HistoryFile, HistoryStore};

use super::{
    CaseRecord, Damage, Git, Outcome, RecordError, Run, RunHeader, Side, VerdictOutcome, median,
};
use crate::metric::Metric;
use regatta_worker::case::CaseId;
use regatta_worker::units::{Nanoseconds, counted, quantities};

/// The history of a suite on a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The suite.
    pub suite: String,
    /// Short name of the machine.
    pub machine: String,
    /// The runs, the oldest first.
    pub runs: Vec<HistoryRun>,
    /// The cases by their numbers.
    pub cases: Vec<CaseId>,
    /// Lines that could not be used.
    pub damage: Vec<Damage>,
}

/// A run, and the outcomes of its cases.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryRun {
    /// The header of the run.
    pub about: About,
    /// The outcomes of its cases, by their numbers, sorted.
    pub results: Vec<(u32, Outcome<CaseTimes>)>,
}

/// The part of a run's header that a history keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Checksum and length of its file.
    pub id: String,
    /// The time at which trends place the run.
    pub at: Timestamp,
    /// The time of the measurement, if it differs from `at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// The path where it was found.
    pub label: String,
    /// The git checkout, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// Version of regatta.
    pub tool: String,
    /// The verdict when the run was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictOutcome>,
    /// Versions by worker.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, BTreeMap<String, String>>,
    /// The conditions other than the code on which a time depends: hard facts of the machine, and
    /// the way in which times were taken, as `measure.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

impl About {
    /// When it was measured.
    pub fn measured(&self) -> Timestamp {
        self.started.unwrap_or(self.at)
    }
}

/// Times of a case in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CaseTimes {
    /// Median device time of its invocations.
    pub device_ns: Nanoseconds,
    /// The device time of each invocation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invocations_ns: Vec<Nanoseconds>,
    /// Median of the host's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<Nanoseconds>,
    /// Median of the CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<Nanoseconds>,
    /// True where other programs disturbed all invocations that gave these times.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

impl CaseTimes {
    /// The values of a metric in each invocation, or only its median if those are not kept.
    pub fn values(&self, metric: Metric) -> Vec<Nanoseconds> {
        match metric {
            Metric::Device if !self.invocations_ns.is_empty() => self.invocations_ns.clone(),
            metric => self.time(metric).into_iter().collect(),
        }
    }

    /// The median of a metric, where a history keeps it.
    pub fn time(&self, metric: Metric) -> Option<Nanoseconds> {
        match metric {
            Metric::Device => Some(self.device_ns),
            Metric::Host => self.host_ns,
            Metric::CpuTime => self.cpu_ns,
            _ => None,
        }
    }
}

/// A run that can be added.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduced {
    /// The suite.
    pub suite: String,
    /// Short name of the machine.
    pub machine: String,
    /// The header of the run.
    pub about: About,
    /// The outcomes of its cases.
    pub cases: Vec<(CaseId, Outcome<CaseTimes>)>,
}

impl Reduced {
    /// A sentence on cases of which other programs disturbed all invocations.
    pub fn disturbed(&self) -> Option<String> {
        let disturbed = || {
            let cases = self.cases.iter();
            let times = cases.filter_map(|(_, outcome)| outcome.measured());
            times.filter(|times| times.disturbed)
        };
        let number = disturbed().count();
        let has_cpu = disturbed().any(|times| times.cpu_ns.is_some());
        let cpu = if has_cpu {
            "; CPU times do (--clock cpu)"
        } else {
            ""
        };
        (number > 0).then(|| {
            format!(
                "other programs disturbed all invocations of {number} of {}, whose wall-clock \
                 times show no trend{cpu}; measure again when nothing else runs",
                counted(self.cases.len(), "case")
            )
        })
    }

    /// True for a run of the same suite on the same machine.
    pub fn goes_with(&self, other: &Reduced) -> bool {
        (&self.suite, &self.machine) == (&other.suite, &other.machine)
    }
}

/// The length to which a reason is cut, in characters.
const REASON: usize = 160;

/// Reduces a run to the part that a history keeps. The run is named by `path`, and placed at the
/// given time, or else at its start. A failed run is kept as well, since a history shows failures.
///
/// # Errors
/// When the run was not finished or has no times, or a file cannot be read.
pub fn reduced(
    path: &Path,
    files: &[PathBuf],
    run: &Run,
    side: &Side,
    at: Option<Timestamp>,
) -> Result<Reduced, RecordError> {
    let header = &side.header;
    let Some(end) = &run.end else {
        return Err(RecordError::not_added(
            path,
            "the run is not finished; repeat the command that began it to resume it, and then it can \
             be added",
        ));
    };
    if header.settings.structure_only {
        return Err(RecordError::not_added(
            path,
            "the run has no times (--structure-only), and a history needs them",
        ));
    }
    let cases = side.cases.iter();
    let cases: Vec<(CaseId, Outcome<CaseTimes>)> = cases
        .map(|(id, record)| (id.clone(), outcome(record)))
        .collect();
    if !cases.iter().any(|(_, outcome)| outcome.is_measured()) {
        return Err(RecordError::not_added(
            path,
            "no case of the run was timed, and a history needs times",
        ));
    }
    let at = at.unwrap_or(header.started);
    let versions = header.workers.iter();
    let versions = versions.map(|worker| (worker.name.clone(), worker.versions.clone()));
    Ok(Reduced {
        suite: header.suite.name.clone(),
        machine: header.machine.name.clone(),
        about: About {
            id: super::sum_of(files)?,
            at,
            started: (at != header.started).then_some(header.started),
            label: path.display().to_string(),
            git: header.git.clone(),
            tool: header.tool.clone(),
            verdict: end.judged.as_ref().map(|judged| judged.outcome),
            versions: versions.collect(),
            facts: facts(header),
        },
        cases,
    })
}

/// The conditions other than the code on which a time depends. Usual values are listed as well, so
/// that a change to them shows.
fn facts(header: &RunHeader) -> BTreeMap<String, String> {
    let mut facts = header.machine.hard.clone();
    let settings = &header.settings;
    let caches = header.workers.iter();
    let caches: BTreeSet<&str> = caches
        .filter_map(|worker| Some(worker.cache.or(settings.cache)?.name()))
        .collect();
    let cache = Vec::from_iter(caches).join(" and ");
    let how = [
        ("method", header.method.to_string()),
        ("cache", cache),
        ("graph", settings.graph.to_string()),
    ];
    facts.extend(how.map(|(name, value)| (format!("measure.{name}"), value)));
    for worker in &header.workers {
        // Readings of two clocks are not compared.
        if let Some(clock) = worker.versions.get("clock") {
            facts.insert(format!("measure.clock.{}", worker.name), clock.clone());
        }
    }
    for change in &header.suite.overrides {
        let name = format!("measure.set.{}.{}", change.variant, change.parameter);
        facts.insert(name, change.to.to_string());
    }
    facts
}

fn outcome(record: &CaseRecord) -> Outcome<CaseTimes> {
    let short = |reason: &str| {
        let line = reason.lines().next().unwrap_or_default();
        line.chars().take(REASON).collect::<String>()
    };
    let times = |disturbed: bool| -> Option<CaseTimes> {
        let values = |metric: Metric| -> Vec<Nanoseconds> {
            let all = record.invocations.iter();
            let counted = all.filter(|one| disturbed || !one.is_disturbed(metric));
            quantities(counted.filter_map(|one| one.values.get(metric)))
        };
        let device = values(Metric::Device);
        Some(CaseTimes {
            device_ns: median(&device)?,
            host_ns: median(&values(Metric::Host)),
            cpu_ns: median(&values(Metric::CpuTime)),
            invocations_ns: device,
            disturbed,
        })
    };
    match &record.status {
        Outcome::Measured(()) => match times(false).or_else(|| times(true)) {
            Some(times) => Outcome::Measured(times),
            None => Outcome::missing("it has no time"),
        },
        Outcome::Unsupported { reason } => Outcome::unsupported(short(reason)),
        Outcome::Failed { reason, fault, .. } => Outcome::failed(short(reason), *fault),
        Outcome::Missing { reason } => Outcome::missing(short(reason)),
    }
}

#[cfg(test)]
mod tests;
