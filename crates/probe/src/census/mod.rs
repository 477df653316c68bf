//! The launch census: what a process has the device do, by CUPTI's activity records.
//!
//! Two ways in. `inject` is for any process, unchanged: the driver loads this library by
//! `CUDA_INJECTION64_PATH`, and what happens is written to a file. [`call`] is for a worker
//! that wants to know what one call of its own does. A process is recorded in one way only.

mod buffers;
pub mod call;
mod calls;
pub(crate) mod cupti;
mod demangle;
mod functions;
mod inject;
pub(crate) mod json;
mod operation;
mod ranges;
mod record;
#[cfg(test)]
mod tests;

pub use call::{Recorded, Recording};
pub use calls::{Counts, Made};
pub use operation::{Launch, Operation, What};
pub use record::{Kernel, Memory};

use crate::Error;
use crate::Result;
use cupti::{Library, kind};
use std::sync::OnceLock;

/// Who records in this process, for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Injected,
    Call,
}

static WAY: OnceLock<Way> = OnceLock::new();

/// What is recorded of the device, and the ranges that the host is in. Kernels that run at
/// once stay so.
const KINDS: [u32; 5] = [
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMSET,
    kind::MEMCPY_P2P,
    kind::MARKER,
];

/// Has CUPTI hand its records to this library, until somebody else asks for them.
fn take(library: &Library, way: Way) -> Result<()> {
    if *WAY.get_or_init(|| way) != way {
        return Err(Error::Order("this process is being recorded already"));
    }
    // SAFETY: both callbacks hold to what CUPTI asks of them, and live as long as the
    // process: this library is never unloaded.
    let registered =
        unsafe { (library.functions.registerCallbacks)(buffers::requested, buffers::completed) };
    library.check("cuptiActivityRegisterCallbacks", registered)
}

/// Counters and an injected recording exclude each other.
pub(crate) fn may_count() -> Result<()> {
    match WAY.get() {
        Some(Way::Injected) => Err(Error::Order("this process is being recorded already")),
        _ => Ok(()),
    }
}

/// Records what the device does, or stops to.
fn switch(library: &Library, on: bool) -> Result<()> {
    KINDS
        .into_iter()
        .try_for_each(|kind| library.switch(kind, on))
}
