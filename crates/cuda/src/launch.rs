//! Launches kernels that are not timed.

use std::ffi::c_uint;

use cudarc::driver::result;

use super::argument::{ArgumentList, Results};
use super::driver::Device;
use super::error::{CudaError, checked};
use super::plan::{Code, Shape};
use crate::kernels::contract::Kernel;
use regatta_worker::attention::Dtype;

/// Launches a kernel of the checks.
///
/// # Errors
/// The driver's, or the compiler's.
pub fn launch<T: Copy + 'static>(
    device: &mut Device,
    kernel: &Kernel,
    dtype: Dtype,
    grid: [u32; 3],
    argument: T,
    second: Option<Results>,
) -> Result<(), CudaError> {
    let entry = kernel.entry(dtype.name(), kernel.tile());
    let shape = Shape::of(kernel.tile().block());
    let function = device.function(Code::Ours(kernel.file), &entry, shape)?;
    let mut arguments = ArgumentList::default().push(argument);
    if let Some(results) = second {
        arguments = arguments.push(results);
    }
    let [x, y, z] = grid;
    let [across, down, deep] = shape.block;
    // SAFETY: the arguments are laid out as the kernel's file says, and the driver copies
    // them before it returns; the memory they point to is alive until the next wait.
    let launched = unsafe {
        result::launch_kernel(
            function.handle,
            (x, y, z),
            (across, down, deep),
            shape.shared_bytes as c_uint,
            device.stream(),
            arguments.pointers(),
        )
    };
    checked("cuLaunchKernel", launched)
}
