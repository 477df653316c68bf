//! A CUDA device for the clock: one stream of the caller's current context.

use crate::Error;
use crate::Result;
use crate::clock::{Mark, TimedDevice};
use crate::driver::{
    self, Context, DevicePointer, Driver, EventHandle, PersistingCache, StreamHandle, cu,
};
use crate::gate::TicketWord;
use crate::kernels::Kernels;
use crate::nvml::{Nvml, NvmlFacts, NvmlState};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

/// A stream of a CUDA device, and the resources for timing on it.
pub struct Cuda {
    pub(crate) driver: &'static Driver,
    nvml: Option<Nvml>,
    ordinal: c_int,
    pub(crate) stream: StreamHandle,
    word: Arc<PinnedWord>,
    word_on_device: DevicePointer,
    /// The events, indexed by mark.
    events: [EventHandle; 3],
    flush: DevicePointer,
    flush_words: usize,
    flushes: u32,
    /// `None` if no part of the L2 cache can be reserved.
    persisting: Option<PersistingCache>,
    /// `None` if the driver does not compile PTX. The clock then has no run-up, and cannot separate
    /// launch time from work.
    kernels: Option<Kernels>,
    epoch: Instant,
}

// SAFETY: any thread whose current context is that of the driver's handles may use them.
// `&mut self` restricts it to one thread at a time.
unsafe impl Send for Cuda {}

impl Cuda {
    /// Opens device `ordinal` (in CUDA's numbering) and a stream of its current context; a null
    /// stream is the legacy default stream. On a thread without a context, makes the device's
    /// primary context current, which is the one that frameworks use.
    ///
    /// # Errors
    /// The driver or the device is missing, or the current context belongs to another device.
    ///
    /// # Safety
    /// The stream is null or a live `CUstream` of the current context, and lives as long as this
    /// value.
    pub unsafe fn open(ordinal: i32, stream: *mut c_void) -> Result<Self> {
        let driver = Driver::get()?;
        let mut device = 0;
        // SAFETY: here and below, every out-pointer is to a live variable of the type in the
        // driver's reference.
        unsafe { cu!(driver, cuDeviceGet(&raw mut device, ordinal))? };
        enter_context(driver, ordinal, device)?;
        let (word, word_on_device) = PinnedWord::new(driver)?;
        let mut cuda = Self {
            driver,
            nvml: nvml(driver, device),
            ordinal: device,
            stream,
            word: Arc::new(word),
            word_on_device,
            events: [ptr::null_mut(); 3],
            flush: 0,
            flush_words: 0,
            flushes: 0,
            persisting: persisting_cache(driver, device),
            kernels: Kernels::load(driver).ok(),
            epoch: Instant::now(),
        };
        for mark in [Mark::Start, Mark::Stop, Mark::Flushed] {
            let event = &raw mut cuda.events[mark as usize];
            // SAFETY: as above. With the default flags, events have times.
            unsafe { cu!(driver, cuEventCreate(event, driver::EVENT_DEFAULT))? };
            // The first record of an event may set it up, so it happens before any gate.
            cuda.record(mark)?;
        }
        // Lazy loading is complete after the first launch.
        cuda.null_kernel()?;
        if cuda.kernels.is_some() {
            cuda.spin(0)?;
        }
        cuda.synchronise()?;
        Ok(cuda)
    }

    /// The event that [`TimedDevice::record`] records.
    pub(crate) fn event(&self, mark: Mark) -> EventHandle {
        self.events[mark as usize]
    }

    /// Allocates twice the last-level cache. Hopper's cache has two halves, each of which can have
    /// its own copy of a line; a flush of one cache size would leave lines that were read through
    /// the other half.
    fn allocate_flush(&mut self) -> Result<()> {
        let mut cache_bytes = 0;
        // SAFETY: as in `open`.
        unsafe {
            cu!(
                self.driver,
                cuDeviceGetAttribute(&raw mut cache_bytes, driver::L2_CACHE_SIZE, self.ordinal)
            )?;
            let words = (2 * usize::try_from(cache_bytes).unwrap_or(0)).max(1 << 20) / 4;
            cu!(self.driver, cuMemAlloc(&raw mut self.flush, words * 4))?;
            self.flush_words = words;
        }
        Ok(())
    }

    /// Clocks, throttling, power, temperature and number of other processes; `None` without NVML.
    pub fn state(&self) -> Option<NvmlState> {
        self.nvml.map(|nvml| nvml.state())
    }

    /// The device's facts as NVML reports them; empty without NVML.
    pub fn facts(&self) -> NvmlFacts {
        self.nvml.map(|nvml| nvml.facts()).unwrap_or_default()
    }

    /// The device's marketing name.
    ///
    /// # Errors
    /// The driver's error.
    pub fn name(&self) -> Result<String> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the driver writes at most the given number of characters, including a NUL.
        unsafe {
            cu!(
                self.driver,
                cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, self.ordinal)
            )?;
            Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// Queues a kernel of one thread that waits for `ns` by the device's own timer.
    ///
    /// # Errors
    /// The driver's error, or the driver cannot load kernels.
    pub fn spin(&mut self, ns: u64) -> Result<()> {
        let kernels = self.kernels.as_ref();
        let unavailable = || Error::Unavailable("the driver does not load PTX".to_owned());
        kernels.ok_or_else(unavailable)?.spin(self.stream, ns)
    }
}

/// Makes the primary context current on a thread without a context.
///
/// It is retained and never released, because the gate's word is allocated in it, and the owner of
/// a [`ClosedGate`](crate::gate::ClosedGate) may write to that word after the device is dropped. It
/// is released when the process ends.
fn enter_context(driver: &'static Driver, ordinal: i32, device: c_int) -> Result<()> {
    let mut context: Context = ptr::null_mut();
    // SAFETY: as in `Cuda::open`.
    unsafe {
        cu!(driver, cuCtxGetCurrent(&raw mut context))?;
        if context.is_null() {
            cu!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
            return cu!(driver, cuCtxSetCurrent(context));
        }
        let mut current = 0;
        cu!(driver, cuCtxGetDevice(&raw mut current))?;
        if current != device {
            return Err(Error::Argument(format!(
                "device {ordinal} is asked for, and this thread's context is of device {current}"
            )));
        }
    }
    Ok(())
}

/// The functions of the persisting L2 cache, if the device has one.
fn persisting_cache(driver: &'static Driver, device: c_int) -> Option<PersistingCache> {
    let mut bytes = 0;
    let attribute = driver::MAX_PERSISTING_L2_CACHE_SIZE;
    // SAFETY: as in `Cuda::open`. Drivers before CUDA 11 refuse the attribute.
    let known = unsafe {
        cu!(
            driver,
            cuDeviceGetAttribute(&raw mut bytes, attribute, device)
        )
    };
    known.ok().filter(|()| bytes > 0)?;
    PersistingCache::load().ok()
}

fn nvml(driver: &'static Driver, device: c_int) -> Option<Nvml> {
    let mut bus_id: [c_char; 32] = [0; 32];
    // SAFETY: the driver writes at most 32 characters, including a NUL.
    let bus_id = unsafe {
        cu!(
            driver,
            cuDeviceGetPCIBusId(bus_id.as_mut_ptr(), bus_id.len() as c_int, device)
        )
        .ok()?;
        CStr::from_ptr(bus_id.as_ptr())
    };
    Nvml::by_bus_id(bus_id).ok()
}

impl TimedDevice for Cuda {
    fn word(&self) -> Arc<dyn TicketWord> {
        Arc::clone(&self.word) as Arc<dyn TicketWord>
    }

    fn flush(&mut self) -> Result<()> {
        if self.flush == 0 {
            self.allocate_flush()?;
        }
        if let Some(persisting) = &self.persisting {
            persisting.release(|function, code| self.driver.check(function, code))?;
        }
        // A different value each time, and never zero: a device may skip the memory traffic of a
        // fill that it can compress or that changes nothing.
        self.flushes = self.flushes.wrapping_add(1);
        let value = self.flushes.wrapping_mul(0x9E37_79B9) | 1;
        let (driver, at, words) = (self.driver, self.flush, self.flush_words);
        // SAFETY: the buffer has this many words.
        unsafe { cu!(driver, cuMemsetD32Async(at, value, words, self.stream)) }
    }

    /// Waits for the whole context and not for the stream only, because a call may use streams of
    /// its own.
    fn synchronise(&mut self) -> Result<()> {
        // SAFETY: no requirements.
        unsafe { cu!(self.driver, cuCtxSynchronize()) }
    }

    fn wait(&mut self, ticket: u32) -> Result<()> {
        // SAFETY: the word outlives the wait, because the gate is opened before anything is freed.
        unsafe {
            cu!(
                self.driver,
                cuStreamWaitValue32(
                    self.stream,
                    self.word_on_device,
                    ticket,
                    driver::STREAM_WAIT_VALUE_GEQ,
                )
            )
        }
    }

    fn record(&mut self, mark: Mark) -> Result<()> {
        // SAFETY: the event lives as long as `self`, and the stream as `open` requires.
        unsafe { cu!(self.driver, cuEventRecord(self.event(mark), self.stream)) }
    }

    fn reach(&mut self, mark: Mark) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        unsafe { cu!(self.driver, cuEventSynchronize(self.event(mark))) }
    }

    fn elapsed_ns(&mut self) -> Result<f64> {
        let mut milliseconds = 0f32;
        let (start, stop) = (self.event(Mark::Start), self.event(Mark::Stop));
        // SAFETY: both events were recorded, with times.
        unsafe {
            cu!(
                self.driver,
                cuEventElapsedTime(&raw mut milliseconds, start, stop)
            )?;
        }
        Ok(f64::from(milliseconds) * 1e6)
    }

    fn host_ns(&mut self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn clock_mhz(&mut self) -> Option<f64> {
        self.nvml.and_then(|nvml| nvml.sm_mhz()).map(f64::from)
    }

    fn null_kernel(&mut self) -> Result<bool> {
        let Some(kernels) = &self.kernels else {
            return Ok(false);
        };
        kernels.null(self.stream).map(|()| true)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        let driver = self.driver;
        // SAFETY: all of these belong to `self` and are freed only here. Failures cannot be
        // reported: after a kernel's fault, each of these calls fails, and the process cannot use
        // CUDA any more.
        unsafe {
            for event in self.events {
                if !event.is_null() {
                    (driver.cuEventDestroy)(event);
                }
            }
            if self.flush != 0 {
                (driver.cuMemFree)(self.flush);
            }
        }
    }
}

/// The gate's word: pinned host memory that the device reads.
///
/// It is shared through an `Arc` by everything that may still write to it.
pub struct PinnedWord {
    driver: &'static Driver,
    word: *const AtomicU32,
}

// SAFETY: the memory is pinned for every thread (PORTABLE), and only accessed as an atomic.
unsafe impl Send for PinnedWord {}
// SAFETY: as above.
unsafe impl Sync for PinnedWord {}

impl PinnedWord {
    /// Allocates the word with the value zero, and returns it with its address on the device.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(driver: &'static Driver) -> Result<(Self, DevicePointer)> {
        let mut host: *mut c_void = ptr::null_mut();
        let flags = driver::MEM_HOST_ALLOC_PORTABLE | driver::MEM_HOST_ALLOC_DEVICEMAP;
        // SAFETY: `host` is a live out-pointer. The memory is page-aligned, and written as an
        // integer before anything refers to it as an atomic.
        let pinned = unsafe {
            cu!(
                driver,
                cuMemHostAlloc(&raw mut host, size_of::<AtomicU32>(), flags)
            )?;
            host.cast::<u32>().write(0);
            Self {
                driver,
                word: host.cast(),
            }
        };
        let mut device = 0;
        // SAFETY: the memory was allocated with DEVICEMAP just above.
        unsafe {
            cu!(driver, cuMemHostGetDevicePointer(&raw mut device, host, 0))?;
        }
        Ok((pinned, device))
    }
}

impl TicketWord for PinnedWord {
    fn raise(&self, ticket: u32) {
        // SAFETY: allocated and initialised in `new`, and freed only in `drop`.
        unsafe { &*self.word }.raise(ticket);
    }
}

impl Drop for PinnedWord {
    fn drop(&mut self) {
        // SAFETY: the last owner frees it. A failure cannot be reported from here.
        unsafe { (self.driver.cuMemFreeHost)(self.word.cast_mut().cast()) };
    }
}
