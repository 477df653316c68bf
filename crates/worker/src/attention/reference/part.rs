//! The reference of part of a problem, computed from the seed alone, for checks that have to be
//! cheap or to use little memory.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use super::plane::{
    Elements, Heads, Plane, PlaneForward, PlaneGradients, PlaneId, TooLarge, places, planes, seeded,
};
use super::{projection, projection_bytes};
use crate::attention::inputs::Tensor;
use crate::attention::{Attention, work};
use crate::inputs::probe_indices;
use crate::protocol::PROBES;
use crate::tolerance::{ErrorSums, Expected};

/// The reference of one plane.
pub struct PlaneReference {
    /// The place of the plane.
    pub place: PlaneId,
    forward: PlaneForward,
    gradients: Option<PlaneGradients>,
    dims: (usize, usize),
}

impl PlaneReference {
    /// Computes a plane for the inputs of a seed, with gradients if the problem's direction has
    /// them.
    ///
    /// # Errors
    /// It does not fit into memory.
    pub fn compute(
        problem: &Attention,
        place: PlaneId,
        seed: u64,
    ) -> Result<PlaneReference, TooLarge> {
        PlaneReference::from_elements(problem, place, &seeded(seed, problem.dtype))
    }

    pub(super) fn from_elements(
        problem: &Attention,
        place: PlaneId,
        source: Elements,
    ) -> Result<PlaneReference, TooLarge> {
        let dims = (problem.head_dim as usize, problem.head_dim_v as usize);
        let plane = Plane::new(&place, source)?;
        let forward = plane.forward()?;
        let gradients = if problem.direction.has_backward() {
            let dout = place.gather(Heads::Query, dims.1, |at| source(Tensor::Dout, at))?;
            Some(plane.backward(&dout, &forward)?)
        } else {
            None
        };
        Ok(PlaneReference {
            place,
            forward,
            gradients,
            dims,
        })
    }

    /// The rows of a result (`out`, `dq`, `dk`, `dv`) that the mask does not make 0, with their
    /// heads and their length.
    pub fn result(&self, name: &str) -> Option<(Heads, usize, &[f64])> {
        let (d, dv) = self.dims;
        let gradients = self.gradients.as_ref();
        match name {
            "out" => Some((Heads::Query, dv, &self.forward.out)),
            "dq" => gradients.map(|gradients| (Heads::Query, d, &gradients.dq[..])),
            "dk" => gradients.map(|gradients| (Heads::Key, d, &gradients.dk[..])),
            "dv" => gradients.map(|gradients| (Heads::Key, dv, &gradients.dv[..])),
            _ => None,
        }
    }

    /// Writes a result to its place in the whole tensor.
    pub(super) fn scatter(&self, name: &str, whole: &mut [f64]) {
        if let Some((side, dim, values)) = self.result(name) {
            for (row, values) in values.chunks_exact(dim).enumerate() {
                whole[self.place.index(side, row, dim)..][..dim].copy_from_slice(values);
            }
        }
    }

    /// Adds the errors of this plane to `sums`. `result` is the whole tensor in logical order.
    pub fn compare(&self, name: &str, result: &[f32], sums: &mut ErrorSums) {
        let Some((side, dim, values)) = self.result(name) else {
            return;
        };
        let place = &self.place;
        let (members, rows) = match side {
            Heads::Query => (place.group, place.seq_q),
            Heads::Key => (1, place.seq_k),
        };
        let (seen, zeros) = (place.seen(side), vec![0.0; dim]);
        for member in 0..members {
            for row in 0..rows {
                let right = if seen.contains(&row) {
                    &values[(member * seen.len() + row - seen.start) * dim..][..dim]
                } else {
                    &zeros[..]
                };
                sums.compare(&result[place.start(side, member, row, dim)..][..dim], right);
            }
        }
    }
}

/// The planes that a check after timing compares, as runs of neighbours: at least one plane and at
/// least an eighth of them. Half of these are the first planes; the others are spread over the rest
/// and include the last. `draw` rotates all of them.
pub fn checked_runs(planes: usize, draw: u64) -> Vec<Range<usize>> {
    /// Few runs, so that a device is not kept busy with launches.
    const RUNS: usize = 4;
    let count = planes.div_ceil(8);
    let first = count.div_ceil(2);
    let spread = count - first;
    let runs = spread.min(RUNS);
    let rest = (0..runs).map(|run| {
        let length = spread / runs + usize::from(run < spread % runs);
        let end = first + (run + 1) * (planes - first) / runs;
        end - length..end
    });
    let shift = (draw % planes.max(1) as u64) as usize;
    let moved = std::iter::once(0..first).chain(rest).flat_map(|run| {
        let (start, end) = (run.start + shift, run.end + shift);
        let around = start.saturating_sub(planes)..end.saturating_sub(planes);
        [start.min(planes)..end.min(planes), around]
    });
    moved.filter(|run| !run.is_empty()).collect()
}

/// The minimum number of bytes that [`Attention::expected`] needs: those of the largest plane, or
/// of a projection's weights and result.
fn bytes(problem: &Attention) -> u128 {
    match &problem.projection {
        Some(of) => projection_bytes(problem, of),
        // All planes have the same size unless the batch is ragged.
        None if problem.varlen.is_none() => places(problem).next().map_or(0, |one| one.bytes()),
        None => places(problem).map(|one| one.bytes()).max().unwrap_or(0),
    }
}

impl Attention {
    /// The minimum number of operations and bytes that [`expected`](Attention::expected) needs.
    /// Forward and backward count together, and each plane adds a thousand operations.
    pub fn cost_of_reference(&self) -> (f64, u128) {
        const EACH_PLANE: f64 = 1e3;
        let operations = match self.with_gradients() {
            Some(both) => work::flops(&both) + EACH_PLANE * planes(self) as f64,
            None => work::flops(self),
        };
        (operations, bytes(self))
    }

    /// The expected results of a problem: elements at [`PROBES`] indices, and the size of the
    /// elements around them. For `out` and `dq`, only the rows of these elements are computed; for
    /// `dk` and `dv` their planes, as many at a time as fit into `memory` bytes.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn expected(
        &self,
        seed: u64,
        draw: Option<u64>,
        memory: u64,
    ) -> Result<BTreeMap<&'static str, Expected>, TooLarge> {
        if let Some(of) = &self.projection {
            let out = projection(self, of, seed)?;
            let expected = Expected::from_tensor(&out, PROBES, draw);
            return Ok(BTreeMap::from([("out", expected)]));
        }
        let mut by_name = BTreeMap::new();
        let mut wanted = Vec::new();
        for &(name, _) in self.results() {
            let [rows, heads, dim] = result_shape(self, name);
            let elements = rows.saturating_mul(heads).saturating_mul(dim);
            let indices: Vec<u64> = probe_indices(elements, PROBES, draw).collect();
            for (number, index) in indices.iter().enumerate() {
                let (x, rest) = (index % dim, index / dim);
                let (row, head) = ((rest / heads) as usize, (rest % heads) as usize);
                wanted.push((name, number, row, head, x as usize));
            }
            let expected = Expected {
                // Elements outside of all planes are 0 because of the mask.
                probes: indices.into_iter().map(|index| (index, 0.0)).collect(),
                squares: 0.0,
                elements: 0,
            };
            by_name.insert(name, expected);
        }
        let side = |name: &str| match name {
            "out" | "dq" => Heads::Query,
            _ => Heads::Key,
        };
        // Each part with the probes in it: a single query with one, or a plane's keys with several.
        let mut parts = Vec::new();
        for place in places(self) {
            let mut keys = Vec::new();
            for &(name, number, row, head, x) in &wanted {
                let Some(at) = place.row_of(side(name), row, head) else {
                    continue;
                };
                match side(name) {
                    Heads::Query => {
                        let part = place.of_query(row);
                        let at = part.row_of(Heads::Query, row, head).unwrap_or(0);
                        parts.push((part, vec![(name, number, at, x)]));
                    }
                    Heads::Key => keys.push((name, number, at, x)),
                }
            }
            if !keys.is_empty() {
                parts.push((place, keys));
            }
        }
        let at_once = u128::from(memory) / bytes(self).max(1);
        let at_once = at_once.clamp(1, 4 * rayon::current_num_threads() as u128) as usize;
        for batch in parts.chunks(at_once) {
            let computed = batch.par_iter().map(|(place, probes)| {
                let part = PlaneReference::compute(self, place.clone(), seed)?;
                Ok((part, probes))
            });
            for (part, probes) in computed.collect::<Result<Vec<_>, TooLarge>>()? {
                for &(name, number, at, x) in probes {
                    let (Some(expected), Some((_, dim, values))) =
                        (by_name.get_mut(name), part.result(name))
                    else {
                        continue;
                    };
                    expected.probes[number].1 = values[at * dim + x];
                    expected.squares += values.iter().map(|x| x * x).sum::<f64>();
                    expected.elements += values.len() as u64;
                }
            }
        }
        Ok(by_name)
    }
}

/// The shape of a result (`out`, `dq`, `dk`, `dv`): rows over all sequences, heads, and elements of
/// a row.
pub fn result_shape(problem: &Attention, name: &str) -> [u64; 3] {
    let (rows_q, rows_k) = (problem.total_q(), problem.total_k());
    let (heads, kv_heads) = (problem.heads.into(), problem.kv_heads.into());
    let (d, dv) = (problem.head_dim.into(), problem.head_dim_v.into());
    match name {
        "out" => [rows_q, heads, dv],
        "dq" => [rows_q, heads, d],
        "dk" => [rows_k, kv_heads, d],
        _ => [rows_k, kv_heads, dv],
    }
}
