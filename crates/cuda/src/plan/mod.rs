//! What a variant launches for a problem: entry points, grids, workspace.

#[cfg(test)]
mod tests;
mod variants;

use std::collections::{BTreeMap, BTreeSet};

use self::variants as of;
use crate::kernels::contract::{self, BlockShape, Kernel, MOST_THREADS, Tile};
use crate::kernels::source::KernelSource;
use regatta_worker::attention::reference::Heads;
use regatta_worker::attention::{Direction, Dtype, ParamValue, Params, Problem};
use regatta_worker::protocol::{Parameter, VariantInfo};
use regatta_worker::serve::Refusal;
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
    /// What it is given, one after the other.
    pub arguments: Vec<Given>,
}

/// One argument, passed by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Given {
    /// `Problem` of `problem.cuh`.
    Problem,
    /// An address on the device.
    Pointer(Pointer),
    /// `CUtensorMap` of a tensor, read in boxes of so many rows.
    Map(Pointer, u32),
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

use Pointer::{Delta, Dk, Dout, Dq, Dv, K, Lse, Out, Q, V, Workspace};

impl Pointer {
    /// True for what is there where gradients are asked for, and only there.
    pub fn is_of_backward(self) -> bool {
        matches!(self, Dout | Delta | Dq | Dk | Dv)
    }

    /// True where a problem has it.
    pub fn is_of(self, p: &Problem) -> bool {
        !self.is_of_backward() || p.direction.has_backward()
    }

    /// True for what a call reads and does not write.
    pub fn is_input(self) -> bool {
        matches!(self, Q | K | V | Dout)
    }

    /// Whether it has a row for each query and query head, or for each key and key-value head.
    pub fn heads(self) -> Heads {
        match self {
            K | V | Dk | Dv => Heads::Key,
            _ => Heads::Query,
        }
    }

    /// Its shape, logically: `[batch, seq, heads, dim]`. A workspace has none.
    pub fn shape(self, p: &Problem) -> [u32; 4] {
        let dim = match self {
            Q | K | Dq | Dk => p.head_dim,
            V | Out | Dout | Dv => p.head_dim_v,
            Lse | Delta => 1,
            Workspace => 0,
        };
        match self.heads() {
            Heads::Query => [p.batch, p.seq_q, p.heads, dim],
            Heads::Key => [p.batch, p.seq_k, p.kv_heads, dim],
        }
    }

    /// Elements of that shape.
    pub fn elements(self, p: &Problem) -> u64 {
        self.shape(p).into_iter().map(u64::from).product()
    }

    /// Bytes of device memory that it takes, which for a workspace the plan says.
    pub fn bytes(self, p: &Problem, workspace: u64) -> u64 {
        match self {
            Workspace => workspace,
            Lse | Delta => 4 * self.elements(p),
            _ => p.dtype.bytes() * self.elements(p),
        }
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
pub struct PlanRequest<'a> {
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

/// Variants, and what each launches for a problem.
pub trait Offer {
    /// The worker's name.
    fn worker(&self) -> &str;

    /// The file of `Code::Own`, where there is one.
    fn source(&self) -> Option<&KernelSource>;

    /// Every variant.
    fn variants(&self) -> Vec<VariantInfo>;

    /// What a variant launches for a problem and parameters that it declares.
    ///
    /// # Errors
    /// Why it does not do this, or why it cannot be told what it would launch.
    fn launches(&self, name: &str, asked: &PlanRequest) -> Result<Plan, Refusal>;

    /// What the variant of this name launches for a problem.
    ///
    /// # Errors
    /// As [`launches`](Offer::launches), and what the variant does not declare.
    fn plan(&self, name: &str, asked: &PlanRequest) -> Result<Plan, Refusal> {
        let worker = self.worker();
        let mut variants = self.variants().into_iter();
        let checked = match variants.find(|variant| variant.name == name) {
            Some(variant) => variant.check(worker, asked.problem, asked.params),
            None => Err(format!("the {worker} worker has no variant `{name}`")),
        };
        checked.map_err(Refusal::Unsupported)?;
        self.launches(name, asked)
    }
}

type MakePlan = fn(&PlanRequest) -> Result<Plan, String>;

/// Every variant of the kernels in the binary, sorted by name.
fn variants() -> [(VariantInfo, MakePlan); 6] {
    let variant = |name: &str, dtypes: &[Dtype], directions: &[Direction], parameter: &str| {
        let parameters = Some(parameter).filter(|name| !name.is_empty());
        VariantInfo {
            name: name.to_owned(),
            dtypes: dtypes.to_vec(),
            directions: directions.to_vec(),
            parameters: parameters
                .map(|name| (name.to_owned(), Parameter::INTEGER))
                .into_iter()
                .collect(),
            stores_scores: name == "naive",
            ..VariantInfo::default()
        }
    };
    let narrow = [Dtype::F16, Dtype::Bf16];
    let (single, any) = ([Dtype::F32], Direction::ALL);
    let all: [(_, MakePlan, &str); 6] = [
        (
            variant("flash-mma", &narrow, &any, ""),
            of::mma,
            "fused, tensor cores through mma.sync; the class of FlashAttention-2",
        ),
        (
            variant("flash-simt", &single, &any, ""),
            of::simt,
            "fused, float32 on the FFMA units",
        ),
        (
            variant("flash-wgmma", &narrow, &any, TILE_KEYS),
            of::wgmma,
            "fused for Hopper: TMA, mbarrier ring, wgmma, warp-specialised",
        ),
        (
            variant("naive", &Dtype::ALL, &any, ""),
            of::naive,
            "the score matrix in memory, one thread an element",
        ),
        (
            variant("split-key", &single, &[Direction::Backward], NUM_SPLITS_KEY),
            of::split_key,
            "float32 backward with the key axis split over num_splits_key blocks",
        ),
        (
            variant("split-kv", &Dtype::ALL, &[Direction::Forward], NUM_SPLITS),
            of::split_kv,
            "decode: keys split over num_splits blocks, then joined",
        ),
    ];
    all.map(|(variant, plan, summary)| {
        let summary = summary.to_owned();
        (VariantInfo { summary, ..variant }, plan)
    })
}

/// The oldest devices that any kernel is written for: cp.async, bf16.
const OLDEST: (u32, u32) = (8, 0);

/// The kernels in the binary.
#[derive(Default)]
pub struct Ours;

impl Offer for Ours {
    fn worker(&self) -> &str {
        crate::NAME
    }

    fn source(&self) -> Option<&KernelSource> {
        None
    }

    fn variants(&self) -> Vec<VariantInfo> {
        variants().map(|(variant, _)| variant).to_vec()
    }

    fn launches(&self, name: &str, asked: &PlanRequest) -> Result<Plan, Refusal> {
        let unsupported = |why: String| Refusal::Unsupported(format!("cuda/{name} {why}"));
        let (major, minor) = asked.limits.capability;
        if (major, minor) < OLDEST {
            return Err(unsupported(format!(
                "needs compute capability {}.{}; this device has {major}.{minor}",
                OLDEST.0, OLDEST.1
            )));
        }
        if asked.problem.varlen.is_some() {
            return Err(unsupported("does not take ragged batches".to_owned()));
        }
        let mut all = variants().into_iter();
        let found = all.find(|(variant, _)| variant.name == name);
        let (_, plan) = found.ok_or_else(|| unsupported("is no variant".to_owned()))?;
        plan(asked).map_err(Refusal::Unsupported)
    }
}

impl Plan {
    /// Holds the launches to what a device takes.
    ///
    /// # Errors
    /// Which is too large, for a reader.
    pub fn fits(&self, problem: &Problem, limits: Limits) -> Result<(), String> {
        launchable(problem)?;
        let mut steps = self.forward.iter().chain(&self.backward);
        steps.try_for_each(|step| fits(step, limits))
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

fn fits(step: &PlannedLaunch, limits: Limits) -> Result<(), String> {
    let (entry, shape) = (&step.entry, step.shape);
    if shape.shared_bytes > limits.shared_bytes {
        return Err(format!(
            "{entry} needs {} bytes of shared memory a block; this device has {}",
            shape.shared_bytes, limits.shared_bytes
        ));
    }
    if shape.threads() > MOST_THREADS.into() {
        return Err(format!(
            "{entry} has {} threads a block; a block has at most {MOST_THREADS}",
            shape.threads()
        ));
    }
    // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    let [x, y, z] = step.grid;
    if x >= 1 << 31 || y >= 1 << 16 || z >= 1 << 16 {
        return Err(format!(
            "{entry} has a grid of {x}x{y}x{z} blocks; a device takes 2147483647x65535x65535"
        ));
    }
    Ok(())
}

/// A step that is given the problem.
fn step(problem: &Problem, kernel: &Kernel, tile: &Tile, grid: [u32; 3]) -> PlannedLaunch {
    let entry = kernel.entry(problem.dtype.name(), tile);
    // Grids may follow another kernel's tile; the block is the entry point's own.
    let shape = contract::block(kernel.file, &entry).unwrap_or(tile.block());
    PlannedLaunch {
        code: Code::Ours(kernel.file),
        entry,
        grid,
        shape,
        arguments: vec![Given::Problem],
    }
}

/// A parameter's number; `None` for `auto`.
fn number(asked: &PlanRequest, name: &str) -> Option<i64> {
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
