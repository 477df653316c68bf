//! What one call did to the machine: launches, copies, threads, allocations.
//!
//! Structure is exact. One call tells it, it holds on a throttled or shared
//! machine, and it explains most slowdowns before a second look is needed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One kernel launch on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Demangled kernel name.
    pub name: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
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

/// The structure of one call, as the worker counted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Structure {
    /// Kernel launches in order; empty off a GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
    /// Counts by name: `threads` (that did work), `tasks` (independent pieces of
    /// it), `copies` (of whole tensors), `allocations`, `workspace_bytes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
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
}
