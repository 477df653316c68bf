//! regatta's GPU clock: what one call costs the device and the host.
//!
//! [`clock`] is the timing contract and reads from top to bottom; it knows a device
//! only as the trait [`TimedDevice`], so the whole contract runs against a simulated one in
//! the tests. [`cuda`] is the real device. [`capi`] is the same clock for callers in
//! other languages, so that every framework is timed by the same code; [`xla`] adds what
//! JAX needs, which hides its stream.
//!
//! Nothing is linked: the driver's libraries are opened when first needed, and on a
//! machine without them every entry answers [`Error::Unavailable`].

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

/// Version of the clock's method: two readings compare only under the same one.
pub const VERSION: &str = "0.2";
