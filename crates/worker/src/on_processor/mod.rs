//! Functions of this process on this machine's processor, as a worker.
//!
//! Enough for a kernel in Rust that takes slices: inputs, the check against float64 before
//! timing and after, sets of inputs that change between samples, and the clock are all here.
//! A library with tensors of its own implements [`Worker`] itself, with [`timing`] and
//! [`device`] if it likes.

pub mod device;
pub mod timing;
mod witness;

use std::collections::BTreeMap;

use self::timing::{Sweep, Timed, time};
use crate::attention::inputs::probe_indices;
use crate::attention::reference::{Inputs, backward, forward};
use crate::attention::tolerance::results;
use crate::attention::{Direction, Dtype, Problem};
use crate::difference::Difference;
use crate::machine::Structure;
use crate::protocol::{
    Checked, Hello, Measure, Measured, PROBES, PROTOCOL_VERSION, Prepare, Prepared, TensorError,
    VariantInfo,
};
use crate::serve::{Refusal, Worker};
use crate::sets::{LAST, Rotation};

/// The inputs of a call, in logical order, rounded to the problem's type.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    /// Queries `[batch, seq_q, heads, head_dim]`, or packed where lengths are ragged.
    pub q: Vec<f32>,
    /// Keys `[batch, seq_k, kv_heads, head_dim]`.
    pub k: Vec<f32>,
    /// Values `[batch, seq_k, kv_heads, head_dim_v]`.
    pub v: Vec<f32>,
    /// Gradient of the output, as `out`: `[batch, seq_q, heads, head_dim_v]`.
    pub dout: Vec<f32>,
}

/// What is timed: gives `out`; for `backward` `dq`, `dk` and `dv`; for `both` all four in this
/// order, each as the tensor it belongs to.
pub type Compute = fn(&Problem, &Tensors) -> Vec<Vec<f32>>;

/// A function, and what it can do.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Of the variant: `naive` of worker `mine` is `mine/naive` in a suite.
    pub name: &'static str,
    /// In a line.
    pub summary: &'static str,
    /// The types that it computes in; others are unsupported.
    pub dtypes: &'static [Dtype],
    /// The directions that it has.
    pub directions: &'static [Direction],
    /// Why it does not do a problem, for example one with a mask; `None`: it does.
    pub unsupported: fn(&Problem) -> Option<String>,
    /// The call.
    pub compute: Compute,
}

impl Function {
    /// One that computes `out` in f32, whatever the problem.
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

/// A worker of functions.
pub struct OnProcessor {
    name: &'static str,
    version: &'static str,
    functions: Vec<Function>,
    case: Option<Case>,
    sweep: Option<Sweep>,
}

impl OnProcessor {
    /// A worker of this name; `version` is part of what a reading depends on.
    pub fn new(name: &'static str, version: &'static str, functions: Vec<Function>) -> OnProcessor {
        OnProcessor {
            name,
            version,
            functions,
            case: None,
            sweep: None,
        }
    }
}

/// A case made ready.
struct Case {
    problem: Problem,
    seed: u64,
    sets: u32,
    compute: Compute,
    tensors: Tensors,
    /// Of the last call.
    results: Vec<Vec<f32>>,
}

impl Case {
    /// How far the last call's results are from float64, and elements of them, by name.
    fn checked(&self, seed: u64) -> Result<Checked, Refusal> {
        let references = references(&self.problem, seed)?;
        let named = results(self.problem.direction);
        if self.results.len() != named.len() {
            let there = self.results.len();
            return Err(format!("{there} results, {} are asked for", named.len()).into());
        }
        let (mut errors, mut probes) = (BTreeMap::new(), BTreeMap::new());
        for (((name, _), result), reference) in named.iter().zip(&self.results).zip(&references) {
            errors.insert((*name).to_owned(), error(name, result, reference)?);
            let indices = probe_indices(result.len() as u64, PROBES);
            let finite = |value: f64| value.is_finite().then_some(value);
            let probed = indices.map(|at| finite(result[at as usize].into()));
            probes.insert((*name).to_owned(), probed.collect());
        }
        Ok(Checked {
            seed,
            errors,
            probes,
        })
    }
}

impl Timed for Case {
    fn call(&mut self) {
        self.results = (self.compute)(&self.problem, &self.tensors);
    }

    fn change(&mut self, set: u32) -> Result<(), String> {
        self.tensors = tensors(&self.problem, self.seed.wrapping_add(set.into()))?;
        Ok(())
    }
}

fn tensors(problem: &Problem, seed: u64) -> Result<Tensors, String> {
    let made = Inputs::generate(problem, seed).map_err(|error| error.to_string())?;
    let single = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
    Ok(Tensors {
        q: single(made.q),
        k: single(made.k),
        v: single(made.v),
        dout: single(made.dout),
    })
}

/// The float64 results in the order of the problem's own.
fn references(problem: &Problem, seed: u64) -> Result<Vec<Vec<f64>>, Refusal> {
    let failed = |error| Refusal::Failed(format!("{error}"));
    let inputs = Inputs::generate(problem, seed).map_err(failed)?;
    let saved = forward(problem, &inputs).map_err(failed)?;
    let mut found = Vec::new();
    if problem.direction.has_backward() {
        let gradients = backward(problem, &inputs, &saved).map_err(failed)?;
        found.extend([gradients.dq, gradients.dk, gradients.dv]);
    }
    if problem.direction != Direction::Backward {
        found.insert(0, saved.out);
    }
    Ok(found)
}

fn error(name: &str, result: &[f32], reference: &[f64]) -> Result<TensorError, Refusal> {
    if result.len() != reference.len() {
        let (there, wanted) = (result.len(), reference.len());
        return Err(format!("{name} has {there} elements, not {wanted}").into());
    }
    let mut sums = Difference {
        elements: result.len() as u64,
        finite: result.iter().all(|value| value.is_finite()),
        ..Difference::default()
    };
    for (&value, exact) in result.iter().zip(reference) {
        let off = f64::from(value) - exact;
        sums.squares += off * off;
        sums.norm += exact * exact;
        sums.largest = sums.largest.max(off.abs());
    }
    Ok(sums.error())
}

impl Worker for OnProcessor {
    fn hello(&mut self) -> Result<Hello, Refusal> {
        let variants = self.functions.iter().map(|function| VariantInfo {
            name: function.name.to_owned(),
            summary: function.summary.to_owned(),
            dtypes: function.dtypes.to_vec(),
            directions: function.directions.to_vec(),
            projections: Vec::new(),
            parameters: BTreeMap::new(),
            stores_scores: false,
            tf32: false,
        });
        Ok(Hello {
            packages: BTreeMap::new(),
            absent: None,
            protocol: PROTOCOL_VERSION,
            worker: self.name.to_owned(),
            versions: BTreeMap::from([(self.name.to_owned(), self.version.to_owned())]),
            device: device::device(),
            variants: variants.collect(),
        })
    }

    fn prepare(&mut self, request: &Prepare) -> Result<Prepared, Refusal> {
        self.release();
        let (problem, wanted) = (&request.problem, &request.variant);
        let mut functions = self.functions.iter();
        let function = functions.find(|function| function.name == *wanted);
        let function = function.ok_or_else(|| format!("there is no variant `{wanted}`"))?;
        let refused = if !function.dtypes.contains(&problem.dtype) {
            Some(format!("not in {}", problem.dtype))
        } else if !function.directions.contains(&problem.direction) {
            Some(format!("not {}", problem.direction))
        } else if problem.projection.is_some() {
            Some("it computes attention, and no projection".to_owned())
        } else {
            (function.unsupported)(problem)
        };
        if let Some(reason) = refused {
            return Err(Refusal::Unsupported(reason));
        }
        if let Some((name, _)) = request.params.iter().next() {
            return Err(format!("variant `{wanted}` has no parameter `{name}`").into());
        }
        let mut case = Case {
            problem: problem.clone(),
            seed: request.seed,
            sets: request.input_sets,
            compute: function.compute,
            tensors: tensors(problem, request.seed)?,
            results: Vec::new(),
        };
        let first_call_ns = time(|| case.call());
        let Checked { errors, probes, .. } = case.checked(request.seed)?;
        self.case = Some(case);
        Ok(Prepared {
            effective: BTreeMap::new(),
            tuned: Vec::new(),
            first_call_parts: None,
            errors,
            probes,
            first_call_ns,
            problems: 1,
        })
    }

    fn measure(&mut self, request: &Measure) -> Result<Measured, Refusal> {
        let case = self.case.as_mut().ok_or("no case is prepared")?;
        let rotation = Rotation::fresh(case.sets);
        let rotates = rotation.is_some();
        let mut measured = timing::measure(request, &mut self.sweep, rotation, case)?;
        if rotates {
            measured.checked = Some(case.checked(case.seed.wrapping_add(LAST.into()))?);
        }
        Ok(measured)
    }

    /// Nothing is known of what a function does.
    fn census(&mut self) -> Result<Structure, Refusal> {
        self.case.as_ref().ok_or("no case is prepared")?;
        Ok(Structure::default())
    }

    fn release(&mut self) {
        self.case = None;
    }
}
