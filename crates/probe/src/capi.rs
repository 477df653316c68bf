//! The clock for callers in other languages.
//!
//! ```c
//! typedef struct regatta_probe regatta_probe;       // one clock: one stream of one device
//! typedef struct {                                   // absent: UINT32_MAX, UINT64_MAX
//!     uint64_t throttle_reasons;                     // nvmlClocksThrottleReason* bits
//!     uint32_t sm_mhz, memory_mhz, power_mw, temperature_c, other_processes;
//! } regatta_probe_state_t;
//!
//! const char *regatta_probe_version(void);           // "0.2"
//! const char *regatta_probe_last_error(void);        // of this thread's last failure
//! int  regatta_probe_open(int ordinal, void *stream, regatta_probe **probe);
//! void regatta_probe_close(regatta_probe *);
//! int  regatta_probe_sample_begin(regatta_probe *, int cold);
//! int  regatta_probe_sample_end(regatta_probe *, double *device_ns, double *host_ns,
//!                               double *clock_mhz, uint32_t *flags);
//! int  regatta_probe_sample_cancel(regatta_probe *);
//! int  regatta_probe_null_kernel(regatta_probe *);
//! int  regatta_probe_state(regatta_probe *, regatta_probe_state_t *);
//!                                                    // and for XLA: xla.rs
//! ```
//!
//! Every function that returns an `int` returns 0 or one of the codes of [`error`](crate::error).
//! Every out-pointer except `probe` may be null. NaN stands for an unknown figure. Only one thread
//! at a time may use a clock, with the context that was current when it was opened.
//!
//! Between `sample_begin` and `sample_end`, the caller makes the call once on the clock's stream,
//! and nothing else on the device. If the call fails, it calls `sample_cancel`. Meanwhile the gate
//! is closed; it opens by itself after 50 ms.

use crate::Error;
use crate::Result;
use crate::VERSION;
use crate::clock::{Begun, CacheState, Sample, StreamClock, TimedDevice};
use crate::cuda::Cuda;
use crate::error::entry;
use crate::xla::Awaited;
use std::ffi::{c_char, c_int, c_void};

/// Flag of a sample: the call did not return before the watchdog opened the gate.
pub const SYNCHRONISED: u32 = 1;

/// A clock, and the sample in progress.
pub struct Probe {
    // Dropped first, because both fields use the clock's event and gate.
    pub(crate) awaited: Option<Awaited>,
    pub(crate) begun: Option<Begun>,
    pub(crate) clock: StreamClock<Cuda>,
}

pub(crate) fn missing(what: &str) -> Error {
    Error::Argument(format!("{what} is a null pointer"))
}

/// Runs an entry point on a clock.
///
/// # Safety
/// `probe` is null, or comes from `regatta_probe_open`, is not closed, and is used by this thread
/// only.
pub(crate) unsafe fn with_probe(
    probe: *mut Probe,
    work: impl FnOnce(&mut Probe) -> Result<()>,
) -> c_int {
    // SAFETY: required of the caller.
    entry(|| work(unsafe { probe.as_mut() }.ok_or_else(|| missing("the probe"))?))
}

/// Writes `value` to `place`, unless that is null.
///
/// # Safety
/// `place` is null or writable.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: required of the caller.
        unsafe { place.write(value) };
    }
}

/// The flags of a sample.
pub(crate) fn flags(sample: &Sample) -> u32 {
    if sample.synchronised { SYNCHRONISED } else { 0 }
}

pub(crate) fn cache(cold: c_int) -> CacheState {
    if cold == 0 {
        CacheState::Hot
    } else {
        CacheState::Cold
    }
}

/// `regatta_probe_state_t`.
#[repr(C)]
pub struct CState {
    throttle_reasons: u64,
    sm_mhz: u32,
    memory_mhz: u32,
    power_mw: u32,
    temperature_c: u32,
    other_processes: u32,
}

/// Version of the clock's method, which is recorded with each reading.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_version() -> *const c_char {
    const { assert!(VERSION.len() == 3) };
    static TEXT: [u8; 4] = {
        let v = VERSION.as_bytes();
        [v[0], v[1], v[2], 0]
    };
    TEXT.as_ptr().cast()
}

/// Opens a clock on a stream (null: the legacy default stream) and calibrates it.
///
/// # Safety
/// The stream lives until `regatta_probe_close`. `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_open(
    ordinal: c_int,
    stream: *mut c_void,
    out: *mut *mut Probe,
) -> c_int {
    entry(|| {
        if out.is_null() {
            return Err(missing("where to put the probe"));
        }
        // SAFETY: required of the caller.
        let device = unsafe { Cuda::open(ordinal, stream)? };
        let mut clock = StreamClock::new(device)?;
        clock.calibrate()?;
        let probe = Box::new(Probe {
            awaited: None,
            begun: None,
            clock,
        });
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { out.write(Box::into_raw(probe)) };
        Ok(())
    })
}

/// Opens the gate if it is closed, and frees the clock.
///
/// # Safety
/// The handle is null, or comes from [`regatta_probe_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_close(probe: *mut Probe) {
    entry(|| {
        if !probe.is_null() {
            // SAFETY: created by `Box::into_raw` in `regatta_probe_open`, and freed only here.
            drop(unsafe { Box::from_raw(probe) });
        }
        Ok(())
    });
}

/// Does everything that comes before the call. Cancels a sample that was begun and not ended.
///
/// # Safety
/// The handle is null, or comes from `regatta_probe_open`, is not closed, and is used by this
/// thread only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_sample_begin(handle: *mut Probe, cold: c_int) -> c_int {
    // SAFETY: required of the caller, for the handle and the other pointers.
    unsafe {
        with_probe(handle, |probe| {
            // Opens the gate of an earlier sample before the next one is closed; the flush would
            // wait behind it.
            probe.begun = None;
            probe.begun = Some(probe.clock.begin(cache(cold))?);
            Ok(())
        })
    }
}

/// Does everything that comes after the call.
///
/// # Safety
/// The handle is null, or comes from `regatta_probe_open`, is not closed, and is used by this
/// thread only. The pointers are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_sample_end(
    handle: *mut Probe,
    device_ns: *mut f64,
    host_ns: *mut f64,
    clock_mhz: *mut f64,
    flags_out: *mut u32,
) -> c_int {
    // SAFETY: required of the caller, for the handle and the other pointers.
    unsafe {
        with_probe(handle, |probe| {
            let begun = probe
                .begun
                .take()
                .ok_or(Error::Order("a sample ends that was not begun"))?;
            let sample = probe.clock.end(begun)?;
            put(device_ns, sample.device_ns);
            put(host_ns, sample.host_ns);
            put(clock_mhz, sample.clock_mhz.unwrap_or(f64::NAN));
            put(flags_out, flags(&sample));
            Ok(())
        })
    }
}

/// Opens the gate of a sample whose call failed. Does nothing without a begun sample.
///
/// # Safety
/// The handle is null, or comes from `regatta_probe_open`, is not closed, and is used by this
/// thread only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_sample_cancel(handle: *mut Probe) -> c_int {
    // SAFETY: required of the caller, for the handle and the other pointers.
    unsafe {
        with_probe(handle, |probe| {
            probe.awaited = None;
            probe.begun = None;
            Ok(())
        })
    }
}

/// Queues an empty kernel, for callers that check the clock.
///
/// # Safety
/// The handle is null, or comes from `regatta_probe_open`, is not closed, and is used by this
/// thread only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_null_kernel(handle: *mut Probe) -> c_int {
    let work = |probe: &mut Probe| {
        if probe.clock.device().null_kernel()? {
            Ok(())
        } else {
            Err(Error::Unavailable(
                "the driver does not load PTX".to_owned(),
            ))
        }
    };
    // SAFETY: required of the caller.
    unsafe { with_probe(handle, work) }
}

/// Reads clocks, throttling, power, temperature and the number of other processes.
///
/// # Safety
/// The handle is null, or comes from `regatta_probe_open`, is not closed, and is used by this
/// thread only. `state` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regatta_probe_state(handle: *mut Probe, state: *mut CState) -> c_int {
    // SAFETY: required of the caller, for the handle and the other pointers.
    unsafe {
        with_probe(handle, |probe| {
            if state.is_null() {
                return Err(missing("where to put the state"));
            }
            let state_read = probe.clock.device().state().unwrap_or_default();
            let number = |value: Option<u32>| value.unwrap_or(u32::MAX);
            state.write(CState {
                throttle_reasons: state_read.throttle_reasons.unwrap_or(u64::MAX),
                sm_mhz: number(state_read.sm_mhz),
                memory_mhz: number(state_read.memory_mhz),
                power_mw: number(state_read.power_mw),
                temperature_c: number(state_read.temperature_c),
                other_processes: number(state_read.other_processes),
            });
            Ok(())
        })
    }
}

/// Misuse of the C interface gives errors, with or without a GPU.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BAD_ARGUMENT;
    use std::ptr::null_mut;

    #[test]
    fn null_pointers_are_answered() {
        let no_probe = null_mut::<Probe>();
        let (figure, count) = (null_mut::<f64>(), null_mut::<u32>());
        // SAFETY: null is permitted everywhere here.
        unsafe {
            for status in [
                regatta_probe_open(0, null_mut(), null_mut()),
                regatta_probe_sample_begin(no_probe, 1),
                regatta_probe_sample_end(no_probe, figure, figure, figure, count),
                regatta_probe_sample_cancel(no_probe),
                regatta_probe_null_kernel(no_probe),
                regatta_probe_state(no_probe, null_mut()),
            ] {
                assert_eq!(status, BAD_ARGUMENT);
            }
            regatta_probe_close(no_probe);
        }
    }
}
