//! Hardware counters of each kernel that a call launches, from CUPTI's range profiler.
//!
//! Each kernel is a range of its own (auto range). CUPTI runs it once for each pass that the
//! metrics need (kernel replay), and restores the memory that it wrote, so the call is made once
//! for any number of metrics. Kernels run one after the other meanwhile, and their times mean
//! nothing. The profiler numbers kernels and does not name them; names come from a census of the
//! same call, in the same order. To know which counts are exact, the same call has to be counted
//! again.
//!
//! A census and a counting exclude each other: one must end before the other begins.

mod profiler;

use self::profiler::{
    AUTO_RANGE, ConfigImage, ConfigSize, DataInfo, DataInitialize, DataSize, Decode, Enable,
    Evaluate, Initialize, KERNEL_REPLAY, Passes, Profiler, ProfilerApi, SetConfig, Stop, add,
    available, chip, has, host, pointers, profiler, release,
};
use crate::Error;
use crate::Result;
use crate::census::json::{Current, array, quoted};
use crate::census::may_count;
use crate::driver::{Driver, cu};
use crate::error::entry;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// The default for the number of kernels that are counted, and its maximum. Further kernels count
/// as dropped.
const MAX_KERNELS: usize = 512;

/// The minimum room, in kernels.
const MIN_KERNELS: usize = 16;

/// The room to allocate for `kernels` kernels, or for an unknown number if that is 0. Starting to
/// count takes 0.7 ms for each kernel of the room (H200, driver 580).
fn room(kernels: usize) -> usize {
    match kernels {
        0 => MAX_KERNELS,
        some if some >= MAX_KERNELS => MAX_KERNELS,
        // Room for one more, so that one too many is noticed.
        some => (some + 1).next_power_of_two().max(MIN_KERNELS),
    }
}

/// The result of a counting.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedKernels {
    /// The requested metrics that this device has, in the order of the request.
    pub metrics: Vec<String>,
    /// The requested metrics that this device does not have.
    pub unavailable: Vec<String>,
    /// The number of passes over each kernel.
    pub passes: usize,
    /// The number of kernels beyond the room.
    pub dropped: usize,
    /// The values of `metrics` for each kernel, in launch order.
    pub kernels: Vec<Vec<f64>>,
}

/// A counting in progress. Dropping it ends it: the counts are lost, and CUPTI's objects for it are
/// freed, so that a census works afterwards.
#[must_use]
pub struct Counting {
    api: ProfilerApi,
    host: *mut c_void,
    profiler: *mut c_void,
    started: bool,
    metrics: Vec<CString>,
    unavailable: Vec<CString>,
    passes: usize,
    // CUPTI reads and writes both until the counting ends.
    config: Vec<u8>,
    data: Vec<u8>,
}

// SAFETY: CUPTI's objects belong to the process, not to a thread.
unsafe impl Send for Counting {}

impl Drop for Counting {
    fn drop(&mut self) {
        // A failure cannot be reported from here, and the remaining steps are still needed.
        if self.started {
            let _ = self.stop();
        }
        if !self.profiler.is_null() {
            let mut all = Profiler::new();
            all.profiler = self.profiler;
            let _ = profiler!(self.api, cuptiRangeProfilerDisable, all);
        }
        release(self.api, self.host);
        let mut all = Initialize::new();
        let _ = profiler!(self.api, cuptiProfilerDeInitialize, all);
    }
}

impl Counting {
    /// Starts to count on the device whose context is current, which must be idle. `kernels` is the
    /// number that will be launched, or 0 if unknown.
    ///
    /// # Errors
    /// CUPTI, permission or a context is missing, this process is recorded by injection, or the
    /// device has none of the metrics.
    pub fn begin(metrics: &[CString], kernels: usize) -> Result<Self> {
        let api = ProfilerApi::get()?;
        may_count()?;
        let driver = Driver::get()?;
        let (mut context, mut device) = (ptr::null_mut(), 0);
        // SAFETY: the pointers are to live variables.
        unsafe {
            cu!(driver, cuCtxGetCurrent(&raw mut context))?;
            if context.is_null() {
                return Err(Error::NoCounters("no CUDA context is current".to_owned()));
            }
            cu!(driver, cuCtxGetDevice(&raw mut device))?;
        }
        let mut all = Initialize::new();
        profiler!(api, cuptiProfilerInitialize, all)?;
        let mut begun = Self {
            api,
            host: ptr::null_mut(),
            profiler: ptr::null_mut(),
            started: false,
            metrics: Vec::new(),
            unavailable: Vec::new(),
            passes: 0,
            config: Vec::new(),
            data: Vec::new(),
        };
        let chip = chip(api, device)?;
        let available = available(api, context)?;
        let on_chip = |metric: &CString| has(api, &chip, &available, metric);
        (begun.metrics, begun.unavailable) = metrics.iter().cloned().partition(on_chip);
        begun.host = host(api, &chip, &available)?;
        if begun.metrics.is_empty() {
            return Err(Error::NoCounters(format!(
                "{} has none of the metrics that were asked for",
                chip.to_string_lossy()
            )));
        }
        add(api, begun.host, &begun.metrics)?;
        begun.configure()?;
        let mut all = Enable::new();
        all.context = context;
        profiler!(api, cuptiRangeProfilerEnable, all)?;
        begun.profiler = all.profiler;
        begun.start(room(kernels))?;
        Ok(begun)
    }

    /// Builds the configuration of the host object's metrics, and reads the number of passes.
    fn configure(&mut self) -> Result<()> {
        let mut size = ConfigSize::new();
        size.host = self.host;
        profiler!(self.api, cuptiProfilerHostGetConfigImageSize, size)?;
        self.config = vec![0; size.bytes];
        let mut all = ConfigImage::new();
        (all.host, all.bytes, all.image) = (self.host, size.bytes, self.config.as_mut_ptr());
        profiler!(self.api, cuptiProfilerHostGetConfigImage, all)?;
        let mut all = Passes::new();
        (all.bytes, all.image) = (self.config.len(), self.config.as_mut_ptr());
        profiler!(self.api, cuptiProfilerHostGetNumOfPasses, all)?;
        self.passes = all.passes;
        Ok(())
    }

    /// Allocates an empty image for the counts of `room` kernels, and starts.
    fn start(&mut self, room: usize) -> Result<()> {
        let names = pointers(&self.metrics);
        let mut size = DataSize::new();
        size.profiler = self.profiler;
        (size.names, size.count) = (names.as_ptr(), names.len());
        (size.ranges, size.nodes) = (room, room as u32);
        profiler!(self.api, cuptiRangeProfilerGetCounterDataSize, size)?;
        self.data = vec![0; size.bytes];
        let mut all = DataInitialize::new();
        all.profiler = self.profiler;
        (all.bytes, all.data) = (self.data.len(), self.data.as_mut_ptr());
        profiler!(self.api, cuptiRangeProfilerCounterDataImageInitialize, all)?;
        let mut all = SetConfig::new();
        all.profiler = self.profiler;
        (all.config, all.config_size) = (self.config.as_ptr(), self.config.len());
        (all.data, all.data_size) = (self.data.as_mut_ptr(), self.data.len());
        (all.range, all.replay) = (AUTO_RANGE, KERNEL_REPLAY);
        (all.ranges, all.levels, all.least_level) = (room, 1, 1);
        profiler!(self.api, cuptiRangeProfilerSetConfig, all)?;
        let mut all = Profiler::new();
        all.profiler = self.profiler;
        profiler!(self.api, cuptiRangeProfilerStart, all)?;
        self.started = true;
        Ok(())
    }

    /// Stops. Returns true if every pass was made.
    fn stop(&mut self) -> Result<bool> {
        self.started = false;
        let mut all = Stop::new();
        all.profiler = self.profiler;
        profiler!(self.api, cuptiRangeProfilerStop, all)?;
        Ok(all.complete != 0)
    }

    /// Ends the counting. The device must have finished the counted work.
    ///
    /// # Errors
    /// CUPTI's error, or passes are missing.
    pub fn end(mut self) -> Result<CountedKernels> {
        if !self.stop()? {
            return Err(Error::NoCounters("not every pass was made".to_owned()));
        }
        let mut decoded = Decode::new();
        decoded.profiler = self.profiler;
        profiler!(self.api, cuptiRangeProfilerDecodeData, decoded)?;
        let mut info = DataInfo::new();
        (info.data, info.data_size) = (self.data.as_ptr(), self.data.len());
        profiler!(self.api, cuptiRangeProfilerGetCounterDataInfo, info)?;
        let kernels = (0..info.ranges).map(|range| self.values(range));
        let kernels = kernels.collect::<Result<_>>()?;
        let words = |names: &[CString]| {
            let words = names.iter().map(|name| name.to_string_lossy().into_owned());
            words.collect()
        };
        Ok(CountedKernels {
            metrics: words(&self.metrics),
            unavailable: words(&self.unavailable),
            passes: self.passes,
            dropped: decoded.dropped,
            kernels,
        })
    }

    /// The values of the metrics for one kernel.
    fn values(&self, range: usize) -> Result<Vec<f64>> {
        let names = pointers(&self.metrics);
        // A value that CUPTI does not write stays unknown.
        let mut values = vec![f64::NAN; names.len()];
        let mut all = Evaluate::new();
        all.host = self.host;
        (all.data, all.data_size) = (self.data.as_ptr(), self.data.len());
        (all.names, all.count) = (names.as_ptr(), names.len());
        (all.range, all.values) = (range, values.as_mut_ptr());
        profiler!(self.api, cuptiProfilerHostEvaluateToGpuValues, all)?;
        Ok(values)
    }
}

impl CountedKernels {
    /// The JSON text for the C interface. An unknown value is null.
    fn json(&self) -> String {
        let names = |names: &[String]| array(names.iter().map(|name| quoted(name)));
        let value = |value: &f64| {
            if value.is_finite() {
                value.to_string()
            } else {
                "null".to_owned()
            }
        };
        let kernels = self.kernels.iter();
        format!(
            r#"{{"passes":{},"dropped":{},"metrics":{},"unavailable":{},"kernels":{}}}"#,
            self.passes,
            self.dropped,
            names(&self.metrics),
            names(&self.unavailable),
            array(kernels.map(|values| array(values.iter().map(value)))),
        )
    }
}

/// The counting in progress of the C interface.
static CURRENT: Current<Counting> = Current::new();

/// Starts to count metrics of each kernel that the process launches in the current context.
/// `kernels` is their number, or 0 if unknown; starting takes longer for more kernels.
///
/// # Safety
/// `metrics` points to `count` strings that end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_counters_begin(
    metrics: *const *const c_char,
    count: u32,
    kernels: u32,
) -> c_int {
    entry(|| {
        if metrics.is_null() || count == 0 {
            return Err(Error::Argument("no metrics to count".to_owned()));
        }
        // SAFETY: required of the caller.
        let metrics = unsafe { std::slice::from_raw_parts(metrics, count as usize) };
        if metrics.iter().any(|name| name.is_null()) {
            return Err(Error::Argument("a metric is null".to_owned()));
        }
        // SAFETY: required of the caller.
        let names = metrics
            .iter()
            .map(|&name| unsafe { CStr::from_ptr(name) }.to_owned());
        let names: Vec<CString> = names.collect();
        CURRENT.begin(|| Counting::begin(&names, kernels as usize))
    })
}

/// Ends the counting. `json` then points to the counts: a JSON object that ends with a NUL and is
/// valid until the next end.
///
/// # Safety
/// `json` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_counters_end(json: *mut *const c_char) -> c_int {
    const NOT_BEGUN: &str = "a counting ends that was not begun";
    // SAFETY: required of the caller.
    entry(|| unsafe { CURRENT.end(json, NOT_BEGUN, |begun| Ok(begun.end()?.json())) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_exactly_and_the_unknown_is_null() {
        let counted = CountedKernels {
            metrics: vec!["sm__inst_executed.sum".to_owned()],
            unavailable: vec!["a\"b".to_owned()],
            passes: 2,
            dropped: 0,
            kernels: vec![vec![664_000_001.0], vec![f64::NAN]],
        };
        assert_eq!(
            counted.json(),
            r#"{"passes":2,"dropped":0,"metrics":["sm__inst_executed.sum"],"unavailable":["a\"b"],"kernels":[[664000001],[null]]}"#
        );
    }

    #[test]
    fn there_is_room_for_one_more_than_is_asked_for_up_to_the_most() {
        assert_eq!([0, 1, 16, 511, 512].map(room), [512, 16, 32, 512, 512]);
    }

    #[test]
    fn an_end_without_a_begin_and_no_metrics_are_told() {
        // SAFETY: null is permitted.
        unsafe {
            assert_eq!(
                regatta_probe_counters_end(ptr::null_mut()),
                crate::error::WRONG_ORDER
            );
            assert_eq!(
                regatta_probe_counters_begin(ptr::null(), 0, 0),
                crate::error::BAD_ARGUMENT
            );
        }
    }
}
