//! A trace in memory. Times are nanoseconds of CUPTI's clock, which host and device
//! records of all processes share.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::attention::product;
use crate::record::types::{Damage, Fingerprint, Git};

/// The first line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// [`crate::record::SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// [`crate::record::METHOD_VERSION`] of the writer.
    pub method: u32,
    /// Version of regatta.
    pub tool: String,
    /// regatta's command line.
    pub argv: Vec<String>,
    /// The program's command line.
    pub command: Vec<String>,
    /// When it was started.
    pub started: Timestamp,
    /// How it ended: `exit code 0`, `killed by SIGINT`.
    pub ended: String,
    /// The checkout it was started in, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// Where.
    pub machine: Fingerprint,
}

/// What a program and its children did.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its first line.
    pub header: TraceHeader,
    /// What was recorded.
    pub recording: Recording,
}

/// The recordings of all processes, merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// In the order of their start.
    pub processes: Vec<Process>,
    /// Kernel names, each once; [`Kernel::name`] counts into it.
    pub names: Vec<String>,
    /// By start.
    pub operations: Vec<Operation>,
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
    pub devices: Vec<Device>,
    /// Cumulative counts of API calls, as they were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Calls>,
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

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A GPU of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
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

/// API calls since a process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// When they were counted.
    pub at: u64,
    /// By name: `module_loads`, `allocations`, `frees`, `synchronisations`,
    /// `launches`, `graph_launches`.
    pub counts: BTreeMap<String, u64>,
}

/// Something a device did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Counts into [`Recording::processes`].
    #[serde(default)]
    pub process: u32,
    /// The device's ordinal in its process.
    pub device: u32,
    /// The stream.
    pub stream: u32,
    /// When it began on the device.
    pub start: u64,
    /// When it ended there; at least `start`.
    pub end: u64,
    /// When the host's call that launched it began, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<u64>,
    /// How long that call took, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_ns: Option<u64>,
    /// What it was.
    #[serde(flatten)]
    pub work: Work,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Work {
    /// Ran a kernel.
    Kernel(Kernel),
    /// Copied memory.
    Copy {
        /// `HtoD`, `DtoH`, `DtoD`, `PtoP`, `HtoH` or `?`.
        direction: String,
        /// How much.
        bytes: u64,
    },
    /// Set memory.
    Set {
        /// How much.
        bytes: u64,
    },
}

/// One kernel launch. Sizes of memory are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Counts into [`Recording::names`].
    pub name: u32,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z, where there are clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Registers of a thread.
    #[serde(default)]
    pub registers: u32,
    /// Static shared memory of a block.
    #[serde(default)]
    pub static_shared: u64,
    /// Dynamic shared memory of a block.
    #[serde(default)]
    pub dynamic_shared: u64,
    /// Local memory of a thread.
    #[serde(default)]
    pub local: u64,
    /// Node of the CUDA graph it was launched by, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<u64>,
}

/// The last moment that is believed, in nanoseconds: about the year 2116, where a clock counts
/// from 1970. Sums and differences of two moments stay below what a `u64` holds.
const LATEST_NS: u64 = 1 << 62;

impl Operation {
    /// What in its times cannot be, as a sentence.
    pub fn objection(&self) -> Option<&'static str> {
        let launched = self.launched.unwrap_or(0).max(self.launch_ns.unwrap_or(0));
        if self.end < self.start {
            return Some("the operation ends before it starts");
        }
        (self.end.max(launched) > LATEST_NS).then_some("its times are beyond any clock")
    }

    /// How long it took, in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// The kernel, if it is one.
    pub fn kernel(&self) -> Option<&Kernel> {
        match &self.work {
            Work::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }
}

impl Kernel {
    /// Blocks of its grid.
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Threads of its grid.
    pub fn threads(&self) -> u64 {
        self.blocks().saturating_mul(product(self.block))
    }

    /// Static and dynamic shared memory of a block.
    pub fn shared(&self) -> u64 {
        self.static_shared.saturating_add(self.dynamic_shared)
    }
}

impl Recording {
    /// The GPU an operation ran on, where its process told of it.
    pub fn device(&self, operation: &Operation) -> Option<&Device> {
        let process = self.processes.get(operation.process as usize)?;
        let mut devices = process.devices.iter();
        devices.find(|device| device.ordinal == operation.device)
    }

    /// Multiprocessors of the device an operation ran on, where known.
    pub fn sms(&self, operation: &Operation) -> Option<u32> {
        let device = self.device(operation)?;
        (device.sms > 0).then_some(device.sms)
    }

    /// A kernel's name.
    pub fn name(&self, kernel: &Kernel) -> &str {
        let name = self.names.get(kernel.name as usize);
        name.map_or("(a kernel without a name)", String::as_str)
    }

    /// Records that were lost, over all processes.
    pub fn dropped(&self) -> u64 {
        self.processes.iter().map(|process| process.dropped).sum()
    }

    /// Orders operations and leaves the earliest out beyond a limit.
    pub(super) fn settle(&mut self, limit: usize) {
        let start = |operation: &Operation| (operation.start, operation.launched, operation.end);
        self.operations.sort_by_key(start);
        let beyond = self.operations.len().saturating_sub(limit);
        self.operations.drain(..beyond);
        self.left_out += beyond as u64;
    }
}

impl TraceHeader {
    /// What the trace is called: its program, with the script it runs.
    pub fn title(&self) -> String {
        let name = |word: &String| {
            let name = Path::new(word).file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let script = self.command.iter().skip(1).find(|word| is_script(word));
        let words = self.command.first().into_iter().chain(script);
        words.map(name).collect::<Vec<_>>().join(" ")
    }
}

/// True for an argument that names a script: it tells more than its interpreter.
pub fn is_script(word: &str) -> bool {
    let extension = Path::new(word).extension();
    extension.is_some_and(|extension| ["py", "sh", "pl", "jl"].iter().any(|e| extension == *e))
}
