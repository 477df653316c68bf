//! Sides made by hand, for tests.

use std::collections::BTreeMap;

use super::disturbance::Disturbance;
use super::{
    CaseRecord, Fault, Fingerprint, Git, Invocation, Outcome, RunHeader, Side, SuiteRecord,
    WorkerRecord,
};
use crate::suite::{Cache, Metric};
use regatta_worker::case::CaseId;

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
        started: "2026-01-05T12:00:00Z".parse().unwrap(),
        git: Some(Git {
            revision: "0123456789abcdef".to_owned(),
            dirty: true,
            changes: None,
        }),
        suite: SuiteRecord {
            name: "quick".to_owned(),
            ..SuiteRecord::default()
        },
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
            cache: Some(Cache::Hot),
            versions: facts(&[("rust", "1.95")]),
        }],
        ..RunHeader::default()
    }
}

/// A side with these cases.
pub fn side(label: &str, cases: Vec<(&str, CaseRecord)>) -> Side {
    let mut header = header();
    let cases: BTreeMap<CaseId, CaseRecord> = cases
        .into_iter()
        .map(|(id, record)| (CaseId(id.into()), record))
        .collect();
    header.plan = cases.keys().cloned().collect();
    Side {
        label: label.to_owned(),
        header,
        cases,
        damage: Vec::new(),
    }
}

/// A measured case with these device times, one an invocation.
pub fn timed(device_ns: &[f64]) -> CaseRecord {
    let record = CaseRecord {
        samples: 20 * device_ns.len() as u64,
        ..CaseRecord::empty(Outcome::Measured(()))
    };
    with(record, Metric::Device, device_ns)
}

/// The same record with these values of a metric, one an invocation.
pub fn with(mut record: CaseRecord, metric: Metric, values: &[f64]) -> CaseRecord {
    for (number, value) in values.iter().enumerate() {
        if record.invocations.len() <= number {
            let (values, rest) = Default::default();
            let invocation = Invocation::new(number as u32, values, rest);
            record.invocations.push(invocation);
        }
        record.invocations[number].values.set(metric, Some(*value));
    }
    record
}

/// Five invocations around `ns`, half a percent apart: quiet, and without ties.
pub fn around(ns: f64) -> CaseRecord {
    timed(&[0.99, 1.01, 1.0, 0.995, 1.005].map(|f| f * ns))
}

/// A case that failed by this fault.
pub fn failed(reason: &str, fault: Fault) -> CaseRecord {
    CaseRecord::empty(Outcome::failed(reason, fault))
}

/// A case that its variant does not do.
pub fn unsupported(reason: &str) -> CaseRecord {
    CaseRecord::empty(Outcome::unsupported(reason))
}

/// The record with its first `number` invocations marked as disturbed by other programs.
pub fn disturbed(mut record: CaseRecord, number: usize) -> CaseRecord {
    for one in record.invocations.iter_mut().take(number) {
        one.disturbed = vec![Disturbance::ForeignLoad { cores: 1.9, of: 2 }];
    }
    record
}
