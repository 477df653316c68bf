//! What one call did to the machine: launches, copies, threads, allocations.
//!
//! Structure is exact. One call tells it, it holds on a throttled or shared
//! machine, and it explains most slowdowns before a second look is needed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One kernel launch on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Demangled kernel name.
    pub name: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z, where there are clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Registers of a thread, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Static plus dynamic shared memory of a block in bytes, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Local memory of a thread in bytes, where known: spilled registers, and arrays
    /// that are indexed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_bytes: Option<u64>,
    /// Blocks that one multiprocessor holds at once, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_per_sm: Option<u32>,
}

impl Launch {
    /// Its blocks.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&size| u64::from(size)).product()
    }

    /// Threads of a block.
    pub fn threads(&self) -> u64 {
        self.block.iter().map(|&size| u64::from(size)).product()
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

/// The structure of one call, as the worker counted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Structure {
    /// Kernel launches in order; empty off a GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
    /// Counts by name: `threads` (that did work), `tasks` (independent pieces of
    /// it), `copies` (of whole tensors), `allocations`, `workspace_bytes`;
    /// `calls.NAME`, `calls_in_N.NAME` and `ns.NAME` of counted functions, of which the
    /// last is a time and not exact.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Counts that were asked for and could not be had, by name, and why. They are not 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uncounted: BTreeMap<String, String>,
    /// A hash over the machine code of every kernel launched, in hexadecimal, where the
    /// worker has that code. Equal hashes are equal instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Structure {
    /// True when there is nothing in it: the worker cannot count.
    pub fn is_empty(&self) -> bool {
        self.launches.is_empty() && self.counts.is_empty()
    }

    /// True when both did the same, as far as that is exact: times are left out.
    pub fn same_as(&self, other: &Structure) -> bool {
        let exact = |structure: &Structure| {
            let counts = structure.counts.clone().into_iter();
            counts
                .filter(|(name, _)| !name.starts_with("ns."))
                .collect::<BTreeMap<_, _>>()
        };
        self.launches == other.launches && exact(self) == exact(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(name: &str, count: u64) -> Structure {
        Structure {
            counts: [(name.to_owned(), count)].into(),
            ..Structure::default()
        }
    }

    #[test]
    fn time_inside_counted_functions_makes_no_other_structure() {
        assert!(counted("ns.backend_selections", 5).same_as(&counted("ns.backend_selections", 9)));
        assert!(counted("ns.backend_selections", 5).same_as(&Structure::default()));
        assert!(!counted("calls.backend_selections", 1).same_as(&Structure::default()));
    }

    #[test]
    fn few_blocks_leave_a_device_empty() {
        let launch = |x: u32, blocks_per_sm| Launch {
            grid: [x, 1, 1],
            block: [32, 4, 1],
            blocks_per_sm,
            ..Launch::default()
        };
        let one = launch(1, Some(2));
        assert_eq!(
            (one.blocks(), one.threads(), one.sms_used(132)),
            (1, 128, 1)
        );
        assert_eq!(launch(157, None).sms_used(132), 132);
        assert_eq!(launch(396, Some(2)).waves(132), Some(1.5));
        assert_eq!(launch(396, None).waves(132), None);
        assert_eq!(launch(396, Some(0)).waves(132), None);
    }
}
