//! The float64 reference of a problem on the device, for all of it or for a part. A part is a set
//! of adjacent planes, which kernels compute as a smaller problem at other addresses.

use std::ops::Range;

use regatta_worker::attention::Attention;
use regatta_worker::attention::reference::{Heads, checked_runs};

use super::argument::{DeviceProblem, DeviceTensor};
use super::case::CudaCase;
use super::driver::{CudaDevice, Memory, launch};
use super::error::CudaError;
use crate::plan::Pointer;

/// The part of a problem that a reference covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of the problem, for the check of the first call.
    Whole,
    /// The planes that are compared after timing, which the draw chooses.
    Part(u64),
    /// One plane, for the check of a drawn call.
    Plane(usize),
}

impl Extent {
    pub fn views(self, problem: &Attention) -> Vec<View> {
        match self {
            Extent::Whole => vec![View::whole(problem)],
            Extent::Part(draw) => View::checked(problem, draw),
            Extent::Plane(plane) => View::of_run(problem, plane..plane + 1),
        }
    }
}

/// The float64 results of a problem, on the device.
pub struct Reference {
    problem: Attention,
    seed: u64,
    pub(super) extent: Extent,
    /// Each view with its results.
    pub views: Vec<(View, ReferencePointers)>,
    memory: Vec<Memory>,
}

/// The results of a reference, in double precision, in the order of `Reference` of `reference.cu`.
const RESULTS: [Pointer; 6] = {
    use Pointer::{Delta, Dk, Dq, Dv, Lse, Out};
    [Out, Lse, Delta, Dq, Dk, Dv]
};

/// `Reference` of `reference.cu`: the address of each result, which is contiguous in logical order;
/// 0 if the problem does not have the result.
pub type ReferencePointers = [u64; RESULTS.len()];

/// The address of a result.
pub fn address(results: &ReferencePointers, of: Pointer) -> u64 {
    let mut pairs = RESULTS.into_iter().zip(results);
    pairs
        .find(|(result, _)| *result == of)
        .map_or(0, |(_, address)| *address)
}

/// Bytes that the reference of a problem needs.
pub fn reference_bytes(problem: &Attention, extent: Extent) -> u64 {
    let bytes = |view: &View| -> u64 {
        let small = view.problem(problem);
        let there = RESULTS.into_iter().filter(|pointer| pointer.is_of(problem));
        there.map(|pointer| 8 * pointer.elements(&small)).sum()
    };
    extent.views(problem).iter().map(bytes).sum()
}

impl Reference {
    /// Computes the reference from the inputs of a case, which are those of `seed`.
    ///
    /// # Errors
    /// Not enough memory, or an error of the compiler or the driver.
    pub fn compute(
        device: &mut CudaDevice,
        case: &CudaCase,
        seed: u64,
        extent: Extent,
    ) -> Result<Reference, CudaError> {
        let p = &case.problem;
        let mut memory = Vec::new();
        let mut views = Vec::new();
        for view in extent.views(p) {
            let small = view.problem(p);
            let results = placed(device, &small, &mut memory)?;
            let figures = view.figures(p, &case.figures);
            let backward = ["delta", "dq", "dk", "dv"];
            let backward = backward.into_iter().filter(|_| p.direction.has_backward());
            for check in ["lse", "out"].into_iter().chain(backward) {
                launch(device, check, &small, figures, Some(results))?;
            }
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

    /// True if it is the reference of this problem. The layout does not matter for the values.
    pub fn is_of(&self, problem: &Attention, seed: u64, extent: Extent) -> bool {
        self.extent == extent && self.seed == seed && self.problem == problem.same_values()
    }

    /// Bytes of device memory that it has allocated.
    pub fn held_bytes(&self) -> u64 {
        self.memory.iter().map(|memory| memory.bytes as u64).sum()
    }
}

/// Allocates memory for the results of a problem.
fn placed(
    device: &CudaDevice,
    problem: &Attention,
    memory: &mut Vec<Memory>,
) -> Result<ReferencePointers, CudaError> {
    let mut results = ReferencePointers::default();
    for (address, of) in results.iter_mut().zip(RESULTS) {
        if of.is_of(problem) {
            let doubles = device.allocate(8 * of.elements(problem))?;
            *address = doubles.pointer;
            memory.push(doubles);
        }
    }
    Ok(results)
}

/// Some key-value heads of some sequences, with the query heads that read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    batch: u32,
    batches: u32,
    kv_head: u32,
    kv_heads: u32,
}

impl View {
    /// All of a problem.
    pub fn whole(p: &Attention) -> View {
        View {
            batch: 0,
            batches: p.batch,
            kv_head: 0,
            kv_heads: p.kv_heads,
        }
    }

    /// The parts that a check after timing compares.
    pub fn checked(p: &Attention, draw: u64) -> Vec<View> {
        let runs = checked_runs(p.batch as usize * p.kv_heads as usize, draw);
        runs.into_iter()
            .flat_map(|run| View::of_run(p, run))
            .collect()
    }

    /// All of a problem in parts of about an eighth each, of at least one plane.
    pub fn eighths(p: &Attention) -> Vec<View> {
        let planes = p.batch as usize * p.kv_heads as usize;
        let each = planes.div_ceil(8);
        let runs = (0..planes).step_by(each);
        runs.flat_map(|start| View::of_run(p, start..(start + each).min(planes)))
            .collect()
    }

    /// The planes of a run as views: the rest of its first sequence, whole sequences, and the start
    /// of its last one.
    fn of_run(p: &Attention, run: Range<usize>) -> Vec<View> {
        let heads = p.kv_heads as usize;
        let mut views = Vec::new();
        let mut at = run.start;
        while at < run.end {
            let (batch, kv_head) = (at / heads, at % heads);
            let left = run.end - at;
            let (batches, kv_heads) = if kv_head == 0 && left >= heads {
                (left / heads, heads)
            } else {
                (1, left.min(heads - kv_head))
            };
            views.push(View {
                batch: batch as u32,
                batches: batches as u32,
                kv_head: kv_head as u32,
                kv_heads: kv_heads as u32,
            });
            at += batches * kv_heads;
        }
        views
    }

    /// The problem that this part is.
    pub fn problem(&self, p: &Attention) -> Attention {
        Attention {
            batch: self.batches,
            heads: self.kv_heads * (p.heads / p.kv_heads),
            kv_heads: self.kv_heads,
            ..p.clone()
        }
    }

    /// A tensor of the whole problem, starting at this part.
    pub fn tensor(&self, p: &Attention, tensor: &DeviceTensor, heads: Heads) -> DeviceTensor {
        let head = match heads {
            Heads::Query => self.kv_head * (p.heads / p.kv_heads),
            Heads::Key => self.kv_head,
        };
        let elements = i64::from(self.batch) * tensor.batch + i64::from(head) * tensor.head;
        DeviceTensor {
            data: tensor.data + elements.unsigned_abs() * p.dtype.bytes(),
            ..*tensor
        }
    }

    /// The arguments of the reference's kernels for this part.
    pub fn figures(&self, p: &Attention, whole: &DeviceProblem) -> DeviceProblem {
        let small = self.problem(p);
        let mut tensors = whole.tensors;
        for pointer in Pointer::TENSORS
            .into_iter()
            .filter(|pointer| pointer.is_input())
        {
            let tensor = &mut tensors[pointer as usize];
            *tensor = self.tensor(p, tensor, pointer.heads());
        }
        DeviceProblem {
            tensors,
            batch: small.batch as i32,
            heads: small.heads as i32,
            kv_heads: small.kv_heads as i32,
            ..*whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_takes_about_an_eighth_of_the_whole() {
        assert_eq!(size_of::<ReferencePointers>(), 48);
        for id in ["b4,h16,s64,d64", "b4,h16,kv4,s64,d64,bwd"] {
            let problem: Attention = id.parse().unwrap();
            let bytes = |extent| reference_bytes(&problem, extent);
            assert_eq!(8 * bytes(Extent::Part(5)), bytes(Extent::Whole), "{id}");
        }
        let one: Attention = "s64,d64".parse().unwrap();
        let bytes = |extent| reference_bytes(&one, extent);
        assert_eq!(bytes(Extent::Part(5)), bytes(Extent::Whole));
    }

    fn problem(id: &str) -> Attention {
        id.parse().unwrap()
    }

    fn planes(p: &Attention, views: &[View]) -> Vec<u32> {
        let planes_of = |view: &View| {
            let (batch, batches, head, heads) =
                (view.batch, view.batches, view.kv_head, view.kv_heads);
            (batch..batch + batches).flat_map(move |b| (head..head + heads).map(move |h| (b, h)))
        };
        let planes = views.iter().flat_map(planes_of);
        planes.map(|(b, h)| b * p.kv_heads + h).collect()
    }

    #[test]
    fn views_are_the_planes_of_the_check_and_together_all_of_them() {
        for id in [
            "s8,d8",
            "b3,h8,kv4,s8,d8",
            "b70,h6,kv3,s8,d8",
            "h128,s8,d8",
            "b99,s8,d8",
        ] {
            let p = problem(id);
            let all = p.batch * p.kv_heads;
            for draw in [0, 3, u64::MAX] {
                let checked = View::checked(&p, draw);
                let wanted: Vec<u32> = checked_runs(all as usize, draw)
                    .into_iter()
                    .flatten()
                    .map(|plane| plane as u32)
                    .collect();
                assert_eq!(planes(&p, &checked), wanted, "{id}");
                assert!(checked.len() <= 18, "{id}: {checked:?}");
            }
            let eighths = View::eighths(&p);
            assert_eq!(planes(&p, &eighths), (0..all).collect::<Vec<u32>>(), "{id}");
            assert!(eighths.len() <= 24, "{id}");
            assert_eq!(
                planes(&p, &[View::whole(&p)]),
                (0..all).collect::<Vec<u32>>()
            );
        }
    }
}
