//! The float64 computation with which every result is compared.
//!
//! It uses the textbook formulas without optimisation: scores of queries and visible keys, a
//! softmax after subtracting the row maximum, a weighted sum, and `matrixmultiply` for each matrix
//! product. Each key-value head of each sequence is computed separately, with the query heads that
//! read it. Blocks of rows run in parallel.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::inputs::{Tensor, element};
use super::{Attention, Projection, ProjectionKind, Sizes};
use crate::inputs::rounded;

mod part;
mod plane;

pub use part::{PlaneReference, checked_runs, result_shape};
pub(crate) use plane::zeros;
use plane::{Elements, seeded};
pub use plane::{Heads, PlaneId, TooLarge, places, planes};

impl Attention {
    /// The results for the inputs of a seed, by name and in logical order.
    ///
    /// # Errors
    /// They do not fit into memory.
    pub fn whole(&self, seed: u64) -> Result<BTreeMap<&'static str, Vec<f64>>, TooLarge> {
        whole_from(self, &seeded(seed, self.dtype))
    }
}

/// As [`Attention::whole`], for inputs from any source.
fn whole_from(
    problem: &Attention,
    source: Elements,
) -> Result<BTreeMap<&'static str, Vec<f64>>, TooLarge> {
    let planes = places(problem).collect::<Vec<_>>().into_par_iter();
    let planes = planes.map(|place| PlaneReference::from_elements(problem, place, source));
    let planes: Vec<PlaneReference> = planes.collect::<Result<_, _>>()?;
    let named = problem.results().iter().map(|&(name, _)| {
        let mut tensor = zeros(&result_shape(problem, name))?;
        planes
            .iter()
            .for_each(|plane| plane.scatter(name, &mut tensor));
        Ok((name, tensor))
    });
    named.collect()
}

/// The results of rank 0, in logical order: `[rows, columns]` for all-gather, and the rows of the
/// first shard `[rows / ranks, hidden]` for reduce-scatter.
///
/// The inputs are those of docs/PROTOCOL.md, "Projections": activations are tensor q and weights
/// tensor k, with the blocks of all ranks one after the other.
///
/// # Errors
/// It does not fit into memory.
pub fn projection(problem: &Attention, of: &Projection, seed: u64) -> Result<Vec<f64>, TooLarge> {
    let sizes = of.sizes(problem);
    let value = |tensor, index| rounded(element(seed, tensor, index), problem.dtype);
    let terms = Products::new(of.kind, sizes);
    let mut weight = zeros(&[terms.ranks, terms.inner, terms.width])?;
    weight.par_iter_mut().enumerate().for_each(|(i, cell)| {
        *cell = value(Tensor::K, i as u64);
    });
    let mut out = zeros(&[terms.rows, terms.width])?;
    let width = terms.width as usize;
    out.par_chunks_mut(width).enumerate().for_each(|(i, row)| {
        // `x` is the index in a block of activations, and `term` the index over all blocks of
        // weights.
        for (term, weights) in weight.chunks_exact(width).enumerate() {
            let (rank, x) = (term as u64 / terms.inner, term as u64 % terms.inner);
            let at = rank * terms.block + i as u64 * terms.inner + x;
            let factor = value(Tensor::Q, at);
            for (sum, weight) in row.iter_mut().zip(weights) {
                *sum += factor * weight;
            }
        }
    });
    Ok(out)
}

/// Bytes that [`projection`] needs.
fn projection_bytes(problem: &Attention, of: &Projection) -> u128 {
    let terms = Products::new(of.kind, of.sizes(problem));
    let [ranks, inner, rows, width] =
        [terms.ranks, terms.inner, terms.rows, terms.width].map(u128::from);
    let weights = ranks.saturating_mul(inner).saturating_mul(width);
    weights
        .saturating_add(rows.saturating_mul(width))
        .saturating_mul(8)
}

/// A common form of both kinds:
/// `out [rows, width] = Σ_rank a_rank [rows, inner] w_rank [inner, width]`.
struct Products {
    /// The number of blocks in the sum.
    ranks: u64,
    /// The number of rows of the result.
    rows: u64,
    inner: u64,
    width: u64,
    /// The number of elements of one rank's activations.
    block: u64,
}

impl Products {
    fn new(kind: ProjectionKind, sizes: Sizes) -> Products {
        match kind {
            ProjectionKind::AllGather => Products {
                ranks: 1,
                rows: sizes.rows,
                inner: sizes.hidden,
                width: sizes.columns,
                block: sizes.rows.saturating_mul(sizes.hidden),
            },
            ProjectionKind::ReduceScatter => Products {
                ranks: sizes.ranks,
                rows: sizes.shard_rows,
                inner: sizes.columns,
                width: sizes.hidden,
                block: sizes.rows.saturating_mul(sizes.columns),
            },
        }
    }
}

#[cfg(test)]
mod tests;
