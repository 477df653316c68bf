//! How samples are taken and what they are, and a call as a CUDA graph.

use crate::Error;
use crate::Result;
use crate::clock::{StreamClock, TimedDevice};
use std::time::Duration;

/// Whether the last-level cache is flushed before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// As after other work: inputs come from memory.
    Cold,
    /// As the call before left it.
    Hot,
}

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockSettings {
    /// Calls between the events; the reading is divided by it. More than one averages
    /// out the steps of the event clock for kernels of a few µs, but all calls after
    /// the first find the cache warm.
    pub calls_per_sample: u32,
    /// The SM clock is read with every n-th sample, outside the events; 0 is never.
    pub clock_every: u32,
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
    pub run_up: u32,
    /// Queues gate, run-up and start event while the flush still runs, and then waits for
    /// the flush alone: the host's work between samples is hidden behind the device's.
    pub ahead: bool,
    /// The watchdog opens a gate closed for this long. A call that synchronises needs
    /// it to end at all, so it is short; it must exceed the host time of any honest
    /// call, which nothing in attention brings near 50 ms.
    pub limit: Duration,
}

impl ClockSettings {
    /// Kernels of the run-up with this cache.
    pub fn run_up_for(&self, cache: CacheState) -> u32 {
        match cache {
            CacheState::Cold => self.run_up,
            CacheState::Hot => self.run_up.min(1),
        }
    }
}

impl Default for ClockSettings {
    fn default() -> Self {
        Self {
            calls_per_sample: 1,
            clock_every: 1,
            run_up: 8,
            ahead: true,
            limit: Duration::from_millis(50),
        }
    }
}

/// What CUPTI says a kernel that does nothing takes: 0.51 to 0.64 µs on an H200
/// (`probe/tests/ruler.py` prints it). The rest of such a kernel's reading is the
/// device launching it, which is no work of any kernel.
pub const EMPTY_KERNEL_NS: f64 = 600.0;

/// What measuring costs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Calibration {
    /// Reading with nothing between the events (1.3 µs on an H200).
    pub pair_ns: f64,
    /// Reading of a kernel that does nothing, `pair_ns` subtracted (1.4 to
    /// 1.6 µs, by process). `None` where none can be loaded.
    pub null_kernel_ns: Option<f64>,
    /// What is subtracted from each sample: the pair, and one launch on the device
    /// (`null_kernel_ns` less [`EMPTY_KERNEL_NS`]). The launches of a call after its
    /// first, and the gaps between them, are the call's own and stay in.
    pub cost_ns: f64,
}

/// One sample. Times are of one call: divided by `calls_per_sample`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Time of the device from start to stop event, less the cost of measuring, never
    /// below zero.
    pub device_ns: f64,
    /// Time the host needed to issue the call, the gate being closed: nothing in it is
    /// waiting for the device, unless `synchronised`.
    pub host_ns: f64,
    /// Clock of the SMs right after, if read with this sample.
    pub clock_mhz: Option<f64>,
    /// The call did not return within the limit while the gate was closed, most likely
    /// because it waits for the device. The watchdog opened the gate; `device_ns` then
    /// holds waits for the host, and `host_ns` the limit.
    pub synchronised: bool,
}

/// A device that can hold a call as a graph.
pub trait Capture: TimedDevice {
    /// A captured call, ready to be launched again.
    type Graph;
    /// From here on queued work is noted, not done.
    fn begin_capture(&mut self) -> Result<()>;
    /// Ends it, also after a failure.
    fn end_capture(&mut self) -> Result<Self::Graph>;
    /// Queues everything that the graph holds.
    fn launch(&mut self, graph: &Self::Graph) -> Result<()>;
}

impl<D: Capture> StreamClock<D> {
    /// The call as a graph.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] when the call does what a graph cannot hold, such as
    /// waiting for the device.
    pub fn capture(&mut self, mut call: impl FnMut(&mut D) -> Result<()>) -> Result<D::Graph> {
        let device = self.device();
        device.synchronise()?;
        device.begin_capture()?;
        let mut capturing = Capturing {
            device,
            ended: false,
        };
        let called = call(capturing.device);
        capturing.ended = true;
        let graph = capturing.device.end_capture();
        // The call's own words say best what it did; the capture is merely broken by it.
        called.map_err(|error| match error {
            Error::NotCapturable(_) => error,
            other => Error::NotCapturable(other.to_string()),
        })?;
        graph
    }
}

/// Ends the capture when the call panics: a stream left capturing is of no use to anyone.
struct Capturing<'a, D: Capture> {
    device: &'a mut D,
    ended: bool,
}

impl<D: Capture> Drop for Capturing<'_, D> {
    fn drop(&mut self) {
        if !self.ended {
            self.device.end_capture().ok();
        }
    }
}
