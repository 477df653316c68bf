//! Comparison of results with the float64 reference, which several variants on one
//! problem share.

use std::sync::Arc;

use super::tensors::Tensor;
use crate::attention::inputs::probe_indices;
use crate::attention::reference::{self, Forward, Gradients, Inputs, TooLarge};
use crate::attention::{Direction, Layout, Problem};
use crate::variants::difference::Difference;
use crate::worker::protocol::{PROBES, TensorError};

/// Problems whose reference is kept.
const KEPT: usize = 3;

/// References of the last few problems, so that several variants, layouts and
/// directions of one problem pay once.
#[derive(Default)]
pub struct References {
    entries: Vec<Entry>,
}

struct Entry {
    problem: Problem,
    seed: u64,
    forward: Arc<Forward>,
    gradients: Option<Arc<Gradients>>,
}

impl References {
    /// The reference of a problem; gradients if and only if its direction has them.
    ///
    /// # Errors
    /// When it does not fit into memory.
    pub fn of(
        &mut self,
        problem: &Problem,
        seed: u64,
    ) -> Result<(Arc<Forward>, Option<Arc<Gradients>>), TooLarge> {
        let wanted = problem.direction.has_backward();
        // Layout and direction change nothing about the values.
        let problem = Problem {
            layout: Layout::Bshd,
            direction: Direction::Forward,
            ..problem.clone()
        };
        let found = self
            .entries
            .iter()
            .position(|entry| entry.problem == problem && entry.seed == seed);
        let mut entry = match found {
            Some(at) => self.entries.remove(at),
            None => {
                // Makes room first: two large references may not fit at once.
                self.entries.truncate(KEPT - 1);
                let inputs = Inputs::generate(&problem, seed)?;
                Entry {
                    forward: Arc::new(reference::forward(&problem, &inputs)?),
                    gradients: None,
                    problem,
                    seed,
                }
            }
        };
        if wanted && entry.gradients.is_none() {
            let inputs = Inputs::generate(&entry.problem, seed)?;
            let gradients = reference::backward(&entry.problem, &inputs, &entry.forward)?;
            entry.gradients = Some(Arc::new(gradients));
        }
        let gradients = entry.gradients.clone().filter(|_| wanted);
        let references = (entry.forward.clone(), gradients);
        self.entries.insert(0, entry);
        Ok(references)
    }
}

/// How far a result is from its reference.
pub fn error(result: &Tensor, reference: &[f64]) -> TensorError {
    let mut sums = Difference {
        elements: reference.len() as u64,
        finite: true,
        ..Difference::default()
    };
    for (found, right) in result.logical().zip(reference) {
        let difference = found - right;
        sums.finite &= difference.is_finite();
        sums.squares += difference * difference;
        sums.norm += right * right;
        sums.largest = sums.largest.max(difference.abs());
    }
    sums.error()
}

/// The elements that the protocol asks for.
pub fn probes(result: &Tensor) -> Vec<Option<f64>> {
    let mut wanted = probe_indices(result.elements() as u64, PROBES).peekable();
    let mut probes = Vec::with_capacity(PROBES);
    for (index, value) in result.logical().enumerate() {
        while wanted.next_if_eq(&(index as u64)).is_some() {
            probes.push(value.is_finite().then_some(value));
        }
    }
    probes
}
