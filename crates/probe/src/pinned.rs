//! Memory that the host writes and a stream waits on.

use crate::Result;
use crate::driver::{self, DevicePointer, Driver, cu};
use crate::gate::Word;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU32;

/// The gate's word: pinned memory of the host that the device reads.
///
/// Owned through an `Arc`, by everyone who may still write it.
pub struct PinnedWord {
    driver: &'static Driver,
    word: *const AtomicU32,
}

// SAFETY: the memory is pinned for every thread (PORTABLE), and only touched as an atomic.
unsafe impl Send for PinnedWord {}
// SAFETY: as above.
unsafe impl Sync for PinnedWord {}

impl PinnedWord {
    /// Allocates the word, at zero, and gives it with its address on the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(driver: &'static Driver) -> Result<(Self, DevicePointer)> {
        let mut host: *mut c_void = ptr::null_mut();
        let flags = driver::MEM_HOST_ALLOC_PORTABLE | driver::MEM_HOST_ALLOC_DEVICEMAP;
        // SAFETY: `host` is a live out-pointer. The memory is page-aligned, and written
        // as an integer before anything refers to it as an atomic.
        let pinned = unsafe {
            cu!(
                driver,
                cuMemHostAlloc(&raw mut host, size_of::<AtomicU32>(), flags)
            )?;
            host.cast::<u32>().write(0);
            Self {
                driver,
                word: host.cast(),
            }
        };
        let mut device = 0;
        // SAFETY: the memory was allocated with DEVICEMAP just above.
        unsafe {
            cu!(driver, cuMemHostGetDevicePointer(&raw mut device, host, 0))?;
        }
        Ok((pinned, device))
    }
}

impl Word for PinnedWord {
    fn raise(&self, ticket: u32) {
        // SAFETY: allocated and initialised in `new`, freed in `drop` and not before.
        unsafe { &*self.word }.raise(ticket);
    }
}

impl Drop for PinnedWord {
    fn drop(&mut self) {
        // SAFETY: ours, and the last owner lets go. A failure has nobody to tell.
        unsafe { (self.driver.cuMemFreeHost)(self.word.cast_mut().cast()) };
    }
}
