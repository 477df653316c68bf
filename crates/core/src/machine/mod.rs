//! The device's work and state, in calls, runs and recordings alike.
//!
//! The types of a single call come from the worker crate, whose workers report them. This module
//! adds the recording of a whole program, its figures, its repeating part, and the comparison of
//! two sides' kernels. It judges nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::input::Damage;
use regatta_worker::units::{Nanoseconds, Ratio, Share, is_zero};

mod align;
mod calls;
mod changes;
mod divided;
mod steady;
mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use align::{Alignment, align};
pub use calls::{Moments, calls, calls_within, in_each, in_steady};
pub use changes::{Became, KernelChange, LaunchChange, Launches, of_calls, of_recordings};
pub use divided::{repetition, whole};
pub use regatta_worker::machine::*;
pub use steady::{Steady, SteadyPart, steady};
pub use summary::{CopyRow, KernelRow, LaunchShape, Summary, summarise};

/// A value of the base and of the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Sides<T> {
    /// The value before.
    pub base: T,
    /// The value after.
    pub head: T,
}

impl<T> Sides<T> {
    /// The values before and after.
    pub fn new(base: T, head: T) -> Sides<T> {
        Sides { base, head }
    }

    /// The values before and after, if both are known.
    pub fn both(base: Option<T>, head: Option<T>) -> Option<Sides<T>> {
        Some(Sides::new(base?, head?))
    }

    /// Applies a function to each side.
    pub fn map<U>(&self, of: impl Fn(&T) -> U) -> Sides<U> {
        Sides {
            base: of(&self.base),
            head: of(&self.head),
        }
    }
}

impl<T: std::ops::Sub> Sides<T> {
    /// The head less the base.
    pub fn growth(self) -> T::Output {
        self.head - self.base
    }
}

/// The parts of two traces that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One repetition of the repeating part: the structure of the last one, and the mean times of
    /// all.
    Repetition,
    /// The whole traces, because one side has no part that repeats.
    Whole,
}

/// The figures of a side, per repetition if that is the scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideFigures {
    /// The label of the side.
    pub label: String,
    /// The time from one repetition to the next, or from the first operation to the last.
    pub elapsed_ns: Nanoseconds,
    /// With at least one operation on a device.
    pub busy_ns: Nanoseconds,
    /// The time without any operation on a device.
    pub idle_ns: Nanoseconds,
    /// The idle time before the host launched the next operation, where launches are known.
    pub host_bound_ns: Option<Nanoseconds>,
    /// The share of the copying time in which kernels ran as well, where anything was copied.
    pub overlap: Option<Share>,
    /// The time in which kernels of two streams ran at once, where streams are known.
    pub streams_at_once_ns: Option<Nanoseconds>,
    /// Number and time of copies and sets, by direction.
    pub copies: BTreeMap<String, (f64, Nanoseconds)>,
    /// API calls by name.
    pub calls: BTreeMap<String, f64>,
    /// Records that were lost, damaged or left out.
    pub lost: u64,
}

impl Sides<SideFigures> {
    /// Head over base of a time; 1 if a side does not know it.
    pub fn ratio(&self, time: fn(&SideFigures) -> Nanoseconds) -> Ratio {
        let (base, head) = (time(&self.base), time(&self.head));
        if base.0 > 0.0 && head.0 > 0.0 {
            head / base
        } else {
            Ratio::ONE
        }
    }
}

/// An operation of a recording. Its process is an index into [`Recording::processes`].
pub type Recorded = Operation<Launch<u32>>;

/// The recordings of all processes, merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// In the order of their start.
    pub processes: Vec<Process>,
    /// The distinct kernel names; a launch's name is an index into it.
    pub names: Vec<String>,
    /// The operations, sorted by start.
    pub operations: Vec<Recorded>,
    /// Operations left out by a limit: the earliest ones.
    pub left_out: u64,
    /// Lines that could not be used, each with its file.
    pub damage: Vec<(String, Damage)>,
}

/// A process that used CUDA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The parent's id.
    #[serde(default)]
    pub ppid: u32,
    /// The command line.
    #[serde(default)]
    pub argv: Vec<String>,
    /// The time at which its recording began.
    #[serde(default)]
    pub start: u64,
    /// Version of CUPTI, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cupti: Option<String>,
    /// The GPUs it used.
    #[serde(default)]
    pub devices: Vec<TracedGpu>,
    /// API calls by name: `module_loads`, `allocations`, `frees`, `synchronisations`, `launches`,
    /// `graph_launches`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
    /// The times of its calls of the kinds that are recorded call by call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moments: Option<Moments>,
    /// Records that were lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// True when it ended normally, with everything written.
    #[serde(default)]
    pub ended: bool,
    /// The problems that kept it from being recorded, or from being recorded whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A GPU of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TracedGpu {
    /// As the process numbers it.
    pub ordinal: u32,
    /// `NVIDIA H200`.
    #[serde(default)]
    pub name: String,
    /// Multiprocessors; 0 where unknown.
    #[serde(default)]
    pub sms: u32,
    /// `9.0`.
    #[serde(default)]
    pub capability: String,
}

impl Recording {
    /// The GPU that an operation ran on, if its process reported it.
    pub fn device(&self, operation: &Recorded) -> Option<&TracedGpu> {
        let process = self.processes.get(operation.process as usize)?;
        let mut devices = process.devices.iter();
        devices.find(|device| device.ordinal == operation.device)
    }

    /// Multiprocessors of the device an operation ran on, where known.
    pub fn sms(&self, operation: &Recorded) -> Option<u32> {
        let device = self.device(operation)?;
        (device.sms > 0).then_some(device.sms)
    }

    /// A kernel's name.
    pub fn name(&self, kernel: &Launch<u32>) -> &str {
        let name = self.names.get(kernel.name as usize);
        name.map_or("(a kernel without a name)", String::as_str)
    }

    /// Records that were lost, over all processes.
    pub fn dropped(&self) -> u64 {
        self.processes.iter().map(|process| process.dropped).sum()
    }

    /// Sorts the operations, and drops the earliest if there are more than `limit`.
    pub fn settle(&mut self, limit: usize) {
        let start = |o: &Recorded| (o.start_ns, o.launched_ns, o.end_ns);
        self.operations.sort_by_key(start);
        let beyond = self.operations.len().saturating_sub(limit);
        self.operations.drain(..beyond);
        self.left_out += beyond as u64;
    }
}
