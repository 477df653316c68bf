//! The launch census: the work that a process does on the device, from CUPTI's activity records.
//!
//! It has two uses. `inject` records any unchanged process: the driver loads this library through
//! `CUDA_INJECTION64_PATH`, and the records go to a file. [`CallRecording`] is for a worker that
//! records one of its own calls. A process can only use one of them.

mod calls;
pub(crate) mod cupti;
mod inject;
pub(crate) mod json;
mod operation;
mod ranges;
mod record;
#[cfg(test)]
mod tests;

use crate::Error;
use crate::Result;
use crate::error::entry;
use cupti::{Cupti, kind};
use json::{Current, array, counts, operation, optional, quoted};
use operation::Linker;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

/// The use of the census in this process, which never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Injected,
    Call,
}

static WAY: OnceLock<Way> = OnceLock::new();

/// The kinds of records: operations of the device, and ranges of the host. This kind of kernel
/// records does not serialise concurrent kernels.
const KINDS: [u32; 5] = [
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMSET,
    kind::MEMCPY_P2P,
    kind::MARKER,
];

/// Registers this library's callbacks for CUPTI's records, until someone else registers theirs.
fn take(library: &Cupti, way: Way) -> Result<()> {
    if *WAY.get_or_init(|| way) != way {
        return Err(Error::Order("this process is being recorded already"));
    }
    // SAFETY: both callbacks follow CUPTI's contract, and live as long as the process, since this
    // library is never unloaded.
    let registered =
        unsafe { (library.functions.registerCallbacks)(record::requested, record::completed) };
    library.check("cuptiActivityRegisterCallbacks", registered)
}

/// Counters and an injected recording exclude each other.
pub(crate) fn may_count() -> Result<()> {
    match WAY.get() {
        Some(Way::Injected) => Err(Error::Order("this process is being recorded already")),
        _ => Ok(()),
    }
}

/// Starts or stops recording operations of the device.
fn switch(library: &Cupti, on: bool) -> Result<()> {
    KINDS
        .into_iter()
        .try_for_each(|kind| library.switch(kind, on))
}

/// A recording in progress. Dropping it ends it, and loses what was recorded.
#[must_use]
pub struct CallRecording {
    library: &'static Cupti,
    begin: u64,
    called: Option<u64>,
    returned: Option<u64>,
}

impl CallRecording {
    /// Begins a recording. The device must be idle. CUPTI's first recording in a process changes
    /// how code is loaded, so record the call once before the recording that counts.
    ///
    /// # Errors
    /// CUPTI is missing, or this process is recorded already.
    pub fn begin() -> Result<Self> {
        let library = Cupti::get()?;
        // Repeated each time, because a profiler may have registered its own callbacks since.
        take(library, Way::Call)?;
        // Drops late records of an earlier recording.
        library.flush(true);
        record::drain(library, |_| ());
        library.dropped();
        let begun = Self {
            library,
            begin: library.now(),
            called: None,
            returned: None,
        };
        record(library, true)?;
        Ok(begun)
    }

    /// Marks the moment right before the call. Earlier launches are not its work, and the host's
    /// earlier calls to CUDA are not counted.
    pub fn called(&mut self) {
        self.called = Some(self.library.now());
    }

    /// Marks the moment at which the call has returned. The host's later calls to CUDA, for example
    /// to wait for the device, are not counted.
    pub fn returned(&mut self) {
        self.returned = Some(self.library.now());
    }

    /// Ends the recording, and returns it as JSON: `begin`, `called`, `returned` and `end` in ns of
    /// a clock that host and device share; `operations` by start, with demangled names of kernels
    /// and the ranges of the host joined by `/`; `counts` of the host's calls, and `ns`, the time
    /// in them; and `dropped`, the number of lost records. The device must have finished the work
    /// to be recorded.
    ///
    /// # Errors
    /// CUPTI's error.
    pub fn end(self) -> Result<String> {
        let end = self.library.now();
        record(self.library, false)?;
        self.library.flush(true);
        let mut linker = Linker::default();
        linker.counted_from = self.called;
        linker.counted_until = self.returned;
        let damaged = record::drain(self.library, |record| linker.add(record));
        let moments = [
            ("begin", Some(self.begin)),
            ("called", self.called),
            ("returned", self.returned),
            ("end", Some(end)),
        ];
        Ok(json(moments, linker, self.library.dropped() + damaged))
    }
}

/// A whole recording as JSON, with those moments that are known.
fn json(moments: [(&str, Option<u64>); 4], mut linker: Linker, lost: u64) -> String {
    let mut operations = linker.settle(true);
    operations.sort_by_key(|operation| (operation.start, operation.end));
    let text = |texts: &[String], id| {
        let text: Option<&String> = texts.get(id as usize);
        quoted(text.map_or("?", String::as_str))
    };
    let name = |id| text(linker.names.all(), id);
    let operator = |id| text(linker.ranges.operators(), id);
    let operations = operations.iter();
    format!(
        r#"{{"dropped":{}{},{},"operations":{}}}"#,
        lost + linker.incomplete,
        moments.map(|(name, at)| optional(name, at)).concat(),
        counts(&linker.counts),
        array(operations.map(|one| operation(one, name, operator))),
    )
}

/// Starts or stops recording operations and all calls.
fn record(library: &Cupti, on: bool) -> Result<()> {
    switch(library, on)?;
    library.switch(kind::DRIVER, on)?;
    library.switch(kind::RUNTIME, on)
}

impl Drop for CallRecording {
    fn drop(&mut self) {
        // Already stopped after `end`. A failure here cannot be reported.
        let _ = record(self.library, false);
    }
}

/// The recording in progress of the C interface.
static CURRENT: Current<CallRecording> = Current::new();

/// Starts to record the work that the process does on the device.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_begin() -> c_int {
    entry(|| CURRENT.begin(CallRecording::begin))
}

/// Marks the moment right before the call; see [`CallRecording::called`]. Does nothing without a
/// recording.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_called() -> c_int {
    entry(|| CURRENT.each(CallRecording::called))
}

/// Marks the moment at which the call has returned; see [`CallRecording::returned`]. Does nothing
/// without a recording.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_returned() -> c_int {
    entry(|| CURRENT.each(CallRecording::returned))
}

/// Ends the recording. `json` then points to it: a JSON object that ends with a NUL and is valid
/// until the next end.
///
/// # Safety
/// `json` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_census_end(json: *mut *const c_char) -> c_int {
    const NOT_BEGUN: &str = "a recording ends that was not begun";
    // SAFETY: required of the caller.
    entry(|| unsafe { CURRENT.end(json, NOT_BEGUN, CallRecording::end) })
}
