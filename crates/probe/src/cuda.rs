//! A CUDA device as the clock sees it: one stream of the caller's current context.

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

/// One stream of a CUDA device, with what timing on it needs.
pub struct Cuda {
    pub(crate) driver: &'static Driver,
    nvml: Option<Nvml>,
    ordinal: c_int,
    pub(crate) stream: StreamHandle,
    word: Arc<PinnedWord>,
    word_on_device: DevicePointer,
    /// By their marks.
    events: [EventHandle; 3],
    flush: DevicePointer,
    flush_words: usize,
    flushes: u32,
    /// `None` where no part of the L2 cache can be set aside.
    persisting: Option<PersistingCache>,
    /// `None` where the driver compiles no PTX: there is then no run-up, and launching
    /// is not known apart from work.
    kernels: Option<Kernels>,
    epoch: Instant,
}

// SAFETY: the driver's handles may be used from any thread whose current context is the
// one they belong to; `&mut self` keeps it to one thread at a time.
unsafe impl Send for Cuda {}

impl Cuda {
    /// Device `ordinal` (as CUDA counts) and a stream of its current context; a null
    /// stream is the legacy default stream. A thread without a context gets the
    /// device's primary one, which is what frameworks use.
    ///
    /// # Errors
    /// No driver or device; a current context of another device.
    ///
    /// # Safety
    /// The stream is null or a live `CUstream` of the current context, and stays so for
    /// as long as this value.
    pub unsafe fn open(ordinal: i32, stream: *mut c_void) -> Result<Self> {
        let driver = Driver::get()?;
        let mut device = 0;
        // SAFETY: here and below every out-pointer is to a live variable of the type
        // that the driver's reference gives.
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
            // SAFETY: as above; DEFAULT keeps the time.
            unsafe { cu!(driver, cuEventCreate(event, driver::EVENT_DEFAULT))? };
            // Whatever an event sets up when first recorded is set up before any gate.
            cuda.record(mark)?;
        }
        // Lazy loading ends with the first launch.
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

    /// Twice the last-level cache: Hopper's has two halves, each of which can keep its
    /// own copy of a line, and once over would leave what was read through the other.
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

    /// Clocks, throttling, power, temperature and neighbours; `None` without NVML.
    pub fn state(&self) -> Option<NvmlState> {
        self.nvml.map(|nvml| nvml.state())
    }

    /// The device's facts as NVML reports them; empty without NVML.
    pub fn facts(&self) -> NvmlFacts {
        self.nvml.map(|nvml| nvml.facts()).unwrap_or_default()
    }

    /// Marketing name of the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn name(&self) -> Result<String> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the driver writes at most so many characters, the last of them a NUL.
        unsafe {
            cu!(
                self.driver,
                cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, self.ordinal)
            )?;
            Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// Queues a kernel of one thread that waits for this long by the device's own timer.
    ///
    /// # Errors
    /// The driver's, or that it loads no kernels.
    pub fn spin(&mut self, ns: u64) -> Result<()> {
        let kernels = self.kernels.as_ref();
        let unavailable = || Error::Unavailable("the driver does not load PTX".to_owned());
        kernels.ok_or_else(unavailable)?.spin(self.stream, ns)
    }
}

/// Makes the primary context current on a thread that has none.
///
/// It is retained and never released: the gate's word lives in it, and whoever still
/// holds a [`ClosedGate`](crate::gate::ClosedGate) may write that word after the device
/// is dropped. The process's end releases it.
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

/// The functions of the persisting L2 cache, where the device has one.
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
    // SAFETY: the driver writes at most 32 characters, the last of them a NUL.
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
        // Another value each time and never zero: a device may keep a fill that it can
        // compress, or that changes nothing, without moving the bytes.
        self.flushes = self.flushes.wrapping_add(1);
        let value = self.flushes.wrapping_mul(0x9E37_79B9) | 1;
        let (driver, at, words) = (self.driver, self.flush, self.flush_words);
        // SAFETY: the buffer has this many words.
        unsafe { cu!(driver, cuMemsetD32Async(at, value, words, self.stream)) }
    }

    /// The whole context, not the stream: a call may use streams of its own.
    fn synchronise(&mut self) -> Result<()> {
        // SAFETY: no requirements.
        unsafe { cu!(self.driver, cuCtxSynchronize()) }
    }

    fn wait(&mut self, ticket: u32) -> Result<()> {
        // SAFETY: the word outlives the wait: it is opened before anything is freed.
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
        // SAFETY: the event lives as long as `self`, the stream as `open` demands.
        unsafe { cu!(self.driver, cuEventRecord(self.event(mark), self.stream)) }
    }

    fn reach(&mut self, mark: Mark) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        unsafe { cu!(self.driver, cuEventSynchronize(self.event(mark))) }
    }

    fn elapsed_ns(&mut self) -> Result<f64> {
        let mut milliseconds = 0f32;
        let (start, stop) = (self.event(Mark::Start), self.event(Mark::Stop));
        // SAFETY: both events were recorded, with time.
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
        // SAFETY: all are ours and freed once. Failures cannot be reported: after a
        // kernel's fault every one of these fails, and the process is lost to CUDA.
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

/// The gate's word: pinned memory of the host that the device reads.
///
/// Owned through an `Arc`, by everyone who may still write it.
pub struct PinnedWord {
    driver: &'static Driver,
    word: *const AtomicU32,
}

// SAFETY: the memory is pinned for every thread (PORTABLE), and only touched as an atomic.
unsafe impl Send for PinnedWord {}
// SAFETY: as above.
unsafe impl Sync for PinnedWord {}

impl PinnedWord {
    /// Allocates the word, at zero, and gives it with its address on the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(driver: &'static Driver) -> Result<(Self, DevicePointer)> {
        let mut host: *mut c_void = ptr::null_mut();
        let flags = driver::MEM_HOST_ALLOC_PORTABLE | driver::MEM_HOST_ALLOC_DEVICEMAP;
        // SAFETY: `host` is a live out-pointer. The memory is page-aligned, and written
        // as an integer before anything refers to it as an atomic.
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
        // SAFETY: allocated and initialised in `new`, freed in `drop` and not before.
        unsafe { &*self.word }.raise(ticket);
    }
}

impl Drop for PinnedWord {
    fn drop(&mut self) {
        // SAFETY: ours, and the last owner lets go. A failure cannot be reported from here.
        unsafe { (self.driver.cuMemFreeHost)(self.word.cast_mut().cast()) };
    }
}
