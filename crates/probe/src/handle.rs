//! What a caller in another language holds, and how what it hands over is read and written:
//! the C interface (capi.rs) and its part for XLA (xla.rs) stand on this.

use crate::Error;
use crate::Result;
use crate::clock::{Begun, Clock};
use crate::cuda::Cuda;
use crate::marks::Awaited;
use crate::sample::Cache;
use std::ffi::c_int;

/// Flag of a sample: the call did not return before the watchdog opened the gate.
pub const SYNCHRONISED: u32 = 1;

/// A clock and the sample that is being taken.
pub struct Probe {
    // Dropped first: these are about the clock's event and gate.
    pub(crate) awaited: Option<Awaited>,
    pub(crate) begun: Option<Begun>,
    pub(crate) clock: Clock<Cuda>,
}

pub(crate) fn missing(what: &str) -> Error {
    Error::Argument(format!("{what} is a null pointer"))
}

/// # Safety
/// Null, or from `regatta_probe_open` and not closed, and used by this thread alone.
pub(crate) unsafe fn probe<'a>(probe: *mut Probe) -> Result<&'a mut Probe> {
    // SAFETY: the caller's.
    unsafe { probe.as_mut() }.ok_or_else(|| missing("the probe"))
}

/// # Safety
/// Null, or valid for writing element `at`.
pub(crate) unsafe fn put<T>(array: *mut T, at: usize, value: T) {
    if !array.is_null() {
        // SAFETY: the caller's.
        unsafe { array.add(at).write(value) };
    }
}

pub(crate) fn cache(cold: c_int) -> Cache {
    if cold == 0 { Cache::Hot } else { Cache::Cold }
}
