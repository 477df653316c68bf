//! Inputs, the float64 reference and the comparison, on the device.
//!
//! `inputs.cu` computes the same as `attention::inputs`, and `reference.cu` the same as
//! `attention::reference`. The harness recomputes small problems and single elements itself.

use std::collections::BTreeMap;

use cudarc::driver::result;

use super::argument::DeviceTensor;
use super::case::CudaCase;
use super::driver::{CudaDevice, Memory, NAN_IN_EVERY_TYPE, copy_runs, launch};
use super::error::{CudaError, checked};
use super::reference::{Extent, Reference, View, address};
use crate::plan::Pointer;
use regatta_worker::attention::inputs::Tensor;
use regatta_worker::attention::{Attention, Layout};
use regatta_worker::case::Dtype;
use regatta_worker::inputs::{drawn, probe_indices};
use regatta_worker::protocol::{Checked, PROBES, TensorError};
use regatta_worker::tolerance::ErrorSums;

/// Blocks of `difference`, among which a tensor's elements are divided.
const BLOCKS: u32 = 1024;

/// Bytes of the output of `difference` in `reference.cu`: four doubles for each block.
const PARTIALS_BYTES: u64 = BLOCKS as u64 * 4 * 8;

/// A result of a case, or a part of it.
#[derive(Clone, Copy)]
struct ResultTensor {
    of: Pointer,
    tensor: DeviceTensor,
    /// The logical shape `[batch, seq, heads, dim]`.
    shape: [u32; 4],
}

impl ResultTensor {
    /// The part of it that belongs to `view`.
    fn part(&self, p: &Attention, view: View) -> ResultTensor {
        ResultTensor {
            of: self.of,
            tensor: view.tensor(p, &self.tensor, self.of.heads()),
            shape: self.of.shape(&view.problem(p)),
        }
    }
}

/// `Fill` of `inputs.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fill {
    to: DeviceTensor,
    seed: u64,
    tensor: u64,
    shape: [i32; 4],
}

/// `Difference` of `reference.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DifferenceArgument {
    result: DeviceTensor,
    reference: u64,
    partials: u64,
    shape: [i32; 4],
}

/// Writes the inputs of a case.
///
/// # Errors
/// An error of the driver or the compiler.
pub fn write_inputs(device: &mut CudaDevice, case: &CudaCase, seed: u64) -> Result<(), CudaError> {
    let (p, figures) = (case.problem.clone(), case.figures);
    for (tensor, of) in [
        (Tensor::Q, Pointer::Q),
        (Tensor::K, Pointer::K),
        (Tensor::V, Pointer::V),
        (Tensor::Dout, Pointer::Dout),
    ] {
        if of.is_of(&p) {
            let shape = of.shape(&p);
            let fill = Fill {
                to: figures.tensors[of as usize],
                seed,
                tensor: tensor as u64,
                shape: shape.map(|n| n as i32),
            };
            launch(device, "inputs", &p, fill, None)?;
        }
    }
    Ok(())
}

/// The results of a case, in the protocol's order.
fn results(case: &CudaCase) -> Vec<ResultTensor> {
    let (p, figures) = (&case.problem, &case.figures);
    let wanted = |of: &Pointer| match of {
        Pointer::Out => p.direction.has_forward(),
        _ => p.direction.has_backward(),
    };
    let results = [Pointer::Out, Pointer::Dq, Pointer::Dk, Pointer::Dv];
    let result = |of: Pointer| {
        let (tensor, shape) = (figures.tensors[of as usize], of.shape(p));
        ResultTensor { of, tensor, shape }
    };
    results.into_iter().filter(wanted).map(result).collect()
}

/// The error of each result, and single elements for the harness's own check.
pub type ComparedResults = (
    BTreeMap<String, TensorError>,
    BTreeMap<String, Vec<Option<f64>>>,
);

/// Compares every result of a case with the reference, in the planes that the reference has. All
/// elements of each result are checked for being finite.
///
/// # Errors
/// The driver's error.
pub fn compare(
    device: &mut CudaDevice,
    case: &CudaCase,
    reference: &Reference,
    draw: Option<u64>,
) -> Result<ComparedResults, CudaError> {
    let p = &case.problem;
    let mut partials = device.allocate(PARTIALS_BYTES)?;
    let (mut errors, mut probes) = ComparedResults::default();
    for result in results(case) {
        let mut sums = ErrorSums::new();
        for (view, right) in &reference.views {
            let part = result.part(p, *view);
            let right = address(right, result.of);
            sums.add(&difference(device, p, &part, right, &mut partials)?);
        }
        if matches!(reference.extent, Extent::Part(_)) {
            sums.finite &= all_finite(device, p, &result, &mut partials)?;
        }
        errors.insert(result.of.to_string(), sums.error());
        let probed = probe_elements(&result, p.dtype, draw)?;
        probes.insert(result.of.to_string(), probed);
    }
    Ok((errors, probes))
}

/// A timed call that is checked in addition to the last one. Has a plane of its results, copied
/// after the call.
pub struct CopiedCall {
    /// The number of the call, from 1.
    number: u32,
    /// The seed of its inputs.
    pub seed: u64,
    /// The planes that were computed.
    pub extent: Extent,
    copies: Vec<(ResultTensor, Memory)>,
}

impl CopiedCall {
    /// Copies the plane that `draw` chooses for call `number`, which was the last call.
    ///
    /// # Errors
    /// Not enough memory, or the driver's error.
    pub fn copy(
        device: &CudaDevice,
        case: &CudaCase,
        (number, seed, draw): (u32, u64, u64),
    ) -> Result<CopiedCall, CudaError> {
        let p = &case.problem;
        let planes = u64::from(p.batch) * u64::from(p.kv_heads);
        let extent = Extent::Plane(drawn(draw, number.into(), planes) as usize);
        let mut copies = Vec::new();
        for view in extent.views(p) {
            for result in results(case) {
                let part = result.part(p, view);
                let memory = device.allocate(elements(&part) * p.dtype.bytes())?;
                let dense = DeviceTensor::new(memory.pointer, part.shape, p.layout);
                let ends = (part.tensor.data, dense.data);
                copy_runs(device.stream, ends, runs(&part, p))?;
                let copy = ResultTensor {
                    tensor: dense,
                    ..part
                };
                copies.push((copy, memory));
            }
        }
        device.synchronise()?;
        Ok(CopiedCall {
            number,
            seed,
            extent,
            copies,
        })
    }

    /// Compares the plane with a reference of it. Replaces errors in `checked` that are smaller.
    ///
    /// # Errors
    /// The driver's error.
    pub fn check(
        &self,
        device: &mut CudaDevice,
        problem: &Attention,
        reference: &Reference,
        checked: &mut Checked,
    ) -> Result<(), CudaError> {
        let mut partials = device.allocate(PARTIALS_BYTES)?;
        for (_, right) in &reference.views {
            for (copy, _) in &self.copies {
                let right = address(right, copy.of);
                let sums = difference(device, problem, copy, right, &mut partials)?;
                checked.add_call(copy.of.name(), sums.error(), self.number);
            }
        }
        Ok(())
    }
}

/// The contiguous parts of a plane: bytes of each, their number, and bytes from one start to the
/// next.
fn runs(plane: &ResultTensor, p: &Attention) -> [u64; 3] {
    let [_, seq, heads, dim] = plane.shape.map(u64::from);
    let (length, count, step) = match p.layout {
        Layout::Bshd => (heads * dim, seq, plane.tensor.seq),
        Layout::Bhsd => (seq * dim, heads, plane.tensor.head),
    };
    let width = p.dtype.bytes();
    [length * width, count, step.unsigned_abs() * width]
}

/// The sums over one part of a result.
fn difference(
    device: &mut CudaDevice,
    problem: &Attention,
    result: &ResultTensor,
    reference: u64,
    partials: &mut Memory,
) -> Result<ErrorSums, CudaError> {
    let difference = DifferenceArgument {
        result: result.tensor,
        reference,
        partials: partials.pointer,
        shape: result.shape.map(|n| n as i32),
    };
    // Without this, a comparison that did not run would look like one without differences.
    partials.fill(NAN_IN_EVERY_TYPE, device.stream)?;
    launch(device, "difference", problem, difference, None)?;
    device.synchronise()?;
    let partials: Vec<f64> = partials.read(BLOCKS as usize * 4)?;
    Ok(added(&partials, elements(result)))
}

/// True if all elements of a result are finite. Compares an eighth of it at a time with zeros,
/// which counts the elements that are not finite.
fn all_finite(
    device: &mut CudaDevice,
    p: &Attention,
    result: &ResultTensor,
    partials: &mut Memory,
) -> Result<bool, CudaError> {
    let parts = View::eighths(p)
        .into_iter()
        .map(|view| result.part(p, view));
    let parts: Vec<ResultTensor> = parts.collect();
    let largest = parts.iter().map(elements).max().unwrap_or(0);
    let mut zeros = device.allocate(8 * largest)?;
    zeros.fill(0, device.stream)?;
    for part in &parts {
        if !difference(device, p, part, zeros.pointer, partials)?.finite {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes of memory for the check for elements that are not finite.
pub fn finite_bytes(p: &Attention) -> u64 {
    let small = View::eighths(p).into_iter().map(|view| {
        let small = view.problem(p);
        let tensors = [Pointer::Q, Pointer::K, Pointer::V, Pointer::Out];
        tensors
            .map(|pointer| pointer.elements(&small))
            .into_iter()
            .max()
    });
    8 * small.flatten().max().unwrap_or(0)
}

fn elements(result: &ResultTensor) -> u64 {
    result.shape.iter().map(|&n| u64::from(n)).product()
}

/// Adds up the partial sums of `difference`: squared differences, squared references, largest
/// difference, elements that are not finite.
fn added(partials: &[f64], elements: u64) -> ErrorSums {
    let (mut squares, mut norm, mut largest, mut wrong) = (0.0, 0.0, 0.0f64, 0.0);
    for part in partials.chunks_exact(4) {
        squares += part[0];
        norm += part[1];
        largest = largest.max(part[2]);
        wrong += part[3];
    }
    ErrorSums {
        elements,
        squares,
        norm,
        largest,
        // A comparison that did not run gives NaN, which does not count as finite.
        finite: wrong == 0.0,
    }
}

/// Reads single elements of a result one by one, since there are few.
fn probe_elements(
    result: &ResultTensor,
    dtype: Dtype,
    draw: Option<u64>,
) -> Result<Vec<Option<f64>>, CudaError> {
    let [_, seq, heads, dim] = result.shape.map(u64::from);
    let read = |index: u64| {
        let (d, rest) = (index % dim, index / dim);
        let (head, rest) = (rest % heads, rest / heads);
        let (row, batch) = (rest % seq, rest / seq);
        let tensor = &result.tensor;
        let offset = batch as i64 * tensor.batch
            + row as i64 * tensor.seq
            + head as i64 * tensor.head
            + d as i64;
        let at = tensor.data + offset as u64 * dtype.bytes();
        let value = element(at, dtype)?;
        Ok(value.is_finite().then_some(value))
    };
    probe_indices(elements(result), PROBES, draw)
        .map(read)
        .collect()
}

fn element(at: u64, dtype: Dtype) -> Result<f64, CudaError> {
    let mut bytes = [0u8; 4];
    let wanted = &mut bytes[..dtype.bytes() as usize];
    // SAFETY: reads an element of a live tensor, at its own offset.
    let read = unsafe { result::memcpy_dtoh_sync(wanted, at) };
    checked("cuMemcpyDtoH", read)?;
    let half = u16::from_ne_bytes([bytes[0], bytes[1]]);
    Ok(match dtype {
        Dtype::F32 => f32::from_ne_bytes(bytes).into(),
        Dtype::F16 => half::f16::from_bits(half).to_f64(),
        Dtype::Bf16 => half::bf16::from_bits(half).to_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Extents, ours};
    use crate::expression::Expression;

    #[test]
    fn structs_are_as_large_as_in_c() {
        assert_eq!(size_of::<Fill>(), 64);
        assert_eq!(size_of::<DifferenceArgument>(), 64);
        let blocks = &ours().checks["difference"].grid;
        assert!(matches!(blocks, Extents::One(Expression::Number(n)) if *n == i64::from(BLOCKS)));
    }

    /// Elements of a result by its strides, in the order of the runs that are copied.
    #[test]
    fn a_copied_plane_has_the_elements_of_its_heads_in_its_own_strides() {
        for id in [
            "b2,h6,kv3,s5,d4",
            "b2,h6,kv3,s5,d4,bhsd",
            "s3,d4",
            "s3,d4,bhsd",
        ] {
            let p: Attention = id.parse().unwrap();
            for plane in 0..(p.batch * p.kv_heads) as usize {
                for pointer in [Pointer::Out, Pointer::Dk] {
                    let shape = pointer.shape(&p);
                    let tensor = DeviceTensor::new(0, shape, p.layout);
                    let whole = ResultTensor {
                        of: pointer,
                        tensor,
                        shape,
                    };
                    let [view] = Extent::Plane(plane).views(&p)[..] else {
                        panic!("one view");
                    };
                    let part = whole.part(&p, view);
                    let width = p.dtype.bytes();
                    let [length, count, step] = runs(&part, &p);
                    let (length, step) = (length / width, step / width);
                    let begin = part.tensor.data / width;
                    let copied = (0..count).flat_map(|run| {
                        let start = begin + run * step;
                        start..start + length
                    });
                    let copied: Vec<u64> = copied.collect();
                    let [_, seq, heads, dim] = part.shape;
                    let dense = DeviceTensor::new(0, part.shape, p.layout);
                    let offset = |pointer: &DeviceTensor, s: u32, h: u32| {
                        (i64::from(s) * pointer.seq + i64::from(h) * pointer.head) as u64
                    };
                    assert_eq!(copied.len() as u32, seq * heads * dim, "{id}");
                    for (s, h) in (0..seq).flat_map(|s| (0..heads).map(move |h| (s, h))) {
                        let at = copied[offset(&dense, s, h) as usize];
                        assert_eq!(at, begin + offset(&part.tensor, s, h), "{id} {pointer}");
                    }
                }
            }
        }
    }

    #[test]
    fn partial_sums_become_the_figures_of_the_protocol() {
        let sums = [3.0, 30.0, 0.5, 0.0, 1.0, 70.0, 0.25, 0.0];
        let error = added(&sums, 8).error();
        assert_eq!(error.relative_l2, Some(0.2));
        assert_eq!(error.max_abs, Some(0.5));
        let lost = added(&[3.0, 30.0, 0.5, 1.0], 4);
        assert!(!lost.finite);
        // A comparison that did not run.
        assert!(!added(&[f64::NAN; 4], 4).finite);
    }
}
