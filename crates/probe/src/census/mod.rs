//! The launch census: what a process has the device do, by CUPTI's activity records.
//!
//! Two ways in. `inject` is for any process, unchanged: the driver loads this library by
//! `CUDA_INJECTION64_PATH`, and what happens is written to a file. [`CallRecording`] is for a worker
//! that wants to know what one call of its own does. A process is recorded in one way only.

mod calls;
pub(crate) mod cupti;
mod inject;
pub(crate) mod json;
mod operation;
mod ranges;
mod record;
#[cfg(test)]
mod tests;

pub use calls::{CallClass, CallCount, CallCounts};
pub use operation::{LaunchCall, RecordedKernel, RecordedOperation, RecordedWork};

use crate::Error;
use crate::Result;
use crate::error::entry;
use cupti::{Cupti, kind};
use json::{Current, array, counts, operation, optional, quoted};
use operation::Linker;
use std::ffi::{c_char, c_int};
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
fn take(library: &Cupti, way: Way) -> Result<()> {
    if *WAY.get_or_init(|| way) != way {
        return Err(Error::Order("this process is being recorded already"));
    }
    // SAFETY: both callbacks hold to what CUPTI asks of them, and live as long as the
    // process: this library is never unloaded.
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

/// Records what the device does, or stops to.
fn switch(library: &Cupti, on: bool) -> Result<()> {
    KINDS
        .into_iter()
        .try_for_each(|kind| library.switch(kind, on))
}

/// A recording that has begun. Dropped, it ends, and what was recorded is lost.
#[must_use]
pub struct CallRecording {
    library: &'static Cupti,
    begin: u64,
    called: Option<u64>,
    returned: Option<u64>,
}

/// What was recorded; times in ns of one clock, the host's and the device's alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// When the recording began.
    pub begin: u64,
    /// When the call was made and when it had returned, where that was said.
    pub called: Option<u64>,
    /// See `called`.
    pub returned: Option<u64>,
    /// When it ended.
    pub end: u64,
    /// What the device did, by start.
    pub operations: Vec<RecordedOperation>,
    /// Names of kernels, demangled, by the ids that operations have.
    pub names: Vec<String>,
    /// What the host was in, by the ids that operations have: names of ranges joined by `/`.
    pub operators: Vec<String>,
    /// Calls that the host made.
    pub counts: CallCounts,
    /// Records that were lost.
    pub dropped: u64,
}

impl CallRecording {
    /// Begins. The device is to be idle; CUPTI's first recording in a process changes how
    /// code is loaded, so make the call once within a recording before the one that counts.
    ///
    /// # Errors
    /// No CUPTI, or a process that is being recorded already.
    pub fn begin() -> Result<Self> {
        let library = Cupti::get()?;
        // Anew each time: a profiler may have taken CUPTI's records for itself since.
        take(library, Way::Call)?;
        // What came late for an earlier recording is not of this one.
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

    /// Says that the call is made now: what was launched before is not its work, and what the
    /// host asked of CUDA before is not counted.
    pub fn called(&mut self) {
        self.called = Some(self.library.now());
    }

    /// Says that the call has returned: what the host asks of CUDA from here on, as to wait
    /// for the device, is not counted as the call's.
    pub fn returned(&mut self) {
        self.returned = Some(self.library.now());
    }

    /// Ends. The device is to be done with what was to be recorded.
    ///
    /// # Errors
    /// CUPTI's.
    pub fn end(self) -> Result<Recorded> {
        let end = self.library.now();
        record(self.library, false)?;
        self.library.flush(true);
        let mut linker = Linker::default();
        linker.counted_from = self.called;
        linker.counted_until = self.returned;
        let damaged = record::drain(self.library, |record| linker.add(record));
        let mut operations = linker.settle(true);
        operations.sort_by_key(|operation| (operation.start, operation.end));
        Ok(Recorded {
            begin: self.begin,
            called: self.called,
            returned: self.returned,
            end,
            operations,
            names: linker.names.all().to_vec(),
            operators: linker.ranges.operators().to_vec(),
            counts: linker.counts,
            dropped: self.library.dropped() + linker.incomplete + damaged,
        })
    }
}

/// Records operations and all calls, or stops to.
fn record(library: &Cupti, on: bool) -> Result<()> {
    switch(library, on)?;
    library.switch(kind::DRIVER, on)?;
    library.switch(kind::RUNTIME, on)
}

impl Drop for CallRecording {
    fn drop(&mut self) {
        // Already off after `end`; otherwise nobody is left to ask.
        let _ = record(self.library, false);
    }
}

impl Recorded {
    /// The kernel's name, demangled.
    pub fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or("?", String::as_str)
    }

    /// The operations of the call alone: those that were launched between its beginning and
    /// its end, where both were said. `None` where a launch is not known, or nothing was said.
    pub fn of_the_call(&self) -> Option<Vec<&RecordedOperation>> {
        let (called, returned) = (self.called?, self.returned?);
        let mut inside = Vec::new();
        for operation in &self.operations {
            if (called..=returned).contains(&operation.launch?.at) {
                inside.push(operation);
            }
        }
        Some(inside)
    }

    /// The operator's text.
    pub fn operator(&self, id: u32) -> &str {
        self.operators.get(id as usize).map_or("?", String::as_str)
    }

    /// The JSON text that the C interface gives.
    fn json(&self) -> String {
        let (name, operator) = (|id| quoted(self.name(id)), |id| quoted(self.operator(id)));
        let operations = self.operations.iter();
        format!(
            r#"{{"begin":{},"end":{},"dropped":{}{}{},{},"operations":{}}}"#,
            self.begin,
            self.end,
            self.dropped,
            optional("called", self.called),
            optional("returned", self.returned),
            counts(&self.counts),
            array(operations.map(|one| operation(one, name, operator))),
        )
    }
}

/// The recording of the C interface.
static CURRENT: Current<CallRecording> = Current::new();

/// Begins to record what the process has the device do.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_begin() -> c_int {
    entry(|| CURRENT.begin(CallRecording::begin))
}

/// The call is made now: see [`CallRecording::called`]. Without a recording it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_called() -> c_int {
    entry(|| CURRENT.each(CallRecording::called))
}

/// The call has returned: see [`CallRecording::returned`]. Without a recording it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_returned() -> c_int {
    entry(|| CURRENT.each(CallRecording::returned))
}

/// Ends it. `json` is left pointing to what was recorded, a JSON object that ends with a
/// NUL and is valid until the next end.
///
/// # Safety
/// `json` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_census_end(json: *mut *const c_char) -> c_int {
    const NOT_BEGUN: &str = "a recording ends that was not begun";
    // SAFETY: the caller's.
    entry(|| unsafe { CURRENT.end(json, NOT_BEGUN, |begun| Ok(begun.end()?.json())) })
}
