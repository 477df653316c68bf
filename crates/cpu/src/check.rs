//! Comparison of results with the float64 reference, which several variants on one
//! problem share.

use std::sync::Arc;

use rayon::prelude::*;

use super::tensors::Tensor;
use regatta_worker::attention::inputs::probe_indices;
use regatta_worker::attention::reference::{
    self, Forward, Gradients, Inputs, Part, Side, TooLarge, checked_runs,
};
use regatta_worker::attention::work::memory_bytes;
use regatta_worker::attention::{Direction, Problem};
use regatta_worker::difference::Difference;
use regatta_worker::protocol::{PROBES, TensorError};

/// Problems whose reference is kept, however large.
const KEPT: usize = 3;

/// What references may take beyond these: many small problems come again in random order.
const KEPT_BYTES: u64 = 256 << 20;

/// Drops the longest unused of `entries`, the last ones, before another is computed: two large
/// references may not fit at once.
fn make_room<E>(entries: &mut Vec<E>, problem: &Problem, of: impl Fn(&E) -> &Problem) {
    // Elements of any type become float64, and gradients lie beside what they are of.
    let bytes = |problem: &Problem| memory_bytes(problem, false).saturating_mul(8);
    let kept = entries.iter().map(|entry| bytes(of(entry)));
    let mut held = kept.fold(bytes(problem), u64::saturating_add);
    while entries.len() >= KEPT && held > KEPT_BYTES {
        if let Some(entry) = entries.pop() {
            held = held.saturating_sub(bytes(of(&entry)));
        }
    }
}

/// References of the last few problems, so that several variants, layouts and
/// directions of one problem pay once.
#[derive(Default)]
pub struct References {
    entries: Vec<Entry>,
    parts: Vec<PartEntry>,
}

/// The planes of a problem that are compared after timing.
struct PartEntry {
    problem: Problem,
    seed: u64,
    parts: Arc<Vec<Part>>,
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
        let problem = problem.same_values().with(Direction::Forward);
        let found = self
            .entries
            .iter()
            .position(|entry| entry.problem == problem && entry.seed == seed);
        let mut entry = match found {
            Some(at) => self.entries.remove(at),
            None => {
                make_room(&mut self.entries, &problem, |entry| &entry.problem);
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

    /// The reference of the planes that are compared after timing; gradients where the
    /// problem's direction has them.
    ///
    /// # Errors
    /// When it does not fit into memory.
    pub fn part(&mut self, problem: &Problem, seed: u64) -> Result<Arc<Vec<Part>>, TooLarge> {
        let wanted = problem.direction.has_backward();
        let problem = problem.same_values();
        // Gradients come with forward.
        let both = problem.with(Direction::Both);
        let forward = problem.with(Direction::Forward);
        let found = self.parts.iter().position(|entry| {
            let serves = entry.problem == both || (!wanted && entry.problem == forward);
            serves && entry.seed == seed
        });
        let entry = match found {
            Some(at) => self.parts.remove(at),
            None => {
                let problem = if wanted { both } else { forward };
                make_room(&mut self.parts, &problem, |entry| &entry.problem);
                let checked = checked_runs(reference::planes(&problem));
                let mut wanted = checked.into_iter().flatten().peekable();
                let places = reference::places(&problem).enumerate();
                let places: Vec<_> = places
                    .filter(|(at, _)| wanted.next_if_eq(at).is_some())
                    .map(|(_, place)| place)
                    .collect();
                let parts: Result<Vec<Part>, TooLarge> = places
                    .into_par_iter()
                    .map(|place| Part::of(&problem, place, seed))
                    .collect();
                PartEntry {
                    parts: Arc::new(parts?),
                    problem,
                    seed,
                }
            }
        };
        let parts = entry.parts.clone();
        self.parts.insert(0, entry);
        Ok(parts)
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

/// How far planes of a result are from their reference. The whole of it is looked at for
/// elements that are not finite.
pub fn error_of_part(name: &str, result: &Tensor, parts: &[Part]) -> TensorError {
    let mut sums = Difference {
        finite: result.all_finite(),
        ..Difference::default()
    };
    for part in parts {
        let Some((side, dim, values)) = part.result(name) else {
            continue;
        };
        let place = &part.place;
        let (heads, rows, seen) = match side {
            Side::Query => (place.group, place.seq_q, &place.queries),
            Side::Key => (1, place.seq_k, &place.keys),
        };
        let (mut found, zeros) = (vec![0.0f32; dim], vec![0.0; dim]);
        for member in 0..heads {
            for row in 0..rows {
                result.load(
                    place.sequence,
                    place.kv_head * heads + member,
                    row..row + 1,
                    &mut found,
                );
                let right = match seen.contains(&row) {
                    true => &values[(member * seen.len() + row - seen.start) * dim..][..dim],
                    false => &zeros[..],
                };
                for (found, right) in found.iter().zip(right) {
                    let difference = f64::from(*found) - right;
                    sums.squares += difference * difference;
                    sums.norm += right * right;
                    sums.largest = sums.largest.max(difference.abs());
                }
            }
        }
        sums.elements += (heads * rows * dim) as u64;
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
