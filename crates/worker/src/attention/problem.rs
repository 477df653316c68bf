//! One attention computation, with every axis of it spelled out.

use serde::{Deserialize, Serialize};

use super::{Direction, Dtype, Layout, Mask, Projection, Varlen};

/// One attention computation: `softmax(mask(q kᵀ / √head_dim)) v`, or its gradient.
///
/// Shapes, in logical order: `q [batch, seq_q, heads, head_dim]`,
/// `k [batch, seq_k, kv_heads, head_dim]`, `v [batch, seq_k, kv_heads, head_dim_v]`,
/// `out` and `dout [batch, seq_q, heads, head_dim_v]`. Query head `h` reads
/// key-value head `h / (heads / kv_heads)`. A ragged batch has `batch` sequences,
/// `seq_q` and `seq_k` are its longest, and its tensors are packed
/// `[total, heads, head_dim]`.
///
/// With a `projection` it is that linear layer around attention instead, on activations of
/// these sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Problem {
    /// Independent sequences.
    pub batch: u32,
    /// Query heads.
    pub heads: u32,
    /// Key-value heads: `heads` for MHA, fewer for GQA, 1 for MQA. Divides `heads`.
    pub kv_heads: u32,
    /// Queries per sequence (the longest, when ragged).
    pub seq_q: u32,
    /// Keys per sequence (the longest, when ragged).
    pub seq_k: u32,
    /// Elements of one query and key vector.
    pub head_dim: u32,
    /// Elements of one value vector.
    pub head_dim_v: u32,
    /// Storage type of every tensor.
    pub dtype: Dtype,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Physical order of the axes of `q, k, v, out, dout`.
    pub layout: Layout,
    /// What is timed.
    pub direction: Direction,
    /// Sequence lengths of a ragged batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub varlen: Option<Varlen>,
    /// The sequence-parallel linear layer that is computed in place of attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projection: Option<Projection>,
}

impl Problem {
    /// A square, full, one-head forward problem in f32: every axis at its default.
    pub fn new(seq: u32, head_dim: u32) -> Problem {
        Problem {
            batch: 1,
            heads: 1,
            kv_heads: 1,
            seq_q: seq,
            seq_k: seq,
            head_dim,
            head_dim_v: head_dim,
            dtype: Dtype::F32,
            mask: Mask::FULL,
            layout: Layout::Bshd,
            direction: Direction::Forward,
            varlen: None,
            projection: None,
        }
    }

    /// The problem without what changes no value of its results: layout, and whether a
    /// gradient is asked for with its forward or alone.
    pub fn same_values(&self) -> Problem {
        let direction = match self.direction.has_backward() {
            true => Direction::Both,
            false => Direction::Forward,
        };
        Problem {
            layout: Layout::Bshd,
            ..self.with(direction)
        }
    }

    /// The same in another direction.
    pub fn with(&self, direction: Direction) -> Problem {
        Problem {
            direction,
            ..self.clone()
        }
    }

    /// True when the two alignments of a mask mean the same thing.
    pub fn is_square(&self) -> bool {
        match &self.varlen {
            Some(lengths) => lengths.q == lengths.k,
            None => self.seq_q == self.seq_k,
        }
    }

    /// `(seq_q, seq_k)` of each sequence.
    pub fn sequences(&self) -> Vec<(usize, usize)> {
        match &self.varlen {
            Some(lengths) => lengths
                .q
                .iter()
                .zip(&lengths.k)
                .map(|(&q, &k)| (q as usize, k as usize))
                .collect(),
            None => vec![(self.seq_q as usize, self.seq_k as usize); self.batch as usize],
        }
    }

    /// Queries over all sequences.
    pub fn total_q(&self) -> u64 {
        match &self.varlen {
            Some(lengths) => lengths.total_q(),
            None => u64::from(self.batch) * u64::from(self.seq_q),
        }
    }

    /// Keys over all sequences.
    pub fn total_k(&self) -> u64 {
        match &self.varlen {
            Some(lengths) => lengths.total_k(),
            None => u64::from(self.batch) * u64::from(self.seq_k),
        }
    }
}
