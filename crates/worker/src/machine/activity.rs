//! The device's work during one call, with its times: operations in order, the gaps between them,
//! and the waits of the device.
//!
//! Unlike [`Structure`](super::Structure), these are times. They come from the device's own record
//! of its work, and recording stretches gaps, so they are evidence for a cause and never a
//! measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::intervals::{Cover, Ran, divide};
use super::names::moves_data;
use super::operation::{Named, Operation};
use super::shared::Shared;
use crate::units::{Share, is_zero};

/// A steady call, as the device recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Activity {
    /// The operations, sorted by start.
    pub operations: Vec<Operation<Named>>,
    /// Nanoseconds that the host took to make the call, including the time of recording.
    pub host_ns: u64,
    /// Calls to CUDA by name: `module_loads`, `allocations`, `frees`, `synchronisations`,
    /// `launches`, `graph_launches`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
    /// Nanoseconds that the host spent in these calls by name, including the time of recording.
    /// Absent if it was not measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls_ns: BTreeMap<String, u64>,
    /// The number of records that were lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

/// Calls to CUDA that a steady state does not need: their names in [`Activity::calls`], and the
/// names of their counts in a structure. The `allocations` of a worker are those of its library's
/// allocator, most of which do not reach the driver.
pub const ASKED_OF_CUDA: [(&str, &str); 4] = [
    ("module_loads", MODULE_LOADS),
    ("synchronisations", SYNCHRONISATIONS),
    ("allocations", DRIVER_ALLOCATIONS),
    ("frees", DRIVER_FREES),
];

/// The count of modules that one steady call loads.
pub const MODULE_LOADS: &str = "module_loads";

/// The count of waits for the device, a stream or an event.
pub const SYNCHRONISATIONS: &str = "synchronisations";

/// The count of allocations from the driver, of device memory or pinned memory.
pub const DRIVER_ALLOCATIONS: &str = "driver_allocations";

/// The count of memory blocks that are freed to the driver.
pub const DRIVER_FREES: &str = "driver_frees";

/// The figures of an [`Activity`] that a baseline stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ActivitySummary {
    /// The use of the device's time. If the launch of one gap is unknown, so is the part of all
    /// gaps that is due to the host.
    pub time: DeviceTime,
    /// The number of copies by the driver.
    pub copies: u64,
    /// Nanoseconds in which a kernel that moves data ran ([`moves_data`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_ns: Option<u64>,
    /// The index of the longest launch among the kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<usize>,
    /// Nanoseconds that the host took to make the call.
    pub host_ns: u64,
    /// Calls to CUDA, by name.
    #[serde(default, skip_serializing_if = "uncalled")]
    pub calls: Shared<BTreeMap<String, u64>>,
    /// Nanoseconds that the host spent in these calls, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls_ns: BTreeMap<String, u64>,
}

fn uncalled(calls: &BTreeMap<String, u64>) -> bool {
    calls.is_empty()
}

impl ActivitySummary {
    /// A figure by its name in tables and limits, if known.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let ns = |ns: u64| Some(ns as f64);
        match name {
            "busy_ns" => ns(self.time.busy_ns),
            "idle_ns" => ns(self.time.idle_ns()),
            "copying_ns" => self.time.copying_ns.and_then(ns),
            "moving_ns" => self.moving_ns.and_then(ns),
            "overlap_ns" => ns(self.time.overlap_ns),
            "host_bound" => Some(self.time.host_bound()?.0),
            "overlap" => Some(self.time.overlap()?.0),
            _ => None,
        }
    }
}

impl Activity {
    /// The kernels, in order.
    pub fn kernels(&self) -> impl Iterator<Item = (&Operation<Named>, &str)> {
        let operations = self.operations.iter();
        operations.filter_map(|operation| Some((operation, operation.kernel()?.name.as_str())))
    }

    /// Summarises the activity.
    pub fn summary(&self) -> ActivitySummary {
        let mut time = DeviceTime::measure(&self.operations);
        let ran: Vec<Ran> = self.operations.iter().map(Ran::from).collect();
        let mut gaps = divide(&ran).into_iter().filter(|own| own.gap_ns > 0.0);
        if gaps.any(|own| own.host_ns.is_none()) {
            time.host_bound_ns = None;
        }
        let moving = self.kernels().filter(|(_, name)| moves_data(name));
        ActivitySummary {
            time,
            copies: self.operations.iter().filter(|o| o.is_copy()).count() as u64,
            moving_ns: Some(Cover::new(moving.map(|(kernel, _)| Ran::from(kernel))).ns()),
            longest: self
                .kernels()
                .enumerate()
                .max_by_key(|(_, (kernel, _))| kernel.ns())
                .map(|(place, _)| place),
            host_ns: self.host_ns,
            calls: self.calls.clone().into(),
            calls_ns: self.calls_ns.clone(),
        }
    }
}

/// The use of a device's time between its first and its last operation, in nanoseconds; for several
/// devices, the sum. Used for single calls and for whole programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DeviceTime {
    /// Time with at least one operation.
    pub busy_ns: u64,
    /// Time from the first start to the last end.
    pub span_ns: u64,
    /// The number of stretches without any operation.
    pub gaps: u64,
    /// The longest of these stretches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_gap_ns: Option<u64>,
    /// Time that the device was idle because the host was late: in each gap, the part before the
    /// host began to launch the operation that ended it ([`Own::host_ns`](super::Own::host_ns)).
    /// Gaps with unknown launches add nothing; `None` if no launch is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_bound_ns: Option<u64>,
    /// Time in which the driver copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copying_ns: Option<u64>,
    /// Time in which a copy and a kernel ran at the same time.
    pub overlap_ns: u64,
    /// Time in which kernels of two streams ran at the same time, if streams are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams_at_once_ns: Option<u64>,
}

impl DeviceTime {
    /// Computes the figures. Processes may use the same ordinal for different devices, so each
    /// process's devices count separately.
    pub fn measure<'a, K: 'a>(
        operations: impl IntoIterator<Item = &'a Operation<K>>,
    ) -> DeviceTime {
        let mut total = DeviceTime {
            copying_ns: Some(0),
            streams_at_once_ns: Some(0),
            ..DeviceTime::default()
        };
        for device in by_device(operations) {
            let launched = device.iter().any(|o| o.launched_ns.is_some());
            let ran: Vec<Ran> = device.iter().copied().map(Ran::from).collect();
            let kernels = cover(&device, |o| o.kernel().is_some());
            let copies = cover(&device, Operation::is_copy);
            let all = cover(&device, |_| true);
            add(&mut total.busy_ns, all.ns());
            add(&mut total.span_ns, all.span_ns());
            add(&mut total.overlap_ns, copies.common_ns(&kernels));
            add(total.copying_ns.get_or_insert(0), copies.ns());
            total.streams_at_once_ns = total
                .streams_at_once_ns
                .zip(streams_at_once_ns(&device))
                .map(|(sum, ns)| sum.saturating_add(ns));
            if launched {
                total.host_bound_ns.get_or_insert(0);
            }
            for own in divide(&ran).into_iter().filter(|own| own.gap_ns > 0.0) {
                total.gaps += 1;
                total.longest_gap_ns = total.longest_gap_ns.max(Some(own.gap_ns as u64));
                if let Some(ns) = own.host_ns {
                    add(total.host_bound_ns.get_or_insert(0), ns as u64);
                }
            }
        }
        total
    }

    /// Time without any operation.
    pub fn idle_ns(&self) -> u64 {
        self.span_ns.saturating_sub(self.busy_ns)
    }

    /// Share of the span without any operation.
    pub fn idle_share(&self) -> Share {
        Share(self.idle_ns() as f64 / self.span_ns.max(1) as f64)
    }

    /// Share of the span in which the device waited for the host, if known.
    pub fn host_bound(&self) -> Option<Share> {
        let waited = self.host_bound_ns?;
        (self.span_ns > 0).then(|| Share(waited as f64 / self.span_ns as f64))
    }

    /// Share of the copying time in which a kernel ran too, if anything was copied.
    pub fn overlap(&self) -> Option<Share> {
        let copying = self.copying_ns.filter(|ns| *ns > 0)?;
        Some(Share(self.overlap_ns as f64 / copying as f64))
    }
}

/// Time in which kernels of two streams ran at the same time; `None` if the stream of a kernel is
/// unknown.
fn streams_at_once_ns<K>(device: &[&Operation<K>]) -> Option<u64> {
    let mut streams: BTreeMap<u32, Vec<Ran>> = BTreeMap::new();
    for kernel in device.iter().filter(|o| o.kernel().is_some()) {
        streams
            .entry(kernel.stream?)
            .or_default()
            .push(Ran::from(*kernel));
    }
    let covers: Vec<Cover> = streams.into_values().map(Cover::new).collect();
    Some(Cover::at_once_ns(&covers))
}

/// The time that the operations for which `meant` is true cover.
pub(super) fn cover<K>(
    operations: &[&Operation<K>],
    meant: impl Fn(&Operation<K>) -> bool,
) -> Cover {
    let meant = operations.iter().copied().filter(|o| meant(o));
    Cover::new(meant.map(Ran::from))
}

/// Operations by device, each in order.
pub fn by_device<'a, K: 'a>(
    operations: impl IntoIterator<Item = &'a Operation<K>>,
) -> Vec<Vec<&'a Operation<K>>> {
    let mut devices: BTreeMap<(u32, u32), Vec<&Operation<K>>> = BTreeMap::new();
    for operation in operations {
        let device = (operation.process, operation.device);
        devices.entry(device).or_default().push(operation);
    }
    devices.into_values().collect()
}

/// Adds to a sum of nanoseconds. A sum that overflows is meaningless, but must not end the program.
fn add(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}

#[cfg(test)]
mod tests {
    use super::super::operation::Work;
    use super::*;

    fn kernel(name: &str, start_ns: u64, end_ns: u64) -> Operation<Named> {
        let name = name.to_owned();
        Operation::new(Work::Kernel(Named { name }), start_ns, end_ns)
    }

    fn copy(start_ns: u64, end_ns: u64) -> Operation<Named> {
        let (direction, bytes) = ("HtoD".to_owned(), None);
        Operation::new(Work::Copy { direction, bytes }, start_ns, end_ns)
    }

    fn activity(operations: Vec<Operation<Named>>) -> Activity {
        Activity {
            operations,
            ..Activity::default()
        }
    }

    #[test]
    fn copies_are_counted_and_the_longest_kernel_is_found() {
        let call = activity(vec![
            kernel("a", 0, 100),
            copy(40, 140),
            kernel("b", 120, 160),
            copy(200, 210),
        ]);
        let summary = call.summary();
        assert_eq!(summary.copies, 2);
        assert_eq!(summary.longest, Some(0), "100 ns against 40");
        assert_eq!(
            (summary.time.gaps, summary.time.longest_gap_ns),
            (1, Some(40))
        );
    }

    /// If only some launches are known, they give only a lower bound of the device's wait.
    #[test]
    fn waiting_for_the_host_is_known_of_all_gaps_or_of_none() {
        let launched = |start_ns, end_ns, at| Operation {
            launched_ns: Some(at),
            ..kernel("a", start_ns, end_ns)
        };
        let known = activity(vec![launched(0, 10, -8), launched(100, 110, 92)]);
        assert_eq!(known.summary().time.host_bound_ns, Some(82));
        let part = activity(vec![
            launched(0, 10, -8),
            launched(100, 110, 92),
            kernel("b", 150, 160),
        ]);
        assert_eq!(part.summary().time.host_bound_ns, None);
        assert_eq!(part.summary().figure("host_bound"), None);
    }

    #[test]
    fn what_runs_at_once_is_busy_once() {
        let time = DeviceTime::measure(&[
            kernel("a", 0, 100),
            copy(40, 140),
            kernel("a", 120, 160),
            copy(200, 210),
        ]);
        let expected = DeviceTime {
            busy_ns: 170,
            span_ns: 210,
            gaps: 1,
            longest_gap_ns: Some(40),
            host_bound_ns: None,
            copying_ns: Some(110),
            overlap_ns: 60 + 20,
            streams_at_once_ns: None,
        };
        assert_eq!(
            (time.idle_ns(), time.overlap()),
            (40, Some(Share(80.0 / 110.0)))
        );
        assert_eq!(time, expected);
    }

    #[test]
    fn devices_are_added_up_and_nothing_is_no_span() {
        let second = Operation {
            device: 1,
            ..kernel("a", 1_000, 1_010)
        };
        let both = DeviceTime::measure(&[kernel("a", 0, 10), second]);
        assert_eq!((both.busy_ns, both.span_ns, both.gaps), (20, 20, 0));
        let empty = DeviceTime::measure::<Named>(&[]);
        assert_eq!((empty.span_ns, empty.busy_ns, empty.gaps), (0, 0, 0));
        assert_eq!((empty.host_bound(), empty.overlap()), (None, None));
        let forever = kernel("a", 0, u64::MAX);
        let years = DeviceTime::measure(&[
            forever.clone(),
            Operation {
                process: 1,
                ..forever
            },
        ]);
        assert_eq!(years.busy_ns, u64::MAX);
    }
}
