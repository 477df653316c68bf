//! Many samples of one call: first call, warm-up, samples within a budget; as it is or
//! as a CUDA graph.

use crate::Error;
use crate::Result;
use crate::clock::{Clock, Device};
use crate::sample::{Cache, Sample};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Untimed calls before the first sample, in addition to the first call.
    pub warmup: u32,
    /// Samples at most.
    pub samples: u32,
    /// Samples at least, whatever they take.
    pub min_samples: u32,
    /// No sample beyond `min_samples` starts later than this after the first.
    pub budget_ns: u64,
    /// What stands in the last-level cache before a sample.
    pub cache: Cache,
    /// Capture the call into a CUDA graph and time its replays: the gaps between the
    /// launches of one call shrink, and the host's time becomes that of one launch.
    pub graph: bool,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Host time of the very first call until the device was done with it: loading and
    /// compiling included. A metric of its own, in no sample.
    pub first_call_ns: f64,
    /// The samples, in the order they were taken.
    pub samples: Vec<Sample>,
}

/// A device that can hold a call as a graph.
pub trait Capture: Device {
    /// A captured call, ready to be launched again.
    type Graph;
    /// From here on queued work is noted, not done.
    fn begin_capture(&mut self) -> Result<()>;
    /// Ends it, also after a failure.
    fn end_capture(&mut self) -> Result<Self::Graph>;
    /// Queues everything that the graph holds.
    fn launch(&mut self, graph: &Self::Graph) -> Result<()>;
}

impl<D: Capture> Clock<D> {
    /// First call, warm-up and samples of one call.
    ///
    /// The warm-up is ungated: loading kernels and compiling synchronise
    /// (nvbench#240), and the gate would only wait for the watchdog.
    ///
    /// # Errors
    /// The device's, the call's, and [`Error::NotCapturable`] for `graph`. The device
    /// is left with an open gate and no capture in progress.
    pub fn measure(
        &mut self,
        plan: &Plan,
        mut call: impl FnMut(&mut D) -> Result<()>,
    ) -> Result<Measured> {
        let first_call_ns = self.first_call(&mut call)?;
        for _ in 0..plan.warmup {
            call(self.device())?;
        }
        let samples = if plan.graph {
            let graph = self.capture(&mut call)?;
            // The first launch uploads the graph.
            self.device().launch(&graph)?;
            self.samples(plan, |device| device.launch(&graph))?
        } else {
            self.samples(plan, call)?
        };
        Ok(Measured {
            first_call_ns,
            samples,
        })
    }

    fn first_call(&mut self, mut call: impl FnMut(&mut D) -> Result<()>) -> Result<f64> {
        let device = self.device();
        device.synchronise()?;
        let begin = device.host_ns();
        call(device)?;
        device.synchronise()?;
        Ok((device.host_ns() - begin) as f64)
    }

    fn samples(
        &mut self,
        plan: &Plan,
        mut call: impl FnMut(&mut D) -> Result<()>,
    ) -> Result<Vec<Sample>> {
        let begin = self.device().host_ns();
        let mut samples = Vec::with_capacity(plan.samples.min(1 << 16) as usize);
        for number in 0..plan.samples.max(plan.min_samples) {
            let spent = self.device().host_ns() - begin;
            if number >= plan.min_samples && spent > plan.budget_ns {
                break;
            }
            samples.push(self.sample(plan.cache, &mut call)?);
        }
        Ok(samples)
    }

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
