//! What the device did during one call, and when: operations in order, the gaps between
//! them, and what it waited for.
//!
//! Unlike [`Structure`](super::Structure) these are times, taken by the device's own
//! record of its work, which stretches gaps: evidence for a cause, never a measurement.

use crate::units::is_zero;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::intervals::{Cover, Gap, Ran, gaps};
use super::names::moves_data;
use super::operation::{Named, Operation};
use super::times::DeviceTime;

/// One steady call, as the device recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Activity {
    /// What ran, by start.
    pub operations: Vec<Operation<Named>>,
    /// Nanoseconds the host needed to make the call, recording included.
    pub host_ns: u64,
    /// Calls to CUDA by name: `module_loads`, `allocations`, `frees`, `synchronisations`,
    /// `launches`, `graph_launches`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
    /// Nanoseconds that the host spent in them, by the same names, recording included; absent
    /// where it was not taken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls_ns: BTreeMap<String, u64>,
    /// Records that were lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

/// What a call asks of CUDA that one in steady state does without, each by its name in
/// [`Activity::calls`] and by that of the count it is in a structure. A worker's own
/// `allocations` are those of its library's allocator, and most of them never reach the driver.
pub const ASKED_OF_CUDA: [(&str, &str); 4] = [
    ("module_loads", MODULE_LOADS),
    ("synchronisations", SYNCHRONISATIONS),
    ("allocations", DRIVER_ALLOCATIONS),
    ("frees", DRIVER_FREES),
];

/// The count of modules loaded during one steady call.
pub const MODULE_LOADS: &str = "module_loads";

/// The count of waits for the device, a stream or an event.
pub const SYNCHRONISATIONS: &str = "synchronisations";

/// The count of memory taken from the driver, of the device or pinned.
pub const DRIVER_ALLOCATIONS: &str = "driver_allocations";

/// The count of memory given back to the driver.
pub const DRIVER_FREES: &str = "driver_frees";

/// An [`Activity`] in a few figures; what a baseline keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ActivitySummary {
    /// How the device's time was spent. Where one gap's launch is not known, nobody knows
    /// what all of them owe to the host.
    #[serde(flatten)]
    pub time: DeviceTime,
    /// Copies by the driver.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Nanoseconds in which a kernel that moves data ran ([`moves_data`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_ns: Option<u64>,
    /// Which launch took longest: its place among the kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<usize>,
    /// Nanoseconds the host needed to make the call.
    pub host_ns: u64,
    /// Calls to CUDA, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
    /// Nanoseconds that the host spent in them, by the same names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls_ns: BTreeMap<String, u64>,
}

impl ActivitySummary {
    /// A figure by the name that tables and limits have for it, where known.
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
    /// Its kernels, in order.
    pub fn kernels(&self) -> impl Iterator<Item = (&Operation<Named>, &str)> {
        let operations = self.operations.iter();
        operations.filter_map(|operation| Some((operation, operation.kernel()?.name.as_str())))
    }

    /// Times in which nothing ran, in order.
    pub fn gaps(&self) -> Vec<Gap> {
        gaps(self.operations.iter().map(Ran::from))
    }

    /// All of it in a few figures.
    pub fn summary(&self) -> ActivitySummary {
        let mut time = DeviceTime::of(&self.operations);
        if self.gaps().iter().any(|gap| gap.host_ns.is_none()) {
            time.host_bound_ns = None;
        }
        let moving = self.kernels().filter(|(_, name)| moves_data(name));
        let copies = || self.operations.iter().filter(|o| o.is_copy());
        ActivitySummary {
            time,
            copies: copies().count() as u64,
            copied_bytes: copies()
                .filter_map(Operation::bytes)
                .fold(0, u64::saturating_add),
            moving_ns: Some(Cover::of(moving.map(|(kernel, _)| Ran::from(kernel))).ns()),
            longest: self
                .kernels()
                .enumerate()
                .max_by_key(|(_, (kernel, _))| kernel.ns())
                .map(|(place, _)| place),
            host_ns: self.host_ns,
            calls: self.calls.clone(),
            calls_ns: self.calls_ns.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::operation::Work;
    use super::*;

    fn kernel(name: &str, start_ns: u64, end_ns: u64) -> Operation<Named> {
        let name = name.to_owned();
        Operation::new(Work::Kernel(Named { name }), start_ns, end_ns)
    }

    fn activity(operations: Vec<Operation<Named>>) -> Activity {
        Activity {
            operations,
            ..Activity::default()
        }
    }

    #[test]
    fn copies_are_counted_and_the_longest_kernel_is_found() {
        let copy = |start_ns, end_ns| {
            let (direction, bytes) = ("HtoD".to_owned(), Some(4096));
            Operation::new(Work::Copy { direction, bytes }, start_ns, end_ns)
        };
        let call = activity(vec![
            kernel("a", 0, 100),
            copy(40, 140),
            kernel("b", 120, 160),
            copy(200, 210),
        ]);
        let summary = call.summary();
        assert_eq!((summary.copies, summary.copied_bytes), (2, 8192));
        assert_eq!(summary.longest, Some(0), "100 ns against 40");
        let gap = Gap {
            start_ns: 160,
            end_ns: 200,
            host_ns: None,
        };
        assert_eq!(call.gaps(), [gap]);
    }

    /// A part of the launches tells no more than that the device waited so long at least.
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
}
