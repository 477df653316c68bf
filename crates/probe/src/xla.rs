//! The end of a computation, marked from inside XLA.
//!
//! JAX does not expose streams, and may queue a computation's work from a thread of its own after
//! the call has returned. So the last operation of a computation under test is a custom call, the
//! *marker*, which depends on every result. XLA runs its handler on the host when all of the
//! computation's work is queued, and passes the stream. The handler records the stop event on it,
//! in whatever thread it runs.
//!
//! ```text
//! begin                            as in clock.rs: gate closed, start event queued
//!   the call                       XLA queues its work ...
//!   marker                         ... and then ours: host time ends, stop event
//! end                              waits for the marker, opens the gate, reads
//! ```
//!
//! ```c
//! void *regatta_probe_xla_mark(void *call_frame);   // the XLA_FFI_Handler to register
//! int  regatta_probe_xla_stream(void **stream);     // what the last marker was handed
//! int  regatta_probe_xla_begin(regatta_probe *, int cold, uint32_t calls);
//! int  regatta_probe_xla_end(regatta_probe *, double *device_ns, double *late_ns,
//!                            double *clock_mhz, uint32_t *flags);
//! ```
//!
//! The rules of the C interface apply (capi.rs). `regatta_probe_sample_cancel` cancels a sample
//! that was begun here. If there are several `calls`, the last marker counts. `late_ns` is the time
//! from the start of `end` to the marker: 0 if the call returns with all its work queued.

mod ffi;

use crate::Cuda;
use crate::Error;
use crate::Result;
use crate::capi::{Probe, cache, flags, missing, put, with_probe};
use crate::clock::{Mark, TimedDevice};
use crate::driver::{EventHandle, StreamHandle, cu};
use crate::error::entry;
use ffi::{CallFrame, ErrorHandle};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time after which a computation without a mark has failed. The watchdog has opened the gate
/// long before.
const MARK_LIMIT: Duration = Duration::from_secs(5);

/// The markers of this process. They are global, because XLA passes nothing to a handler that
/// identifies the clock.
static MARKS: Marks = Marks::new();

/// An event and its stream, for the thread that queues the event.
struct StopEvent {
    event: EventHandle,
    stream: StreamHandle,
}

// SAFETY: any thread of the process may use the driver's handles.
unsafe impl Send for StopEvent {}

impl StopEvent {
    fn queue(&self, cuda: &'static crate::driver::Driver) -> Result<()> {
        // SAFETY: both live as long as the clock, which owns the `Awaited`.
        unsafe { cu!(cuda, cuEventRecord(self.event, self.stream)) }
    }
}

fn await_marks(cuda: &Cuda, calls: u32) -> Awaited {
    let (driver, stream) = (cuda.driver, cuda.stream);
    let recording = StopEvent {
        event: cuda.event(Mark::Stop),
        stream,
    };
    let record = Box::new(move || recording.queue(driver));
    MARKS.wait_for(stream.addr(), calls, record)
}

/// The handler of the custom call that marks a computation's end. It never returns an error to XLA:
/// if a marker fails, the sample fails and not the computation.
///
/// # Safety
/// Only XLA may call it, as an `XLA_FFI_Handler`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_xla_mark(frame: *mut c_void) -> ErrorHandle {
    entry(|| {
        let frame = frame.cast::<CallFrame>().cast_const();
        // SAFETY: required of the caller.
        unsafe {
            if !ffi::answer_metadata(frame) {
                MARKS.mark(ffi::stream(frame));
            }
        }
        Ok(())
    });
    ptr::null_mut()
}

/// Returns the `CUstream` on which XLA queued the last marked computation.
///
/// # Safety
/// `stream` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_xla_stream(stream: *mut *mut c_void) -> c_int {
    entry(|| {
        if stream.is_null() {
            return Err(missing("where to put the stream"));
        }
        let address = MARKS.stream()?;
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { stream.write(ptr::with_exposed_provenance_mut(address)) };
        Ok(())
    })
}

/// As `regatta_probe_sample_begin`, for `calls` calls of a computation that ends with a marker.
///
/// # Safety
/// The handle is null, or comes from `regatta_probe_open`, is not closed, and is used by this
/// thread only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_xla_begin(
    handle: *mut Probe,
    cold: c_int,
    calls: u32,
) -> c_int {
    // SAFETY: required of the caller, for the handle and the other pointers.
    unsafe {
        with_probe(handle, |probe| {
            probe.begun = None;
            // Done first, so that this code does nothing between the start event and the call.
            probe.awaited = Some(await_marks(probe.clock.device(), calls));
            probe.begun = Some(probe.clock.begin(cache(cold))?);
            Ok(())
        })
    }
}

/// Waits for the marker, and then does the same as `regatta_probe_sample_end`.
///
/// # Safety
/// The handle is null, or comes from `regatta_probe_open`, is not closed, and is used by this
/// thread only. The pointers are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_xla_end(
    handle: *mut Probe,
    device_ns: *mut f64,
    late_ns: *mut f64,
    clock_mhz: *mut f64,
    flags_out: *mut u32,
) -> c_int {
    // SAFETY: required of the caller, for the handle and the other pointers.
    unsafe {
        with_probe(handle, |probe| {
            let (Some(begun), Some(awaited)) = (probe.begun.take(), probe.awaited.take()) else {
                return Err(Error::Order("a sample ends that was not begun"));
            };
            let (entered, entered_ns) = (Instant::now(), probe.clock.device().host_ns());
            let late = awaited
                .wait(MARK_LIMIT)?
                .saturating_duration_since(entered)
                .as_nanos() as u64;
            let sample = probe.clock.end_queued(begun, entered_ns + late)?;
            put(device_ns, sample.device_ns);
            put(late_ns, late as f64);
            put(clock_mhz, sample.clock_mhz.unwrap_or(f64::NAN));
            put(flags_out, flags(&sample));
            Ok(())
        })
    }
}

/// The action of the next marker.
pub(crate) type RecordStop = Box<dyn FnOnce() -> Result<()> + Send>;

/// Connects markers with samples.
pub(crate) struct Marks {
    state: Mutex<MarkState>,
    marked: Condvar,
}

struct MarkState {
    /// The stream that XLA passed to the last marker, or the reason for which it passed none.
    stream: Option<std::result::Result<usize, String>>,
    ticket: u64,
    waiting: Option<Waiting>,
    /// The last marker that a sample waited for: its ticket, and the host's time before the stop
    /// event was queued.
    mark: Option<(u64, Result<Instant>)>,
}

struct Waiting {
    ticket: u64,
    stream: usize,
    /// The number of markers before the one that counts.
    before: u32,
    record: RecordStop,
}

/// A sample that waits for its marker. Dropping it ends the waiting: later markers do not touch the
/// sample's event.
pub(crate) struct Awaited {
    marks: &'static Marks,
    ticket: u64,
}

impl Marks {
    pub(crate) const fn new() -> Self {
        Self {
            state: Mutex::new(MarkState {
                stream: None,
                ticket: 0,
                waiting: None,
                mark: None,
            }),
            marked: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, MarkState> {
        // A panic in one sample must not end all later ones.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the `calls`-th marker from now on run `record`, which queues the stop event on
    /// `stream`.
    pub(crate) fn wait_for(
        &'static self,
        stream: usize,
        calls: u32,
        record: RecordStop,
    ) -> Awaited {
        let mut state = self.state();
        state.ticket += 1;
        let ticket = state.ticket;
        state.waiting = Some(Waiting {
            ticket,
            stream,
            before: calls.saturating_sub(1),
            record,
        });
        Awaited {
            marks: self,
            ticket,
        }
    }

    /// Handles a marker. Holds the lock while the event is recorded, so that code that cancels a
    /// sample knows that its event is not being recorded.
    pub(crate) fn mark(&self, stream: std::result::Result<usize, String>) {
        let mut state = self.state();
        let at = Instant::now();
        if let Some(mut waiting) = state.waiting.take() {
            let recorded = match &stream {
                Ok(found) if *found == waiting.stream && waiting.before > 0 => {
                    waiting.before -= 1;
                    state.waiting = Some(waiting);
                    return;
                }
                Ok(found) if *found == waiting.stream => (waiting.record)(),
                Ok(found) => Err(Error::Call(format!(
                    "XLA queued its work on stream {found:#x}, and the clock is on {:#x}",
                    waiting.stream
                ))),
                Err(words) => Err(Error::Call(words.clone())),
            };
            state.mark = Some((waiting.ticket, recorded.map(|()| at)));
            self.marked.notify_all();
        }
        state.stream = Some(stream);
    }

    /// The stream of the last marker.
    pub(crate) fn stream(&self) -> Result<usize> {
        match &self.state().stream {
            Some(Ok(stream)) => Ok(*stream),
            Some(Err(words)) => Err(Error::Unavailable(words.clone())),
            None => Err(Error::Order("no computation has run its marker yet")),
        }
    }
}

impl Awaited {
    /// Waits for the marker. Returns the host's time at which the computation's work was queued,
    /// before the stop event.
    pub(crate) fn wait(self, limit: Duration) -> Result<Instant> {
        let pending = |state: &mut MarkState| !matches!(&state.mark, Some((ticket, _)) if *ticket == self.ticket);
        let (mut state, _) = self
            .marks
            .marked
            .wait_timeout_while(self.marks.state(), limit, pending)
            .unwrap_or_else(PoisonError::into_inner);
        match state.mark.take() {
            Some((ticket, mark)) if ticket == self.ticket => mark,
            _ => Err(Error::Call(
                "XLA did not reach the marker at the computation's end".to_owned(),
            )),
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut state = self.marks.state();
        if matches!(&state.waiting, Some(waiting) if waiting.ticket == self.ticket) {
            state.waiting = None;
        }
    }
}

#[cfg(test)]
mod tests;
