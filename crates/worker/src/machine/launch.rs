//! One launch of a kernel.

use serde::{Deserialize, Serialize};

/// One kernel launch on a GPU, with what its kernel is known by: its name, or in a recording
/// of a million launches the name's number. Sizes of memory are bytes; a figure that is not
/// known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(from = "Told<N>")]
#[serde(bound(deserialize = "N: Deserialize<'de>"))]
pub struct Launch<N = String> {
    /// The kernel's name, demangled.
    pub name: N,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z, where there are clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Registers of a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Static plus dynamic shared memory of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Local memory of a thread: spilled registers, and arrays that are indexed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_bytes: Option<u64>,
    /// Blocks that one multiprocessor holds at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_per_sm: Option<u32>,
    /// Node of the CUDA graph that launched it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<u64>,
}

/// A launch as it is written: by workers and in runs, or by the injected library and in
/// older traces, which tell the two kinds of shared memory apart.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Told<N> {
    /// The kernel's name, demangled.
    name: N,
    /// Blocks in x, y, z.
    grid: [u32; 3],
    /// Threads of a block in x, y, z.
    block: [u32; 3],
    /// Blocks of a cluster in x, y, z, where there are clusters.
    #[serde(default)]
    cluster: Option<[u32; 3]>,
    /// Registers of a thread.
    #[serde(default)]
    registers: Option<u32>,
    /// Static plus dynamic shared memory of a block.
    #[serde(default)]
    shared_bytes: Option<u64>,
    /// Static shared memory of a block in bytes; of older traces and raw recordings.
    #[serde(default)]
    static_shared: Option<u64>,
    /// Dynamic shared memory of a block in bytes; of the same.
    #[serde(default)]
    dynamic_shared: Option<u64>,
    /// Local memory of a thread: spilled registers, and arrays that are indexed.
    #[serde(default, alias = "local")]
    local_bytes: Option<u64>,
    /// Blocks that one multiprocessor holds at once.
    #[serde(default)]
    blocks_per_sm: Option<u32>,
    /// Node of the CUDA graph that launched it, if one did.
    #[serde(default)]
    graph: Option<u64>,
}

impl<N> From<Told<N>> for Launch<N> {
    fn from(told: Told<N>) -> Launch<N> {
        let parts = [told.static_shared, told.dynamic_shared]
            .into_iter()
            .flatten();
        Launch {
            name: told.name,
            grid: told.grid,
            block: told.block,
            cluster: told.cluster,
            registers: told.registers,
            shared_bytes: told
                .shared_bytes
                .or_else(|| parts.reduce(u64::saturating_add)),
            local_bytes: told.local_bytes,
            blocks_per_sm: told.blocks_per_sm,
            graph: told.graph,
        }
    }
}

/// Of the three sizes of a grid or a block; what no device has is the largest number.
pub fn product(sizes: [u32; 3]) -> u64 {
    let sizes = sizes.into_iter().map(u64::from);
    sizes.fold(1, u64::saturating_mul)
}

/// `157x1x1`.
pub fn sizes([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

impl<N> Launch<N> {
    /// Its blocks.
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Threads of a block.
    pub fn block_threads(&self) -> u64 {
        product(self.block)
    }

    /// Threads of its whole grid.
    pub fn threads(&self) -> u64 {
        self.blocks().saturating_mul(self.block_threads())
    }

    /// How many of a device's multiprocessors get a block: all, unless there are too few
    /// blocks.
    pub fn sms_used(&self, sms: u32) -> u64 {
        self.blocks().min(sms.into())
    }

    /// How often the device is filled with its blocks, where occupancy is known: 1.02
    /// leaves it almost empty at the end, 1.98 does not.
    pub fn waves(&self, sms: u32) -> Option<f64> {
        let at_once = u64::from(self.blocks_per_sm?) * u64::from(sms);
        (at_once > 0).then(|| self.blocks() as f64 / at_once as f64)
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

    /// The injected library, and traces from before both were one, tell the parts of shared
    /// memory; what they do not tell is not 0.
    #[test]
    fn a_recorded_launch_is_a_launch() {
        let recorded = r#"{"name":3,"grid":[157,1,1],"block":[128,1,1],"registers":168,
            "static_shared":1024,"dynamic_shared":65536,"local":8,"graph":5}"#;
        let launch: Launch<u32> = serde_json::from_str(recorded).unwrap();
        assert_eq!(launch.shared_bytes, Some(66_560));
        assert_eq!((launch.local_bytes, launch.graph), (Some(8), Some(5)));
        let written = serde_json::to_string(&launch).unwrap();
        assert!(
            written.contains(r#""shared_bytes":66560,"local_bytes":8"#),
            "{written}"
        );
        assert_eq!(
            serde_json::from_str::<Launch<u32>>(&written).unwrap(),
            launch
        );
        let bare = r#"{"name":"a","grid":[1,1,1],"block":[1,1,1]}"#;
        let launch: Launch = serde_json::from_str(bare).unwrap();
        assert_eq!(
            (launch.registers, launch.shared_bytes, launch.local_bytes),
            (None, None, None)
        );
        let sums = format!(
            r#"{}"static_shared":{1},"dynamic_shared":{1}}}"#,
            bare.replace('}', ","),
            u64::MAX
        );
        let launch: Launch = serde_json::from_str(&sums).unwrap();
        assert_eq!(
            launch.shared_bytes,
            Some(u64::MAX),
            "a record may hold anything"
        );
    }
}
