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

/// Of the three sizes of a grid or a block; what no device has is the largest number.
pub fn product(sizes: [u32; 3]) -> u64 {
    let sizes = sizes.into_iter().map(u64::from);
    sizes.fold(1, u64::saturating_mul)
}

impl Launch {
    /// Its blocks.
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Threads of a block.
    pub fn threads(&self) -> u64 {
        product(self.block)
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

/// The name under which [`Structure::uncounted`] tells why there is no census at all.
pub const CENSUS: &str = "census";

/// The structure of one call, as the worker counted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Why a count could not be had, where that is known: for a reason of its own, or
    /// because there was no census at all.
    pub fn why_uncounted(&self, name: &str) -> Option<&str> {
        let reason = self.uncounted.get(name).or(self.uncounted.get(CENSUS));
        reason.map(String::as_str)
    }
}

/// Words in the names of kernels that only move, fill or convert data.
const MOVING: [&str; 5] = ["copy", "memset", "fill", "transpose", "cat"];

/// True for the name of a kernel that moves data rather than computing attention.
pub fn moves_data(kernel: &str) -> bool {
    let name = kernel.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    // `cat` and `fill` occur inside longer words; the others are telling anywhere.
    let moves = MOVING.iter().any(|&moving| match moving {
        "cat" | "fill" => words.contains(&moving),
        moving => name.contains(moving),
    });
    // PyTorch's elementwise kernels do whatever function they are made with. One that adds
    // is no copy; one whose name was cut before the function is most likely one.
    let function = || name.contains("functor") || name.contains("lambda");
    let elementwise = name.contains("elementwise");
    moves || (elementwise && (name.contains("fillfunctor") || !function()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_move_data_are_known_by_their_names() {
        for name in [
            "void at::native::elementwise_kernel<128, 4>(int)",
            "at::native::(anonymous namespace)::CatArrayBatchedCopy<float>",
            "void cub::fill<int>(int*)",
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<\
             at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)",
        ] {
            assert!(moves_data(name), "{name}");
        }
        for name in [
            "flash_fwd_kernel",
            "void at::native::vectorized_elementwise_kernel<8, \
             at::native::CUDAFunctorOnSelf_add<c10::BFloat16>>(int)",
            "fmha_cutlassB_f32",
            "concatenated_gemm",
            "backfilled",
        ] {
            assert!(!moves_data(name), "{name}");
        }
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
