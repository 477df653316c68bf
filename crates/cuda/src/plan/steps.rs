//! What plans are made of, and what every variant's needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernels::contract::{self, BlockShape, Kernel, Tile};
use regatta_worker::attention::{ParamValue, Params, Problem};
use regatta_worker::words;

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

/// The file that an entry point is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A kernel file of the binary, by its name without the ending.
    Ours(&'static str),
    /// The file that the worker was started for.
    Own,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLaunch {
    /// The kernel file.
    pub code: Code,
    /// The entry point in it.
    pub entry: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// How each block is launched.
    pub shape: BlockShape,
    /// What it is given.
    pub arguments: Arguments,
}

/// What an entry point is given.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// One after the other, as a contract lists them.
    Listed(Vec<Given>),
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

/// One argument, passed by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Given {
    /// `Problem` of `problem.cuh`.
    Problem,
    /// An address on the device.
    Pointer(Pointer),
    /// `int`
    Int(i32),
    /// `unsigned`
    Unsigned(u32),
    /// `long`
    Long(i64),
    /// `float`
    Float(f32),
    /// `double`
    Double(f64),
}

/// Memory of a case that kernels are given the address of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// `q`, in the problem's layout, as all tensors are.
    Q,
    /// `k`
    K,
    /// `v`
    V,
    /// The result of the forward pass.
    Out,
    /// A float32 for each query of each head, `[batch, heads, seq_q]`.
    Lse,
    /// Memory of the size that the plan says.
    Workspace,
    /// The gradient of `out`.
    Dout,
    /// A float32 for each query of each head, for a backward pass alone.
    Delta,
    /// The gradient of `q`.
    Dq,
    /// The gradient of `k`.
    Dk,
    /// The gradient of `v`.
    Dv,
}

words!(
    Pointer,
    "tensor",
    Q = "q",
    K = "k",
    V = "v",
    Out = "out",
    Lse = "lse",
    Workspace = "workspace",
    Dout = "dout",
    Delta = "delta",
    Dq = "dq",
    Dk = "dk",
    Dv = "dv"
);

impl Pointer {
    /// True for what is there where gradients are asked for, and only there.
    pub fn is_of_backward(self) -> bool {
        use Pointer::{Delta, Dk, Dout, Dq, Dv};
        matches!(self, Dout | Delta | Dq | Dk | Dv)
    }
}

/// What one variant does for one problem.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Launches of the forward pass, in order.
    pub forward: Vec<PlannedLaunch>,
    /// Launches of the backward pass, in order; empty where it is not asked for.
    pub backward: Vec<PlannedLaunch>,
    /// Bytes that the launches use beside the tensors.
    pub workspace_bytes: u64,
    /// Splits of the key axis; 1 where nothing is split.
    pub num_splits: u32,
    /// What each parameter became.
    pub effective: BTreeMap<String, ParamValue>,
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

/// How many blocks share the key axis of a backward pass: the name that xFormers and
/// PyTorch have for it.
pub const NUM_SPLITS_KEY: &str = "num_splits_key";
/// How many blocks share the key axis of a decode: FlashAttention's name for it.
pub const NUM_SPLITS: &str = "num_splits";
/// Keys of a tile.
pub const TILE_KEYS: &str = "tile_keys";

/// A step that is given the problem.
pub fn step(problem: &Problem, kernel: &Kernel, tile: &Tile, grid: [u32; 3]) -> PlannedLaunch {
    let entry = kernel.entry(problem.dtype.name(), tile);
    // Grids may follow another kernel's tile; the block is the entry point's own.
    let shape = contract::block(kernel.file, &entry).unwrap_or(tile.block());
    PlannedLaunch {
        code: Code::Ours(kernel.file),
        entry,
        grid,
        shape,
        arguments: Arguments::Problem,
    }
}

/// A parameter's number; `None` for `auto`.
pub fn number(asked: &Asked, name: &str) -> Option<i64> {
    match asked.params.get(name) {
        ParamValue::Int(value) => Some(value),
        ParamValue::Word(_) => None,
    }
}

/// The tile of the smallest compiled head dimension that holds the problem's.
pub fn holding<'a>(
    problem: &Problem,
    kernel: &'a Kernel,
    multiple: u32,
) -> Result<&'a Tile, String> {
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
pub fn exact<'a>(problem: &Problem, kernel: &'a Kernel, variant: &str) -> Result<&'a Tile, String> {
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
pub fn query_gradient_bytes(tile: &Tile) -> u64 {
    4 * u64::from(tile.queries) * u64::from(tile.head_dim.unwrap_or(0))
}

/// The head dimensions that a kernel is compiled for, ascending.
fn head_dims(kernel: &Kernel) -> BTreeSet<u32> {
    let tiles = kernel.tiles().iter();
    tiles.filter_map(|tile| tile.head_dim).collect()
}
