//! The functions of CUPTI's range profiler and of its host interface that counting needs.
//!
//! Reference: cupti_profiler_target.h, cupti_profiler_host.h, cupti_range_profiler.h and
//! cupti_target.h of CUDA 13.0. Fields have the headers' names in this crate's spelling.

use crate::Error;
use crate::Result;
use crate::census::cupti::Cupti;
use crate::driver::functions;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// `CUPTI_AutoRange`: each kernel is a range.
pub const AUTO_RANGE: c_int = 1;
/// `CUPTI_KernelReplay`: CUPTI saves the memory that a kernel writes, and runs it once for each
/// pass.
pub const KERNEL_REPLAY: c_int = 2;
/// `CUPTI_PROFILER_TYPE_RANGE_PROFILER`.
pub const RANGE_PROFILER: c_int = 0;

/// `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`, and its variant for virtual devices.
const NOT_PERMITTED: [c_int; 2] = [35, 40];

/// A struct of parameters: its size, a private pointer, then its fields. The size that CUPTI
/// expects ends with the last field, without padding.
macro_rules! parameters {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? } last $last:ident;)+) => {$(
        #[repr(C)]
        pub struct $name { size: usize, private: *mut c_void, $(pub $field: $type),* }

        impl $name {
            const SIZE: usize = {
                let at = std::mem::offset_of!(Self, $last);
                // SAFETY: reads no value, only uses the type.
                at + size_of_last(|all: &Self| &all.$last)
            };

            /// All fields are zero except the size.
            pub fn new() -> Self {
                // SAFETY: the struct has only integers and pointers, for which zero is valid.
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
    /// libcupti. All functions exist since CUDA 12.6.
    ProfilerFunctions, c"libcupti.so.13", c_int;
    cuptiProfilerInitialize [c"cuptiProfilerInitialize"] (*mut Initialize);
    cuptiProfilerDeInitialize [c"cuptiProfilerDeInitialize"] (*mut Initialize);
    cuptiProfilerGetCounterAvailability [c"cuptiProfilerGetCounterAvailability"] (*mut Availability);
    cuptiDeviceGetChipName [c"cuptiDeviceGetChipName"] (*mut ChipName);
    cuptiProfilerHostInitialize [c"cuptiProfilerHostInitialize"] (*mut HostInitialize);
    cuptiProfilerHostDeinitialize [c"cuptiProfilerHostDeinitialize"] (*mut HostDeinitialize);
    cuptiProfilerHostConfigAddMetrics [c"cuptiProfilerHostConfigAddMetrics"] (*mut AddMetrics);
    cuptiProfilerHostGetConfigImageSize [c"cuptiProfilerHostGetConfigImageSize"] (*mut ConfigSize);
    cuptiProfilerHostGetConfigImage [c"cuptiProfilerHostGetConfigImage"] (*mut ConfigImage);
    cuptiProfilerHostGetNumOfPasses [c"cuptiProfilerHostGetNumOfPasses"] (*mut Passes);
    cuptiProfilerHostEvaluateToGpuValues [c"cuptiProfilerHostEvaluateToGpuValues"] (*mut Evaluate);
    cuptiRangeProfilerEnable [c"cuptiRangeProfilerEnable"] (*mut Enable);
    cuptiRangeProfilerDisable [c"cuptiRangeProfilerDisable"] (*mut Profiler);
    cuptiRangeProfilerGetCounterDataSize [c"cuptiRangeProfilerGetCounterDataSize"] (*mut DataSize);
    cuptiRangeProfilerCounterDataImageInitialize [c"cuptiRangeProfilerCounterDataImageInitialize"] (*mut DataInitialize);
    cuptiRangeProfilerSetConfig [c"cuptiRangeProfilerSetConfig"] (*mut SetConfig);
    cuptiRangeProfilerStart [c"cuptiRangeProfilerStart"] (*mut Profiler);
    cuptiRangeProfilerStop [c"cuptiRangeProfilerStop"] (*mut Stop);
    cuptiRangeProfilerDecodeData [c"cuptiRangeProfilerDecodeData"] (*mut Decode);
    cuptiRangeProfilerGetCounterDataInfo [c"cuptiRangeProfilerGetCounterDataInfo"] (*mut DataInfo);
}

/// CUPTI with its profiler.
#[derive(Clone, Copy)]
pub struct ProfilerApi {
    cupti: &'static Cupti,
    pub functions: &'static ProfilerFunctions,
}

impl ProfilerApi {
    /// Looks up the profiler's functions, once.
    ///
    /// # Errors
    /// CUPTI is missing or too old.
    pub fn get() -> Result<ProfilerApi> {
        static FUNCTIONS: OnceLock<Result<ProfilerFunctions>> = OnceLock::new();
        let cupti = Cupti::get()?;
        let functions = FUNCTIONS.get_or_init(|| {
            ProfilerFunctions::find_in(cupti.opened).map_err(|error| {
                Error::NoCounters(format!("CUPTI of CUDA 12.6 or newer is needed: {error}"))
            })
        });
        let functions = functions.as_ref().map_err(Clone::clone)?;
        Ok(ProfilerApi { cupti, functions })
    }

    /// Converts a code to a result; an error has CUPTI's name for the code, or the fix if counting
    /// is not permitted.
    ///
    /// # Errors
    /// The code is not 0.
    pub fn checked(self, function: &'static str, code: c_int) -> Result<()> {
        if NOT_PERMITTED.contains(&code) {
            return Err(Error::NoCounters(
                "performance counters need root or NVreg_RestrictProfilingToAdminUsers=0 \
                 (ERR_NVGPUCTRPERM)"
                    .to_owned(),
            ));
        }
        self.cupti.check(function, code)
    }
}

/// Calls a function of the profiler and converts its status to a `Result`.
macro_rules! profiler {
    ($api:expr, $function:ident, $parameters:expr) => {
        // SAFETY: the struct is of the function's own type, its pointers are live, and its images
        // have the given sizes.
        $api.checked(stringify!($function), unsafe {
            ($api.functions.$function)(&raw mut $parameters)
        })
    };
}
pub(super) use profiler;

pub fn pointers(names: &[CString]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}

pub fn chip(api: ProfilerApi, device: c_int) -> Result<CString> {
    let mut all = ChipName::new();
    all.device = usize::try_from(device).unwrap_or(0);
    profiler!(api, cuptiDeviceGetChipName, all)?;
    if all.name.is_null() {
        return Err(Error::NoCounters("CUPTI does not name the chip".to_owned()));
    }
    // SAFETY: a string of CUPTI that ends with a NUL.
    Ok(unsafe { CStr::from_ptr(all.name) }.to_owned())
}

/// The counters that the device has, in CUPTI's format. The first call returns the size, the second
/// the image.
pub fn available(api: ProfilerApi, context: *mut c_void) -> Result<Vec<u8>> {
    let mut image = Vec::new();
    for _ in 0..2 {
        let mut all = Availability::new();
        (all.context, all.image_size) = (context, image.len());
        if !image.is_empty() {
            all.image = image.as_mut_ptr();
        }
        profiler!(api, cuptiProfilerGetCounterAvailability, all)?;
        image.resize(all.image_size, 0);
    }
    Ok(image)
}

/// Creates a host object, which knows the metrics. Free it with [`release`].
pub fn host(api: ProfilerApi, chip: &CStr, available: &[u8]) -> Result<*mut c_void> {
    let mut all = HostInitialize::new();
    (all.kind, all.chip) = (RANGE_PROFILER, chip.as_ptr());
    all.availability = available.as_ptr();
    profiler!(api, cuptiProfilerHostInitialize, all)?;
    Ok(all.host)
}

pub fn release(api: ProfilerApi, host: *mut c_void) {
    if !host.is_null() {
        let mut all = HostDeinitialize::new();
        all.host = host;
        // A failure cannot be reported from here.
        let _ = profiler!(api, cuptiProfilerHostDeinitialize, all);
    }
}

pub fn add(api: ProfilerApi, host: *mut c_void, metrics: &[CString]) -> Result<()> {
    let names = pointers(metrics);
    let mut all = AddMetrics::new();
    (all.host, all.names, all.count) = (host, names.as_ptr(), names.len());
    profiler!(api, cuptiProfilerHostConfigAddMetrics, all)
}

/// True if a chip has a metric. The answer is cached, since each query creates a host object.
pub fn has(api: ProfilerApi, chip: &CStr, available: &[u8], metric: &CString) -> bool {
    static KNOWN: Mutex<BTreeMap<(CString, CString), bool>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (chip.to_owned(), metric.clone());
    *known.entry(key).or_insert_with(|| {
        host(api, chip, available).is_ok_and(|host| {
            let added = add(api, host, std::slice::from_ref(metric));
            release(api, host);
            added.is_ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `..._STRUCT_SIZE` of each struct in the headers of CUDA 13.0, and offsets around the
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
