//! The structure of one call: launches, copies, threads, allocations; and the state of the device,
//! as evidence for judging samples later.
//!
//! Structure is exact. One call is enough to know it, it does not depend on a throttled or shared
//! machine, and it explains most slowdowns without further measurements.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::names::normalised;
use crate::case::ParamValue;
use crate::units::Bytes;

/// The key in [`Structure::uncounted`] for the reason of a missing census.
pub const CENSUS: &str = "census";

/// The suffix of the name of a count that is a size.
pub const BYTES: &str = "_bytes";

/// The beginning of a reason that says that counting failed.
pub const CENSUS_FAILED: &str = "the census failed";

/// Count of results whose floating type is wider than the call's inputs.
pub const WIDER_RESULTS: &str = "wider_results";

/// Count of denormal numbers in the inputs and results of a call's operations.
pub const DENORMAL_VALUES: &str = "denormal_values";

/// The largest number of bytes that a call had allocated.
pub const CALL_PEAK: &str = "call_peak_bytes";

/// Count of the allocations of code that numba compiled.
pub const NUMBA_ALLOCATIONS: &str = "numba_allocations";

/// Count of Python's garbage collections in a call.
pub const GARBAGE_COLLECTIONS: &str = "garbage_collections";

/// The CPU time of garbage collections, in nanoseconds.
pub const GARBAGE_NS: &str = "ns.garbage_collections";

/// The prefix of the name of a count: a function's part of a profiled call, in millionths.
pub const FUNCTION_PPM: &str = "ppm.in.";

/// Counts that only serve as evidence for causes. A case without one is not incomplete.
const EVIDENCE: [&str; 6] = [
    CALL_PEAK,
    "array_operations",
    WIDER_RESULTS,
    DENORMAL_VALUES,
    NUMBA_ALLOCATIONS,
    GARBAGE_COLLECTIONS,
];

/// True for a count that only serves as evidence for causes, as all times do.
pub fn is_evidence(count: &str) -> bool {
    let of_times = ["ns.", FUNCTION_PPM];
    of_times.iter().any(|begin| count.starts_with(begin)) || EVIDENCE.contains(&count)
}

/// The structure of one call, as the worker counted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Structure {
    /// Kernel launches in order; empty off a GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
    /// Counts by name: `threads` (that did work), `tasks` (independent pieces of it), `copies` (of
    /// whole tensors), `allocations`, `workspace_bytes`; calls to CUDA
    /// ([`ASKED_OF_CUDA`](super::ASKED_OF_CUDA)); `calls.NAME`, `calls_in_N.NAME` and `ns.NAME` of
    /// counted functions; and `ppm.in.NAME`, the part of a profiled call that a function takes, in
    /// millionths. The last two are not exact.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Operators of the worker's framework by name (`aten::view`), and how often each ran. Those
    /// beyond the 200 most frequent are counted as `others`. Absent if they were not counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub operators: BTreeMap<String, u64>,
    /// Python functions of the library under test, and those of other modules that it calls
    /// directly, as `module:function`, and how often each ran. Limited in the same way. Absent if
    /// they were not counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, u64>,
    /// Values of parameters that the launches show: `num_splits_key` may be an extent of a grid.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effective: BTreeMap<String, ParamValue>,
    /// Counts that were requested and are not available, by name, with the reason. They are not 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uncounted: BTreeMap<String, String>,
    /// A hash over the machine code of every kernel launched, in hexadecimal, if the worker has the
    /// code. Equal hashes mean equal instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Structure {
    /// The launches by normalised kernel name, sorted by name.
    pub fn by_kernel(&self) -> BTreeMap<String, Vec<&Launch>> {
        let mut kernels: BTreeMap<String, Vec<&Launch>> = BTreeMap::new();
        for launch in &self.launches {
            let name = normalised(&launch.name);
            kernels.entry(name).or_default().push(launch);
        }
        kernels
    }

    /// A sentence about an impossible value: a size that no machine has.
    pub fn objection(&self) -> Option<String> {
        let counted = self.counts.iter();
        let counted = counted.filter(|(name, _)| name.ends_with(BYTES));
        let counted = counted.map(|(name, bytes)| (name.as_str(), *bytes));
        let launched = self.launches.iter().flat_map(|launch| {
            let sizes = [
                ("shared_bytes", launch.shared_bytes),
                ("local_bytes", launch.local_bytes),
            ];
            sizes
                .into_iter()
                .filter_map(|(name, bytes)| Some((name, bytes?)))
        });
        let mut all = counted.chain(launched);
        all.find_map(|(name, bytes)| Bytes(bytes).objection(name))
    }

    /// True if it has nothing, because the worker cannot count.
    pub fn is_empty(&self) -> bool {
        let counted = [&self.counts, &self.operators, &self.functions];
        self.launches.is_empty() && counted.iter().all(|counts| counts.is_empty())
    }

    /// The reason for which a count is not available, if known: its own, or that of a missing
    /// census.
    pub fn why_uncounted(&self, name: &str) -> Option<&str> {
        let reason = self.uncounted.get(name).or(self.uncounted.get(CENSUS));
        reason.map(String::as_str)
    }
}

/// One kernel launch on a GPU. `name` identifies its kernel: the kernel's name, or in a recording
/// of a million launches the name's number. Sizes of memory are bytes; unknown figures are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Launch<N = String> {
    /// The kernel's name, demangled.
    pub name: N,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z, if there are clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Registers of each thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Static plus dynamic shared memory of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Local memory of each thread: spilled registers, and arrays that are indexed dynamically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_bytes: Option<u64>,
    /// The number of blocks that one multiprocessor holds at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_per_sm: Option<u32>,
    /// Node of the CUDA graph that launched it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<u64>,
}

/// The product of the three sizes of a grid or a block. Saturates for sizes that no device has.
pub fn product(sizes: [u32; 3]) -> u64 {
    let sizes = sizes.into_iter().map(u64::from);
    sizes.fold(1, u64::saturating_mul)
}

/// The sizes as text: `157x1x1`.
pub fn sizes([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

impl<N> Launch<N> {
    /// The number of blocks.
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Threads of a block.
    pub fn block_threads(&self) -> u64 {
        product(self.block)
    }

    /// The number of threads in the grid.
    pub fn threads(&self) -> u64 {
        self.blocks().saturating_mul(self.block_threads())
    }

    /// The number of a device's multiprocessors that get a block: all, unless there are fewer
    /// blocks.
    pub fn sms_used(&self, sms: u32) -> u64 {
        self.blocks().min(sms.into())
    }

    /// The number of times that its blocks fill the device, if occupancy is known. With 1.02 the
    /// device is almost empty at the end, with 1.98 it is not.
    pub fn waves(&self, sms: u32) -> Option<f64> {
        let at_once = u64::from(self.blocks_per_sm?) * u64::from(sms);
        (at_once > 0).then(|| self.blocks() as f64 / at_once as f64)
    }
}

/// State of a device right after the samples of a case. Unknown figures are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DeviceState {
    /// Clock of the SMs, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<f64>,
    /// Clock of the memory, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<f64>,
    /// The reasons why clocks are not higher, as NVML's bits `nvmlClocksThrottleReason*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_bits: Option<u64>,
    /// Power drawn by the board, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Temperature of the chip, in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// The number of other processes that compute on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_processes: Option<u32>,
}

/// Names of NVML's reasons (nvml.h), and whether each slows the device down for a temporary cause.
const REASONS: [(u64, &str, bool); 9] = [
    (0x1, "idle", false),
    (0x2, "applications clocks setting", false),
    (0x4, "software power cap", true),
    (0x8, "hardware slowdown", true),
    (0x10, "sync boost", false),
    (0x20, "software thermal slowdown", true),
    (0x40, "hardware thermal slowdown", true),
    (0x80, "hardware power brake", true),
    (0x100, "display clock setting", false),
];

impl DeviceState {
    /// The reasons for which the device lowered its clocks. An idle device and clocks that a user
    /// set do not count. A bit without a name counts, and prints as a number.
    pub fn throttled_by(&self) -> impl Iterator<Item = String> {
        let bits = self.throttle_bits.unwrap_or(0);
        let set = (0..u64::BITS)
            .map(|bit| 1 << bit)
            .filter(move |bit| bits & bit != 0);
        set.filter_map(
            |bit: u64| match REASONS.iter().find(|(known, ..)| *known == bit) {
                Some((_, word, slows)) => slows.then(|| (*word).to_owned()),
                None => Some(format!("{bit:#x}")),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_blocks_leave_a_device_empty() {
        let launch = |x: u32, blocks_per_sm| Launch::<String> {
            grid: [x, 1, 1],
            block: [32, 4, 1],
            blocks_per_sm,
            ..Launch::default()
        };
        let one = launch(1, Some(2));
        assert_eq!(
            (one.blocks(), one.block_threads(), one.sms_used(132)),
            (1, 128, 1)
        );
        assert_eq!(launch(157, None).sms_used(132), 132);
        assert_eq!(launch(157, None).threads(), 157 * 128);
        assert_eq!(launch(396, Some(2)).waves(132), Some(1.5));
        assert_eq!(launch(396, None).waves(132), None);
        assert_eq!(launch(396, Some(0)).waves(132), None);
    }

    #[test]
    fn grids_that_no_device_has_do_not_overflow() {
        let huge = Launch::<String> {
            grid: [u32::MAX; 3],
            block: [u32::MAX; 3],
            ..Launch::default()
        };
        assert_eq!((huge.blocks(), huge.threads()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn bits_have_words_and_only_some_are_throttling() {
        let state = DeviceState {
            throttle_bits: Some(0x1 | 0x2 | 0x4 | 0x40 | 0x8000),
            ..DeviceState::default()
        };
        let slowing: Vec<String> = state.throttled_by().collect();
        assert_eq!(
            slowing,
            ["software power cap", "hardware thermal slowdown", "0x8000"]
        );
    }
}
