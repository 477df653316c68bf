//! One side of a comparison: a run or a baseline, reduced to what is judged.
//!
//! The replicate is the invocation: its samples collapse to one median here, and
//! nothing downstream sees single samples as evidence.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::conditions::Conditions;
use super::types::{Measurement, Outcome, Run, RunHeader};
use crate::attention::{ActivitySummary, CaseId, ParamValue, Structure};

/// A run or a baseline, as the judge sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// How to call it: a path or a baseline's name.
    pub label: String,
    /// Under what it was measured.
    pub header: RunHeader,
    /// Every planned case.
    pub cases: BTreeMap<CaseId, CaseRecord>,
    /// Lines of its file that could not be used, as sentences.
    pub damage: Vec<String>,
}

/// One case of a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseRecord {
    /// Whether there is anything to judge.
    #[serde(flatten)]
    pub status: Status,
    /// Median device time of each invocation, in nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_ns: Vec<f64>,
    /// The same of the fresh invocations that confirm a suspicion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirm_ns: Vec<f64>,
    /// Median host time of each invocation, in nanoseconds, confirming ones last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ns: Vec<f64>,
    /// First call of each invocation, in nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_call_ns: Vec<f64>,
    /// Median device clock of each invocation, in MHz.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_mhz: Vec<f64>,
    /// True when a call works off several problems, so that its time gives no rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Samples behind the medians.
    #[serde(default)]
    pub samples: u64,
    /// Most device memory in use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// What happened around the samples.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
    /// What each parameter became.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effective: BTreeMap<String, ParamValue>,
    /// Largest relative L2 difference from the float64 reference, by result.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, f64>,
    /// What one call does to the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<Structure>,
    /// What the device did in one call, in a few figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<ActivitySummary>,
}

/// Whether there is anything to judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Status {
    /// Checked and timed in every invocation.
    Measured,
    /// The variant does not do this.
    Unsupported {
        /// In its own words.
        reason: String,
    },
    /// It failed in at least one invocation.
    Failed {
        /// What happened.
        reason: String,
    },
    /// Planned, but absent from the file in at least one invocation.
    Missing {
        /// Which part is missing.
        reason: String,
    },
}

impl CaseRecord {
    /// A record with nothing in it but its status.
    pub fn empty(status: Status) -> CaseRecord {
        CaseRecord {
            status,
            device_ns: Vec::new(),
            confirm_ns: Vec::new(),
            host_ns: Vec::new(),
            first_call_ns: Vec::new(),
            clock_mhz: Vec::new(),
            several: false,
            samples: 0,
            peak_bytes: None,
            conditions: Conditions::default(),
            effective: BTreeMap::new(),
            errors: BTreeMap::new(),
            structure: None,
            activity: None,
        }
    }

    fn add(&mut self, measurement: &Measurement, confirms: bool) {
        let times = if confirms {
            &mut self.confirm_ns
        } else {
            &mut self.device_ns
        };
        times.extend(median(&measurement.device_ns));
        self.host_ns.extend(median(&measurement.host_ns));
        self.clock_mhz.extend(median(&measurement.clock_mhz));
        self.first_call_ns.push(measurement.first_call_ns);
        self.several |= measurement.several;
        self.samples += measurement.device_ns.len() as u64;
        self.peak_bytes = self.peak_bytes.max(measurement.peak_bytes);
        self.conditions.add(measurement);
        self.effective.clone_from(&measurement.effective);
        for (result, &error) in &measurement.errors {
            let worst = self.errors.entry(result.clone()).or_insert(error);
            *worst = worst.max(error);
        }
        if let Some(structure) = &measurement.structure {
            self.structure = Some(structure.clone());
        }
        if let Some(activity) = &measurement.activity {
            self.activity = Some(activity.summary());
        }
    }
}

impl Side {
    /// Reduces a run.
    pub fn from_run(label: impl Into<String>, run: &Run) -> Side {
        let planned = run.header.settings.invocations;
        let mut cases: BTreeMap<CaseId, CaseRecord> = run
            .header
            .plan
            .iter()
            .map(|case| (case.clone(), CaseRecord::empty(Status::Measured)))
            .collect();
        let mut seen: BTreeMap<&CaseId, u32> = BTreeMap::new();
        for entry in &run.entries {
            let Some(record) = cases.get_mut(&entry.case) else {
                continue;
            };
            *seen.entry(&entry.case).or_default() += u32::from(entry.invocation < planned);
            match &entry.outcome {
                Outcome::Measured(measurement) => {
                    record.add(measurement, entry.invocation >= planned);
                }
                Outcome::Unsupported { reason } => {
                    if record.status == Status::Measured {
                        record.status = Status::Unsupported {
                            reason: reason.clone(),
                        };
                    }
                }
                // A failure outranks everything: one crash in five is a crash.
                Outcome::Failed { reason, log } => {
                    let last = log.lines().rfind(|line| !line.trim().is_empty());
                    record.status = Status::Failed {
                        reason: match last {
                            Some(line) => format!("{reason}; its last words: {}", line.trim()),
                            None => reason.clone(),
                        },
                    };
                }
            }
        }
        for (case, record) in &mut cases {
            let seen = seen.get(case).copied().unwrap_or(0);
            let settled = matches!(record.status, Status::Unsupported { .. });
            if record.status == Status::Measured && seen < planned && !settled {
                record.status = Status::Missing {
                    reason: format!("{seen} of {planned} invocations are in the file"),
                };
            }
        }
        let damage = run.damage.iter();
        Side {
            label: label.into(),
            header: run.header.clone(),
            cases,
            damage: damage
                .map(|damage| format!("line {}: {}", damage.line, damage.problem))
                .collect(),
        }
    }
}

/// True for a number of nanoseconds that a clock can have shown: more than a
/// femtosecond, less than a million years.
pub fn is_time(ns: f64) -> bool {
    (1e-6..1e23).contains(&ns)
}

/// The median; the mean of the middle two for an even number of values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}
