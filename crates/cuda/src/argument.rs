//! The arguments of kernels in C layout, and the parameters of entry points as the driver reports
//! them.
//!
//! The driver only gets addresses, and reads as many values as the kernel has parameters, each in
//! the parameter's size. If an argument is missing, or is an `int` for a `long`, it reads beyond
//! the list or the value.

use std::any::Any;
use std::ffi::c_void;

use cudarc::driver::sys::{self, CUresult};
use regatta_worker::attention::{Align, Attention, Layout};
use regatta_worker::case::Dtype;

use super::error::{CudaError, checked};
use super::plan::{Given, Pointer};

/// `Tensor` of `problem.cuh`: its address, and its strides in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTensor {
    pub data: u64,
    pub batch: i64,
    pub seq: i64,
    pub head: i64,
}

impl DeviceTensor {
    /// A tensor of logical shape `[batch, seq, heads, dim]` in a physical layout.
    pub fn new(data: u64, shape: [u32; 4], layout: Layout) -> DeviceTensor {
        let [_, seq, heads, dim] = shape.map(i64::from);
        let (along_seq, along_head) = match layout {
            Layout::Bshd => (heads * dim, dim),
            Layout::Bhsd => (dim, seq * dim),
        };
        DeviceTensor {
            data,
            batch: seq * heads * dim,
            seq: along_seq,
            head: along_head,
        }
    }
}

/// `Attention` of `problem.cuh`, field by field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceProblem {
    /// The first pointers, in the order of [`Pointer`].
    pub tensors: [DeviceTensor; 8],
    /// Addresses of the other pointers.
    pub memory: [u64; 3],
    pub batch: i32,
    pub heads: i32,
    pub kv_heads: i32,
    pub seq_q: i32,
    pub seq_k: i32,
    pub head_dim: i32,
    pub head_dim_v: i32,
    pub mask_left: i32,
    pub mask_right: i32,
    pub mask_align: i32,
    pub num_splits: i32,
    pub scale: f32,
}

impl DeviceProblem {
    /// The sizes, strides, mask and scale of a problem, without addresses. Sizes are below 2²⁹,
    /// since `plan` refuses larger ones.
    pub fn sized(problem: &Attention, num_splits: u32) -> DeviceProblem {
        let p = problem;
        let side = |keys: Option<u32>| keys.map_or(-1, |keys| keys.min(1 << 29) as i32);
        DeviceProblem {
            tensors: Pointer::TENSORS
                .map(|pointer| DeviceTensor::new(0, pointer.shape(p), p.layout)),
            batch: problem.batch as i32,
            heads: problem.heads as i32,
            kv_heads: problem.kv_heads as i32,
            seq_q: problem.seq_q as i32,
            seq_k: problem.seq_k as i32,
            head_dim: problem.head_dim as i32,
            head_dim_v: problem.head_dim_v as i32,
            mask_left: side(problem.mask.left),
            mask_right: side(problem.mask.right),
            mask_align: i32::from(problem.mask.align == Align::BottomRight),
            num_splits: num_splits as i32,
            scale: (1.0 / f64::from(problem.head_dim).sqrt()) as f32,
            ..DeviceProblem::default()
        }
    }

    /// The address of memory of the case; 0 if the case does not use it.
    pub fn address(mut self, of: Pointer) -> u64 {
        *self.address_mut(of)
    }

    /// The place of an address, to write it.
    pub fn address_mut(&mut self, of: Pointer) -> &mut u64 {
        let at = of as usize;
        match self.tensors.get_mut(at) {
            Some(tensor) => &mut tensor.data,
            None => &mut self.memory[at - Pointer::TENSORS.len()],
        }
    }

    /// The bounds of `low <= j - i <= high` for a query `i` that sees a key `j`: `Band` of
    /// `problem.cuh`.
    pub fn band(&self) -> (i32, i32) {
        const UNBOUNDED: i32 = 1 << 30;
        let offset = self.mask_align * (self.seq_k - self.seq_q);
        let low = match self.mask_left {
            ..0 => -UNBOUNDED,
            left => offset - left,
        };
        let high = match self.mask_right {
            ..0 => UNBOUNDED,
            right => offset + right,
        };
        (low, high)
    }
}

/// `CUtensorMap`, which the driver requires to be aligned.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct TensorMap(sys::CUtensorMap);

impl TensorMap {
    /// The five-axis view `(64, seq, dim / 64, heads, batch)` of a 16-bit tensor, which is read in
    /// boxes of `rows` rows; see the head of `flash_wgmma.cu`.
    ///
    /// # Errors
    /// The driver's error: a stride or an address that is not a multiple of 16 bytes.
    pub fn new(
        tensor: &DeviceTensor,
        [batch, seq, heads, dim]: [u32; 4],
        dtype: Dtype,
        rows: u32,
    ) -> Result<TensorMap, CudaError> {
        use sys::CUtensorMapDataType_enum as T;
        let kind = match dtype {
            Dtype::F16 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            Dtype::Bf16 => T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            Dtype::F32 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        };
        let panels = dim / 64;
        let dims = [64, seq, panels, heads, batch].map(u64::from);
        let strides = [2 * tensor.seq, 128, 2 * tensor.head, 2 * tensor.batch].map(|s| s as u64);
        let boxes = [64, rows, panels, 1, 1];
        let steps = [1u32; 5];
        let mut map = TensorMap(sys::CUtensorMap { opaque: [0; 16] });
        // SAFETY: the arrays have as many elements as the rank, and outlive the call.
        let made = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map.0,
                kind,
                5,
                tensor.data as *mut c_void,
                dims.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        checked("cuTensorMapEncodeTiled", made.result())?;
        Ok(map)
    }
}

/// The arguments of a launch. Their addresses stay the same while this exists.
#[derive(Default)]
pub struct ArgumentList {
    values: Vec<Box<dyn Any>>,
    /// The address of each argument.
    pub pointers: Vec<*mut c_void>,
    /// The size of each argument in bytes.
    pub sizes: Vec<usize>,
}

impl ArgumentList {
    /// Adds an argument that is passed by value, in the layout of the kernel's C type.
    pub fn push<T: Copy + 'static>(mut self, value: T) -> ArgumentList {
        let mut boxed = Box::new(value);
        self.pointers.push((&raw mut *boxed).cast());
        self.values.push(boxed);
        self.sizes.push(size_of::<T>());
        self
    }
}

/// More parameters than any kernel has: CUDA C++ limits their size to 32764 bytes.
const MAX_PARAMETERS: usize = 32_764;

/// Sizes of a kernel's parameters in bytes, in order. `None` if the driver cannot report them:
/// `cuFuncGetParamInfo` exists since CUDA 12.4.
///
/// # Safety
/// The function is loaded.
pub unsafe fn parameter_sizes(function: sys::CUfunction) -> Option<Vec<usize>> {
    // SAFETY: the symbol is only looked up, and not called with this type.
    let known = unsafe { sys::culib().get::<unsafe extern "C" fn()>(b"cuFuncGetParamInfo") };
    known.ok()?;
    let mut sizes = Vec::new();
    while sizes.len() < MAX_PARAMETERS {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, and both variables outlive the call.
        let status = unsafe {
            sys::cuFuncGetParamInfo(function, sizes.len(), &raw mut offset, &raw mut size)
        };
        match status {
            CUresult::CUDA_SUCCESS => sizes.push(size),
            // No parameter has this number. If it is the first one, nothing is known.
            CUresult::CUDA_ERROR_INVALID_VALUE if !sizes.is_empty() => return Some(sizes),
            _ => return None,
        }
    }
    None
}

/// Compares the arguments that a contract lists with the sizes of the kernel's parameters.
///
/// # Errors
/// Both counts, or the first parameter of another size.
pub fn check_parameters(
    entry: &str,
    listed: &[(Given, usize)],
    taken: &[usize],
) -> Result<(), CudaError> {
    if listed.len() != taken.len() {
        return Err(CudaError::Other(format!(
            "{entry} takes {} arguments, and `arguments` of its contract lists {}",
            taken.len(),
            listed.len()
        )));
    }
    for (at, ((given, size), taken)) in listed.iter().zip(taken).enumerate() {
        if !fits(*given, *size, *taken) {
            return Err(CudaError::Other(format!(
                "{entry} takes {taken} bytes as argument {}, and its contract gives {size}; write \
                 the type that the kernel has: `int`, `unsigned`, `long`, `float` or `double`",
                at + 1
            )));
        }
    }
    Ok(())
}

/// A `bool` or a `short` is read from the low bytes of an `int`.
fn fits(given: Given, size: usize, taken: usize) -> bool {
    let whole = matches!(given, Given::Int(_) | Given::Unsigned(_));
    size == taken || (whole && taken < size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Pointer;

    #[test]
    fn the_problem_is_laid_out_as_in_c() {
        assert_eq!(size_of::<DeviceProblem>(), 328);
        assert_eq!(std::mem::offset_of!(DeviceProblem, memory), 256);
        assert_eq!(std::mem::offset_of!(DeviceProblem, num_splits), 320);
        assert!(align_of::<TensorMap>() >= 64);
    }

    /// The same keys as `attention::Mask`, for each query.
    #[test]
    fn the_band_is_the_mask() {
        for text in [
            "s5,sk9,d8,causal-tl",
            "s9,sk5,d8,causal-br",
            "s7,d8,window-2-1",
            "s4,sk6,d8",
        ] {
            let Ok(problem) = text.parse::<Attention>() else {
                panic!("{text}");
            };
            let (low, high) = DeviceProblem::sized(&problem, 1).band();
            for i in 0..problem.seq_q as i32 {
                let visible = problem.mask.visible(
                    i as usize,
                    problem.seq_q as usize,
                    problem.seq_k as usize,
                );
                for j in 0..problem.seq_k as i32 {
                    let seen = low <= j - i && j - i <= high;
                    assert_eq!(seen, visible.contains(&(j as usize)), "{text}: {i}, {j}");
                }
            }
        }
    }

    fn checked_against(taken: &[usize]) -> Result<(), String> {
        let listed = [
            (Given::Pointer(Pointer::Q), 8),
            (Given::Int(1), 4),
            (Given::Float(0.5), 4),
        ];
        check_parameters("mine", &listed, taken).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_listed_is_what_is_taken() {
        assert_eq!(checked_against(&[8, 4, 4]), Ok(()));
        // A `bool`, and a `short`.
        assert_eq!(checked_against(&[8, 1, 4]), Ok(()));
        assert_eq!(checked_against(&[8, 2, 4]), Ok(()));
        for (taken, words) in [
            (
                &[8, 4][..],
                "mine takes 2 arguments, and `arguments` of its contract lists 3",
            ),
            (
                &[8, 8, 4],
                "8 bytes as argument 2, and its contract gives 4",
            ),
            (
                &[4, 4, 4],
                "4 bytes as argument 1, and its contract gives 8",
            ),
        ] {
            let error = checked_against(taken).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
