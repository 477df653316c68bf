//! One attention computation, with every axis of it spelled out.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::axes::LONGEST_AXIS;
use super::{Direction, Dtype, Layout, Mask, ParseError, Projection, ProjectionKind, Varlen};

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

    /// Checks that the axes fit together, and writes the mask the canonical way.
    ///
    /// # Errors
    /// An axis of zero, `kv_heads` that does not divide `heads`, ragged lengths
    /// that contradict `batch`, `seq_q`, `seq_k` or `layout`, axes that a projection
    /// does not have.
    pub fn validated(mut self) -> Result<Problem, ParseError> {
        let axes = [
            ("batch", self.batch),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("seq_q", self.seq_q),
            ("seq_k", self.seq_k),
            ("head_dim", self.head_dim),
            ("head_dim_v", self.head_dim_v),
        ];
        if let Some((axis, _)) = axes.iter().find(|(_, value)| *value == 0) {
            return Err(ParseError::new(format!("{axis} is 0; it must be positive")));
        }
        if let Some((axis, value)) = axes.iter().find(|(_, value)| *value > LONGEST_AXIS) {
            return Err(ParseError::new(format!(
                "{axis} is {value}; it must be at most {LONGEST_AXIS}"
            )));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ParseError::new(format!(
                "kv_heads = {} does not divide heads = {}",
                self.kv_heads, self.heads
            )));
        }
        if let Some(lengths) = &self.varlen {
            let longest = |lengths: &[u32]| lengths.iter().copied().max().unwrap_or(0);
            if lengths.q.len() != self.batch as usize
                || longest(&lengths.q) != self.seq_q
                || longest(&lengths.k) != self.seq_k
            {
                return Err(ParseError::new(format!(
                    "varlen {lengths} fixes batch = {}, seq_q = {} and seq_k = {}; leave those out",
                    lengths.q.len(),
                    longest(&lengths.q),
                    longest(&lengths.k)
                )));
            }
            if self.layout != Layout::Bshd {
                return Err(ParseError::new(
                    "a varlen batch is packed [total, heads, head_dim]: layout must be `bshd`"
                        .to_owned(),
                ));
            }
        }
        self.mask = self.mask.canonical(self.is_square());
        if let Some(projection) = &self.projection {
            projection.validate(&self)?;
        }
        Ok(self)
    }
}

impl fmt::Display for Problem {
    /// The canonical form used in case ids: `h8,s2048,d64,bf16,causal,bwd`.
    ///
    /// Sequence length and head dimension always appear; every other axis only
    /// where it differs from its default (`b1`, `h1`, `kv` = `h`, `sk` = `s`,
    /// `dv` = `d`, `f32`, `full`, `bshd`, `fwd`, no projection).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tokens = Vec::new();
        if self.batch != 1 && self.varlen.is_none() {
            tokens.push(format!("b{}", self.batch));
        }
        if self.heads != 1 {
            tokens.push(format!("h{}", self.heads));
        }
        if self.kv_heads != self.heads {
            tokens.push(format!("kv{}", self.kv_heads));
        }
        match &self.varlen {
            Some(lengths) => tokens.push(format!("v{lengths}")),
            None => {
                tokens.push(format!("s{}", self.seq_q));
                if self.seq_k != self.seq_q {
                    tokens.push(format!("sk{}", self.seq_k));
                }
            }
        }
        tokens.push(format!("d{}", self.head_dim));
        if self.head_dim_v != self.head_dim {
            tokens.push(format!("dv{}", self.head_dim_v));
        }
        if self.dtype != Dtype::F32 {
            tokens.push(self.dtype.name().to_owned());
        }
        if !self.mask.is_full() {
            tokens.push(self.mask.name(self.is_square()));
        }
        if self.layout != Layout::Bshd {
            tokens.push(self.layout.name().to_owned());
        }
        if self.direction != Direction::Forward {
            tokens.push(self.direction.short().to_owned());
        }
        if let Some(projection) = &self.projection {
            tokens.push(projection.to_string());
        }
        f.write_str(&tokens.join(","))
    }
}

/// What a token of an id says, so that one that says it again is seen.
fn axis_of(token: &str, key: &str) -> &'static str {
    match key {
        "b" => "batch",
        "h" => "heads",
        "kv" => "kv_heads",
        "s" | "v" => "seq_q",
        "sk" => "seq_k",
        "d" => "head_dim",
        "dv" => "head_dim_v",
        "ag" | "rs" => "the projection",
        "r" => "ranks",
        _ if token.parse::<Dtype>().is_ok() => "dtype",
        _ if token.parse::<Layout>().is_ok() => "layout",
        _ if Direction::ALL.iter().any(|d| d.short() == token) => "direction",
        _ => "mask",
    }
}

impl FromStr for Problem {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Problem, ParseError> {
        let mut problem = Problem::new(0, 0);
        let (mut kv_heads, mut seq_k, mut head_dim_v, mut mask) = (None, None, None, None);
        let (mut layer, mut ranks) = (None, None);
        let mut given = BTreeSet::new();
        for token in text.split(',') {
            let split = token
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(token.len());
            let (key, value) = token.split_at(split);
            let axis = axis_of(token, key);
            if !given.insert(axis) {
                return Err(ParseError::new(format!(
                    "`{token}` in `{text}` says a second time what {axis} is"
                )));
            }
            let number = || {
                value
                    .parse::<u32>()
                    .map_err(|_| ParseError::new(format!("`{token}` in `{text}` is no axis")))
            };
            match key {
                "b" => problem.batch = number()?,
                "h" => problem.heads = number()?,
                "kv" => kv_heads = Some(number()?),
                "s" => problem.seq_q = number()?,
                "sk" => seq_k = Some(number()?),
                "d" => problem.head_dim = number()?,
                "dv" => head_dim_v = Some(number()?),
                "ag" => layer = Some((ProjectionKind::AllGather, number()?)),
                "rs" => layer = Some((ProjectionKind::ReduceScatter, number()?)),
                "r" => ranks = Some(number()?),
                "v" => {
                    let lengths: Varlen = value.parse()?;
                    problem.batch = lengths.q.len() as u32;
                    problem.seq_q = lengths.q.iter().copied().max().unwrap_or(0);
                    seq_k = lengths.k.iter().copied().max();
                    problem.varlen = Some(lengths);
                }
                _ => {
                    let direction = Direction::ALL.into_iter().find(|d| d.short() == token);
                    if let Ok(dtype) = token.parse() {
                        problem.dtype = dtype;
                    } else if let Ok(layout) = token.parse() {
                        problem.layout = layout;
                    } else if let Some(direction) = direction {
                        problem.direction = direction;
                    } else {
                        mask = Some(token);
                    }
                }
            }
        }
        problem.kv_heads = kv_heads.unwrap_or(problem.heads);
        problem.seq_k = seq_k.unwrap_or(problem.seq_q);
        problem.head_dim_v = head_dim_v.unwrap_or(problem.head_dim);
        if let Some(name) = mask {
            problem.mask = Mask::parse(name, problem.is_square())?;
        }
        problem.projection = Projection::of_tokens(layer, ranks, text)?;
        problem.validated()
    }
}
