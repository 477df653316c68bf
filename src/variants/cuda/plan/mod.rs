//! What a variant launches for a problem: entry points, grids, workspace.

mod mma;
mod naive;
mod simt;
mod split_kv;
#[cfg(test)]
mod tests;
mod wgmma;

use std::collections::{BTreeMap, BTreeSet};

use crate::attention::{Direction, Dtype, ParamValue, Params, Problem};
use crate::kernels::contract::{self, Kernel, Tile};
use crate::worker::protocol::Parameter;

/// A device, as far as a plan depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Compute capability: `(9, 0)`.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Bytes of the level-2 cache.
    pub l2_bytes: u64,
    /// Most shared memory that a block may ask for, in bytes.
    pub shared_bytes: u32,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The kernel file.
    pub file: &'static str,
    /// The entry point in it.
    pub entry: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// What it is given.
    pub arguments: Arguments,
}

/// What an entry point is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// `Problem` of `problem.cuh`, by value.
    Problem,
    /// Tensor maps and figures, as `flash_wgmma.cu` lists them.
    Wgmma {
        /// Keys of a tile: rows of the boxes of `k` and `v`.
        tile_keys: u32,
        /// Heads whose tiles are taken before others are begun.
        heads_per_section: u32,
    },
    /// Tensor maps of `q`, `k`, `v` and `dout`, then the problem, as
    /// `flash_wgmma_backward.cu` lists them.
    WgmmaBackward {
        /// Queries of a tile: rows of the boxes of `q` and `dout`.
        tile_queries: u32,
        /// Keys of a tile: rows of the boxes of `k` and `v`.
        tile_keys: u32,
    },
}

/// What one variant does for one problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Launches of the forward pass, in order.
    pub forward: Vec<Step>,
    /// Launches of the backward pass, in order; empty where it is not asked for.
    pub backward: Vec<Step>,
    /// Bytes that the launches use beside the tensors.
    pub workspace_bytes: u64,
    /// Splits of the key axis; 1 where nothing is split.
    pub num_splits: u32,
    /// What each parameter became.
    pub effective: BTreeMap<String, ParamValue>,
}

/// A variant of this worker.
pub struct Variant {
    /// Its name within the worker.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Storage types it takes.
    pub dtypes: &'static [Dtype],
    /// Directions it runs.
    pub directions: &'static [Direction],
    /// Its parameters: all are numbers.
    pub parameters: &'static [&'static str],
    /// True when it keeps the score matrix in memory.
    pub stores_scores: bool,
    plan: fn(&Asked) -> Result<Plan, String>,
}

/// What a variant is asked for.
pub struct Asked<'a> {
    /// What to compute.
    pub problem: &'a Problem,
    /// Parameters that are not `auto`.
    pub params: &'a Params,
    /// On what.
    pub limits: Limits,
}

const NARROW: [Dtype; 2] = [Dtype::F16, Dtype::Bf16];
const SINGLE: [Dtype; 1] = [Dtype::F32];

/// How many blocks share the key axis of a backward pass: the name that xFormers and
/// PyTorch have for it.
pub const NUM_SPLITS_KEY: &str = "num_splits_key";
/// How many blocks share the key axis of a decode: FlashAttention's name for it.
pub const NUM_SPLITS: &str = "num_splits";
/// Keys of a tile.
pub const TILE_KEYS: &str = "tile_keys";

/// Every variant, sorted by name.
pub const VARIANTS: [Variant; 6] = [
    Variant {
        name: "flash-mma",
        summary: "fused, tensor cores through mma.sync; the class of FlashAttention-2",
        dtypes: &NARROW,
        directions: &Direction::ALL,
        parameters: &[],
        stores_scores: false,
        plan: mma::plan,
    },
    Variant {
        name: "flash-simt",
        summary: "fused, float32 on the FFMA units",
        dtypes: &SINGLE,
        directions: &Direction::ALL,
        parameters: &[],
        stores_scores: false,
        plan: simt::flash,
    },
    Variant {
        name: "flash-wgmma",
        summary: "fused for Hopper: TMA, mbarrier ring, wgmma, warp-specialised",
        dtypes: &NARROW,
        directions: &Direction::ALL,
        parameters: &[TILE_KEYS],
        stores_scores: false,
        plan: wgmma::plan,
    },
    Variant {
        name: "naive",
        summary: "the score matrix in memory, one thread an element",
        dtypes: &Dtype::ALL,
        directions: &Direction::ALL,
        parameters: &[],
        stores_scores: true,
        plan: naive::plan,
    },
    Variant {
        name: "split-key",
        summary: "float32 backward with the key axis split over num_splits_key blocks",
        dtypes: &SINGLE,
        directions: &[Direction::Backward],
        parameters: &[NUM_SPLITS_KEY],
        stores_scores: false,
        plan: simt::split_key,
    },
    Variant {
        name: "split-kv",
        summary: "decode: keys split over num_splits blocks, then joined",
        dtypes: &Dtype::ALL,
        directions: &[Direction::Forward],
        parameters: &[NUM_SPLITS],
        stores_scores: false,
        plan: split_kv::plan,
    },
];

/// The oldest devices that any kernel is written for: cp.async, bf16.
const OLDEST: (u32, u32) = (8, 0);

impl Variant {
    /// The variant of this name.
    pub fn named(name: &str) -> Option<&'static Variant> {
        VARIANTS.iter().find(|variant| variant.name == name)
    }

    /// What the variant launches for a problem.
    ///
    /// # Errors
    /// Why it does not do this, for a reader.
    pub fn plan(&self, asked: &Asked) -> Result<Plan, String> {
        self.accepts(asked)?;
        let plan = (self.plan)(asked)?;
        for step in plan.forward.iter().chain(&plan.backward) {
            fits(step, asked.limits)?;
        }
        Ok(plan)
    }

    fn accepts(&self, asked: &Asked) -> Result<(), String> {
        let (problem, name) = (asked.problem, self.name);
        let (major, minor) = asked.limits.capability;
        if (major, minor) < OLDEST {
            return Err(format!(
                "cuda/{name} needs compute capability {}.{}; this device has {major}.{minor}",
                OLDEST.0, OLDEST.1
            ));
        }
        if problem.varlen.is_some() {
            return Err(format!("cuda/{name} does not take ragged batches"));
        }
        if !self.dtypes.contains(&problem.dtype) {
            let known: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.name()).collect();
            return Err(format!(
                "cuda/{name} takes {}, not {}",
                known.join(" and "),
                problem.dtype
            ));
        }
        if !self.directions.contains(&problem.direction) {
            return Err(format!("cuda/{name} has no {}", problem.direction));
        }
        for (parameter, value) in asked.params.iter() {
            if !self.parameters.contains(&parameter.as_str()) {
                return Err(format!("cuda/{name} has no parameter `{parameter}`"));
            }
            if !Parameter::INTEGER.allows(value) {
                return Err(format!(
                    "`{parameter}` of cuda/{name} is an integer, not `{value}`"
                ));
            }
        }
        launchable(problem)
    }
}

/// The limits that all files share: grid axes are 16 bits wide, indices 30.
fn launchable(problem: &Problem) -> Result<(), String> {
    let planes = u64::from(problem.batch) * u64::from(problem.heads);
    if planes >= 1 << 16 {
        return Err(format!(
            "batch × heads is {planes}; the kernels take fewer than 65536"
        ));
    }
    for (axis, length) in [("seq_q", problem.seq_q), ("seq_k", problem.seq_k)] {
        if length >= 1 << 29 {
            return Err(format!(
                "{axis} = {length}; the kernels take less than 2^29"
            ));
        }
    }
    Ok(())
}

fn fits(step: &Step, limits: Limits) -> Result<(), String> {
    let Some(block) = contract::block(step.file, &step.entry) else {
        return Err(format!("{}.cu has no kernel `{}`", step.file, step.entry));
    };
    if block.shared_bytes > limits.shared_bytes {
        return Err(format!(
            "{} needs {} bytes of shared memory a block; this device has {}",
            step.entry, block.shared_bytes, limits.shared_bytes
        ));
    }
    Ok(())
}

/// A step that is given the problem.
fn step(problem: &Problem, kernel: &Kernel, tile: &Tile, grid: [u32; 3]) -> Step {
    Step {
        file: kernel.file,
        entry: kernel.entry(problem.dtype.name(), tile),
        grid,
        arguments: Arguments::Problem,
    }
}

/// A parameter's number; `None` for `auto`.
fn number(asked: &Asked, name: &str) -> Option<i64> {
    match asked.params.get(name) {
        ParamValue::Int(value) => Some(value),
        ParamValue::Word(_) => None,
    }
}

/// The tile of the smallest compiled head dimension that holds the problem's.
fn holding<'a>(problem: &Problem, kernel: &'a Kernel, multiple: u32) -> Result<&'a Tile, String> {
    let (d, dv) = (problem.head_dim, problem.head_dim_v);
    match kernel.tile_for(d.max(dv)) {
        Some(tile) if d.is_multiple_of(multiple) && dv.is_multiple_of(multiple) => Ok(tile),
        _ => Err(format!(
            "head_dim = {d}, head_dim_v = {dv}: this kernel takes multiples of {multiple} up \
             to {}",
            head_dims(kernel).last().copied().unwrap_or(0)
        )),
    }
}

/// The first tile of a kernel that takes the head dimensions it is compiled for alone.
fn exact<'a>(problem: &Problem, kernel: &'a Kernel, variant: &str) -> Result<&'a Tile, String> {
    let (d, dv) = (problem.head_dim, problem.head_dim_v);
    let found = kernel.tile_for(d);
    let found = found.filter(|tile| d == dv && tile.head_dim == Some(d));
    found.ok_or_else(|| {
        let known: Vec<String> = head_dims(kernel).iter().map(u32::to_string).collect();
        format!(
            "head_dim = {d}, head_dim_v = {dv}: cuda/{variant} takes {}, both alike",
            known.join(" or ")
        )
    })
}

/// dQ of one tile of queries in float32, which the tensor-core kernels keep in a workspace.
fn query_gradient_bytes(tile: &Tile) -> u64 {
    4 * u64::from(tile.queries) * u64::from(tile.head_dim.unwrap_or(0))
}

/// The head dimensions that a kernel is compiled for, ascending.
fn head_dims(kernel: &Kernel) -> BTreeSet<u32> {
    let tiles = kernel.tiles().iter();
    tiles.filter_map(|tile| tile.head_dim).collect()
}
