//! How far results are from the float64 reference, which several variants on one problem share.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::attention::inputs::{drawn, probe_indices};
use crate::attention::reference::{
    self, Forward, Gradients, Inputs, PlaneReference, TooLarge, checked_runs, result_shape,
};
use crate::attention::tolerance::{ErrorSums, results};
use crate::attention::work::memory_bytes;
use crate::attention::{Direction, Problem};
use crate::protocol::{Checked, Measure, PROBES, TensorError};

/// Problems whose reference is kept, however large.
const KEPT: usize = 3;

/// What references may take beyond these: many small problems come again in random order.
const KEPT_BYTES: u64 = 256 << 20;

/// A timed call that is checked beside the last one.
pub struct DrawnCall {
    /// Counted from 1.
    pub number: u32,
    /// Of its inputs.
    pub seed: u64,
    /// What it computed.
    pub results: Vec<Vec<f32>>,
}

/// The numbers of the calls that are checked beside the last of `request`: one of those that are
/// made whatever they cost, and two of all.
pub fn drawn_calls(request: &Measure, draw: u64) -> [u32; 3] {
    let most = request.samples.max(request.min_samples).saturating_sub(1);
    let least = request.min_samples.saturating_sub(1).min(most);
    let of = |k, below: u32| 1 + drawn(draw, k, below.into()) as u32;
    [of(0, least), of(1, most), of(2, most)]
}

/// The reference of a problem, or of a part of it.
struct Kept<R> {
    problem: Problem,
    /// Seed of its inputs, and the draw of its planes.
    key: (u64, u64),
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
    (problem, key): (&Problem, (u64, u64)),
    serves: impl Fn(&Problem) -> bool,
) -> Option<Kept<R>> {
    let mine = |entry: &Kept<R>| entry.key == key && serves(&entry.problem);
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
        (seed, draw): (u64, Option<u64>),
        results: &[Vec<f32>],
    ) -> Result<Checked, String> {
        let (forward, gradients) = self
            .whole(problem, seed)
            .map_err(|error| error.to_string())?;
        checked(problem, (seed, draw), results, |name, result| {
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
        (seed, draw): (u64, Option<u64>),
        results: &[Vec<f32>],
    ) -> Result<Checked, String> {
        let planes = self.planes(problem, seed, draw.unwrap_or(0));
        let planes = planes.map_err(|error| format!("the check after timing: {error}"))?;
        checked(problem, (seed, draw), results, |name, result| {
            let mut sums = ErrorSums::new();
            sums.finite = result.par_iter().all(|value| value.is_finite());
            planes
                .iter()
                .for_each(|plane| plane.compare(name, result, &mut sums));
            sums
        })
    }

    /// Compares a plane of a timed call's results, drawn by the call's number, and puts its errors
    /// in the place of smaller ones.
    ///
    /// # Errors
    /// As [`check_whole`](References::check_whole).
    pub fn check_call(
        problem: &Problem,
        call: &DrawnCall,
        draw: u64,
        checked: &mut Checked,
    ) -> Result<(), String> {
        let count = reference::planes(problem) as u64;
        let place = drawn(draw, u64::from(call.number), count) as usize;
        let Some(place) = reference::places(problem).nth(place) else {
            return Ok(());
        };
        let plane = PlaneReference::compute(problem, place, call.seed);
        let plane = plane.map_err(|error| format!("the check after timing: {error}"))?;
        for ((name, _), result) in results(problem.direction).iter().zip(&call.results) {
            let mut sums = ErrorSums::new();
            plane.compare(name, result, &mut sums);
            let error = sums.error();
            // What is not finite is worse than any number.
            let size = |of: &TensorError| of.relative_l2.unwrap_or(f64::INFINITY);
            if let Some(before) = checked.errors.get_mut(*name)
                && size(&error) > size(before)
            {
                (*before, checked.call) = (error, Some(call.number));
            }
        }
        Ok(())
    }

    fn whole(&mut self, problem: &Problem, seed: u64) -> Result<Whole, TooLarge> {
        let wanted = problem.direction.has_backward();
        // Layout and direction change nothing about the values.
        let problem = problem.same_values().with(Direction::Forward);
        let mut entry = match take(&mut self.whole, (&problem, (seed, 0)), |kept| {
            *kept == problem
        }) {
            Some(entry) => entry,
            None => {
                let inputs = Inputs::generate(&problem, seed)?;
                let forward = Arc::new(reference::forward(&problem, &inputs)?);
                Kept {
                    problem,
                    key: (seed, 0),
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
        draw: u64,
    ) -> Result<Arc<Vec<PlaneReference>>, TooLarge> {
        let wanted = problem.same_values();
        // Gradients come with forward.
        let both = wanted.with(Direction::Both);
        let serves = |kept: &Problem| *kept == both || *kept == wanted;
        let entry = match take(&mut self.planes, (&wanted, (seed, draw)), serves) {
            Some(entry) => entry,
            None => {
                let checked = checked_runs(reference::planes(&wanted), draw);
                let mut checked = checked.into_iter().flatten().peekable();
                let places = reference::places(&wanted).enumerate();
                let places = places.filter(|(at, _)| checked.next_if_eq(at).is_some());
                let places: Vec<_> = places.map(|(_, place)| place).collect();
                let planes = places.into_par_iter();
                let planes = planes.map(|place| PlaneReference::compute(&wanted, place, seed));
                Kept {
                    reference: Arc::new(planes.collect::<Result<_, _>>()?),
                    problem: wanted,
                    key: (seed, draw),
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
    (seed, draw): (u64, Option<u64>),
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
        let indices = probe_indices(wanted, PROBES, draw);
        let probed = indices.map(|at| finite(result[at as usize].into()));
        probes.insert((*name).to_owned(), probed.collect());
    }
    Ok(Checked {
        seed,
        errors,
        probes,
        draw,
        call: None,
    })
}
