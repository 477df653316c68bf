//! The float64 reference of a problem on the device, of all of it or of a part.

use super::argument::{DeviceProblem, Results};
use super::case::{Case, Sizes};
use super::driver::Device;
use super::error::CudaError;
use super::launch::launch;
use super::memory::Memory;
use super::view::View;
use crate::kernels::contract::{Kernel, contracts};
use regatta_worker::attention::Problem;

/// How much of a problem a reference is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, for the check of the first call.
    Whole,
    /// The planes that are compared after timing.
    Part,
}

impl Extent {
    fn views(self, problem: &Problem) -> Vec<View> {
        match self {
            Extent::Whole => vec![View::whole(problem)],
            Extent::Part => View::checked(problem),
        }
    }
}

/// The float64 results of one problem, on the device.
pub struct Reference {
    problem: Problem,
    seed: u64,
    pub(super) extent: Extent,
    /// Each view with its results.
    pub views: Vec<(View, Results)>,
    memory: Vec<Memory>,
}

/// Bytes that the reference of a problem takes.
pub fn reference_bytes(problem: &Problem, extent: Extent) -> u64 {
    let of = |view: &View| {
        let sizes = Sizes::of(&view.problem(problem));
        let gradients = match problem.direction.has_backward() {
            true => sizes.q + sizes.k + sizes.v + sizes.rows,
            false => 0,
        };
        8 * (sizes.out + sizes.rows + gradients)
    };
    extent.views(problem).iter().map(of).sum()
}

impl Reference {
    /// Computes it from the inputs of a case, which are those of `seed`.
    ///
    /// # Errors
    /// Short memory, the compiler's, the driver's.
    pub fn of(
        device: &mut Device,
        case: &Case,
        seed: u64,
        extent: Extent,
    ) -> Result<Reference, CudaError> {
        let p = case.problem();
        let mut memory = Vec::new();
        let mut views = Vec::new();
        for view in extent.views(p) {
            let small = view.problem(p);
            let results = placed(device, &small, &mut memory)?;
            let figures = view.figures(p, &case.figures);
            computed(device, &small, figures, results)?;
            views.push((view, results));
        }
        device.synchronise()?;
        Ok(Reference {
            problem: p.same_values(),
            seed,
            extent,
            views,
            memory,
        })
    }

    /// True when it is this problem's: layout changes nothing about the values.
    pub fn is_of(&self, problem: &Problem, seed: u64, extent: Extent) -> bool {
        self.extent == extent && self.seed == seed && self.problem == problem.same_values()
    }

    /// Bytes of device memory that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.memory.iter().map(Memory::bytes).sum()
    }
}

/// Memory for the results of a problem.
fn placed(
    device: &Device,
    problem: &Problem,
    memory: &mut Vec<Memory>,
) -> Result<Results, CudaError> {
    let sizes = Sizes::of(problem);
    let mut place = |elements: u64| -> Result<u64, CudaError> {
        let doubles = device.allocate(8 * elements)?;
        let pointer = doubles.pointer();
        memory.push(doubles);
        Ok(pointer)
    };
    let mut results = Results {
        out: place(sizes.out)?,
        lse: place(sizes.rows)?,
        ..Results::default()
    };
    if problem.direction.has_backward() {
        results.delta = place(sizes.rows)?;
        results.dq = place(sizes.q)?;
        results.dk = place(sizes.k)?;
        results.dv = place(sizes.v)?;
    }
    Ok(results)
}

/// Queues the reference's kernels.
fn computed(
    device: &mut Device,
    problem: &Problem,
    figures: DeviceProblem,
    results: Results,
) -> Result<(), CudaError> {
    for (kernel, grid) in steps(problem) {
        launch(device, kernel, problem.dtype, grid, figures, Some(results))?;
    }
    Ok(())
}

/// The reference's kernels, in order, with their grids.
fn steps(p: &Problem) -> Vec<(&'static Kernel, [u32; 3])> {
    let kernels = &contracts().reference;
    let (own_queries, own_keys) = (kernels.dq.tile(), kernels.dk.tile());
    let planes = p.batch * p.heads;
    let queries = p.seq_q.div_ceil(own_queries.queries);
    let keys = p.seq_k.div_ceil(own_keys.keys);
    let d = p.head_dim.div_ceil(own_queries.columns);
    let dv = p.head_dim_v.div_ceil(own_queries.columns);
    let mut steps = vec![
        (&kernels.lse, [queries, planes, 1]),
        (&kernels.out, [queries, planes, dv]),
    ];
    if p.direction.has_backward() {
        let kv_planes = p.batch * p.kv_heads;
        let delta_rows = p.seq_q.div_ceil(kernels.delta.tile().queries);
        steps.extend([
            (&kernels.delta, [delta_rows, planes, 1]),
            (&kernels.dq, [queries, planes, d]),
            (&kernels.dk, [keys, kv_planes, d]),
            (&kernels.dv, [keys, kv_planes, dv]),
        ]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_takes_about_an_eighth_of_the_whole() {
        assert_eq!(size_of::<Results>(), 48);
        for id in ["b4,h16,s64,d64", "b4,h16,kv4,s64,d64,bwd"] {
            let problem: Problem = id.parse().unwrap();
            let bytes = |extent| reference_bytes(&problem, extent);
            assert_eq!(8 * bytes(Extent::Part), bytes(Extent::Whole), "{id}");
        }
        let one: Problem = "s64,d64".parse().unwrap();
        let bytes = |extent| reference_bytes(&one, extent);
        assert_eq!(bytes(Extent::Part), bytes(Extent::Whole));
    }
}
