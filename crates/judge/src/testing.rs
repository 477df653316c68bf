//! Builders of sides, and of records from a line of text, for the judge's tests.

pub use regatta_core::record::testing::*;

use regatta_core::machine::Launch;
use regatta_core::record::CaseRecord;
use regatta_core::suite::{Expectation, Metric, Origin, Quantity, Selector};
use regatta_worker::case::ParamValue;
use regatta_worker::units::Nanoseconds;

/// The demand that the device time of cases is at most `within` times the best of others.
pub fn expectation(name: &str, case: Selector, against: Selector, within: f64) -> Expectation {
    Expectation {
        name: name.to_owned(),
        case,
        against: Some(against),
        metric: Quantity::Metric(Metric::Device),
        kernel: None,
        at_least: None,
        at_most: Some(within),
        origin: Origin::default(),
    }
}

/// A record from text: `kernel@blocks`, `count=number`, `.parameter=value`, and figures such as
/// `+device=75.8`, with times in microseconds.
pub fn written(line: &str) -> CaseRecord {
    let mut record = around(100.0);
    for word in line.split_whitespace() {
        if let Some((name, blocks)) = word.split_once('@') {
            let structure = record.structure.get_or_insert_default();
            structure.launches.push(Launch {
                name: name.to_owned(),
                grid: [blocks.parse().unwrap(), 1, 1],
                block: [128, 1, 1],
                registers: Some(128),
                shared_bytes: Some(4096),
                local_bytes: Some(0),
                blocks_per_sm: Some(2),
                ..Launch::default()
            });
            continue;
        }
        let (name, value) = word.split_once('=').expect(word);
        if let Some(name) = name.strip_prefix('.') {
            let value = ParamValue::Int(value.parse().unwrap());
            record.effective.insert(name.to_owned(), value);
        } else if let Some(name) = name.strip_prefix('+') {
            figure(&mut record, name, value.parse().unwrap());
        } else {
            let counts = &mut record.structure.get_or_insert_default().counts;
            counts.insert(name.to_owned(), value.parse().unwrap());
        }
    }
    record
}

fn figure(record: &mut CaseRecord, name: &str, value: f64) {
    let ns = (value * 1e3) as u64;
    match name {
        "device" => {
            let device = Vec::from_iter(around(value * 1e3).values(Metric::Device));
            return *record = with(record.clone(), Metric::Device, &device);
        }
        "host" => return *record = with(record.clone(), Metric::Host, &[value * 1e3; 5]),
        "mhz" => return record.clock_mhz = vec![value; 5].into(),
        "peak" => {
            let bytes = [value * 1048576.0; 5];
            return *record = with(record.clone(), Metric::PeakMemory, &bytes);
        }
        "cpu" => return *record = with(record.clone(), Metric::CpuTime, &[value * 1e3; 5]),
        "threads" | "waited" | "growth" | "faults" => {
            for one in &mut record.invocations {
                match name {
                    "threads" => one.threads = Some(value as u32),
                    "faults" => one.page_faults = Some(value as u32),
                    "waited" => one.waited_ns = Some(Nanoseconds(value * 1e3)),
                    _ => one.growth_bytes_per_call = Some(value * 1048576.0),
                }
            }
            return;
        }
        "known" => return record.conditions.known = value as u32,
        "opened" => return record.conditions.synchronised = value as u32,
        "throttled" => {
            record.conditions.throttled = value as u32;
            return record.conditions.throttle_reasons = ["software power cap".to_owned()].into();
        }
        "shared" => {
            record.conditions.other_processes = 2;
            return record.conditions.shared = value as u32;
        }
        _ => {}
    }
    // A recorded call has no fills and no kernels that move data unless it is said.
    let activity = record.activity.get_or_insert_default();
    activity.moving_ns.get_or_insert(0);
    let time = &mut activity.time;
    time.copying_ns.get_or_insert(0);
    match name {
        "span" => time.span_ns = ns,
        "busy" => time.busy_ns = ns,
        "bound" => time.host_bound_ns = Some(ns),
        "overlap" => time.overlap_ns = ns,
        "at_once" => time.streams_at_once_ns = Some(ns),
        "moving" => activity.moving_ns = Some(ns),
        "copying" => {
            time.copying_ns = Some(ns);
            activity.copies = 2;
        }
        name => panic!("no figure is called {name}"),
    }
}
