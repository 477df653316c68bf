//! The functions of CUPTI's range profiler and of its host half that counting needs.
//!
//! Reference: cupti_profiler_target.h, cupti_profiler_host.h, cupti_range_profiler.h and
//! cupti_target.h of CUDA 13.0. Fields have the headers' names in this crate's spelling.

use crate::Error;
use crate::Result;
use crate::census::cupti::Library;
use crate::library::functions;
use std::ffi::{c_char, c_int, c_void};

/// `CUPTI_AutoRange`: each kernel is a range.
pub const AUTO_RANGE: c_int = 1;
/// `CUPTI_KernelReplay`: CUPTI saves what a kernel writes, and runs it once a pass.
pub const KERNEL_REPLAY: c_int = 2;
/// `CUPTI_PROFILER_TYPE_RANGE_PROFILER`.
pub const RANGE_PROFILER: c_int = 0;

/// `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`, and the same of a virtual device.
const NOT_PERMITTED: [c_int; 2] = [35, 40];

/// A struct of parameters: its size, a private pointer, then its fields. The size that
/// CUPTI asks for ends with the last field, without padding.
macro_rules! parameters {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? } last $last:ident;)+) => {$(
        #[repr(C)]
        pub struct $name { size: usize, private: *mut c_void, $(pub $field: $type),* }

        impl $name {
            const SIZE: usize = {
                let at = std::mem::offset_of!(Self, $last);
                // SAFETY: no value is read, the type alone is asked for.
                at + size_of_last(|all: &Self| &all.$last)
            };

            /// All zero but the size.
            pub fn new() -> Self {
                // SAFETY: integers and pointers alone, for which zero is a value.
                let mut all: Self = unsafe { std::mem::zeroed() };
                all.size = Self::SIZE;
                all
            }
        }
    )+};
}

const fn size_of_last<All, Field>(_: fn(&All) -> &Field) -> usize {
    size_of::<Field>()
}

parameters! {
    Initialize {} last private;
    Availability { context: *mut c_void, image_size: usize, image: *mut u8 } last image;
    ChipName { device: usize, name: *const c_char } last name;
    HostInitialize {
        kind: c_int, chip: *const c_char, availability: *const u8, host: *mut c_void,
    } last host;
    HostDeinitialize { host: *mut c_void } last host;
    AddMetrics { host: *mut c_void, names: *const *const c_char, count: usize } last count;
    ConfigSize { host: *mut c_void, bytes: usize } last bytes;
    ConfigImage { host: *mut c_void, bytes: usize, image: *mut u8 } last image;
    Passes { bytes: usize, image: *mut u8, passes: usize } last passes;
    Evaluate {
        host: *mut c_void, data: *const u8, data_size: usize, range: usize,
        names: *const *const c_char, count: usize, values: *mut f64,
    } last values;
    Enable { context: *mut c_void, profiler: *mut c_void } last profiler;
    Profiler { profiler: *mut c_void } last profiler;
    DataSize {
        profiler: *mut c_void, names: *const *const c_char, count: usize, ranges: usize,
        nodes: u32, bytes: usize,
    } last bytes;
    DataInitialize { profiler: *mut c_void, bytes: usize, data: *mut u8 } last data;
    SetConfig {
        profiler: *mut c_void, config_size: usize, config: *const u8, data_size: usize,
        data: *mut u8, range: c_int, replay: c_int, ranges: usize, levels: u16,
        least_level: u16, pass: usize, level: u16,
    } last level;
    Stop { profiler: *mut c_void, pass: usize, level: usize, complete: u8 } last complete;
    Decode { profiler: *mut c_void, dropped: usize } last dropped;
    DataInfo { data: *const u8, data_size: usize, ranges: usize } last ranges;
}

functions! {
    /// libcupti. All are there from CUDA 12.6 on.
    Functions, c"libcupti.so.13", c_int;
    initialize [c"cuptiProfilerInitialize"] (*mut Initialize);
    deinitialize [c"cuptiProfilerDeInitialize"] (*mut Initialize);
    availability [c"cuptiProfilerGetCounterAvailability"] (*mut Availability);
    chip_name [c"cuptiDeviceGetChipName"] (*mut ChipName);
    host_initialize [c"cuptiProfilerHostInitialize"] (*mut HostInitialize);
    host_deinitialize [c"cuptiProfilerHostDeinitialize"] (*mut HostDeinitialize);
    add_metrics [c"cuptiProfilerHostConfigAddMetrics"] (*mut AddMetrics);
    config_size [c"cuptiProfilerHostGetConfigImageSize"] (*mut ConfigSize);
    config_image [c"cuptiProfilerHostGetConfigImage"] (*mut ConfigImage);
    passes [c"cuptiProfilerHostGetNumOfPasses"] (*mut Passes);
    evaluate [c"cuptiProfilerHostEvaluateToGpuValues"] (*mut Evaluate);
    enable [c"cuptiRangeProfilerEnable"] (*mut Enable);
    disable [c"cuptiRangeProfilerDisable"] (*mut Profiler);
    data_size [c"cuptiRangeProfilerGetCounterDataSize"] (*mut DataSize);
    data_initialize [c"cuptiRangeProfilerCounterDataImageInitialize"] (*mut DataInitialize);
    set_config [c"cuptiRangeProfilerSetConfig"] (*mut SetConfig);
    start [c"cuptiRangeProfilerStart"] (*mut Profiler);
    stop [c"cuptiRangeProfilerStop"] (*mut Stop);
    decode [c"cuptiRangeProfilerDecodeData"] (*mut Decode);
    data_info [c"cuptiRangeProfilerGetCounterDataInfo"] (*mut DataInfo);
}

/// Calls a function of the profiler and turns its status into a `Result`.
macro_rules! profiler {
    ($cupti:expr, $functions:expr, $field:ident, $name:literal, $parameters:expr) => {
        // SAFETY: a struct of the function's own type, whose pointers are alive.
        $crate::counters::profiler::checked($cupti, $name, unsafe {
            ($functions.$field)(&raw mut $parameters)
        })
    };
}
pub(super) use profiler;

/// CUPTI's word for a code, or what is to be done where counting is not permitted.
///
/// # Errors
/// When the code is not 0.
pub fn checked(cupti: &Library, function: &'static str, code: c_int) -> Result<()> {
    if NOT_PERMITTED.contains(&code) {
        return Err(Error::NoCounters(
            "performance counters need root or NVreg_RestrictProfilingToAdminUsers=0 \
             (ERR_NVGPUCTRPERM)"
                .to_owned(),
        ));
    }
    cupti.check(function, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `..._STRUCT_SIZE` of each in the headers of CUDA 13.0, and offsets around the
    /// narrow fields.
    #[test]
    fn structs_lie_as_in_cuptis_headers() {
        let sizes = [
            (Initialize::SIZE, 16),
            (Availability::SIZE, 40),
            (ChipName::SIZE, 32),
            (HostInitialize::SIZE, 48),
            (HostDeinitialize::SIZE, 24),
            (AddMetrics::SIZE, 40),
            (ConfigSize::SIZE, 32),
            (ConfigImage::SIZE, 40),
            (Passes::SIZE, 40),
            (Evaluate::SIZE, 72),
            (SetConfig::SIZE, 90),
            (Enable::SIZE, 32),
            (Profiler::SIZE, 24),
            (Stop::SIZE, 41),
            (Decode::SIZE, 32),
            (DataSize::SIZE, 64),
            (DataInitialize::SIZE, 40),
            (DataInfo::SIZE, 40),
        ];
        for (at, (ours, theirs)) in sizes.into_iter().enumerate() {
            assert_eq!(ours, theirs, "struct {at}");
        }
        assert_eq!(std::mem::offset_of!(SetConfig, replay), 60);
        assert_eq!(std::mem::offset_of!(SetConfig, ranges), 64);
        assert_eq!(std::mem::offset_of!(SetConfig, pass), 80);
    }
}
