//! How far results are from the float64 reference, which several variants on one problem share.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::attention::inputs::probe_indices;
use crate::attention::reference::{
    self, Forward, Gradients, Inputs, PlaneReference, TooLarge, checked_runs, result_shape,
};
use crate::attention::tolerance::{ErrorSums, results};
use crate::attention::work::memory_bytes;
use crate::attention::{Direction, Problem};
use crate::protocol::{Checked, PROBES};

/// Problems whose reference is kept, however large.
const KEPT: usize = 3;

/// What references may take beyond these: many small problems come again in random order.
const KEPT_BYTES: u64 = 256 << 20;

/// The reference of a problem, or of a part of it.
struct Kept<R> {
    problem: Problem,
    seed: u64,
    reference: R,
}

type Whole = (Arc<Forward>, Option<Arc<Gradients>>);

/// References of the last few problems, so that several variants, layouts and directions of one
/// problem pay once.
#[derive(Default)]
pub struct References {
    whole: Vec<Kept<Whole>>,
    planes: Vec<Kept<Arc<Vec<PlaneReference>>>>,
}

/// Takes the entry of a problem out of `entries`. Where there is none, it drops the longest
/// unused, the last ones, before another is computed: two large references may not fit at once.
fn take<R>(
    entries: &mut Vec<Kept<R>>,
    (problem, seed): (&Problem, u64),
    serves: impl Fn(&Problem) -> bool,
) -> Option<Kept<R>> {
    let mine = |entry: &Kept<R>| entry.seed == seed && serves(&entry.problem);
    if let Some(at) = entries.iter().position(mine) {
        return Some(entries.remove(at));
    }
    // Elements of any type become float64, and gradients lie beside what they are of.
    let bytes = |problem: &Problem| memory_bytes(problem, false).saturating_mul(8);
    let kept = entries.iter().map(|entry| bytes(&entry.problem));
    let mut kept_bytes = kept.fold(bytes(problem), u64::saturating_add);
    while entries.len() >= KEPT && kept_bytes > KEPT_BYTES {
        if let Some(entry) = entries.pop() {
            kept_bytes = kept_bytes.saturating_sub(bytes(&entry.problem));
        }
    }
    None
}

impl References {
    /// Compares whole results, in the order of the problem's own.
    ///
    /// # Errors
    /// A reference that does not fit into memory, or results of other sizes.
    pub fn check_whole(
        &mut self,
        problem: &Problem,
        seed: u64,
        results: &[Vec<f32>],
    ) -> Result<Checked, String> {
        let (forward, gradients) = self
            .whole(problem, seed)
            .map_err(|error| error.to_string())?;
        checked(problem, seed, results, |name, result| {
            let reference = match (name, gradients.as_deref()) {
                ("dq", Some(reference)) => &reference.dq,
                ("dk", Some(reference)) => &reference.dk,
                ("dv", Some(reference)) => &reference.dv,
                _ => &forward.out,
            };
            let mut sums = ErrorSums::new();
            sums.compare(result, reference);
            sums
        })
    }

    /// Compares the planes of results that are compared after timing. The whole of each is
    /// looked at for elements that are not finite.
    ///
    /// # Errors
    /// As [`check_whole`](References::check_whole).
    pub fn check_planes(
        &mut self,
        problem: &Problem,
        seed: u64,
        results: &[Vec<f32>],
    ) -> Result<Checked, String> {
        let planes = self.planes(problem, seed);
        let planes = planes.map_err(|error| format!("the check after timing: {error}"))?;
        checked(problem, seed, results, |name, result| {
            let mut sums = ErrorSums::new();
            sums.finite = result.par_iter().all(|value| value.is_finite());
            planes
                .iter()
                .for_each(|plane| plane.compare(name, result, &mut sums));
            sums
        })
    }

    fn whole(&mut self, problem: &Problem, seed: u64) -> Result<Whole, TooLarge> {
        let wanted = problem.direction.has_backward();
        // Layout and direction change nothing about the values.
        let problem = problem.same_values().with(Direction::Forward);
        let mut entry = match take(&mut self.whole, (&problem, seed), |kept| *kept == problem) {
            Some(entry) => entry,
            None => {
                let inputs = Inputs::generate(&problem, seed)?;
                let forward = Arc::new(reference::forward(&problem, &inputs)?);
                Kept {
                    problem,
                    seed,
                    reference: (forward, None),
                }
            }
        };
        if wanted && entry.reference.1.is_none() {
            let inputs = Inputs::generate(&entry.problem, seed)?;
            let gradients = reference::backward(&entry.problem, &inputs, &entry.reference.0)?;
            entry.reference.1 = Some(Arc::new(gradients));
        }
        let reference = entry.reference.clone();
        self.whole.insert(0, entry);
        Ok(reference)
    }

    fn planes(
        &mut self,
        problem: &Problem,
        seed: u64,
    ) -> Result<Arc<Vec<PlaneReference>>, TooLarge> {
        let wanted = problem.same_values();
        // Gradients come with forward.
        let both = wanted.with(Direction::Both);
        let serves = |kept: &Problem| *kept == both || *kept == wanted;
        let entry = match take(&mut self.planes, (&wanted, seed), serves) {
            Some(entry) => entry,
            None => {
                let checked = checked_runs(reference::planes(&wanted));
                let mut checked = checked.into_iter().flatten().peekable();
                let places = reference::places(&wanted).enumerate();
                let places = places.filter(|(at, _)| checked.next_if_eq(at).is_some());
                let places: Vec<_> = places.map(|(_, place)| place).collect();
                let planes = places.into_par_iter();
                let planes = planes.map(|place| PlaneReference::compute(&wanted, place, seed));
                Kept {
                    reference: Arc::new(planes.collect::<Result<_, _>>()?),
                    problem: wanted,
                    seed,
                }
            }
        };
        let planes = entry.reference.clone();
        self.planes.insert(0, entry);
        Ok(planes)
    }
}

/// The figures of results by their names: errors, and the elements that the protocol asks for.
fn checked(
    problem: &Problem,
    seed: u64,
    found: &[Vec<f32>],
    compare: impl Fn(&str, &[f32]) -> ErrorSums,
) -> Result<Checked, String> {
    let named = results(problem.direction);
    if found.len() != named.len() {
        let (there, wanted) = (found.len(), named.len());
        return Err(format!("{there} results, {wanted} are asked for"));
    }
    let (mut errors, mut probes) = (BTreeMap::new(), BTreeMap::new());
    for ((name, _), result) in named.iter().zip(found) {
        let wanted: u64 = result_shape(problem, name).into_iter().product();
        if result.len() as u64 != wanted {
            let there = result.len();
            return Err(format!("{name} has {there} elements, not {wanted}"));
        }
        errors.insert((*name).to_owned(), compare(name, result).error());
        let finite = |value: f64| value.is_finite().then_some(value);
        let probed = probe_indices(wanted, PROBES).map(|at| finite(result[at as usize].into()));
        probes.insert((*name).to_owned(), probed.collect());
    }
    Ok(Checked {
        seed,
        errors,
        probes,
    })
}
