//! One launch of a kernel.

use serde::{Deserialize, Serialize};

/// One kernel launch on a GPU, with what its kernel is known by: its name, or in a recording
/// of a million launches the name's number. Sizes of memory are bytes; a figure that is not
/// known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Launch<N = String> {
    /// The kernel's name, demangled.
    pub name: N,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z, where there are clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Registers of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Static plus dynamic shared memory of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Local memory of a thread: spilled registers, and arrays that are indexed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_bytes: Option<u64>,
    /// Blocks that one multiprocessor holds at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_per_sm: Option<u32>,
    /// Node of the CUDA graph that launched it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<u64>,
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
}
