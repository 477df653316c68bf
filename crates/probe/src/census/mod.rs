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

/// The kinds of records: the device's work, and the host's open ranges. Kernels that run at
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

impl CallRecording {
    /// Begins. The device must be idle; CUPTI's first recording in a process changes how
    /// code is loaded, so make the call once within a recording before the one that counts.
    ///
    /// # Errors
    /// No CUPTI, or a process that is being recorded already.
    pub fn begin() -> Result<Self> {
        let library = Cupti::get()?;
        // Repeated each time: a profiler may have taken CUPTI's records for itself since.
        take(library, Way::Call)?;
        // Late records of an earlier recording do not belong to this one.
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

    /// Ends, and gives what was recorded as JSON: `begin`, `called`, `returned` and `end` in ns of
    /// one clock, the host's and the device's alike; `operations` by start, with the names of kernels
    /// demangled and of the ranges that the host was in joined by `/`; `counts` of calls that the
    /// host made, and `ns` that it was in them; `dropped`, records that were lost. The device is to
    /// be done with what was to be recorded.
    ///
    /// # Errors
    /// CUPTI's.
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

/// All that a recording holds, with its moments where they are known.
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

/// Records operations and all calls, or stops to.
fn record(library: &Cupti, on: bool) -> Result<()> {
    switch(library, on)?;
    library.switch(kind::DRIVER, on)?;
    library.switch(kind::RUNTIME, on)
}

impl Drop for CallRecording {
    fn drop(&mut self) {
        // Already off after `end`; a failure of the second try cannot be reported.
        let _ = record(self.library, false);
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
    entry(|| unsafe { CURRENT.end(json, NOT_BEGUN, CallRecording::end) })
}
