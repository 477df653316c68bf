//! One key-value head of one sequence, with the query heads that read it: the part of a
//! problem that can be computed without the rest of it.
//!
//! Only rows that the mask lets meet are made: memory follows the work, and a window on a
//! long sequence costs what is in the window.

use std::collections::TryReserveError;
use std::ops::Range;

use rayon::prelude::*;

use crate::attention::inputs::{Tensor, element, rounded};
use crate::attention::{Dtype, Mask, Problem};

/// Where elements of inputs come from, by their index in logical order.
pub(super) trait Elements: Sync {
    fn at(&self, tensor: Tensor, index: usize) -> f64;
}

/// The inputs that a seed defines.
pub(super) struct Seeded {
    pub seed: u64,
    pub dtype: Dtype,
}

impl Elements for Seeded {
    fn at(&self, tensor: Tensor, index: usize) -> f64 {
        rounded(element(self.seed, tensor, index as u64), self.dtype)
    }
}

/// Whether a tensor has a row for each query and query head, or for each key and key-value head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// `q`, `out`, `dout`, `dq`.
    Query,
    /// `k`, `v`, `dk`, `dv`.
    Key,
}

/// Where a plane lies in its problem.
#[derive(Clone, Debug)]
pub struct PlaneId {
    /// The sequence of the batch.
    pub sequence: usize,
    /// The key-value head.
    pub kv_head: usize,
    /// Query heads that read it: `group` of them, from `kv_head · group` on.
    pub group: usize,
    /// Queries of the sequence.
    pub seq_q: usize,
    /// Keys of the sequence.
    pub seq_k: usize,
    /// Queries that see a key; the others have results of 0.
    pub queries: Range<usize>,
    /// Keys that a query sees; the others have gradients of 0.
    pub keys: Range<usize>,
    kv_heads: usize,
    /// Rows of all sequences before this one.
    first_q: usize,
    first_k: usize,
    d: usize,
    dv: usize,
    mask: Mask,
}

/// Every plane of a problem: sequences in order, key-value heads within.
pub fn places(problem: &Problem) -> impl Iterator<Item = PlaneId> + use<> {
    let (heads, kv_heads) = (problem.heads as usize, problem.kv_heads as usize);
    let (d, dv, mask) = (
        problem.head_dim as usize,
        problem.head_dim_v as usize,
        problem.mask,
    );
    // Not collected: a batch may be larger than memory.
    let (varlen, one) = (problem.varlen.clone(), (problem.seq_q, problem.seq_k));
    let lengths = move |sequence: usize| match &varlen {
        Some(lengths) => (lengths.q[sequence] as usize, lengths.k[sequence] as usize),
        None => (one.0 as usize, one.1 as usize),
    };
    let starts = (0..sequences(problem)).scan((0, 0), move |next, sequence| {
        let (first, (seq_q, seq_k)) = (*next, lengths(sequence));
        *next = (first.0 + seq_q, first.1 + seq_k);
        Some((sequence, (seq_q, seq_k), first))
    });
    starts.flat_map(move |(sequence, (seq_q, seq_k), (first_q, first_k))| {
        let (queries, keys) = meeting(mask, seq_q, seq_k);
        (0..kv_heads).map(move |kv_head| PlaneId {
            sequence,
            kv_head,
            group: heads / kv_heads,
            seq_q,
            seq_k,
            queries: queries.clone(),
            keys: keys.clone(),
            kv_heads,
            first_q,
            first_k,
            d,
            dv,
            mask,
        })
    })
}

/// Planes of a problem.
pub fn planes(problem: &Problem) -> usize {
    sequences(problem).saturating_mul(problem.kv_heads as usize)
}

fn sequences(problem: &Problem) -> usize {
    match &problem.varlen {
        Some(lengths) => lengths.q.len(),
        None => problem.batch as usize,
    }
}

/// The queries that see a key, and the keys that a query sees. Both ends of a band move
/// one way only, so that either is one range.
fn meeting(mask: Mask, seq_q: usize, seq_k: usize) -> (Range<usize>, Range<usize>) {
    let first = partition(0..seq_q, |i| mask.visible(i, seq_q, seq_k).end == 0);
    let end = partition(first..seq_q, |i| !mask.visible(i, seq_q, seq_k).is_empty());
    if first == end {
        return (0..0, 0..0);
    }
    let keys = mask.visible(first, seq_q, seq_k).start..mask.visible(end - 1, seq_q, seq_k).end;
    (first..end, keys)
}

/// The first of a range for which `before` no longer holds; it holds up to there.
fn partition(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        match before(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

impl PlaneId {
    /// Bytes that computing this plane takes, gradients included.
    pub fn bytes(&self) -> u128 {
        let queries = self.group as u128 * self.queries.len() as u128;
        let keys = self.keys.len() as u128;
        // q, dout, out, dq, lse, delta; k, v, dk, dv.
        let width = 2 * (self.d as u128 + self.dv as u128);
        let elements = queries
            .saturating_mul(width + 2)
            .saturating_add(keys.saturating_mul(width));
        elements.saturating_mul(8)
    }

    /// Rows of the plane's tensors on a side.
    fn rows(&self, side: Heads) -> usize {
        match side {
            Heads::Query => self.group * self.queries.len(),
            Heads::Key => self.keys.len(),
        }
    }

    /// Where a row of the plane begins in the whole tensor in logical order.
    pub(super) fn index(&self, side: Heads, row: usize, dim: usize) -> usize {
        let seen = self.seen(side);
        self.start(side, row / seen.len(), seen.start + row % seen.len(), dim)
    }

    /// Where row `row` of the sequence begins in the whole tensor, of the plane's `member`-th
    /// head.
    pub(super) fn start(&self, side: Heads, member: usize, row: usize, dim: usize) -> usize {
        let (first, members) = match side {
            Heads::Query => (self.first_q, self.group),
            Heads::Key => (self.first_k, 1),
        };
        let head = self.kv_head * members + member;
        ((first + row) * self.kv_heads * members + head) * dim
    }

    /// The rows of the sequence that meet a row of the other side.
    pub(super) fn seen(&self, side: Heads) -> &Range<usize> {
        match side {
            Heads::Query => &self.queries,
            Heads::Key => &self.keys,
        }
    }

    /// The row of the plane's tensors that holds a row of the whole tensor (counted over
    /// all sequences) and one of its heads, if it does.
    pub(super) fn row_of(&self, side: Heads, row: usize, head: usize) -> Option<usize> {
        let seen = self.seen(side);
        let first = match side {
            Heads::Query => self.first_q,
            Heads::Key => self.first_k,
        };
        let within = row
            .checked_sub(first)
            .filter(|i| seen.contains(i))
            .map(|i| i - seen.start)?;
        match side {
            Heads::Query => {
                let member = head
                    .checked_sub(self.kv_head * self.group)
                    .filter(|member| *member < self.group)?;
                Some(member * seen.len() + within)
            }
            Heads::Key => (head == self.kv_head).then_some(within),
        }
    }

    /// One query of this plane, by its row over all sequences, with the keys that it sees.
    pub(super) fn of_query(&self, row: usize) -> PlaneId {
        let i = row - self.first_q;
        PlaneId {
            queries: i..i + 1,
            keys: self.mask.visible(i, self.seq_q, self.seq_k),
            ..self.clone()
        }
    }

    /// The keys that query row `row` sees, counted from the plane's first.
    fn visible(&self, row: usize) -> Range<usize> {
        let i = self.queries.start + row % self.queries.len();
        let seen = self.mask.visible(i, self.seq_q, self.seq_k);
        seen.start - self.keys.start..seen.end - self.keys.start
    }

    /// The queries that see key `j`, both counted from the plane's first.
    fn seeing(&self, j: usize) -> Range<usize> {
        let rows = 0..self.queries.len();
        let first = partition(rows.clone(), |i| self.visible(i).end <= j);
        first..partition(first..rows.end, |i| self.visible(i).start <= j)
    }

    pub(super) fn gather(
        &self,
        side: Heads,
        dim: usize,
        at: impl Fn(usize) -> f64 + Sync,
    ) -> Result<Vec<f64>, TooLarge> {
        let mut values = zeros(&[self.rows(side) as u64, dim as u64])?;
        let rows = values.par_chunks_mut(dim).enumerate();
        rows.for_each(|(row, cells)| {
            let start = self.index(side, row, dim);
            for (x, cell) in cells.iter_mut().enumerate() {
                *cell = at(start + x);
            }
        });
        Ok(values)
    }
}

/// What forward gives of a plane; a row for each query that sees a key.
pub struct PlaneForward {
    /// `[group, queries, head_dim_v]`.
    pub out: Vec<f64>,
    /// `[group, queries]`.
    pub lse: Vec<f64>,
}

/// What backward gives of a plane.
pub struct PlaneGradients {
    /// `[group, queries, head_dim]`.
    pub dq: Vec<f64>,
    /// `[keys, head_dim]`.
    pub dk: Vec<f64>,
    /// `[keys, head_dim_v]`.
    pub dv: Vec<f64>,
}

/// The inputs of a plane, of the rows that meet.
pub(super) struct Plane<'a> {
    place: &'a PlaneId,
    scale: f64,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Plane<'_> {
    pub(super) fn new<'a>(
        place: &'a PlaneId,
        source: &dyn Elements,
    ) -> Result<Plane<'a>, TooLarge> {
        let read = |tensor, side, dim| place.gather(side, dim, |index| source.at(tensor, index));
        Ok(Plane {
            place,
            scale: (place.d as f64).sqrt().recip(),
            q: read(Tensor::Q, Heads::Query, place.d)?,
            k: read(Tensor::K, Heads::Key, place.d)?,
            v: read(Tensor::V, Heads::Key, place.dv)?,
        })
    }

    pub(super) fn forward(&self) -> Result<PlaneForward, TooLarge> {
        let (d, dv) = (self.place.d, self.place.dv);
        let rows = self.place.rows(Heads::Query) as u64;
        let mut out = zeros(&[rows, dv as u64])?;
        let mut lse = zeros(&[rows])?;
        out.par_chunks_mut(dv)
            .zip(&mut lse)
            .enumerate()
            .try_for_each(|(at, (out, lse))| -> Result<(), TooLarge> {
                let seen = self.place.visible(at);
                let keys = &self.k[seen.start * d..seen.end * d];
                let values = &self.v[seen.start * dv..seen.end * dv];
                *lse = attend(row(&self.q, at, d), keys, values, self.scale, out)?;
                Ok(())
            })?;
        Ok(PlaneForward { out, lse })
    }

    /// Gradients of `Σ out ∘ dout`, given what [`forward`](Plane::forward) returned.
    ///
    /// With `p = exp(score - lse)`, `dp = dout · v` and `δ = dout · out`:
    /// `ds = p (dp - δ)`, `dq = Σ ds k / √head_dim`, `dk = Σ ds q / √head_dim`, `dv = Σ p dout`
    /// (Dao et al., FlashAttention, arXiv:2205.14135, appendix B.2).
    pub(super) fn backward(
        &self,
        dout: &[f64],
        saved: &PlaneForward,
    ) -> Result<PlaneGradients, TooLarge> {
        let place = self.place;
        let (d, dv, queries) = (place.d, place.dv, place.queries.len());
        let rows = place.rows(Heads::Query) as u64;
        let mut delta = zeros(&[rows])?;
        delta.par_iter_mut().enumerate().for_each(|(at, delta)| {
            *delta = dot(row(&saved.out, at, dv), row(dout, at, dv));
        });
        // `(p, ds)` of a query and a key it sees.
        let pair = |at: usize, j: usize| {
            let score = self.scale * dot(row(&self.q, at, d), row(&self.k, j, d));
            let p = (score - saved.lse[at]).exp();
            let dp = dot(row(dout, at, dv), row(&self.v, j, dv));
            (p, p * (dp - delta[at]))
        };
        let mut dq = zeros(&[rows, d as u64])?;
        dq.par_chunks_mut(d).enumerate().for_each(|(at, dq)| {
            for j in place.visible(at) {
                let (_, ds) = pair(at, j);
                add_scaled(dq, self.scale * ds, row(&self.k, j, d));
            }
        });
        let keys = place.keys.len() as u64;
        let mut dk = zeros(&[keys, d as u64])?;
        let mut dv_rows = zeros(&[keys, dv as u64])?;
        dk.par_chunks_mut(d)
            .zip(dv_rows.par_chunks_mut(dv))
            .enumerate()
            .for_each(|(j, (dk, dv_row))| {
                for member in 0..place.group {
                    for i in place.seeing(j) {
                        let at = member * queries + i;
                        let (p, ds) = pair(at, j);
                        add_scaled(dk, self.scale * ds, row(&self.q, at, d));
                        add_scaled(dv_row, p, row(dout, at, dv));
                    }
                }
            });
        Ok(PlaneGradients {
            dq,
            dk,
            dv: dv_rows,
        })
    }
}

/// One query against the keys it sees; returns the row's log-sum-exp.
fn attend(
    q: &[f64],
    keys: &[f64],
    values: &[f64],
    scale: f64,
    out: &mut [f64],
) -> Result<f64, TooLarge> {
    let mut weights = zeros(&[(keys.len() / q.len()) as u64])?;
    let mut max = f64::NEG_INFINITY;
    for (weight, key) in weights.iter_mut().zip(keys.chunks_exact(q.len())) {
        *weight = scale * dot(q, key);
        max = max.max(*weight);
    }
    let mut sum = 0.0;
    for weight in &mut weights {
        *weight = (*weight - max).exp();
        sum += *weight;
    }
    for (weight, value) in weights.iter().zip(values.chunks_exact(out.len())) {
        add_scaled(out, weight / sum, value);
    }
    Ok(max + sum.ln())
}

/// The reference does not fit into memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the float64 reference needs {bytes} bytes more than this machine gives")]
pub struct TooLarge {
    /// Size of the allocation that failed.
    pub bytes: u128,
}

pub(crate) fn zeros<T: Clone + Default>(axes: &[u64]) -> Result<Vec<T>, TooLarge> {
    let len = axes
        .iter()
        .fold(1u128, |len, &n| len.saturating_mul(n.into()));
    let too_large = TooLarge {
        bytes: len.saturating_mul(size_of::<T>() as u128),
    };
    let Ok(len) = usize::try_from(len) else {
        return Err(too_large);
    };
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_: TryReserveError| too_large)?;
    values.resize(len, T::default());
    Ok(values)
}

fn row(plane: &[f64], i: usize, dim: usize) -> &[f64] {
    &plane[i * dim..(i + 1) * dim]
}

/// Eight running sums: the order of additions is free, so this vectorises.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f64 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + tail
}

pub(super) fn add_scaled(sum: &mut [f64], factor: f64, values: &[f64]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}
