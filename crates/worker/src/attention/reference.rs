//! The float64 computation that every result is held to.
//!
//! Textbook loops with nothing clever: scores of one query against its visible
//! keys, a softmax with the row maximum taken out, a weighted sum. Only the memory
//! order is chosen with care: each key-value head of each sequence is computed by itself,
//! with the query heads that read it, and rows run in parallel.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::Problem;
use super::inputs::{Tensor, element, rounded};
use super::tolerance::results;

mod part;
mod plane;
mod projection;

pub use part::{PlaneReference, bytes, checked_runs, expected, result_shape};
use plane::{Elements, Seeded, zeros};
pub use plane::{Heads, PlaneId, TooLarge, places, planes};
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

/// The results of a problem for the inputs of a seed, by name and in logical order.
///
/// # Errors
/// When they do not fit into memory.
pub fn whole(problem: &Problem, seed: u64) -> Result<BTreeMap<&'static str, Vec<f64>>, TooLarge> {
    let dtype = problem.dtype;
    whole_from(problem, &Seeded { seed, dtype })
}

/// As [`whole`], for inputs from anywhere.
fn whole_from(
    problem: &Problem,
    source: &dyn Elements,
) -> Result<BTreeMap<&'static str, Vec<f64>>, TooLarge> {
    let planes = places(problem).collect::<Vec<_>>().into_par_iter();
    let planes = planes.map(|place| PlaneReference::from_elements(problem, place, source));
    let planes: Vec<PlaneReference> = planes.collect::<Result<_, _>>()?;
    let named = results(problem.direction).iter().map(|&(name, _)| {
        let mut tensor = zeros(&result_shape(problem, name))?;
        planes
            .iter()
            .for_each(|plane| plane.scatter(name, &mut tensor));
        Ok((name, tensor))
    });
    named.collect()
}

#[cfg(test)]
mod tests;
