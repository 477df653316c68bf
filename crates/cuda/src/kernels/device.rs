//! The architectures of the GPUs that are here.

use super::arch::Arch;
use crate::driver::{CAPABILITY_MAJOR, CAPABILITY_MINOR, attribute_of};
use regatta_probe::driver::{Driver, cu};

/// What to compile for each GPU of this machine, each architecture once, sorted. Empty
/// without a driver or a GPU, or where the driver does not start.
pub fn present() -> Vec<Arch> {
    let Ok(driver) = Driver::get() else {
        return Vec::new();
    };
    let mut count = 0;
    // SAFETY: a live variable; where this fails it stays 0.
    let _ = unsafe { cu!(driver, cuDeviceGetCount(&raw mut count)) };
    let mut archs: Vec<Arch> = (0..count)
        .filter_map(|ordinal| of_ordinal(driver, ordinal))
        .collect();
    archs.sort();
    archs.dedup();
    archs
}

fn of_ordinal(driver: &Driver, ordinal: i32) -> Option<Arch> {
    let mut device = 0;
    // SAFETY: a live variable.
    unsafe { cu!(driver, cuDeviceGet(&raw mut device, ordinal)).ok()? };
    let read = |attribute| attribute_of(driver, device, attribute).ok();
    Some(Arch::of_device(
        read(CAPABILITY_MAJOR)?,
        read(CAPABILITY_MINOR)?,
    ))
}
