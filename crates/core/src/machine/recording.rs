//! The recording of a program and its children: every operation of their devices.
//!
//! Times are nanoseconds of CUPTI's clock, which host and device records of all processes
//! share.

use super::calls::{Calls, Moments};
use regatta_worker::machine::{Launch, Operation};
use regatta_worker::units::is_zero;
use serde::{Deserialize, Serialize};

use crate::input::Damage;

/// An operation of a recording: its process counts into [`Recording::processes`].
pub type Recorded = Operation<Launch<u32>>;

/// The recordings of all processes, merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// In the order of their start.
    pub processes: Vec<Process>,
    /// Kernel names, each once; a launch's name counts into it.
    pub names: Vec<String>,
    /// By start.
    pub operations: Vec<Recorded>,
    /// Operations left out by a limit: the earliest ones.
    pub left_out: u64,
    /// Lines that could not be used, with the file they stand in.
    pub damage: Vec<(String, Damage)>,
}

/// A process that used CUDA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's id.
    #[serde(default)]
    pub ppid: u32,
    /// Its command line.
    #[serde(default)]
    pub argv: Vec<String>,
    /// When it was recorded from.
    #[serde(default)]
    pub start: u64,
    /// Version of CUPTI, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cupti: Option<String>,
    /// Its GPUs.
    #[serde(default)]
    pub devices: Vec<TracedGpu>,
    /// Cumulative counts of API calls, as they were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Calls>,
    /// When it made calls of the kinds that are told one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moments: Option<Moments>,
    /// Records that were lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// True when it ended by itself, with everything written.
    #[serde(default)]
    pub ended: bool,
    /// What kept it from being recorded, or from being recorded whole.
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
    /// The GPU an operation ran on, where its process told of it.
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

    /// Orders operations and leaves the earliest out beyond a limit.
    pub fn settle(&mut self, limit: usize) {
        let start = |o: &Recorded| (o.start_ns, o.launched_ns, o.end_ns);
        self.operations.sort_by_key(start);
        let beyond = self.operations.len().saturating_sub(limit);
        self.operations.drain(..beyond);
        self.left_out += beyond as u64;
    }
}
