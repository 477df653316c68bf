//! Sides made by hand, for tests.

use std::collections::BTreeMap;

use super::disturbance::Disturbance;
use super::side::{CaseRecord, Disturbed, Side, Status};
use super::types::{Fault, Fingerprint, Git, RunHeader, SuiteRecord, WorkerRecord};
use crate::suite::Settings;
use crate::suite::rules::Rules;
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, quantities};

/// A header of a small CPU run.
pub fn header() -> RunHeader {
    let facts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    RunHeader {
        schema: crate::record::SCHEMA_VERSION,
        method: 1,
        tool: "0.1.0".to_owned(),
        argv: Vec::new(),
        started: "2026-01-05T12:00:00Z".parse().unwrap(),
        git: Some(Git {
            revision: "0123456789abcdef".to_owned(),
            dirty: true,
            changes: None,
        }),
        suite: SuiteRecord {
            counts: Vec::new(),
            name: "quick".to_owned(),
            description: String::new(),
            arguments: Vec::new(),
            filter: Vec::new(),
            overrides: Vec::new(),
        },
        rules: Rules::default(),
        settings: Settings::default(),
        machine: Fingerprint {
            name: "xeon-2c".to_owned(),
            hard: facts(&[("cpu", "xeon"), ("cores", "2"), ("driver", "560")]),
            soft: facts(&[("host", "a")]),
        },
        workers: vec![WorkerRecord {
            packages: BTreeMap::new(),
            name: "cpu".to_owned(),
            device_kind: "cpu".to_owned(),
            device: "xeon".to_owned(),
            versions: facts(&[("rust", "1.95")]),
        }],
        plan: Vec::new(),
        identity: None,
        built: BTreeMap::new(),
        peaks: BTreeMap::new(),
        turn: None,
        shard: None,
        hosts: Vec::new(),
    }
}

/// A side with these cases.
pub fn side(label: &str, cases: Vec<(&str, CaseRecord)>) -> Side {
    let mut header = header();
    let cases: BTreeMap<CaseId, CaseRecord> = cases
        .into_iter()
        .map(|(id, record)| (CaseId(id.to_owned()), record))
        .collect();
    header.plan = cases.keys().cloned().collect();
    Side {
        label: label.to_owned(),
        header,
        cases,
        damage: Vec::new(),
    }
}

/// A measured case with these medians.
pub fn timed(device_ns: &[f64]) -> CaseRecord {
    CaseRecord {
        device_ns: quantities(device_ns.iter().copied()),
        samples: 20 * device_ns.len() as u64,
        ..CaseRecord::empty(Status::Measured)
    }
}

/// Five invocations around `ns`, half a percent apart: quiet, and without ties.
pub fn around(ns: f64) -> CaseRecord {
    timed(&[0.99, 1.01, 1.0, 0.995, 1.005].map(|f| f * ns))
}

/// The same with ten fresh invocations around `confirm`.
pub fn confirmed(ns: f64, confirm: f64) -> CaseRecord {
    let mut record = around(ns);
    let spread = (0..10).map(|i| confirm * (0.9905 + 0.002 * f64::from(i)));
    record.confirm_ns = quantities(spread);
    record
}

/// A case that failed.
pub fn failed(reason: &str) -> CaseRecord {
    CaseRecord::empty(Status::Failed {
        reason: reason.to_owned(),
        fault: Fault::Unknown,
    })
}

/// A case that its variant does not do.
pub fn unsupported(reason: &str) -> CaseRecord {
    CaseRecord::empty(Status::Unsupported {
        reason: reason.to_owned(),
    })
}

/// The same record, with so many more invocations that the machine was in, before the others.
pub fn disturbed(mut record: CaseRecord, more: u32, ns: f64) -> CaseRecord {
    let by = || vec![Disturbance::ForeignLoad { cores: 1.9, of: 2 }];
    record.conditions.disturbed_by = by();
    record.disturbed = (0..more)
        .map(|invocation| Disturbed {
            invocation,
            confirms: false,
            device_ns: Nanoseconds(ns),
            cpu_ns: None,
            by: by(),
        })
        .collect();
    record
}
