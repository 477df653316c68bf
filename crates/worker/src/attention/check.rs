//! Compares results with the float64 reference, which several variants of a problem share.

use std::sync::Arc;

use rayon::prelude::*;

use super::Attention;
use super::reference::{self, PlaneReference, TooLarge, checked_runs, result_shape};
use crate::inputs::{drawn, probe_indices};
use crate::operator::{Direction, Problem};
use crate::protocol::{Checked, PROBES};
use crate::tolerance::ErrorSums;

/// The number of references that are cached regardless of their size.
const MAX_REFERENCES: usize = 4;

/// Further references are cached while all of them have at most this many bytes: many small
/// problems recur in random order.
const MAX_BYTES: u128 = 256 << 20;

/// A timed call that is checked in addition to the last one.
pub struct DrawnCall {
    /// The number of the call, from 1.
    pub number: u32,
    /// The seed of its inputs.
    pub seed: u64,
    /// The results.
    pub results: Vec<Vec<f32>>,
}

/// Planes of a reference: all of a problem, or those that a draw chooses.
struct CachedReference {
    problem: Attention,
    seed: u64,
    planes: Planes,
    references: Arc<Vec<PlaneReference>>,
}

/// The planes of results that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planes {
    /// All planes, for the check of the first call.
    All,
    /// The planes of [`checked_runs`] for this draw.
    Drawn(u64),
}

impl CachedReference {
    fn bytes(&self) -> u128 {
        let planes = self.references.iter();
        planes.map(|plane| plane.place.bytes()).sum()
    }
}

/// The references of the last few problems, so that they are computed once for several variants,
/// layouts and directions of a problem.
#[derive(Default)]
pub struct References(Vec<CachedReference>);

impl References {
    /// Compares planes of results, which are in the order of the problem's results. All elements of
    /// each result are checked for being finite.
    ///
    /// # Errors
    /// The reference does not fit into memory, or results have other sizes.
    pub fn check(
        &mut self,
        problem: &Problem,
        (seed, draw): (u64, Option<u64>),
        planes: Planes,
        results: &[Vec<f32>],
    ) -> Result<Checked, String> {
        let problem = problem.attention()?;
        let references = self.planes(problem, seed, planes);
        let references = references.map_err(|error| error.to_string())?;
        let named = problem.results();
        if results.len() != named.len() {
            let (there, wanted) = (results.len(), named.len());
            return Err(format!("{there} results, {wanted} are asked for"));
        }
        let mut checked = Checked {
            seed,
            draw,
            ..Checked::default()
        };
        for ((name, _), result) in named.iter().zip(results) {
            let wanted: u64 = result_shape(problem, name).into_iter().product();
            if result.len() as u64 != wanted {
                let there = result.len();
                return Err(format!("{name} has {there} elements, not {wanted}"));
            }
            let compared = references.par_iter().map(|plane| {
                let mut sums = ErrorSums::new();
                plane.compare(name, result, &mut sums);
                sums
            });
            let mut sums = compared.reduce(ErrorSums::new, |mut sums, other| {
                sums.add(&other);
                sums
            });
            sums.finite &= result.par_iter().all(|value| value.is_finite());
            checked.errors.insert((*name).to_owned(), sums.error());
            let finite = |value: f64| value.is_finite().then_some(value);
            let indices = probe_indices(wanted, PROBES, draw);
            let probed = indices.map(|at| finite(result[at as usize].into()));
            checked.probes.insert((*name).to_owned(), probed.collect());
        }
        Ok(checked)
    }

    /// Compares a plane of a timed call's results, which the call's number determines. Replaces
    /// errors in `checked` that are smaller.
    ///
    /// # Errors
    /// As [`check`](References::check).
    pub fn check_call(
        problem: &Problem,
        call: &DrawnCall,
        draw: u64,
        checked: &mut Checked,
    ) -> Result<(), String> {
        let problem = problem.attention()?;
        let count = reference::planes(problem) as u64;
        let place = drawn(draw, u64::from(call.number), count) as usize;
        let Some(place) = reference::places(problem).nth(place) else {
            return Ok(());
        };
        let plane = PlaneReference::compute(problem, place, call.seed);
        let plane = plane.map_err(|error| format!("the check after timing: {error}"))?;
        for ((name, _), result) in problem.results().iter().zip(&call.results) {
            let mut sums = ErrorSums::new();
            plane.compare(name, result, &mut sums);
            checked.add_call(name, sums.error(), call.number);
        }
        Ok(())
    }

    fn planes(
        &mut self,
        problem: &Attention,
        seed: u64,
        planes: Planes,
    ) -> Result<Arc<Vec<PlaneReference>>, TooLarge> {
        // Values do not depend on layout and direction, and a reference with gradients has forward
        // too.
        let wanted = problem.same_values();
        let both = wanted.with(Direction::Both);
        let serves = |cached: &CachedReference| {
            let problem = &cached.problem;
            let same = (cached.seed, cached.planes) == (seed, planes);
            same && (*problem == wanted || *problem == both)
        };
        let entry = match self.0.iter().position(serves) {
            Some(at) => self.0.remove(at),
            None => {
                self.make_room();
                let chosen: Vec<_> = match planes {
                    Planes::All => reference::places(&wanted).collect(),
                    Planes::Drawn(draw) => {
                        let runs = checked_runs(reference::planes(&wanted), draw);
                        let mut runs = runs.into_iter().flatten().peekable();
                        let places = reference::places(&wanted).enumerate();
                        let places = places.filter(|(at, _)| runs.next_if_eq(at).is_some());
                        places.map(|(_, place)| place).collect()
                    }
                };
                let computed = chosen.into_par_iter();
                let computed = computed.map(|place| PlaneReference::compute(&wanted, place, seed));
                CachedReference {
                    references: Arc::new(computed.collect::<Result<_, _>>()?),
                    problem: wanted,
                    seed,
                    planes,
                }
            }
        };
        let references = entry.references.clone();
        self.0.insert(0, entry);
        Ok(references)
    }

    /// Drops the references that were unused for longest (the last ones) before another is
    /// computed: two large references may not fit into memory at the same time.
    fn make_room(&mut self) {
        while self.0.len() >= MAX_REFERENCES
            && self.0.iter().map(CachedReference::bytes).sum::<u128>() > MAX_BYTES
        {
            self.0.pop();
        }
    }
}
