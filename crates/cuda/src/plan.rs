//! The launches of a variant for a problem: entry points, grids, workspace.

use std::collections::BTreeMap;

use regatta_worker::attention::Attention;
use regatta_worker::attention::reference::Heads;
use regatta_worker::case::{ParamValue, Params};
use regatta_worker::words;

/// The properties of a device on which a plan depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Compute capability: `(9, 0)`.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Bytes of the level-2 cache.
    pub l2_bytes: u64,
    /// The most shared memory that a block may request, in bytes.
    pub shared_bytes: u32,
}

/// The shape of an entry point's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockShape {
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
}

impl BlockShape {
    /// Threads of each block.
    pub fn threads(self) -> u64 {
        self.block.into_iter().map(u64::from).product()
    }
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLaunch {
    /// The kernel file of the binary, without its extension; `None` for the worker's own.
    pub file: Option<String>,
    /// The entry point in it.
    pub entry: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// The shape of each block.
    pub shape: BlockShape,
    /// The arguments, in order.
    pub arguments: Vec<Given>,
}

/// One argument, passed by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Given {
    /// `Attention` of `problem.cuh`.
    Problem,
    /// An address on the device.
    Pointer(Pointer),
    /// `CUtensorMap` of a tensor that is read in boxes of this many rows.
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

words! {
    "tensor",
    /// Memory of a case whose address kernels get, in the order of `problem.cuh`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Pointer {
        /// `q`, in the problem's layout, like all tensors.
        Q = "q",
        /// `k`
        K = "k",
        /// `v`
        V = "v",
        /// The result of the forward pass.
        Out = "out",
        /// The gradient of `out`.
        Dout = "dout",
        /// The gradient of `q`.
        Dq = "dq",
        /// The gradient of `k`.
        Dk = "dk",
        /// The gradient of `v`.
        Dv = "dv",
        /// A float32 for each query of each head, `[batch, heads, seq_q]`.
        Lse = "lse",
        /// A float32 for each query of each head, only for a backward pass.
        Delta = "delta",
        /// Memory of the size in the plan.
        Workspace = "workspace",
    }
}

use Pointer::{Delta, Dk, Dout, Dq, Dv, K, Lse, Out, Q, V, Workspace};

impl Pointer {
    /// The tensors of the problem, which have strides.
    pub const TENSORS: [Pointer; 8] = [Q, K, V, Out, Dout, Dq, Dk, Dv];

    /// True for memory that exists only if gradients are computed.
    pub fn is_of_backward(self) -> bool {
        matches!(self, Dout | Delta | Dq | Dk | Dv)
    }

    /// True if a problem has it.
    pub fn is_of(self, p: &Attention) -> bool {
        !self.is_of_backward() || p.direction.has_backward()
    }

    /// True for memory that a call only reads.
    pub fn is_input(self) -> bool {
        matches!(self, Q | K | V | Dout)
    }

    /// The kind of its rows: one for each query and query head, or one for each key and key-value
    /// head.
    pub fn heads(self) -> Heads {
        match self {
            K | V | Dk | Dv => Heads::Key,
            _ => Heads::Query,
        }
    }

    /// The logical shape: `[batch, seq, heads, dim]`. A workspace has no elements.
    pub fn shape(self, p: &Attention) -> [u32; 4] {
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

    /// The number of elements of this shape.
    pub fn elements(self, p: &Attention) -> u64 {
        self.shape(p).into_iter().map(u64::from).product()
    }

    /// The size in bytes. A workspace has the plan's size, `workspace`.
    pub fn bytes(self, p: &Attention, workspace: u64) -> u64 {
        match self {
            Workspace => workspace,
            Lse | Delta => 4 * self.elements(p),
            _ => p.dtype.bytes() * self.elements(p),
        }
    }
}

/// The launches of a variant for a problem.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Launches of the forward pass, in order.
    pub forward: Vec<PlannedLaunch>,
    /// Launches of the backward pass, in order; empty if no gradients are computed.
    pub backward: Vec<PlannedLaunch>,
    /// Bytes that the launches use in addition to the tensors.
    pub workspace_bytes: u64,
    /// The number of splits of the key axis; 1 without splitting.
    pub num_splits: u32,
    /// The effective value of each parameter.
    pub effective: BTreeMap<String, ParamValue>,
}

/// The request for a plan.
pub struct PlanRequest<'a> {
    /// The problem to compute.
    pub problem: &'a Attention,
    /// Parameters that are not `auto`.
    pub params: &'a Params,
    /// The device's limits.
    pub limits: Limits,
}

/// The largest number of threads in a block on any device (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
const MAX_THREADS: u64 = 1024;

impl PlannedLaunch {
    /// Checks the launch against a device's limits.
    ///
    /// # Errors
    /// The limit that is exceeded, as a message.
    pub fn fits(&self, limits: Limits) -> Result<(), String> {
        let (entry, shape) = (&self.entry, self.shape);
        if shape.shared_bytes > limits.shared_bytes {
            return Err(format!(
                "{entry} needs {} bytes of shared memory a block; this device has {}",
                shape.shared_bytes, limits.shared_bytes
            ));
        }
        if shape.threads() > MAX_THREADS {
            return Err(format!(
                "{entry} has {} threads a block; a block has at most {MAX_THREADS}",
                shape.threads()
            ));
        }
        // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
        let [x, y, z] = self.grid;
        if x >= 1 << 31 || y >= 1 << 16 || z >= 1 << 16 {
            return Err(format!(
                "{entry} has a grid of {x}x{y}x{z} blocks; a device takes 2147483647x65535x65535"
            ));
        }
        Ok(())
    }
}
