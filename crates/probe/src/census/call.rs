//! What one call does, from within the process that makes it.

use super::calls::Counts;
use super::cupti::{Library, kind};
use super::operation::{Linker, Operation};
use super::{Way, buffers, json, switch, take};
use crate::Error;
use crate::Result;
use crate::status::entry;
use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// A recording that has begun. Dropped, it ends, and what was recorded is lost.
#[must_use]
pub struct Recording {
    library: &'static Library,
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
    pub operations: Vec<Operation>,
    /// Names of kernels, demangled, by the ids that operations have.
    pub names: Vec<String>,
    /// What the host was in, by the ids that operations have: names of ranges joined by `/`.
    pub operators: Vec<String>,
    /// Calls that the host made.
    pub counts: Counts,
    /// Records that were lost.
    pub dropped: u64,
}

impl Recording {
    /// Begins. The device is to be idle; CUPTI's first recording in a process changes how
    /// code is loaded, so make the call once within a recording before the one that counts.
    ///
    /// # Errors
    /// No CUPTI, or a process that is being recorded already.
    pub fn begin() -> Result<Self> {
        let library = Library::get()?;
        // Anew each time: a profiler may have taken CUPTI's records for itself since.
        take(library, Way::Call)?;
        // What came late for an earlier recording is not of this one.
        library.flush(true);
        buffers::drain(library, |_| ());
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
        let damaged = buffers::drain(self.library, |record| linker.add(record));
        let mut operations = linker.settle(true);
        operations.sort_by_key(|operation| (operation.start(), operation.end()));
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
fn record(library: &Library, on: bool) -> Result<()> {
    switch(library, on)?;
    library.switch(kind::DRIVER, on)?;
    library.switch(kind::RUNTIME, on)
}

impl Drop for Recording {
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
    pub fn of_the_call(&self) -> Option<Vec<&Operation>> {
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

    /// As the C interface gives it.
    pub(super) fn json(&self) -> String {
        let mut out = format!(
            "{{\"begin\":{},\"end\":{},\"dropped\":{}",
            self.begin, self.end, self.dropped
        );
        for (name, at) in [("called", self.called), ("returned", self.returned)] {
            if let Some(at) = at {
                json::moment(&mut out, name, at);
            }
        }
        out.push(',');
        json::counts(&mut out, &self.counts);
        out.push_str(",\"operations\":[");
        for (at, operation) in self.operations.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            let name = |out: &mut String, id| json::text(out, self.name(id));
            let operator = |out: &mut String, id| json::text(out, self.operator(id));
            json::operation(&mut out, operation, name, operator);
        }
        out.push_str("]}");
        out
    }
}

/// The recording of the C interface, and the text of the last one.
static CURRENT: Mutex<(Option<Recording>, Option<CString>)> = Mutex::new((None, None));

/// Begins to record what the process has the device do.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_begin() -> c_int {
    entry(|| {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.0 = None;
        current.0 = Some(Recording::begin()?);
        Ok(())
    })
}

/// The call is made now: see [`Recording::called`]. Without a recording it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_called() -> c_int {
    entry(|| {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.0.iter_mut().for_each(Recording::called);
        Ok(())
    })
}

/// The call has returned: see [`Recording::returned`]. Without a recording it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_census_returned() -> c_int {
    entry(|| {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.0.iter_mut().for_each(Recording::returned);
        Ok(())
    })
}

/// Ends it. `json` is left pointing to what was recorded, a JSON object that ends with a
/// NUL and is valid until the next end.
///
/// # Safety
/// `json` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_census_end(json: *mut *const c_char) -> c_int {
    entry(|| {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = current.0.take();
        let begun = begun.ok_or(Error::Order("a recording ends that was not begun"))?;
        let text = begun.end()?.json();
        let kept = current.1.insert(CString::new(text).unwrap_or_default());
        if !json.is_null() {
            // SAFETY: the caller's.
            unsafe { json.write(kept.as_ptr()) };
        }
        Ok(())
    })
}
