//! The timing contract: one sample of one call, from flush to reading.
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
//! Hot, the gate is closed when all before it is done. Cold, gate, run-up and start event
//! are queued while the flush still runs: the host's work between samples is hidden behind
//! the device's.
//!
//! Without the gate the device would sit between start and stop waiting for the host
//! to launch, and a kernel of 5 µs would read 20 (nvbench#184 saw 10 to 30 µs).
//! Nothing else is asked of the device between the two events.

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
    /// As the call before left it.
    Hot,
}

/// The time that CUPTI reports for a kernel that does nothing: 0.51 to 0.64 µs on an H200
/// (`probe/tests/ruler.py` prints it). The rest of such a kernel's reading is the
/// device launching it, which no kernel's work includes.
pub const EMPTY_KERNEL_NS: f64 = 600.0;

/// One sample of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Time of the device from start to stop event, less the cost of measuring, never
    /// below zero.
    pub device_ns: f64,
    /// Time the host needed to issue the call, the gate being closed: nothing in it is
    /// waiting for the device, unless `synchronised`.
    pub host_ns: f64,
    /// Clock of the SMs right after; `None` where it cannot be known.
    pub clock_mhz: Option<f64>,
    /// The call did not return within the limit while the gate was closed, most likely
    /// because it waits for the device. The watchdog opened the gate; `device_ns` then
    /// holds waits for the host, and `host_ns` the limit.
    pub synchronised: bool,
}

/// Events: the two around the timed work, and the one behind the flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Before the timed work.
    Start,
    /// After it.
    Stop,
    /// Behind the flush of the last-level cache.
    Flushed,
}

/// The requirements of the clock on a device: a queue in order, and the two clocks.
pub trait TimedDevice {
    /// The word that [`TimedDevice::wait`] waits for.
    fn word(&self) -> Arc<dyn TicketWord>;
    /// Queues writing more than the last-level cache holds.
    fn flush(&mut self) -> Result<()>;
    /// Waits until the device has nothing left to do.
    fn synchronise(&mut self) -> Result<()>;
    /// Queues waiting until the word has reached the ticket.
    fn wait(&mut self, ticket: u32) -> Result<()>;
    /// Queues an event. All exist and have been recorded before: creating one
    /// synchronises.
    fn record(&mut self, mark: Mark) -> Result<()>;
    /// Waits until the device has come to an event.
    fn reach(&mut self, mark: Mark) -> Result<()>;
    /// Time from start event to stop event, by the device's clock.
    fn elapsed_ns(&mut self) -> Result<f64>;
    /// The host's monotonic clock.
    fn host_ns(&mut self) -> u64;
    /// Clock of the SMs now; `None` where it cannot be known.
    fn clock_mhz(&mut self) -> Option<f64>;
    /// Queues a kernel of one thread that does nothing; false where none can be loaded.
    /// It is loaded before: loading can synchronise (nvbench#340).
    fn null_kernel(&mut self) -> Result<bool>;
}

/// Kernels that do nothing between the gate and the start event, after a flush. Each
/// costs the host a launch between samples, and nothing within them.
///
/// Held at the gate, the device has not fetched the commands behind it, and after a
/// flush it fetches them from further away: without a run-up every first kernel starts
/// about 1 µs late on an H200, inside the events. While the run-up runs the device
/// reads ahead, as in any stream that is kept busy. It does so in pieces, with which
/// samples of equal length beat: of one to four, every fourth sample was late, every
/// second or none, by process and kernel; of eight, a tenth.
///
/// Hot, a run-up of more than one changes nothing, and one is made.
const RUN_UP: u32 = 8;

/// The watchdog opens a gate closed for this long. A call that synchronises needs it to
/// end at all, so it is short; it must exceed the host time of any honest call, which
/// no kernel under test brings near 50 ms.
const LIMIT: Duration = Duration::from_millis(50);

/// Readings for one calibration; the highest and the lowest tenth are dropped.
const CALIBRATION_READINGS: usize = 50;

/// Times calls on a device.
pub struct StreamClock<D: TimedDevice> {
    // Dropped before the device: it writes to the device's word.
    watchdog: Watchdog,
    device: D,
    limit: Duration,
    cost_ns: f64,
    ticket: u32,
}

/// A sample between its beginning and its end. Dropping it opens the gate.
pub struct Begun {
    gate: ClosedGate,
    host_ns: u64,
}

impl<D: TimedDevice> StreamClock<D> {
    /// A clock that is not calibrated yet: it subtracts nothing.
    ///
    /// # Errors
    /// No thread for the watchdog.
    pub fn new(device: D) -> Result<Self> {
        Ok(Self {
            watchdog: start_watchdog(&device, LIMIT)?,
            device,
            limit: LIMIT,
            cost_ns: 0.0,
            ticket: 0,
        })
    }

    /// Another limit of the gate.
    #[cfg(test)]
    pub(crate) fn limited(&mut self, limit: Duration) {
        self.watchdog = start_watchdog(&self.device, limit).expect("a thread");
        self.limit = limit;
    }

    /// Up to the call: after this the device is idle, the gate closed, the start event
    /// queued behind it.
    ///
    /// # Errors
    /// The device's; the gate is then open.
    pub fn begin(&mut self, cache: CacheState) -> Result<Begun> {
        let cold = cache == CacheState::Cold;
        // Unfinished work, such as a warm-up, must not use up the gate's time.
        self.device.synchronise()?;
        if cold {
            self.device.flush()?;
            self.device.record(Mark::Flushed)?;
        }
        self.ticket += 1;
        // The guard comes first: from here every way out opens the gate.
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

    /// Opens the gate, waits and reads; the stop event is queued.
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

    /// One sample of a call.
    ///
    /// # Errors
    /// The device's or the call's. A panic of the call passes through. The gate is open
    /// in any case.
    pub fn sample(
        &mut self,
        cache: CacheState,
        call: impl FnOnce(&mut D) -> Result<()>,
    ) -> Result<Sample> {
        let begun = self.begin(cache)?;
        call(&mut self.device)?;
        self.end(begun)
    }

    /// Measures what measuring costs, subtracts it from every later sample, and returns it in
    /// nanoseconds: the reading with nothing between the events (1.3 µs on an H200), and one launch
    /// on the device, which is the reading of a kernel that does nothing less the two of them (0.8
    /// to 1 µs, by process). The launches of a call after its first, and the gaps between them, are
    /// the call's own and stay in.
    ///
    /// # Errors
    /// The device's. A device without stream memory operations fails here first.
    pub fn calibrate(&mut self) -> Result<f64> {
        let pair_ns = self.mean_raw(|_| Ok(()))?;
        self.cost_ns = pair_ns;
        if self.device.null_kernel()? {
            let null_kernel_ns = self.mean_raw(|device| device.null_kernel().map(drop))? - pair_ns;
            self.cost_ns += (null_kernel_ns - EMPTY_KERNEL_NS).max(0.0);
        }
        Ok(self.cost_ns)
    }

    /// Mean of the middle readings. Not the median: readings come in steps of 32 ns, and
    /// on an H200 a null kernel's in two heaps 160 ns apart, between which a median jumps.
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

    /// The device, to queue work on.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }
}

fn start_watchdog(device: &impl TimedDevice, limit: Duration) -> Result<Watchdog> {
    Watchdog::start(device.word(), limit)
        .map_err(|error| Error::Unavailable(format!("no thread for the watchdog: {error}")))
}
