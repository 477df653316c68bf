//! The end of a computation, marked from inside XLA.
//!
//! JAX shows no stream, and may queue a computation's work from a thread of its own,
//! after the call has returned. So the last operation of a computation under test is a
//! custom call, the *marker*, which depends on every result. XLA runs its handler on the
//! host at the moment when all the computation's work is queued, and hands it the
//! stream: there the stop event is recorded, by whatever thread that is.
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
//! The rules of the C interface hold (capi.rs). A sample begun here is given up by
//! `regatta_probe_sample_cancel`. Of several `calls` the last marker counts. `late_ns` is
//! how long after `end` was entered it ran: 0 where the call returns with all its work
//! queued.

mod ffi;

use crate::Cuda;
use crate::Error;
use crate::Result;
use crate::clock::{Device, Mark};
use crate::driver::{Event, Stream, cu};
use crate::handle::{Probe, SYNCHRONISED, cache, missing, probe, put};
use crate::marks::{Awaited, Marks};
use crate::status::entry;
use ffi::{CallFrame, ErrorHandle};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

/// A computation that has not marked its end after this long has failed. The watchdog
/// has opened the gate long before.
const MARK_LIMIT: Duration = Duration::from_secs(5);

/// The markers of this process: XLA hands a handler nothing that tells whose it is.
static MARKS: Marks = Marks::new();

/// An event and its stream, on their way to the thread that queues.
struct Recording {
    event: Event,
    stream: Stream,
}

// SAFETY: the driver's handles may be used from any thread of the process.
unsafe impl Send for Recording {}

impl Recording {
    fn queue(&self, cuda: &'static crate::driver::Driver) -> Result<()> {
        // SAFETY: both live as long as the clock, which holds the `Awaited`.
        unsafe { cu!(cuda, cuEventRecord(self.event, self.stream)) }
    }
}

fn await_marks(cuda: &Cuda, calls: u32) -> Awaited {
    let (driver, stream) = (cuda.driver, cuda.stream);
    let recording = Recording {
        event: cuda.event(Mark::Stop),
        stream,
    };
    let record = Box::new(move || recording.queue(driver));
    MARKS.wait_for(stream.addr(), calls, record)
}

/// The handler of the custom call that marks a computation's end. It gives XLA no error:
/// a marker that cannot mark is the sample's failure, not the computation's.
///
/// # Safety
/// To be called by XLA alone, as an `XLA_FFI_Handler`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_xla_mark(frame: *mut c_void) -> ErrorHandle {
    entry(|| {
        let frame = frame.cast::<CallFrame>().cast_const();
        // SAFETY: the caller's.
        unsafe {
            if !ffi::answer_metadata(frame) {
                MARKS.mark(ffi::stream(frame));
            }
        }
        Ok(())
    });
    ptr::null_mut()
}

/// The `CUstream` that XLA queued the last marked computation on.
///
/// # Safety
/// `stream` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_xla_stream(stream: *mut *mut c_void) -> c_int {
    entry(|| {
        if stream.is_null() {
            return Err(missing("where to put the stream"));
        }
        let found = MARKS.stream()?;
        // SAFETY: not null, and the caller's.
        unsafe { stream.write(ptr::with_exposed_provenance_mut(found)) };
        Ok(())
    })
}

/// As `regatta_probe_sample_begin`, for so many calls of a computation that ends with a
/// marker.
///
/// # Safety
/// The handle is null, or of `regatta_probe_open` and not closed, and used by this thread
/// alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_xla_begin(
    handle: *mut Probe,
    cold: c_int,
    calls: u32,
) -> c_int {
    entry(|| {
        // SAFETY: the caller's.
        let probe = unsafe { probe(handle)? };
        probe.begun = None;
        // First, so that nothing of ours stands between the start event and the call.
        probe.awaited = Some(await_marks(probe.clock.device(), calls));
        probe.begun = Some(probe.clock.begin(cache(cold))?);
        Ok(())
    })
}

/// Waits for the marker, then as `regatta_probe_sample_end`.
///
/// # Safety
/// The handle is null, or of `regatta_probe_open` and not closed, and used by this thread
/// alone; the pointers are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_xla_end(
    handle: *mut Probe,
    device_ns: *mut f64,
    late_ns: *mut f64,
    clock_mhz: *mut f64,
    flags: *mut u32,
) -> c_int {
    entry(|| {
        // SAFETY: the caller's.
        let probe = unsafe { probe(handle)? };
        let (Some(begun), Some(awaited)) = (probe.begun.take(), probe.awaited.take()) else {
            return Err(Error::Order("a sample ends that was not begun"));
        };
        let (entered, entered_ns) = (Instant::now(), probe.clock.device().host_ns());
        let late = awaited
            .wait(MARK_LIMIT)?
            .saturating_duration_since(entered)
            .as_nanos() as u64;
        let sample = probe.clock.end_queued(begun, entered_ns + late)?;
        // SAFETY: the caller's.
        unsafe {
            put(device_ns, 0, sample.device_ns);
            put(late_ns, 0, late as f64);
            put(clock_mhz, 0, sample.clock_mhz.unwrap_or(f64::NAN));
            put(flags, 0, if sample.synchronised { SYNCHRONISED } else { 0 });
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
