//! The float64 computation that every result is held to.
//!
//! Textbook loops with nothing clever: scores of one query against its visible
//! keys, a softmax with the row maximum taken out, a weighted sum. Only the memory
//! order is chosen with care: each key-value head of each sequence is computed by itself,
//! with the query heads that read it, and rows run in parallel.

use rayon::prelude::*;

use super::Problem;
use super::inputs::{Tensor, element, rounded};

mod part;
mod plane;
mod projection;

pub use part::{PlaneReference, bytes, checked_runs, expected, result_shape};
use plane::{Elements, Plane, zeros};
pub use plane::{PlaneId, Side, TooLarge, places, planes};
pub use projection::projection;

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

impl Elements for Inputs {
    fn at(&self, tensor: Tensor, index: usize) -> f64 {
        match tensor {
            Tensor::Q => self.q[index],
            Tensor::K => self.k[index],
            Tensor::V => self.v[index],
            Tensor::Dout => self.dout[index],
        }
    }
}

/// `softmax(mask(q kᵀ / √head_dim)) v`, whatever the problem's direction.
///
/// # Errors
/// When it does not fit into memory.
pub fn forward(problem: &Problem, inputs: &Inputs) -> Result<Forward, TooLarge> {
    let planes = each_plane(problem, |place| Plane::new(place, inputs)?.forward())?;
    let rows = problem.total_q();
    let (heads, dv) = (problem.heads.into(), problem.head_dim_v as usize);
    let mut out = zeros(&[rows, heads, dv as u64])?;
    let mut lse = zeros(&[rows, heads])?;
    lse.fill(f64::NEG_INFINITY);
    for (place, plane) in &planes {
        scatter(place, Side::Query, dv, &plane.out, &mut out);
        scatter(place, Side::Query, 1, &plane.lse, &mut lse);
    }
    Ok(Forward { out, lse })
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
    let (d, dv) = (problem.head_dim as usize, problem.head_dim_v as usize);
    let planes = each_plane(problem, |place| {
        let dout = place.gather(Side::Query, dv, |at| inputs.dout[at])?;
        let saved = plane::PlaneForward {
            out: place.gather(Side::Query, dv, |at| saved.out[at])?,
            lse: place.gather(Side::Query, 1, |at| saved.lse[at])?,
        };
        Plane::new(place, inputs)?.backward(&dout, &saved)
    })?;
    let (rows_q, rows_k) = (problem.total_q(), problem.total_k());
    let (heads, kv_heads) = (problem.heads.into(), problem.kv_heads.into());
    let mut gradients = Gradients {
        dq: zeros(&[rows_q, heads, d as u64])?,
        dk: zeros(&[rows_k, kv_heads, d as u64])?,
        dv: zeros(&[rows_k, kv_heads, dv as u64])?,
    };
    for (place, plane) in &planes {
        scatter(place, Side::Query, d, &plane.dq, &mut gradients.dq);
        scatter(place, Side::Key, d, &plane.dk, &mut gradients.dk);
        scatter(place, Side::Key, dv, &plane.dv, &mut gradients.dv);
    }
    Ok(gradients)
}

/// Computes every plane, in parallel.
fn each_plane<T: Send>(
    problem: &Problem,
    compute: impl Fn(&PlaneId) -> Result<T, TooLarge> + Sync,
) -> Result<Vec<(PlaneId, T)>, TooLarge> {
    let places: Vec<PlaneId> = places(problem).collect();
    let computed = places.into_par_iter().map(|place| {
        let plane = compute(&place)?;
        Ok((place, plane))
    });
    computed.collect()
}

/// Writes the rows of a plane where they lie in the whole tensor.
fn scatter(place: &PlaneId, side: Side, dim: usize, rows: &[f64], whole: &mut [f64]) {
    for (row, values) in rows.chunks_exact(dim).enumerate() {
        whole[place.index(side, row, dim)..][..dim].copy_from_slice(values);
    }
}

#[cfg(test)]
mod tests;
