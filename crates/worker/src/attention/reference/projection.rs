//! The float64 result of rank 0 of a projection.

use rayon::prelude::*;

use super::plane::{TooLarge, add_scaled, zeros};
use crate::attention::inputs::{Tensor, element, rounded};
use crate::attention::{Problem, Projection, ProjectionKind, Sizes};

/// What rank 0 computes, in logical order: `[rows, columns]` for all-gather, the rows of
/// the first shard `[rows / ranks, hidden]` for reduce-scatter.
///
/// The inputs are those of docs/PROTOCOL.md, "Projections": activations are tensor q and
/// weights tensor k, the block of each rank after that of the one before.
///
/// # Errors
/// When it does not fit into memory.
pub fn projection(problem: &Problem, of: &Projection, seed: u64) -> Result<Vec<f64>, TooLarge> {
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
        // The index in each block of activations, and over all blocks of weights.
        for (term, weights) in weight.chunks_exact(width).enumerate() {
            let (rank, x) = (term as u64 / terms.inner, term as u64 % terms.inner);
            let at = rank * terms.block + i as u64 * terms.inner + x;
            add_scaled(row, value(Tensor::Q, at), weights);
        }
    });
    Ok(out)
}

/// Bytes that [`projection`] takes.
pub(super) fn bytes(problem: &Problem, of: &Projection) -> u128 {
    let terms = Products::new(of.kind, of.sizes(problem));
    let [ranks, inner, rows, width] =
        [terms.ranks, terms.inner, terms.rows, terms.width].map(u128::from);
    let weights = ranks.saturating_mul(inner).saturating_mul(width);
    weights
        .saturating_add(rows.saturating_mul(width))
        .saturating_mul(8)
}

/// One shape for both kinds: `out [rows, width] = Σ_rank a_rank [rows, inner] w_rank [inner, width]`.
struct Products {
    /// Blocks that are summed.
    ranks: u64,
    /// Of the result.
    rows: u64,
    inner: u64,
    width: u64,
    /// Elements of one rank's activations.
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
mod tests {
    use super::*;

    fn reference(id: &str) -> (Problem, Sizes, Vec<f64>) {
        let problem: Problem = id.parse().unwrap();
        let of = problem.projection.unwrap();
        let out = projection(&problem, &of, 42).unwrap();
        let sizes = of.sizes(&problem);
        (problem, sizes, out)
    }

    fn at(tensor: Tensor, index: u64) -> f64 {
        rounded(element(42, tensor, index), crate::attention::Dtype::F16)
    }

    /// Three loops over the definition, sharing no indexing with the code above.
    #[test]
    fn all_gather_is_the_whole_times_the_first_block() {
        let (_, sizes, out) = reference("b2,h2,s3,d2,f16,ag5,r3");
        assert_eq!(out.len(), 6 * 4);
        for row in 0..6 {
            for column in 0..4 {
                let products = (0..5).map(|x| {
                    at(Tensor::Q, row * sizes.hidden + x)
                        * at(Tensor::K, x * sizes.columns + column)
                });
                let expected: f64 = products.sum();
                let found = out[(row * 4 + column) as usize];
                assert!((found - expected).abs() < 1e-12, "{row},{column}");
            }
        }
    }

    #[test]
    fn reduce_scatter_sums_over_ranks_and_keeps_the_first_shard() {
        let (_, sizes, out) = reference("b2,h2,s3,d2,f16,rs5,r3");
        assert_eq!((sizes.shard_rows, out.len()), (2, 2 * 5));
        for row in 0..2 {
            for wide in 0..5 {
                let mut expected = 0.0;
                for rank in 0..3 {
                    for column in 0..4 {
                        expected += at(Tensor::Q, (rank * 6 + row) * 4 + column)
                            * at(Tensor::K, (rank * 4 + column) * 5 + wide);
                    }
                }
                let found = out[(row * 5 + wide) as usize];
                assert!((found - expected).abs() < 1e-12, "{row},{wide}");
            }
        }
    }
}
