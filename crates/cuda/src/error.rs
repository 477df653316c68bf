//! Errors of a device.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;

use regatta_worker::serve::Refusal;

use crate::kernels::compile::BuildError;

/// The reason why a case cannot run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CudaError {
    /// An error of the driver or the clock.
    #[error(transparent)]
    Probe(#[from] regatta_probe::Error),
    /// The machine lacks a device, a compiler or memory.
    #[error("{0}")]
    Unavailable(String),
    /// A kernel could not be compiled, or another error.
    #[error("{0}")]
    Other(String),
}

impl CudaError {
    /// Converts the error for the clock, as an error of the call that it times.
    pub fn into_probe(self) -> regatta_probe::Error {
        match self {
            CudaError::Probe(error) => error,
            other => regatta_probe::Error::Call(other.to_string()),
        }
    }

    /// True if the context is lost: every later call in this process fails with the same error, and
    /// only a new process works.
    ///
    /// The CUDA driver's reference says so for each of these codes ("the context cannot be used
    /// anymore"), and for an uncorrectable memory error.
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
        match self {
            CudaError::Probe(regatta_probe::Error::Cuda { code, .. }) => {
                lost.iter().any(|lost| *lost as i32 == *code)
            }
            _ => false,
        }
    }
}

impl From<BuildError> for CudaError {
    fn from(error: BuildError) -> CudaError {
        match error {
            BuildError::NoCompiler(reason) => CudaError::Unavailable(reason),
            other => CudaError::Other(other.to_string()),
        }
    }
}

/// Converts a refusal of another part of a worker.
impl From<Refusal> for CudaError {
    fn from(refusal: Refusal) -> CudaError {
        match refusal {
            Refusal::Unavailable(reason) => CudaError::Unavailable(reason),
            other => CudaError::Other(other.to_string()),
        }
    }
}

/// Converts an error for the protocol. One that only a new process resolves is `Lost`.
impl From<CudaError> for Refusal {
    fn from(error: CudaError) -> Refusal {
        match error {
            lost if lost.is_lost() => Refusal::Lost(lost.to_string()),
            CudaError::Unavailable(reason) => Refusal::Unavailable(reason),
            other => Refusal::Failed(other.to_string()),
        }
    }
}

/// Adds the name of the driver function to its error.
pub fn checked<T>(function: &'static str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|error| {
        CudaError::Probe(regatta_probe::Error::Cuda {
            function,
            code: error.0 as i32,
            // The error's own Display loads the driver a second time (cudarc 0.19).
            name: error.error_name().map_or_else(
                |_| "unknown error".to_owned(),
                |name| name.to_string_lossy().into_owned(),
            ),
        })
    })
}
