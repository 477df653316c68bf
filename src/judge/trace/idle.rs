//! Time in which a device did nothing, whose fault that was, and copies hidden by kernels.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::trace::{Operation, Recording};

/// How a device's time was spent between its first and its last operation; of several
/// devices, the sum. Nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Idle {
    /// From the first start to the last end.
    pub span_ns: u64,
    /// With at least one operation.
    pub busy_ns: u64,
    /// Without any.
    pub idle_ns: u64,
    /// Idle, before an operation whose launch came after the end of the one before: the
    /// device had nothing to do because the host was late.
    pub host_bound_ns: u64,
    /// Operations whose launch is known; without any, `host_bound_ns` says nothing.
    pub launches_known: usize,
    /// Stretches without any operation.
    pub gaps: usize,
    /// The longest of them.
    pub longest_gap_ns: u64,
    /// In which something was copied.
    pub copying_ns: u64,
    /// In which something was copied while a kernel ran.
    pub overlapped_ns: u64,
}

/// A stretch of a device's time without any operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its start.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// True when the host launched what follows only after it had begun.
    pub host_bound: bool,
}

impl Idle {
    /// Share of the span without any operation.
    pub fn idle_share(&self) -> f64 {
        share(self.idle_ns, self.span_ns)
    }

    /// Share of the span in which the device waited for the host, where that is known.
    pub fn host_bound_share(&self) -> Option<f64> {
        (self.launches_known > 0).then(|| share(self.host_bound_ns, self.span_ns))
    }

    /// Share of the time spent copying in which a kernel ran, where anything was copied.
    pub fn overlap(&self) -> Option<f64> {
        (self.copying_ns > 0).then(|| share(self.overlapped_ns, self.copying_ns))
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Operations by device, each in their order: a process with the id of its GPU, since two
/// processes may mean two GPUs by the same ordinal.
fn by_device<'a>(operations: &[&'a Operation]) -> Vec<Vec<&'a Operation>> {
    let mut devices: BTreeMap<(u32, u32), Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        let device = (operation.process, operation.device);
        devices.entry(device).or_default().push(operation);
    }
    devices.into_values().collect()
}

/// Measures it. `operations` are ordered by start.
pub fn idle(operations: &[&Operation]) -> Idle {
    let mut total = Idle {
        launches_known: operations.iter().filter(|o| o.launched.is_some()).count(),
        ..Idle::default()
    };
    for device in by_device(operations) {
        let first = device.first().map_or(0, |operation| operation.start);
        let last = device.iter().map(|o| o.end).max().unwrap_or(first);
        let found = gaps(&device);
        let idle: u64 = found.iter().map(|gap| gap.end - gap.start).sum();
        total.span_ns += last - first;
        total.idle_ns += idle;
        total.busy_ns += last - first - idle;
        total.gaps += found.len();
        for gap in found {
            let ns = gap.end - gap.start;
            total.longest_gap_ns = total.longest_gap_ns.max(ns);
            total.host_bound_ns += if gap.host_bound { ns } else { 0 };
        }
        let (kernels, copies): (Vec<&Operation>, Vec<&Operation>) =
            device.iter().partition(|o| o.kernel().is_some());
        let (kernels, copies) = (union(&kernels), union(&copies));
        total.copying_ns += copies.iter().map(|(from, to)| to - from).sum::<u64>();
        total.overlapped_ns += common(&kernels, &copies);
    }
    total
}

/// The gaps of every device of a recording, by device.
pub fn gaps_of(recording: &Recording) -> Vec<Gap> {
    let all: Vec<&Operation> = recording.operations.iter().collect();
    by_device(&all)
        .iter()
        .flat_map(|device| gaps(device))
        .collect()
}

/// Gaps between the operations of one device.
fn gaps(operations: &[&Operation]) -> Vec<Gap> {
    let mut found = Vec::new();
    let mut busy_until = None;
    for operation in operations {
        if let Some(until) = busy_until
            && operation.start > until
        {
            found.push(Gap {
                start: until,
                end: operation.start,
                host_bound: operation.launched.is_some_and(|launched| launched > until),
            });
        }
        busy_until = busy_until.max(Some(operation.end));
    }
    found
}

/// The stretches that operations cover, merged.
fn union(operations: &[&Operation]) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for operation in operations {
        match merged.last_mut() {
            Some((_, end)) if operation.start <= *end => *end = (*end).max(operation.end),
            _ => merged.push((operation.start, operation.end)),
        }
    }
    merged
}

/// Time that two lists of stretches share.
fn common(one: &[(u64, u64)], other: &[(u64, u64)]) -> u64 {
    let (mut i, mut j, mut shared) = (0, 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        shared += a.1.min(b.1).saturating_sub(a.0.max(b.0));
        if a.1 < b.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    shared
}
