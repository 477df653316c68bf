//! What can go wrong on a device.

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
    /// A function of the driver failed, or the clock cannot do what is asked of it.
    #[error("{0}")]
    Driver(#[from] regatta_probe::Error),
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
    /// A kernel could not be made.
    #[error("{0}")]
    Build(String),
}

impl CudaError {
    /// As the clock has errors, for a call that it makes.
    pub fn into_probe(self) -> regatta_probe::Error {
        match self {
            CudaError::Driver(error) => error,
            other => regatta_probe::Error::Call(other.to_string()),
        }
    }

    /// True when the context is gone for good: every later call in this process fails
    /// with the same error, and only a new process can go on.
    ///
    /// The CUDA driver's reference says so of each of these codes ("the context cannot
    /// be used anymore"), and of an uncorrectable memory error.
    pub fn is_lost(&self) -> bool {
        // DEVICE_UNAVAILABLE, ECC_UNCORRECTABLE, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT;
        // HARDWARE_STACK_ERROR to LAUNCH_FAILED; UNKNOWN.
        let lost = |code: i32| matches!(code, 46 | 214 | 700 | 702 | 710 | 714..=719 | 999);
        matches!(self, CudaError::Driver(regatta_probe::Error::Cuda { code, .. }) if lost(*code))
    }
}

impl From<BuildError> for CudaError {
    fn from(error: BuildError) -> CudaError {
        CudaError::Build(error.to_string())
    }
}
