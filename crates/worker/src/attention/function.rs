//! Turns functions over slices into variants on the processor.

use rayon::prelude::*;

use super::Attention;
use super::inputs::{Tensor, element};
use super::reference::zeros;
use crate::case::Dtype;
use crate::inputs::rounded;
use crate::on_processor::{ProcessorCase, ProcessorVariant};
use crate::operator::Direction;
use crate::protocol::{Prepare, VariantInfo};
use crate::serve::Refusal;

/// The inputs of a call, in logical order, rounded to the problem's type.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    /// Queries `[batch, seq_q, heads, head_dim]`, packed if lengths are ragged.
    pub q: Vec<f32>,
    /// Keys `[batch, seq_k, kv_heads, head_dim]`.
    pub k: Vec<f32>,
    /// Values `[batch, seq_k, kv_heads, head_dim_v]`.
    pub v: Vec<f32>,
    /// Gradient of the output, with the shape of `out`: `[batch, seq_q, heads, head_dim_v]`.
    pub dout: Vec<f32>,
}

/// The function that is timed. Returns `out`; for `backward` `dq`, `dk` and `dv`; for `both` all
/// four in this order. Each has the shape of the tensor that it belongs to.
pub type Compute = fn(&Attention, &Tensors) -> Vec<Vec<f32>>;

/// A function, and what it supports.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The name of the variant: `naive` of worker `mine` is `mine/naive` in a suite.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The types that it computes in.
    pub dtypes: &'static [Dtype],
    /// The directions that it computes.
    pub directions: &'static [Direction],
    /// The reason for which it does not compute a problem, for example one with a mask. `None`: it
    /// does.
    pub unsupported: fn(&Attention) -> Option<String>,
    /// The function.
    pub compute: Compute,
}

impl Function {
    /// A function that computes `out` in f32 for any problem.
    pub fn forward(name: &'static str, summary: &'static str, compute: Compute) -> Function {
        Function {
            name,
            summary,
            dtypes: &[Dtype::F32],
            directions: &[Direction::Forward],
            unsupported: |_| None,
            compute,
        }
    }
}

impl From<Function> for ProcessorVariant {
    fn from(function: Function) -> ProcessorVariant {
        let info = VariantInfo {
            name: function.name.to_owned(),
            summary: function.summary.to_owned(),
            dtypes: function.dtypes.to_vec(),
            directions: function.directions.to_vec(),
            ..VariantInfo::default()
        };
        let prepare = move |request: &Prepare| -> Result<Box<dyn ProcessorCase>, Refusal> {
            let problem = request.problem.attention().map_err(Refusal::Unsupported)?;
            if let Some(reason) = (function.unsupported)(problem) {
                return Err(Refusal::Unsupported(reason));
            }
            Ok(Box::new(FunctionCase {
                tensors: tensors(problem, request.seed)?,
                problem: problem.clone(),
                seed: request.seed,
                compute: function.compute,
                results: Vec::new(),
            }))
        };
        ProcessorVariant {
            info,
            prepare: Box::new(prepare),
        }
    }
}

/// A function with a problem's inputs.
struct FunctionCase {
    problem: Attention,
    seed: u64,
    compute: Compute,
    tensors: Tensors,
    /// The results of the last call.
    results: Vec<Vec<f32>>,
}

impl ProcessorCase for FunctionCase {
    fn call(&mut self) {
        self.results = (self.compute)(&self.problem, &self.tensors);
    }

    fn change(&mut self, set: u32) -> Result<(), String> {
        self.tensors = tensors(&self.problem, self.seed.wrapping_add(set.into()))?;
        Ok(())
    }

    fn results(&self) -> Vec<Vec<f32>> {
        self.results.clone()
    }
}

/// Fills `values` with the inputs of a seed in logical order, rounded to a type.
pub fn fill(values: &mut [f32], seed: u64, tensor: Tensor, dtype: Dtype) {
    values.par_iter_mut().enumerate().for_each(|(i, value)| {
        *value = rounded(element(seed, tensor, i as u64), dtype) as f32;
    });
}

fn tensors(problem: &Attention, seed: u64) -> Result<Tensors, String> {
    let made = |tensor: Tensor, rows: u64, heads: u32, dim: u32| {
        let zeros = zeros(&[rows, heads.into(), dim.into()]);
        let mut values = zeros.map_err(|error| error.to_string())?;
        fill(&mut values, seed, tensor, problem.dtype);
        Ok::<Vec<f32>, String>(values)
    };
    let (rows_q, rows_k) = (problem.total_q(), problem.total_k());
    Ok(Tensors {
        q: made(Tensor::Q, rows_q, problem.heads, problem.head_dim)?,
        k: made(Tensor::K, rows_k, problem.kv_heads, problem.head_dim)?,
        v: made(Tensor::V, rows_k, problem.kv_heads, problem.head_dim_v)?,
        dout: made(Tensor::Dout, rows_q, problem.heads, problem.head_dim_v)?,
    })
}
