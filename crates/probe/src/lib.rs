//! regatta's GPU clock: the time of a call on the device and on the host.
//!
//! [`clock`] is the timing method and reads from top to bottom. It knows a device only as the trait
//! [`TimedDevice`], so tests run all of it on a simulated device. [`cuda`] is the real device.
//! [`capi`] makes the same clock available to other languages, so that every framework is timed by
//! the same code; [`xla`] adds support for JAX, which hides its stream.
//!
//! Nothing is linked: the driver's libraries are opened on first use, and on a machine without them
//! every entry point returns [`Error::Unavailable`].

pub mod capi;
pub mod census;
pub mod clock;
pub mod counters;
pub mod cuda;
mod driver;
pub mod error;
pub mod gate;
mod kernels;
mod nvml;
#[cfg(test)]
mod tests;
pub mod xla;

pub use clock::{Begun, CacheState, Mark, Sample, StreamClock, TimedDevice};
pub use cuda::Cuda;
pub use error::{Error, Result};
pub use nvml::{NvmlFacts, NvmlState};

/// Version of the clock's method. Only readings with the same version can be compared.
pub const VERSION: &str = "0.2";
