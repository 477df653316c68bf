//! Time in which a device did nothing, whose fault that was, and copies hidden by kernels.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attention::intervals::{Cover, Gap, Ran, gaps};
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
    /// Idle because the host was late: of each gap, the part before the host began to
    /// launch what ended it. A launch that is not known lays nothing to the host.
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

/// Measures it.
pub fn idle(operations: &[&Operation]) -> Idle {
    let mut total = Idle {
        launches_known: operations.iter().filter(|o| o.launched.is_some()).count(),
        ..Idle::default()
    };
    for device in by_device(operations) {
        let found = gaps(device.iter().copied().map(Ran::from));
        let cover = |kernels: bool| {
            let of = device.iter().filter(|o| o.kernel().is_some() == kernels);
            Cover::of(of.copied().map(Ran::from))
        };
        let (kernels, copies) = (cover(true), cover(false));
        let mut idle = 0;
        found.iter().for_each(|gap| add(&mut idle, gap.ns()));
        let overlapped = kernels.common_ns(&copies);
        let busy = kernels.ns() + copies.ns() - overlapped;
        add(&mut total.span_ns, busy + idle);
        add(&mut total.idle_ns, idle);
        add(&mut total.busy_ns, busy);
        total.gaps += found.len();
        for gap in found {
            total.longest_gap_ns = total.longest_gap_ns.max(gap.ns());
            add(&mut total.host_bound_ns, gap.host_ns.unwrap_or(0));
        }
        add(&mut total.copying_ns, copies.ns());
        add(&mut total.overlapped_ns, overlapped);
    }
    total
}

/// Adds to a sum of nanoseconds. What a recording of years would add up to is no figure, and
/// no reason to end either.
pub(super) fn add(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}

/// The gaps of every device of a recording, by device.
pub fn gaps_of(recording: &Recording) -> Vec<Gap> {
    let all: Vec<&Operation> = recording.operations.iter().collect();
    let devices = by_device(&all).into_iter();
    devices
        .flat_map(|device| gaps(device.into_iter().map(Ran::from)))
        .collect()
}

impl From<&Operation> for Ran {
    fn from(operation: &Operation) -> Ran {
        Ran {
            start_ns: operation.start,
            end_ns: operation.end,
            launched_ns: operation.launched,
        }
    }
}
