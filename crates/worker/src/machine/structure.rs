//! What one call did to the machine: launches, copies, threads, allocations.
//!
//! Structure is exact. One call tells it, it holds on a throttled or shared
//! machine, and it explains most slowdowns before a second look is needed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::launch::Launch;
use super::names::normalised;
use crate::units::Bytes;

/// The name under which [`Structure::uncounted`] tells why there is no census at all.
pub const CENSUS: &str = "census";

/// How the name of a count ends that is a size.
pub const BYTES: &str = "_bytes";

/// How the reason begins where counting was tried, and failed.
pub const CENSUS_FAILED: &str = "the census failed";

/// The structure of one call, as the worker counted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Structure {
    /// Kernel launches in order; empty off a GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
    /// Counts by name: `threads` (that did work), `tasks` (independent pieces of
    /// it), `copies` (of whole tensors), `allocations`, `workspace_bytes`; what it asked of
    /// CUDA ([`ASKED_OF_CUDA`](super::ASKED_OF_CUDA));
    /// `calls.NAME`, `calls_in_N.NAME` and `ns.NAME` of counted functions, of which the
    /// last is a time and not exact.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Operators of the worker's framework by name (`aten::view`), and how often each ran;
    /// what is beyond the 200 most frequent is `others`. Absent where they were not counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub operators: BTreeMap<String, u64>,
    /// Python functions of the library under test, as `module:function`, and how often each
    /// ran; bounded in the same way. Absent where they were not counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, u64>,
    /// Counts that were asked for and could not be had, by name, and why. They are not 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uncounted: BTreeMap<String, String>,
    /// A hash over the machine code of every kernel launched, in hexadecimal, where the
    /// worker has that code. Equal hashes are equal instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Structure {
    /// Its launches by normalised kernel name, in the order of names.
    pub fn by_kernel(&self) -> BTreeMap<String, Vec<&Launch>> {
        let mut kernels: BTreeMap<String, Vec<&Launch>> = BTreeMap::new();
        for launch in &self.launches {
            let name = normalised(&launch.name);
            kernels.entry(name).or_default().push(launch);
        }
        kernels
    }

    /// What in it cannot be, as a sentence: a size that no machine has.
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

    /// True when there is nothing in it: the worker cannot count.
    pub fn is_empty(&self) -> bool {
        let counted = [&self.counts, &self.operators, &self.functions];
        self.launches.is_empty() && counted.iter().all(|counts| counts.is_empty())
    }

    /// Why a count could not be had, where that is known: for a reason of its own, or
    /// because there was no census at all.
    pub fn why_uncounted(&self, name: &str) -> Option<&str> {
        let reason = self.uncounted.get(name).or(self.uncounted.get(CENSUS));
        reason.map(String::as_str)
    }
}
