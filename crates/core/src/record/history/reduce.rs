//! From a run to its line in a history.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::{About, Came, Figures, HistoryError};
use crate::input;
use crate::record::RecordError;
use crate::record::side::{CaseRecord, Side, Status, median};
use crate::record::types::{Run, RunHeader};
use crate::suite::rules::Metric;
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, quantities};

/// A run as it is to be added.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduced {
    /// The suite.
    pub suite: String,
    /// Short name of the machine.
    pub machine: String,
    /// What is kept of the run itself.
    pub about: About,
    /// What came of its cases.
    pub cases: Vec<(CaseId, Came)>,
}

/// Longest reason that is kept, in characters.
const REASON: usize = 160;

/// What a history keeps of the run of these files, which is called by a path, at the time that is
/// given, or else at that of its start. A run that failed is kept: a history is of what was.
///
/// # Errors
/// When it was not finished, or took no time; or its file cannot be read.
pub fn reduced(
    path: &Path,
    files: &[PathBuf],
    run: &Run,
    side: &Side,
    at: Option<Timestamp>,
) -> Result<Reduced, HistoryError> {
    let header = &side.header;
    let Some(end) = &run.end else {
        return Err(HistoryError::Unfinished(path.to_owned()));
    };
    if header.settings.structure_only {
        return Err(HistoryError::Untimed(path.to_owned()));
    }
    let at = at.unwrap_or(header.started);
    let versions = header.workers.iter();
    let versions = versions.map(|worker| (worker.name.clone(), worker.versions.clone()));
    Ok(Reduced {
        suite: header.suite.name.clone(),
        machine: header.machine.name.clone(),
        about: About {
            id: identity(files)?,
            at,
            started: (at != header.started).then_some(header.started),
            label: path.display().to_string(),
            git: header.git.clone(),
            tool: header.tool.clone(),
            verdict: end.judged.as_ref().map(|judged| judged.outcome),
            versions: versions.collect(),
            facts: facts(header),
        },
        cases: side
            .cases
            .iter()
            .map(|(case, record)| (case.clone(), came(record)))
            .collect(),
    })
}

/// Checksum and length of a run's files.
fn identity(files: &[PathBuf]) -> Result<String, HistoryError> {
    let (mut hasher, mut length) = (crc32fast::Hasher::new(), 0);
    for path in files {
        hash(path, &mut hasher, &mut length).map_err(|error| RecordError::io(path, error))?;
    }
    Ok(format!("{:08x}-{length}", hasher.finalize()))
}

fn hash(path: &Path, hasher: &mut crc32fast::Hasher, length: &mut usize) -> std::io::Result<()> {
    let mut file = input::open(path, input::RUN)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            n => {
                hasher.update(&buffer[..n]);
                *length += n;
            }
        }
    }
}

/// What a time depends on beside the code. What is as it always is stands there as well: that
/// it was not so before is a change.
fn facts(header: &RunHeader) -> BTreeMap<String, String> {
    let mut facts = header.machine.hard.clone();
    let settings = &header.settings;
    let cache = serde_json::to_value(settings.cache).unwrap_or_default();
    let how = [
        ("method", header.method.to_string()),
        ("cache", cache.as_str().unwrap_or_default().to_owned()),
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

fn came(record: &CaseRecord) -> Came {
    let short = |reason: &str| {
        let line = reason.lines().next().unwrap_or_default();
        line.chars().take(REASON).collect::<String>()
    };
    match &record.status {
        Status::Unsupported { .. } => return Came::Unsupported,
        Status::Failed { reason, .. } => return Came::Failed(short(reason)),
        Status::Missing { reason } => return Came::Missing(short(reason)),
        Status::Measured => {}
    }
    let of = |metric: Metric| -> Vec<Nanoseconds> {
        let quiet = record
            .invocations
            .iter()
            .filter(|one| !one.is_disturbed(metric));
        quantities(quiet.filter_map(|one| one.values.get(metric)))
    };
    let all = of(Metric::Device);
    match median(&all) {
        Some(device_ns) => Came::Timed(Figures {
            device_ns,
            host_ns: median(&of(Metric::Host)),
            cpu_ns: median(&of(Metric::CpuTime)),
            invocations_ns: all,
        }),
        None => Came::Disturbed,
    }
}
