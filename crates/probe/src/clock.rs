//! The timing method: one sample of one call, from flush to reading.
//!
//! ```text
//! synchronise                      nothing is under way
//! flush L2 (cold) or not (hot)
//! close the gate                   the stream, after the flush, waits for the host
//! queue the run-up                 kernels that do nothing: `RUN_UP` of them
//! record the start event
//! wait until the flush is done     the device is idle, the flush is not timed
//!   host clock                     host time begins
//!   the call                       the host queues its work, the device does nothing
//!   host clock                     host time ends
//! record the stop event
//! open the gate                    run-up, start, work and stop, back to back
//! synchronise
//! read the events, the SM clock
//! subtract what measuring costs    see `StreamClock::calibrate`
//! ```
//!
//! With a hot cache, the gate is closed once all earlier work is done. With a cold cache, gate,
//! run-up and start event are queued while the flush still runs, so that the host's work between
//! samples overlaps with the device's.
//!
//! Without the gate, the device would wait between start and stop for the host to launch, and a
//! kernel of 5 µs would read 20 µs (nvbench#184 saw 10 to 30 µs). The device does nothing else
//! between the two events.

use crate::Error;
use crate::Result;
use crate::gate::{ClosedGate, TicketWord, Watchdog};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of the last-level cache before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// As after other work: inputs come from memory.
    Cold,
    /// As the previous call left it.
    Hot,
}

/// The time that CUPTI reports for an empty kernel: 0.51 to 0.64 µs on an H200
/// (`probe/tests/ruler.py` prints it). The rest of such a kernel's reading is the time in which the
/// device launches it, which is not part of any kernel's work.
pub const EMPTY_KERNEL_NS: f64 = 600.0;

/// One sample of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The device's time from start to stop event, less the cost of measuring; at least zero.
    pub device_ns: f64,
    /// The host's time to issue the call while the gate is closed. It contains no waiting for the
    /// device, unless `synchronised`.
    pub host_ns: f64,
    /// The clock of the SMs right after the call; `None` if unknown.
    pub clock_mhz: Option<f64>,
    /// True if the call did not return within the limit while the gate was closed, most likely
    /// because it waits for the device. The watchdog then opened the gate; `device_ns` includes
    /// waits for the host, and `host_ns` the limit.
    pub synchronised: bool,
}

/// The events: two around the timed work, and one after the flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Before the timed work.
    Start,
    /// After the timed work.
    Stop,
    /// After the flush of the last-level cache.
    Flushed,
}

/// The clock's interface to a device: a queue that runs in order, and two clocks.
pub trait TimedDevice {
    /// The word that [`TimedDevice::wait`] waits for.
    fn word(&self) -> Arc<dyn TicketWord>;
    /// Queues a write of more bytes than the last-level cache has.
    fn flush(&mut self) -> Result<()>;
    /// Waits until the device has finished all work.
    fn synchronise(&mut self) -> Result<()>;
    /// Queues a wait until the word has reached `ticket`.
    fn wait(&mut self, ticket: u32) -> Result<()>;
    /// Queues an event. All events were created and recorded before, because creating one
    /// synchronises.
    fn record(&mut self, mark: Mark) -> Result<()>;
    /// Waits until the device has reached an event.
    fn reach(&mut self, mark: Mark) -> Result<()>;
    /// The time from start event to stop event, by the device's clock.
    fn elapsed_ns(&mut self) -> Result<f64>;
    /// The host's monotonic clock.
    fn host_ns(&mut self) -> u64;
    /// The present clock of the SMs; `None` if unknown.
    fn clock_mhz(&mut self) -> Option<f64>;
    /// Queues an empty kernel of one thread. Returns false if none can be loaded. It is loaded
    /// beforehand, because loading can synchronise (nvbench#340).
    fn null_kernel(&mut self) -> Result<bool>;
}

/// The number of empty kernels between the gate and the start event after a flush. Each costs the
/// host a launch between samples, and no time within them.
///
/// While it is held at the gate, the device has not fetched the commands behind it, and after a
/// flush it fetches them from further away: without a run-up, every first kernel starts about 1 µs
/// late on an H200, inside of the events. During the run-up the device reads ahead, as in any busy
/// stream. It reads in pieces, whose period interferes with samples of equal length: with one to
/// four kernels, every fourth sample was late, every second, or none, depending on process and
/// kernel; with eight, a tenth.
///
/// With a hot cache, more than one kernel changes nothing, so the run-up has one.
const RUN_UP: u32 = 8;

/// The watchdog opens a gate that has been closed this long. A call that synchronises only ends
/// through it, so the time is short. It must exceed the host time of any honest call, and no kernel
/// under test comes near 50 ms.
const LIMIT: Duration = Duration::from_millis(50);

/// The number of readings for a calibration. The highest and the lowest tenth are dropped.
const CALIBRATION_READINGS: usize = 50;

/// Times calls on a device.
pub struct StreamClock<D: TimedDevice> {
    // Dropped before the device, because it writes to the device's word.
    watchdog: Watchdog,
    device: D,
    limit: Duration,
    cost_ns: f64,
    ticket: u32,
}

/// A sample that has begun and not ended. Dropping it opens the gate.
pub struct Begun {
    gate: ClosedGate,
    host_ns: u64,
}

impl<D: TimedDevice> StreamClock<D> {
    /// A clock that is not calibrated yet, and subtracts nothing.
    ///
    /// # Errors
    /// The watchdog's thread cannot be started.
    pub fn new(device: D) -> Result<Self> {
        Ok(Self {
            watchdog: start_watchdog(&device, LIMIT)?,
            device,
            limit: LIMIT,
            cost_ns: 0.0,
            ticket: 0,
        })
    }

    /// Sets another limit for the gate.
    #[cfg(test)]
    pub(crate) fn limited(&mut self, limit: Duration) {
        self.watchdog = start_watchdog(&self.device, limit).expect("a thread");
        self.limit = limit;
    }

    /// Does everything that comes before the call. Afterwards the device is idle, the gate is
    /// closed, and the start event is queued behind it.
    ///
    /// # Errors
    /// The device's error. The gate is then open.
    pub fn begin(&mut self, cache: CacheState) -> Result<Begun> {
        let cold = cache == CacheState::Cold;
        // Unfinished work, such as a warm-up, must not count towards the gate's limit.
        self.device.synchronise()?;
        if cold {
            self.device.flush()?;
            self.device.record(Mark::Flushed)?;
        }
        self.ticket += 1;
        // The guard is created first, so that every exit from here on opens the gate.
        let deadline = Instant::now() + self.limit;
        let gate = self.watchdog.close(self.ticket, deadline);
        self.device.wait(self.ticket)?;
        for _ in 0..if cold { RUN_UP } else { 1 } {
            self.device.null_kernel()?;
        }
        self.device.record(Mark::Start)?;
        if cold {
            self.device.reach(Mark::Flushed)?;
        }
        let host_ns = self.device.host_ns();
        Ok(Begun { gate, host_ns })
    }

    /// From the call on: queues the stop event, opens the gate, waits and reads.
    ///
    /// # Errors
    /// The device's, which are often those of the call: a kernel's fault shows when the
    /// device is waited for. The gate is open in any case.
    pub fn end(&mut self, begun: Begun) -> Result<Sample> {
        let raw = self.end_raw(begun)?;
        Ok(self.corrected(raw))
    }

    /// As [`StreamClock::end`], where whoever queued the work has also queued the stop event,
    /// right behind it: at `queued_ns` by the host's clock.
    ///
    /// # Errors
    /// As [`StreamClock::end`].
    pub fn end_queued(&mut self, begun: Begun, queued_ns: u64) -> Result<Sample> {
        let raw = self.read(begun, queued_ns)?;
        Ok(self.corrected(raw))
    }

    /// Without what measuring costs.
    fn corrected(&self, raw: Sample) -> Sample {
        Sample {
            device_ns: (raw.device_ns - self.cost_ns).max(0.0),
            ..raw
        }
    }

    fn end_raw(&mut self, begun: Begun) -> Result<Sample> {
        // Before the stop event, which is ours and costs the host about 1 µs.
        let queued_ns = self.device.host_ns();
        self.device.record(Mark::Stop)?;
        self.read(begun, queued_ns)
    }

    /// Opens the gate, waits, and reads the times. The stop event is queued already.
    fn read(&mut self, begun: Begun, queued_ns: u64) -> Result<Sample> {
        let host_ns = queued_ns.saturating_sub(begun.host_ns);
        let synchronised = begun.gate.open();
        self.device.synchronise()?;
        let device_ns = self.device.elapsed_ns()?;
        Ok(Sample {
            device_ns,
            host_ns: host_ns as f64,
            clock_mhz: self.device.clock_mhz(),
            synchronised,
        })
    }

    /// Takes one sample of a call.
    ///
    /// # Errors
    /// An error of the device or the call. A panic of the call is passed on. The gate is open in
    /// any case.
    pub fn sample(
        &mut self,
        cache: CacheState,
        call: impl FnOnce(&mut D) -> Result<()>,
    ) -> Result<Sample> {
        let begun = self.begin(cache)?;
        call(&mut self.device)?;
        self.end(begun)
    }

    /// Measures the cost of measuring, subtracts it from every later sample, and returns it in
    /// nanoseconds. It consists of the reading with nothing between the events (1.3 µs on an H200),
    /// and of one launch on the device: the reading of an empty kernel, less the former and less
    /// the kernel's own time (0.8 to 1 µs, depending on the process). Further launches of a call,
    /// and the gaps between them, belong to the call and are not subtracted.
    ///
    /// # Errors
    /// The device's error. A device without stream memory operations fails here first.
    pub fn calibrate(&mut self) -> Result<f64> {
        let pair_ns = self.mean_raw(|_| Ok(()))?;
        self.cost_ns = pair_ns;
        if self.device.null_kernel()? {
            let null_kernel_ns = self.mean_raw(|device| device.null_kernel().map(drop))? - pair_ns;
            self.cost_ns += (null_kernel_ns - EMPTY_KERNEL_NS).max(0.0);
        }
        Ok(self.cost_ns)
    }

    /// The mean of the middle readings. A median would jump: readings come in steps of 32 ns, and
    /// those of an empty kernel on an H200 in two clusters 160 ns apart.
    fn mean_raw(&mut self, mut call: impl FnMut(&mut D) -> Result<()>) -> Result<f64> {
        let mut readings = Vec::with_capacity(CALIBRATION_READINGS);
        for _ in 0..CALIBRATION_READINGS {
            let begun = self.begin(CacheState::Hot)?;
            call(&mut self.device)?;
            readings.push(self.end_raw(begun)?.device_ns);
        }
        readings.sort_by(f64::total_cmp);
        let dropped = CALIBRATION_READINGS / 10;
        let middle = &readings[dropped..CALIBRATION_READINGS - dropped];
        Ok(middle.iter().sum::<f64>() / middle.len() as f64)
    }

    /// The device, for queueing work.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }
}

fn start_watchdog(device: &impl TimedDevice, limit: Duration) -> Result<Watchdog> {
    Watchdog::start(device.word(), limit)
        .map_err(|error| Error::Unavailable(format!("no thread for the watchdog: {error}")))
}
