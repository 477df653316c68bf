//! Builders of workers' messages for tests.

use std::collections::BTreeMap;

use regatta_worker::case::Dtype;
use regatta_worker::operator::Direction;
use regatta_worker::protocol::{Device, Hello, Prepared, TensorError, VariantInfo};
use regatta_worker::units::{Bytes, Nanoseconds};

/// The hello of a worker without a variant.
pub fn hello(kind: &str, device: &str, facts: &[(&str, &str)]) -> Hello {
    let facts = facts
        .iter()
        .map(|&(name, fact)| (name.to_owned(), fact.to_owned()));
    Hello {
        protocol: 1,
        worker: "mine".to_owned(),
        versions: BTreeMap::from([("mine".to_owned(), "1".to_owned())]),
        device: Device {
            kind: kind.to_owned(),
            name: device.to_owned(),
            memory_bytes: Bytes(1 << 40),
            facts: facts.collect(),
        },
        ..Hello::default()
    }
}

/// A variant that supports every problem.
pub fn variant(name: &str) -> VariantInfo {
    VariantInfo {
        name: name.to_owned(),
        dtypes: Dtype::ALL.to_vec(),
        directions: Direction::ALL.to_vec(),
        ..VariantInfo::default()
    }
}

/// The reply of a worker that has prepared one problem. Its first call took a second.
pub fn prepared(
    errors: BTreeMap<String, TensorError>,
    probes: BTreeMap<String, Vec<Option<f64>>>,
) -> Prepared {
    Prepared {
        tuned: Vec::new(),
        first_call_parts: None,
        outputs: Vec::new(),
        effective: BTreeMap::new(),
        errors,
        probes,
        draw: None,
        first_call_ns: Nanoseconds(1e9),
        problems: 1,
    }
}
