//! The architectures of the GPUs that are here.

use cudarc::driver::{result, sys};

use super::arch::Arch;

/// What to compile for each GPU of this machine, each architecture once, sorted. Empty
/// without a driver or a GPU, or where the driver does not start.
pub fn present() -> Vec<Arch> {
    // Every call panics where the driver's library is absent, so it is asked for first.
    // SAFETY: it opens a library whose initialisers every CUDA program runs.
    if !unsafe { sys::is_culib_present() } || result::init().is_err() {
        return Vec::new();
    }
    let count = result::device::get_count().unwrap_or(0);
    let mut archs: Vec<Arch> = (0..count).filter_map(of_ordinal).collect();
    archs.sort();
    archs.dedup();
    archs
}

fn of_ordinal(ordinal: i32) -> Option<Arch> {
    use sys::CUdevice_attribute as Attribute;
    let device = result::device::get(ordinal).ok()?;
    let read = |attribute| {
        // SAFETY: the device was given by the driver.
        let value = unsafe { result::device::get_attribute(device, attribute) };
        value.ok().and_then(|value| u32::try_from(value).ok())
    };
    let major = read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Some(Arch::of_device(major, minor))
}
