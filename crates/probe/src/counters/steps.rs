//! The steps of CUPTI's range profiler, each of which gives what the next takes.

use super::profiler::{
    AUTO_RANGE, AddMetrics, Availability, ChipName, ConfigImage, ConfigSize, DataInitialize,
    DataSize, Functions, HostDeinitialize, HostInitialize, Initialize, KERNEL_REPLAY, Passes,
    Profiler, RANGE_PROFILER, SetConfig, Stop, profiler,
};
use crate::Error;
use crate::Result;
use crate::census::cupti::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Kernels that are counted, where it is not said how many there will be, and the most that are
/// if it is; more are told as dropped.
const MOST_KERNELS: usize = 512;

/// The least room that is made.
const LEAST_KERNELS: usize = 16;

/// The room for so many kernels, or 0 for as many as there may be. To begin a counting takes
/// 0.7 ms for each that there is room for (H200, driver 580).
pub fn room(kernels: usize) -> usize {
    match kernels {
        0 => MOST_KERNELS,
        some if some >= MOST_KERNELS => MOST_KERNELS,
        // One more than there are is seen to be one too many.
        some => (some + 1).next_power_of_two().max(LEAST_KERNELS),
    }
}

/// What CUPTI holds for a counting, given back when dropped: the census works afterwards.
pub struct Held {
    pub cupti: &'static Library,
    pub functions: &'static Functions,
    pub host: *mut c_void,
    pub profiler: *mut c_void,
    pub started: bool,
}

// SAFETY: CUPTI's objects belong to the process and not to a thread.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // Nobody is left to ask when one of these fails, and the others are still due.
        if self.started {
            let _ = self.stop();
        }
        if !self.profiler.is_null() {
            let mut all = Profiler::new();
            all.profiler = self.profiler;
            let _ = profiler!(
                self.cupti,
                self.functions,
                disable,
                "cuptiRangeProfilerDisable",
                all
            );
        }
        release(self.cupti, self.functions, self.host);
        let mut all = Initialize::new();
        let _ = profiler!(
            self.cupti,
            self.functions,
            deinitialize,
            "cuptiProfilerDeInitialize",
            all
        );
    }
}

impl Held {
    /// Stops; whether every pass was made.
    pub fn stop(&mut self) -> Result<bool> {
        self.started = false;
        let mut all = Stop::new();
        all.profiler = self.profiler;
        profiler!(
            self.cupti,
            self.functions,
            stop,
            "cuptiRangeProfilerStop",
            all
        )?;
        Ok(all.complete != 0)
    }
}

/// The profiler's functions, found once.
pub fn functions(cupti: &Library) -> Result<&'static Functions> {
    static FUNCTIONS: OnceLock<Result<Functions>> = OnceLock::new();
    let found = FUNCTIONS.get_or_init(|| {
        Functions::of(cupti.opened).map_err(|error| {
            Error::NoCounters(format!("CUPTI of CUDA 12.6 or newer is needed: {error}"))
        })
    });
    found.as_ref().map_err(Clone::clone)
}

pub fn pointers(names: &[CString]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}

pub fn chip(cupti: &Library, functions: &Functions, device: c_int) -> Result<CString> {
    let mut all = ChipName::new();
    all.device = usize::try_from(device).unwrap_or(0);
    profiler!(cupti, functions, chip_name, "cuptiDeviceGetChipName", all)?;
    if all.name.is_null() {
        return Err(Error::NoCounters("CUPTI does not name the chip".to_owned()));
    }
    // SAFETY: a string of CUPTI's that ends with a NUL.
    Ok(unsafe { CStr::from_ptr(all.name) }.to_owned())
}

/// What the device counts, as CUPTI keeps it: first the size, then the image.
pub fn available(cupti: &Library, functions: &Functions, context: *mut c_void) -> Result<Vec<u8>> {
    let name = "cuptiProfilerGetCounterAvailability";
    let mut image = Vec::new();
    for _ in 0..2 {
        let mut all = Availability::new();
        (all.context, all.image_size) = (context, image.len());
        if !image.is_empty() {
            all.image = image.as_mut_ptr();
        }
        // SAFETY: no image, or one of the size that is told.
        let code = unsafe { (functions.availability)(&raw mut all) };
        super::profiler::checked(cupti, name, code)?;
        image.resize(all.image_size, 0);
    }
    Ok(image)
}

/// A host object, which knows metrics; to be given to [`release`].
pub fn host(
    cupti: &Library,
    functions: &Functions,
    chip: &CStr,
    available: &[u8],
) -> Result<*mut c_void> {
    let mut all = HostInitialize::new();
    (all.kind, all.chip) = (RANGE_PROFILER, chip.as_ptr());
    all.availability = available.as_ptr();
    profiler!(
        cupti,
        functions,
        host_initialize,
        "cuptiProfilerHostInitialize",
        all
    )?;
    Ok(all.host)
}

pub fn release(cupti: &Library, functions: &Functions, host: *mut c_void) {
    if host.is_null() {
        return;
    }
    let mut all = HostDeinitialize::new();
    all.host = host;
    // Nobody is left to ask.
    let _ = profiler!(
        cupti,
        functions,
        host_deinitialize,
        "cuptiProfilerHostDeinitialize",
        all
    );
}

pub fn add(
    cupti: &Library,
    functions: &Functions,
    host: *mut c_void,
    metrics: &[CString],
) -> Result<()> {
    let names = pointers(metrics);
    let mut all = AddMetrics::new();
    (all.host, all.names, all.count) = (host, names.as_ptr(), names.len());
    profiler!(
        cupti,
        functions,
        add_metrics,
        "cuptiProfilerHostConfigAddMetrics",
        all
    )
}

/// The configuration of the host object's metrics.
pub fn config(held: &Held) -> Result<Vec<u8>> {
    let (cupti, functions) = (held.cupti, held.functions);
    let mut size = ConfigSize::new();
    size.host = held.host;
    profiler!(
        cupti,
        functions,
        config_size,
        "cuptiProfilerHostGetConfigImageSize",
        size
    )?;
    let mut image = vec![0; size.bytes];
    let mut all = ConfigImage::new();
    (all.host, all.bytes, all.image) = (held.host, image.len(), image.as_mut_ptr());
    profiler!(
        cupti,
        functions,
        config_image,
        "cuptiProfilerHostGetConfigImage",
        all
    )?;
    Ok(image)
}

pub fn passes(held: &Held, config: &mut [u8]) -> Result<usize> {
    let mut all = Passes::new();
    (all.bytes, all.image) = (config.len(), config.as_mut_ptr());
    let name = "cuptiProfilerHostGetNumOfPasses";
    // SAFETY: an image of the size that is told.
    let code = unsafe { (held.functions.passes)(&raw mut all) };
    super::profiler::checked(held.cupti, name, code)?;
    Ok(all.passes)
}

/// An empty image for the counts of so many kernels.
pub fn data(held: &Held, metrics: &[CString], room: usize) -> Result<Vec<u8>> {
    let (cupti, functions) = (held.cupti, held.functions);
    let names = pointers(metrics);
    let mut size = DataSize::new();
    size.profiler = held.profiler;
    (size.names, size.count) = (names.as_ptr(), names.len());
    (size.ranges, size.nodes) = (room, room as u32);
    profiler!(
        cupti,
        functions,
        data_size,
        "cuptiRangeProfilerGetCounterDataSize",
        size
    )?;
    let mut image = vec![0; size.bytes];
    let mut all = DataInitialize::new();
    all.profiler = held.profiler;
    (all.bytes, all.data) = (image.len(), image.as_mut_ptr());
    let name = "cuptiRangeProfilerCounterDataImageInitialize";
    // SAFETY: an image of the size that is told.
    let code = unsafe { (functions.data_initialize)(&raw mut all) };
    super::profiler::checked(cupti, name, code)?;
    Ok(image)
}

pub fn start(held: &mut Held, config: &[u8], data: &mut [u8], room: usize) -> Result<()> {
    let (cupti, functions) = (held.cupti, held.functions);
    let mut all = SetConfig::new();
    all.profiler = held.profiler;
    (all.config, all.config_size) = (config.as_ptr(), config.len());
    (all.data, all.data_size) = (data.as_mut_ptr(), data.len());
    (all.range, all.replay) = (AUTO_RANGE, KERNEL_REPLAY);
    (all.ranges, all.levels, all.least_level) = (room, 1, 1);
    profiler!(
        cupti,
        functions,
        set_config,
        "cuptiRangeProfilerSetConfig",
        all
    )?;
    let mut all = Profiler::new();
    all.profiler = held.profiler;
    profiler!(cupti, functions, start, "cuptiRangeProfilerStart", all)?;
    held.started = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn there_is_room_for_one_more_than_is_asked_for_up_to_the_most() {
        assert_eq!(
            [1, 15, 16, 100, 511, 512, usize::MAX].map(room),
            [16, 16, 32, 128, 512, 512, 512]
        );
        assert_eq!(room(0), 512);
    }
}
