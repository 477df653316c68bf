//! What can go wrong on a device.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;

use crate::kernels::compile::BuildError;

/// What keeps a case from running.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CudaError {
    /// There is no driver.
    #[error(
        "no CUDA driver on this machine (libcuda.so.1 not found); suites on cpu/ variants, \
         such as quick, need none"
    )]
    NoDriver,
    /// The driver finds no device it can use.
    #[error("no CUDA device: {0}")]
    NoDevice(String),
    /// A function of the driver failed.
    #[error("{function} failed: {name} ({code})")]
    Call {
        /// Its name, as in cuda.h.
        function: &'static str,
        /// The driver's word for the code.
        name: String,
        /// The `CUresult`.
        code: u32,
    },
    /// Hardware counted other kernels than the calls launch.
    #[error("{expected} kernels were expected of the counted calls, and {counted} counted")]
    NotCounted {
        /// Kernels that the calls launch.
        expected: usize,
        /// Kernels that were counted, or for which there was no room.
        counted: usize,
    },
    /// Device memory is short.
    #[error("out of device memory: {wanted_mib} MiB more are needed, {free_mib} MiB are free")]
    OutOfMemory {
        /// Asked for at once, in MiB.
        wanted_mib: usize,
        /// Free before.
        free_mib: usize,
    },
    /// The clock cannot do what is asked of it.
    #[error("{0}")]
    Clock(String),
    /// A kernel could not be made.
    #[error("{0}")]
    Build(String),
}

impl CudaError {
    /// As the clock has errors, for a call that it makes.
    pub fn into_probe(self) -> regatta_probe::Error {
        match self {
            CudaError::Call {
                function,
                name,
                code,
            } => regatta_probe::Error::Cuda {
                function,
                code: code as i32,
                name,
            },
            other => regatta_probe::Error::Call(other.to_string()),
        }
    }

    /// True when the context is gone for good: every later call in this process fails
    /// with the same error, and only a new process can go on.
    ///
    /// The CUDA driver's reference says so of each of these codes ("the context cannot
    /// be used anymore"), and of an uncorrectable memory error.
    pub fn is_lost(&self) -> bool {
        use CUresult as R;
        let lost = [
            R::CUDA_ERROR_ECC_UNCORRECTABLE,
            R::CUDA_ERROR_ILLEGAL_ADDRESS,
            R::CUDA_ERROR_LAUNCH_TIMEOUT,
            R::CUDA_ERROR_ASSERT,
            R::CUDA_ERROR_HARDWARE_STACK_ERROR,
            R::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            R::CUDA_ERROR_MISALIGNED_ADDRESS,
            R::CUDA_ERROR_INVALID_ADDRESS_SPACE,
            R::CUDA_ERROR_INVALID_PC,
            R::CUDA_ERROR_LAUNCH_FAILED,
            R::CUDA_ERROR_DEVICE_UNAVAILABLE,
            R::CUDA_ERROR_UNKNOWN,
        ];
        matches!(self, CudaError::Call { code, .. } if lost.iter().any(|l| *l as u32 == *code))
    }
}

impl From<BuildError> for CudaError {
    fn from(error: BuildError) -> CudaError {
        CudaError::Build(error.to_string())
    }
}

impl From<regatta_probe::Error> for CudaError {
    fn from(error: regatta_probe::Error) -> CudaError {
        match error {
            regatta_probe::Error::Cuda {
                function,
                code,
                name,
            } => CudaError::Call {
                function,
                name,
                code: code.unsigned_abs(),
            },
            other => CudaError::Clock(other.to_string()),
        }
    }
}

/// Names the driver function whose result this is.
pub fn checked<T>(function: &'static str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|error| CudaError::Call {
        function,
        // The error's own Display opens the driver a second time; see cudarc 0.19.
        name: error.error_name().map_or_else(
            |_| "unknown error".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
        code: error.0 as u32,
    })
}
