//! Errors of a device.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;

use regatta_worker::serve::Refusal;

use crate::kernels::compile::BuildError;

/// The reason why a case cannot run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CudaError {
    /// The driver failed, or the clock.
    #[error(transparent)]
    Probe(#[from] regatta_probe::Error),
    /// The machine has no device, no compiler, or too little memory.
    #[error("{0}")]
    Unavailable(String),
    /// A kernel could not be made, or anything else.
    #[error("{0}")]
    Other(String),
}

impl CudaError {
    /// As the clock has errors, for a call that it makes.
    pub fn into_probe(self) -> regatta_probe::Error {
        match self {
            CudaError::Probe(error) => error,
            other => regatta_probe::Error::Call(other.to_string()),
        }
    }

    /// True when the context is gone for good: every later call in this process fails
    /// with the same error, and only a new process works.
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

/// A refusal of another part of a worker.
impl From<Refusal> for CudaError {
    fn from(refusal: Refusal) -> CudaError {
        match refusal {
            Refusal::Unavailable(reason) => CudaError::Unavailable(reason),
            other => CudaError::Other(other.to_string()),
        }
    }
}

/// A failure as the protocol has it: one that only a new process gets over is `Lost`.
impl From<CudaError> for Refusal {
    fn from(error: CudaError) -> Refusal {
        match error {
            lost if lost.is_lost() => Refusal::Lost(lost.to_string()),
            CudaError::Unavailable(reason) => Refusal::Unavailable(reason),
            other => Refusal::Failed(other.to_string()),
        }
    }
}

/// Names the driver function whose result this is.
pub fn checked<T>(function: &'static str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|error| {
        CudaError::Probe(regatta_probe::Error::Cuda {
            function,
            code: error.0 as i32,
            // The error's own Display opens the driver a second time; see cudarc 0.19.
            name: error.error_name().map_or_else(
                |_| "unknown error".to_owned(),
                |name| name.to_string_lossy().into_owned(),
            ),
        })
    })
}
