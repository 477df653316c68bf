//! Counting one call, from within the process that makes it.

use super::profiler::{DataInfo, Decode, Enable, Evaluate, Functions, Initialize, profiler};
use super::steps::{
    Held, add, available, chip, config, data, functions, host, passes, pointers, release, room,
    start,
};
use crate::Error;
use crate::Result;
use crate::census::{cupti::Library, json, may_count};
use crate::driver::{Driver, cu};
use crate::status::entry;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// What was counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Metrics that this device has, of those that were asked for, in that order.
    pub metrics: Vec<String>,
    /// Metrics that it has not.
    pub unavailable: Vec<String>,
    /// How often each kernel ran.
    pub passes: usize,
    /// Kernels that there was no room for.
    pub dropped: usize,
    /// For each kernel, in the order of the launches, the value of each of `metrics`.
    pub kernels: Vec<Vec<f64>>,
}

/// A counting that has begun. Dropped, it ends, and what was counted is lost.
#[must_use]
pub struct Counting {
    held: Held,
    metrics: Vec<CString>,
    unavailable: Vec<CString>,
    passes: usize,
    // CUPTI reads and writes both until the end.
    _config: Vec<u8>,
    data: Vec<u8>,
}

impl Counting {
    /// Begins, on the device whose context is current. The device is to be idle. `kernels` are
    /// as many as will be launched, or 0 where that is not known.
    ///
    /// # Errors
    /// No CUPTI, no permission, no context, a process that is recorded by injection, or a
    /// device that has none of the metrics.
    pub fn begin(metrics: &[CString], kernels: usize) -> Result<Self> {
        let cupti = Library::get()?;
        let functions = functions(cupti)?;
        may_count()?;
        let driver = Driver::get()?;
        let (mut context, mut device) = (ptr::null_mut(), 0);
        // SAFETY: live variables.
        unsafe {
            cu!(driver, cuCtxGetCurrent(&raw mut context))?;
            if context.is_null() {
                return Err(Error::NoCounters("no CUDA context is current".to_owned()));
            }
            cu!(driver, cuCtxGetDevice(&raw mut device))?;
        }
        let mut all = Initialize::new();
        profiler!(cupti, functions, initialize, "cuptiProfilerInitialize", all)?;
        let mut held = Held {
            cupti,
            functions,
            host: ptr::null_mut(),
            profiler: ptr::null_mut(),
            started: false,
        };
        let chip = chip(cupti, functions, device)?;
        let available = available(cupti, functions, context)?;
        let on_chip = |metric: &CString| has(cupti, functions, &chip, &available, metric);
        let (metrics, unavailable): (Vec<CString>, Vec<CString>) =
            metrics.iter().cloned().partition(on_chip);
        held.host = host(cupti, functions, &chip, &available)?;
        if metrics.is_empty() {
            return Err(Error::NoCounters(format!(
                "{} has none of the metrics that were asked for",
                chip.to_string_lossy()
            )));
        }
        add(cupti, functions, held.host, &metrics)?;
        let mut config = config(&held)?;
        let passes = passes(&held, &mut config)?;
        let mut all = Enable::new();
        all.context = context;
        profiler!(cupti, functions, enable, "cuptiRangeProfilerEnable", all)?;
        held.profiler = all.profiler;
        let room = room(kernels);
        let mut data = data(&held, &metrics, room)?;
        start(&mut held, &config, &mut data, room)?;
        Ok(Self {
            held,
            metrics,
            unavailable,
            passes,
            _config: config,
            data,
        })
    }

    /// Ends. The device is to be done with what was to be counted.
    ///
    /// # Errors
    /// CUPTI's, and passes that are missing.
    pub fn end(mut self) -> Result<Counted> {
        if !self.held.stop()? {
            return Err(Error::NoCounters("not every pass was made".to_owned()));
        }
        let (cupti, functions) = (self.held.cupti, self.held.functions);
        let mut decoded = Decode::new();
        decoded.profiler = self.held.profiler;
        profiler!(
            cupti,
            functions,
            decode,
            "cuptiRangeProfilerDecodeData",
            decoded
        )?;
        let mut info = DataInfo::new();
        (info.data, info.data_size) = (self.data.as_ptr(), self.data.len());
        let name = "cuptiRangeProfilerGetCounterDataInfo";
        checked_info(cupti, functions, name, &mut info)?;
        let kernels = (0..info.ranges).map(|range| self.values(range));
        let kernels = kernels.collect::<Result<_>>()?;
        let words = |names: &[CString]| {
            let words = names.iter().map(|name| name.to_string_lossy().into_owned());
            words.collect()
        };
        Ok(Counted {
            metrics: words(&self.metrics),
            unavailable: words(&self.unavailable),
            passes: self.passes,
            dropped: decoded.dropped,
            kernels,
        })
    }

    /// The values of one kernel.
    fn values(&self, range: usize) -> Result<Vec<f64>> {
        let names = pointers(&self.metrics);
        // What is not written is not known.
        let mut values = vec![f64::NAN; names.len()];
        let mut all = Evaluate::new();
        all.host = self.held.host;
        (all.data, all.data_size) = (self.data.as_ptr(), self.data.len());
        (all.names, all.count) = (names.as_ptr(), names.len());
        (all.range, all.values) = (range, values.as_mut_ptr());
        let name = "cuptiProfilerHostEvaluateToGpuValues";
        // SAFETY: as many names and values as are told; the image is alive.
        let code = unsafe { (self.held.functions.evaluate)(&raw mut all) };
        super::profiler::checked(self.held.cupti, name, code)?;
        Ok(values)
    }
}

/// Whether a chip has a metric: asked once, since each takes an object of its own.
fn has(
    cupti: &'static Library,
    functions: &'static Functions,
    chip: &CStr,
    available: &[u8],
    metric: &CString,
) -> bool {
    static KNOWN: Mutex<BTreeMap<(CString, CString), bool>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (chip.to_owned(), metric.clone());
    *known.entry(key).or_insert_with(|| {
        host(cupti, functions, chip, available).is_ok_and(|host| {
            let added = add(cupti, functions, host, std::slice::from_ref(metric));
            release(cupti, functions, host);
            added.is_ok()
        })
    })
}

fn checked_info(
    cupti: &Library,
    functions: &Functions,
    name: &'static str,
    info: &mut DataInfo,
) -> Result<()> {
    // SAFETY: the image of the struct is alive.
    super::profiler::checked(cupti, name, unsafe { (functions.data_info)(info) })
}

impl Counted {
    /// As the C interface gives it; a value that is not known is null.
    fn json(&self) -> String {
        let mut out = format!(
            "{{\"passes\":{},\"dropped\":{},\"metrics\":",
            self.passes, self.dropped
        );
        list(&mut out, &self.metrics, |out, name| json::text(out, name));
        out.push_str(",\"unavailable\":");
        list(&mut out, &self.unavailable, |out, name| {
            json::text(out, name)
        });
        out.push_str(",\"kernels\":");
        list(&mut out, &self.kernels, |out, values| {
            list(out, values, |out, value| {
                // Writing to a String does not fail.
                let _ = match value.is_finite() {
                    true => write!(out, "{value}"),
                    false => write!(out, "null"),
                };
            });
        });
        out.push('}');
        out
    }
}

fn list<T>(out: &mut String, all: &[T], mut put: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        put(out, one);
    }
    out.push(']');
}

/// The counting of the C interface, and the text of the last one.
static CURRENT: Mutex<(Option<Counting>, Option<CString>)> = Mutex::new((None, None));

/// Begins to count metrics of each kernel that the process launches on the current context:
/// `kernels` of them, or 0 where that is not known. The more there are, the longer it takes.
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
        // SAFETY: the caller's.
        let metrics = unsafe { std::slice::from_raw_parts(metrics, count as usize) };
        if metrics.iter().any(|name| name.is_null()) {
            return Err(Error::Argument("a metric is null".to_owned()));
        }
        // SAFETY: the caller's.
        let names = metrics
            .iter()
            .map(|&name| unsafe { CStr::from_ptr(name) }.to_owned());
        let names: Vec<CString> = names.collect();
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.0 = None;
        current.0 = Some(Counting::begin(&names, kernels as usize)?);
        Ok(())
    })
}

/// Ends it. `json` is left pointing to what was counted, a JSON object that ends with a NUL
/// and is valid until the next end.
///
/// # Safety
/// `json` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_counters_end(json: *mut *const c_char) -> c_int {
    entry(|| {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = current.0.take();
        let begun = begun.ok_or(Error::Order("a counting ends that was not begun"))?;
        let text = begun.end()?.json();
        let kept = current.1.insert(CString::new(text).unwrap_or_default());
        if !json.is_null() {
            // SAFETY: the caller's.
            unsafe { json.write(kept.as_ptr()) };
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_exactly_and_the_unknown_is_null() {
        let counted = Counted {
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
    fn an_end_without_a_begin_and_no_metrics_are_told() {
        // SAFETY: null is allowed.
        unsafe {
            assert_eq!(
                regatta_probe_counters_end(ptr::null_mut()),
                crate::status::WRONG_ORDER
            );
            assert_eq!(
                regatta_probe_counters_begin(ptr::null(), 0, 0),
                crate::status::BAD_ARGUMENT
            );
        }
    }
}
