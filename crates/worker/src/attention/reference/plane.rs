//! One key-value head of one sequence, with the query heads that read it: the smallest part of a
//! problem that can be computed on its own.
//!
//! Only rows that the mask lets interact are computed, so memory follows the work: a window on a
//! long sequence costs only the window.

use std::collections::TryReserveError;
use std::ops::Range;

use rayon::prelude::*;

use crate::attention::inputs::{Tensor, element};
use crate::attention::{Attention, Mask};
use crate::case::Dtype;
use crate::inputs::rounded;
use crate::matrix::{Matrix, multiply};

/// Returns an input's element by its index in logical order.
pub(super) type Elements<'a> = &'a (dyn Fn(Tensor, usize) -> f64 + Sync);

/// The inputs of a seed.
pub(super) fn seeded(seed: u64, dtype: Dtype) -> impl Fn(Tensor, usize) -> f64 + Sync {
    move |tensor, index| rounded(element(seed, tensor, index as u64), dtype)
}

/// The kind of a tensor's rows: one for each query and query head, or one for each key and
/// key-value head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// `q`, `out`, `dout`, `dq`.
    Query,
    /// `k`, `v`, `dk`, `dv`.
    Key,
}

/// The place of a plane in its problem.
#[derive(Clone, Debug)]
pub struct PlaneId {
    /// The sequence of the batch.
    pub sequence: usize,
    /// The key-value head.
    pub kv_head: usize,
    /// The number of query heads that read it, from `kv_head · group` on.
    pub group: usize,
    /// Queries of the sequence.
    pub seq_q: usize,
    /// Keys of the sequence.
    pub seq_k: usize,
    /// Queries that see a key. The results of all others are 0.
    pub queries: Range<usize>,
    /// Keys that a query sees. The gradients of all others are 0.
    pub keys: Range<usize>,
    kv_heads: usize,
    /// Rows of all earlier sequences.
    first_q: usize,
    first_k: usize,
    d: usize,
    dv: usize,
    mask: Mask,
}

/// Every plane of a problem: sequences in order, and in each its key-value heads.
pub fn places(problem: &Attention) -> impl Iterator<Item = PlaneId> + use<> {
    let (heads, kv_heads) = (problem.heads as usize, problem.kv_heads as usize);
    let (d, dv, mask) = (
        problem.head_dim as usize,
        problem.head_dim_v as usize,
        problem.mask,
    );
    // Not collected, because a batch may be larger than memory.
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

/// The number of planes of a problem.
pub fn planes(problem: &Attention) -> usize {
    sequences(problem).saturating_mul(problem.kv_heads as usize)
}

fn sequences(problem: &Attention) -> usize {
    match &problem.varlen {
        Some(lengths) => lengths.q.len(),
        None => problem.batch as usize,
    }
}

/// The queries that see a key, and the keys that a query sees. Both ends of the mask's band move in
/// one direction only, so each of these is a single range.
fn meeting(mask: Mask, seq_q: usize, seq_k: usize) -> (Range<usize>, Range<usize>) {
    let first = partition(0..seq_q, |i| mask.visible(i, seq_q, seq_k).end == 0);
    let end = partition(first..seq_q, |i| !mask.visible(i, seq_q, seq_k).is_empty());
    if first == end {
        return (0..0, 0..0);
    }
    let keys = mask.visible(first, seq_q, seq_k).start..mask.visible(end - 1, seq_q, seq_k).end;
    (first..end, keys)
}

/// The first number of a range for which `before` is false. It is true up to there.
fn partition(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1
        } else {
            high = middle
        }
    }
    low
}

/// The number of rows in a block, and of scores unless one row has more: 4 MiB. Tests use small
/// blocks, to have several of them in a few rows.
const BLOCK: (usize, usize) = if cfg!(test) { (3, 8) } else { (64, 1 << 19) };

/// Splits `rows` into consecutive blocks. `meeting` returns the number of rows that interact with a
/// block's.
fn blocks(rows: Range<usize>, meeting: impl Fn(&Range<usize>) -> usize) -> Vec<Range<usize>> {
    let (mut blocks, mut next) = (Vec::new(), rows.start);
    while next < rows.end {
        let most = next..rows.end.min(next + BLOCK.0);
        let count = (BLOCK.1 / meeting(&most).max(1)).clamp(1, most.len());
        blocks.push(next..next + count);
        next += count;
    }
    blocks
}

impl PlaneId {
    /// Bytes for computing this plane, including gradients.
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

    /// The number of rows of the plane's tensors of this kind.
    fn rows(&self, side: Heads) -> usize {
        match side {
            Heads::Query => self.group * self.queries.len(),
            Heads::Key => self.keys.len(),
        }
    }

    /// The start of a plane's row in the whole tensor in logical order.
    pub(super) fn index(&self, side: Heads, row: usize, dim: usize) -> usize {
        let seen = self.seen(side);
        self.start(side, row / seen.len(), seen.start + row % seen.len(), dim)
    }

    /// The start of the sequence's row `row` in the whole tensor, for head `member` of the plane.
    pub(super) fn start(&self, side: Heads, member: usize, row: usize, dim: usize) -> usize {
        let (first, members) = match side {
            Heads::Query => (self.first_q, self.group),
            Heads::Key => (self.first_k, 1),
        };
        let head = self.kv_head * members + member;
        ((first + row) * self.kv_heads * members + head) * dim
    }

    /// The rows of the sequence that interact with a row of the other kind.
    pub(super) fn seen(&self, side: Heads) -> &Range<usize> {
        match side {
            Heads::Query => &self.queries,
            Heads::Key => &self.keys,
        }
    }

    /// The plane's row for `row` (over all sequences) and `head` of the whole tensor, if it is in
    /// the plane.
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

    /// The part of this plane with a single query, by its row over all sequences, and the keys that
    /// it sees.
    pub(super) fn of_query(&self, row: usize) -> PlaneId {
        let i = row - self.first_q;
        PlaneId {
            queries: i..i + 1,
            keys: self.mask.visible(i, self.seq_q, self.seq_k),
            ..self.clone()
        }
    }

    /// The keys that query row `row` sees, counted from the plane's first key.
    fn visible(&self, row: usize) -> Range<usize> {
        let i = self.queries.start + row % self.queries.len();
        let seen = self.mask.visible(i, self.seq_q, self.seq_k);
        seen.start - self.keys.start..seen.end - self.keys.start
    }

    /// The keys that any query row of a block sees. The block has neighbouring queries of one head.
    fn keys_of(&self, rows: &Range<usize>) -> Range<usize> {
        self.visible(rows.start).start..self.visible(rows.end - 1).end
    }

    /// For each head, the query rows that see a key of this block.
    fn rows_of(&self, keys: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let count = self.queries.len();
        let first = partition(0..count, |i| self.visible(i).end <= keys.start);
        let end = partition(first..count, |i| self.visible(i).start < keys.end);
        (0..self.group).map(move |member| member * count + first..member * count + end)
    }

    /// All query rows in blocks. A block has rows of only one head.
    fn query_blocks(&self) -> Vec<Range<usize>> {
        let count = self.queries.len();
        let heads = (0..self.group).map(|member| member * count..(member + 1) * count);
        heads
            .flat_map(|rows| blocks(rows, |block| self.keys_of(block).len()))
            .collect()
    }

    /// All keys in blocks.
    fn key_blocks(&self) -> Vec<Range<usize>> {
        let meeting = |keys: &Range<usize>| self.rows_of(keys).map(|rows| rows.len()).max();
        blocks(0..self.keys.len(), |block| meeting(block).unwrap_or(0))
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

/// The results of forward for a plane, with a row for each query that sees a key.
pub struct PlaneForward {
    /// `[group, queries, head_dim_v]`.
    pub out: Vec<f64>,
    /// `[group, queries]`.
    pub lse: Vec<f64>,
}

/// The results of backward for a plane.
pub struct PlaneGradients {
    /// `[group, queries, head_dim]`.
    pub dq: Vec<f64>,
    /// `[keys, head_dim]`.
    pub dk: Vec<f64>,
    /// `[keys, head_dim_v]`.
    pub dv: Vec<f64>,
}

/// The inputs of a plane, only of rows that interact.
pub(super) struct Plane<'a> {
    place: &'a PlaneId,
    /// `1 / √head_dim`.
    scale: f64,
    /// Multiplied by `scale`.
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Plane<'_> {
    pub(super) fn new<'a>(place: &'a PlaneId, source: Elements) -> Result<Plane<'a>, TooLarge> {
        let read = |tensor, side, dim| place.gather(side, dim, |index| source(tensor, index));
        let scale = (place.d as f64).sqrt().recip();
        let mut q = read(Tensor::Q, Heads::Query, place.d)?;
        q.iter_mut().for_each(|q| *q *= scale);
        Ok(Plane {
            place,
            scale,
            q,
            k: read(Tensor::K, Heads::Key, place.d)?,
            v: read(Tensor::V, Heads::Key, place.dv)?,
        })
    }

    pub(super) fn forward(&self) -> Result<PlaneForward, TooLarge> {
        let (place, dv) = (self.place, self.place.dv);
        let rows = place.rows(Heads::Query) as u64;
        let (mut out, mut lse) = (zeros(&[rows, dv as u64])?, zeros(&[rows])?);
        let blocks = place.query_blocks();
        let pieces = pieces(&mut out, dv, &blocks)
            .into_par_iter()
            .zip(pieces(&mut lse, 1, &blocks));
        pieces
            .zip(&blocks)
            .try_for_each(|((out, lse), rows)| -> Result<(), TooLarge> {
                let keys = place.keys_of(rows);
                let mut p = self.scores(rows, &keys)?;
                for (p, lse) in p.chunks_exact_mut(keys.len()).zip(lse) {
                    let max = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    p.iter_mut().for_each(|p| *p = (*p - max).exp());
                    let sum: f64 = p.iter().sum();
                    p.iter_mut().for_each(|p| *p /= sum);
                    *lse = max + sum.ln();
                }
                multiply(matrix(&p, &keys), rows_of(&self.v, dv, &keys), 0.0, out, dv);
                Ok(())
            })?;
        Ok(PlaneForward { out, lse })
    }

    /// Gradients of `Σ out ∘ dout`, from the result of [`forward`](Plane::forward).
    ///
    /// With `p = exp(score - lse)`, `dp = dout · v` and `δ = dout · out`: `ds = p (dp - δ)`,
    /// `dq = Σ ds k / √head_dim`, `dk = Σ ds q / √head_dim`, `dv = Σ p dout` (Dao et al.,
    /// FlashAttention, arXiv:2205.14135, appendix B.2).
    pub(super) fn backward(
        &self,
        dout: &[f64],
        saved: &PlaneForward,
    ) -> Result<PlaneGradients, TooLarge> {
        let (place, d, dv) = (self.place, self.place.d, self.place.dv);
        let (rows, keys) = (place.rows(Heads::Query) as u64, place.keys.len() as u64);
        let products = saved.out.iter().zip(dout).map(|(out, dout)| out * dout);
        let products: Vec<f64> = products.collect();
        let delta: Vec<f64> = products
            .chunks_exact(dv)
            .map(|row| row.iter().sum())
            .collect();
        // `(p, ds)` for query rows and keys.
        let pair = |rows: &Range<usize>, keys: &Range<usize>| -> Result<_, TooLarge> {
            let mut p = self.scores(rows, keys)?;
            let mut ds = zeros(&[rows.len() as u64, keys.len() as u64])?;
            let (dout, v) = (rows_of(dout, dv, rows), rows_of(&self.v, dv, keys));
            multiply(dout, v.t(), 0.0, &mut ds, keys.len());
            let by_row = p
                .chunks_exact_mut(keys.len())
                .zip(ds.chunks_exact_mut(keys.len()));
            for ((p, ds), row) in by_row.zip(rows.clone()) {
                for (p, ds) in p.iter_mut().zip(ds) {
                    *p = (*p - saved.lse[row]).exp();
                    *ds = *p * (*ds - delta[row]);
                }
            }
            Ok((p, ds))
        };
        let mut dq = zeros(&[rows, d as u64])?;
        let blocks = place.query_blocks();
        let of_blocks = pieces(&mut dq, d, &blocks).into_par_iter().zip(&blocks);
        of_blocks.try_for_each(|(dq, rows)| -> Result<(), TooLarge> {
            let keys = place.keys_of(rows);
            let (_, ds) = pair(rows, &keys)?;
            multiply(matrix(&ds, &keys), rows_of(&self.k, d, &keys), 0.0, dq, d);
            dq.iter_mut().for_each(|dq| *dq *= self.scale);
            Ok(())
        })?;
        let (mut dk, mut dv_rows) = (zeros(&[keys, d as u64])?, zeros(&[keys, dv as u64])?);
        let blocks = place.key_blocks();
        let of_blocks =
            pieces(&mut dk, d, &blocks)
                .into_par_iter()
                .zip(pieces(&mut dv_rows, dv, &blocks));
        of_blocks
            .zip(&blocks)
            .try_for_each(|((dk, dv_rows), keys)| -> Result<(), TooLarge> {
                for rows in place.rows_of(keys) {
                    let (p, ds) = pair(&rows, keys)?;
                    let (p, ds) = (matrix(&p, keys), matrix(&ds, keys));
                    multiply(ds.t(), rows_of(&self.q, d, &rows), 1.0, dk, d);
                    multiply(p.t(), rows_of(dout, dv, &rows), 1.0, dv_rows, dv);
                }
                Ok(())
            })?;
        Ok(PlaneGradients {
            dq,
            dk,
            dv: dv_rows,
        })
    }

    /// `q · k / √head_dim` for query rows and keys, `[rows, keys]`; -∞ for hidden keys.
    fn scores(&self, rows: &Range<usize>, keys: &Range<usize>) -> Result<Vec<f64>, TooLarge> {
        let (d, width) = (self.place.d, keys.len());
        let mut scores = zeros(&[rows.len() as u64, width as u64])?;
        let (q, k) = (rows_of(&self.q, d, rows), rows_of(&self.k, d, keys));
        multiply(q, k.t(), 0.0, &mut scores, width);
        for (scores, row) in scores.chunks_exact_mut(width).zip(rows.clone()) {
            let seen = self.place.visible(row);
            let first = seen.start.clamp(keys.start, keys.end) - keys.start;
            let end = seen.end.clamp(keys.start, keys.end) - keys.start;
            scores[..first].fill(f64::NEG_INFINITY);
            scores[end.max(first)..].fill(f64::NEG_INFINITY);
        }
        Ok(scores)
    }
}

/// A matrix with a column for each of `keys`, such as scores.
fn matrix<'a>(values: &'a [f64], keys: &Range<usize>) -> Matrix<'a, f64> {
    Matrix::new(values, values.len() / keys.len(), keys.len(), keys.len())
}

/// Some rows of a plane's tensor.
fn rows_of<'a>(tensor: &'a [f64], dim: usize, rows: &Range<usize>) -> Matrix<'a, f64> {
    Matrix::new(
        &tensor[rows.start * dim..rows.end * dim],
        rows.len(),
        dim,
        dim,
    )
}

/// Splits a tensor into the rows of each of the consecutive blocks.
fn pieces<'a>(mut rest: &'a mut [f64], dim: usize, blocks: &[Range<usize>]) -> Vec<&'a mut [f64]> {
    let cut = |block: &Range<usize>| {
        let (piece, after) = std::mem::take(&mut rest).split_at_mut(block.len() * dim);
        rest = after;
        piece
    };
    blocks.iter().map(cut).collect()
}

/// The reference does not fit into memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the float64 reference needs {bytes} bytes more than this machine gives")]
pub struct TooLarge {
    /// The size of the allocation that failed.
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
