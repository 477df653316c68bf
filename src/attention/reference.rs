//! The float64 computation that every result is held to.
//!
//! Textbook loops with nothing clever: scores of one query against its visible
//! keys, a softmax with the row maximum taken out, a weighted sum. Only the memory
//! order is chosen with care (heads apart, rows contiguous) and rows run in parallel.

use std::collections::TryReserveError;

use rayon::prelude::*;

use super::inputs::{Tensor, element, rounded};
use super::{Mask, Problem};

mod projection;

pub use projection::projection;

/// The reference does not fit into memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the float64 reference needs {bytes} bytes more than this machine gives")]
pub struct TooLarge {
    /// Size of the allocation that failed.
    pub bytes: u128,
}

/// The inputs of a problem in logical order, rounded to its dtype.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Queries.
    pub q: Vec<f64>,
    /// Keys.
    pub k: Vec<f64>,
    /// Values.
    pub v: Vec<f64>,
    /// Gradient of the output.
    pub dout: Vec<f64>,
}

impl Inputs {
    /// The inputs that [`element`] defines for this seed.
    ///
    /// # Errors
    /// When they do not fit into memory.
    pub fn generate(problem: &Problem, seed: u64) -> Result<Inputs, TooLarge> {
        let fill = |tensor: Tensor, rows: u64, heads: u32, dim: u32| {
            let mut values = zeros(&[rows, heads.into(), dim.into()])?;
            values.par_iter_mut().enumerate().for_each(|(i, value)| {
                *value = rounded(element(seed, tensor, i as u64), problem.dtype);
            });
            Ok(values)
        };
        let (rows_q, rows_k) = (problem.total_q(), problem.total_k());
        Ok(Inputs {
            q: fill(Tensor::Q, rows_q, problem.heads, problem.head_dim)?,
            k: fill(Tensor::K, rows_k, problem.kv_heads, problem.head_dim)?,
            v: fill(Tensor::V, rows_k, problem.kv_heads, problem.head_dim_v)?,
            dout: fill(Tensor::Dout, rows_q, problem.heads, problem.head_dim_v)?,
        })
    }
}

/// What forward gives, in logical order.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// `[batch, seq_q, heads, head_dim_v]`. 0 for a query that sees no key.
    pub out: Vec<f64>,
    /// `ln Σ exp(score)`, `[batch, seq_q, heads]`. -∞ for a query that sees no key.
    pub lse: Vec<f64>,
}

/// What backward gives, in logical order.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// As `q`.
    pub dq: Vec<f64>,
    /// As `k`, summed over the query heads that share a key-value head.
    pub dk: Vec<f64>,
    /// As `v`, likewise.
    pub dv: Vec<f64>,
}

/// `softmax(mask(q kᵀ / √head_dim)) v`, whatever the problem's direction.
///
/// # Errors
/// When it does not fit into memory.
pub fn forward(problem: &Problem, inputs: &Inputs) -> Result<Forward, TooLarge> {
    let shape = Shape::of(problem);
    let (d, dv) = (shape.d, shape.dv);
    let q = shape.planes(&inputs.q, Side::Query, d)?;
    let k = shape.planes(&inputs.k, Side::Key, d)?;
    let v = shape.planes(&inputs.v, Side::Key, dv)?;
    let mut out = shape.empty_planes(Side::Query, dv)?;
    let mut lse = shape.empty_planes(Side::Query, 1)?;
    out.par_iter_mut()
        .zip(&mut lse)
        .enumerate()
        .for_each(|(plane, (out, lse))| {
            let (sequence, kv) = shape.kv_plane(plane);
            let (seq_q, seq_k) = shape.sequences[sequence];
            out.par_chunks_mut(dv)
                .zip(lse)
                .enumerate()
                .for_each(|(i, (out, lse))| {
                    let visible = shape.mask.visible(i, seq_q, seq_k);
                    let keys = &k[kv][visible.start * d..visible.end * d];
                    let values = &v[kv][visible.start * dv..visible.end * dv];
                    *lse = attend(row(&q[plane], i, d), keys, values, shape.scale, out);
                });
        });
    Ok(Forward {
        out: shape.logical(&out, Side::Query, dv)?,
        lse: shape.logical(&lse, Side::Query, 1)?,
    })
}

/// One query against the keys it sees; returns the row's log-sum-exp.
fn attend(q: &[f64], keys: &[f64], values: &[f64], scale: f64, out: &mut [f64]) -> f64 {
    let mut weights: Vec<f64> = keys
        .chunks_exact(q.len())
        .map(|key| scale * dot(q, key))
        .collect();
    let max = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for weight in &mut weights {
        *weight = (*weight - max).exp();
        sum += *weight;
    }
    for (weight, value) in weights.iter().zip(values.chunks_exact(out.len())) {
        add_scaled(out, weight / sum, value);
    }
    // No key: max is -∞ and sum 0.
    max + sum.ln()
}

/// Gradient of `Σ out ∘ dout` with respect to `q`, `k` and `v`, given what
/// [`forward`] returned.
///
/// With `p = exp(score - lse)`, `dp = dout · v` and `δ = dout · out`:
/// `ds = p (dp - δ)`, `dq = Σ ds k / √head_dim`, `dk = Σ ds q / √head_dim`, `dv = Σ p dout`
/// (Dao et al., FlashAttention, arXiv:2205.14135, appendix B.2).
///
/// # Errors
/// When it does not fit into memory.
pub fn backward(
    problem: &Problem,
    inputs: &Inputs,
    saved: &Forward,
) -> Result<Gradients, TooLarge> {
    let shape = Shape::of(problem);
    let (d, dv) = (shape.d, shape.dv);
    let out = shape.planes(&saved.out, Side::Query, dv)?;
    let dout = shape.planes(&inputs.dout, Side::Query, dv)?;
    let delta = out
        .par_iter()
        .zip(&dout)
        .map(|(out, dout)| {
            let rows = out.chunks_exact(dv).zip(dout.chunks_exact(dv));
            rows.map(|(out, dout)| dot(out, dout)).collect()
        })
        .collect();
    let tape = Tape {
        q: shape.planes(&inputs.q, Side::Query, d)?,
        k: shape.planes(&inputs.k, Side::Key, d)?,
        v: shape.planes(&inputs.v, Side::Key, dv)?,
        lse: shape.planes(&saved.lse, Side::Query, 1)?,
        dout,
        delta,
        shape,
    };
    let shape = &tape.shape;
    let mut dq = shape.empty_planes(Side::Query, d)?;
    dq.par_iter_mut().enumerate().for_each(|(plane, dq)| {
        let rows = dq.par_chunks_mut(d).enumerate();
        rows.for_each(|(i, dq)| tape.query_gradient(plane, i, dq));
    });
    let mut dk = shape.empty_planes(Side::Key, d)?;
    let mut dv_planes = shape.empty_planes(Side::Key, dv)?;
    dk.par_iter_mut()
        .zip(&mut dv_planes)
        .enumerate()
        .for_each(|(plane, (dk, dv_plane))| {
            dk.par_chunks_mut(d)
                .zip(dv_plane.par_chunks_mut(dv))
                .enumerate()
                .for_each(|(j, (dk, dv))| tape.key_gradient(plane, j, dk, dv));
        });
    Ok(Gradients {
        dq: shape.logical(&dq, Side::Query, d)?,
        dk: shape.logical(&dk, Side::Key, d)?,
        dv: shape.logical(&dv_planes, Side::Key, dv)?,
    })
}

/// Everything backward reads, heads apart.
struct Tape {
    shape: Shape,
    q: Vec<Vec<f64>>,
    k: Vec<Vec<f64>>,
    v: Vec<Vec<f64>>,
    dout: Vec<Vec<f64>>,
    lse: Vec<Vec<f64>>,
    delta: Vec<Vec<f64>>,
}

impl Tape {
    /// `(p, ds)` of query `i` of plane `plane` and key `j` it sees.
    fn pair(&self, plane: usize, kv: usize, i: usize, j: usize) -> (f64, f64) {
        let (d, dv) = (self.shape.d, self.shape.dv);
        let score = self.shape.scale * dot(row(&self.q[plane], i, d), row(&self.k[kv], j, d));
        let p = (score - self.lse[plane][i]).exp();
        let dp = dot(row(&self.dout[plane], i, dv), row(&self.v[kv], j, dv));
        (p, p * (dp - self.delta[plane][i]))
    }

    fn query_gradient(&self, plane: usize, i: usize, dq: &mut [f64]) {
        let (sequence, kv) = self.shape.kv_plane(plane);
        let (seq_q, seq_k) = self.shape.sequences[sequence];
        for j in self.shape.mask.visible(i, seq_q, seq_k) {
            let (_, ds) = self.pair(plane, kv, i, j);
            add_scaled(dq, self.shape.scale * ds, row(&self.k[kv], j, self.shape.d));
        }
    }

    fn key_gradient(&self, kv: usize, j: usize, dk: &mut [f64], dv: &mut [f64]) {
        let shape = &self.shape;
        let (seq_q, seq_k) = shape.sequences[kv / shape.kv_heads];
        for plane in shape.query_planes(kv) {
            for i in (0..seq_q).filter(|&i| shape.mask.visible(i, seq_q, seq_k).contains(&j)) {
                let (p, ds) = self.pair(plane, kv, i, j);
                add_scaled(dk, shape.scale * ds, row(&self.q[plane], i, shape.d));
                add_scaled(dv, p, row(&self.dout[plane], i, shape.dv));
            }
        }
    }
}

/// Whether a tensor has a row for each query and query head, or for each key and
/// key-value head.
#[derive(Clone, Copy)]
enum Side {
    Query,
    Key,
}

/// A problem's sizes, and the way between logical order and planes: one
/// contiguous `[seq, dim]` for each sequence and head.
struct Shape {
    sequences: Vec<(usize, usize)>,
    heads: usize,
    kv_heads: usize,
    d: usize,
    dv: usize,
    mask: Mask,
    scale: f64,
}

impl Shape {
    fn of(problem: &Problem) -> Shape {
        Shape {
            sequences: problem.sequences(),
            heads: problem.heads as usize,
            kv_heads: problem.kv_heads as usize,
            d: problem.head_dim as usize,
            dv: problem.head_dim_v as usize,
            mask: problem.mask,
            scale: f64::from(problem.head_dim).sqrt().recip(),
        }
    }

    /// The sequence of a query plane, and the key-value plane it reads.
    fn kv_plane(&self, plane: usize) -> (usize, usize) {
        let (sequence, head) = (plane / self.heads, plane % self.heads);
        let kv_head = head / (self.heads / self.kv_heads);
        (sequence, sequence * self.kv_heads + kv_head)
    }

    /// The query planes that read a key-value plane.
    fn query_planes(&self, kv: usize) -> std::ops::Range<usize> {
        // heads = group · kv_heads, so planes of one group follow each other.
        let group = self.heads / self.kv_heads;
        kv * group..(kv + 1) * group
    }

    fn heads_of(&self, side: Side) -> usize {
        match side {
            Side::Query => self.heads,
            Side::Key => self.kv_heads,
        }
    }

    fn rows_of(&self, sequence: usize, side: Side) -> usize {
        match side {
            Side::Query => self.sequences[sequence].0,
            Side::Key => self.sequences[sequence].1,
        }
    }

    fn empty_planes(&self, side: Side, dim: usize) -> Result<Vec<Vec<f64>>, TooLarge> {
        let heads = self.heads_of(side);
        (0..self.sequences.len() * heads)
            .map(|plane| zeros(&[self.rows_of(plane / heads, side) as u64, dim as u64]))
            .collect()
    }

    fn planes(&self, logical: &[f64], side: Side, dim: usize) -> Result<Vec<Vec<f64>>, TooLarge> {
        let mut planes = self.empty_planes(side, dim)?;
        self.each_row(side, dim, |plane, i, at| {
            planes[plane][i * dim..][..dim].copy_from_slice(&logical[at..at + dim]);
        });
        Ok(planes)
    }

    fn logical(&self, planes: &[Vec<f64>], side: Side, dim: usize) -> Result<Vec<f64>, TooLarge> {
        let mut logical = zeros(&[planes.iter().map(|plane| plane.len() as u64).sum()])?;
        self.each_row(side, dim, |plane, i, at| {
            logical[at..at + dim].copy_from_slice(row(&planes[plane], i, dim));
        });
        Ok(logical)
    }

    /// Calls `f(plane, row within it, offset in logical order)` for every row.
    fn each_row(&self, side: Side, dim: usize, mut f: impl FnMut(usize, usize, usize)) {
        let heads = self.heads_of(side);
        let mut at = 0;
        for sequence in 0..self.sequences.len() {
            for i in 0..self.rows_of(sequence, side) {
                for head in 0..heads {
                    f(sequence * heads + head, i, at);
                    at += dim;
                }
            }
        }
    }
}

fn zeros(axes: &[u64]) -> Result<Vec<f64>, TooLarge> {
    let len = axes
        .iter()
        .fold(1u128, |len, &n| len.saturating_mul(n.into()));
    let too_large = TooLarge {
        bytes: len.saturating_mul(8),
    };
    let Ok(len) = usize::try_from(len) else {
        return Err(too_large);
    };
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_: TryReserveError| too_large)?;
    values.resize(len, 0.0);
    Ok(values)
}

fn row(plane: &[f64], i: usize, dim: usize) -> &[f64] {
    &plane[i * dim..(i + 1) * dim]
}

/// Eight running sums: the order of additions is free, so this vectorises.
fn dot(a: &[f64], b: &[f64]) -> f64 {
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

fn add_scaled(sum: &mut [f64], factor: f64, values: &[f64]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

#[cfg(test)]
mod tests;
