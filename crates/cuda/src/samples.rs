//! Samples of a case, each on inputs of its own.

use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};
use regatta_probe::{Cache as ProbeCache, Capture, Clock, Cuda, Sample, TimedDevice as _};

use super::case::{CudaCase, TensorSizes};
use super::check;
use super::driver::{Device, Memory};
use super::error::{CudaError, checked};
use regatta_worker::attention::Direction;
use regatta_worker::protocol::{Cache, Measure};
use regatta_worker::sets::{self, NextSample, Rotation};

/// What forward left of one set of inputs.
struct SavedForward {
    out: Memory,
    lse: Memory,
}

/// What the inputs of a case hold by turns. They are made anew from their seed for each
/// sample, at the addresses that they have: that is one pass over them on the device, and
/// no memory. Where backward alone is timed, sets go round, since each needs a forward,
/// whose results are kept.
pub struct Contents {
    seed: u64,
    rotation: Rotation,
    /// Of each set; empty where there is no backward, no memory, or more to be kept: then
    /// forward runs anew.
    saved: Vec<SavedForward>,
}

impl Contents {
    /// `None` where the inputs stay. With `remembers_forward`, backward reads more of the
    /// forward before it than `out` and `lse`.
    ///
    /// # Errors
    /// A kernel that fails.
    pub fn new(
        device: &mut Device,
        case: &mut CudaCase,
        seed: u64,
        asked: u32,
        remembers_forward: bool,
    ) -> Result<Option<Contents>, CudaError> {
        let backward = case.problem().direction == Direction::Backward;
        let rotation = match backward {
            true => Rotation::cycle(asked),
            false => Rotation::fresh(asked),
        };
        let Some(rotation) = rotation else {
            return Ok(None);
        };
        let mut contents = Contents {
            seed,
            rotation,
            saved: Vec::new(),
        };
        if backward && !remembers_forward {
            for set in 0..contents.rotation.sets() {
                let Some(saved) = SavedForward::room(device, case)? else {
                    contents.saved.clear();
                    break;
                };
                contents.make(device, case, set)?;
                saved.take(case, device.stream())?;
                device.synchronise()?;
                contents.saved.push(saved);
            }
        }
        Ok(Some(contents))
    }

    /// Makes a set in place, with its forward where backward alone is timed.
    fn make(&self, device: &mut Device, case: &mut CudaCase, set: u32) -> Result<(), CudaError> {
        let seed = self.seed.wrapping_add(set.into());
        check::write_inputs(device, case, seed)?;
        if case.problem().direction == Direction::Backward {
            case.forward_before()?;
        }
        Ok(())
    }

    /// Puts the contents of the next sample in place; the device is idle after.
    fn change(
        &mut self,
        device: &mut Device,
        case: &mut CudaCase,
        last: bool,
    ) -> Result<(), CudaError> {
        let set = self.rotation.next(last);
        match self.saved.get(set as usize) {
            None => self.make(device, case, set)?,
            Some(saved) => {
                let seed = self.seed.wrapping_add(set.into());
                check::write_inputs(device, case, seed)?;
                saved.put(case, device.stream())?;
            }
        }
        device.synchronise()
    }

    /// Sets there were so far, those of the first call among them.
    pub fn sets(&self) -> u32 {
        self.rotation.sets()
    }
}

impl SavedForward {
    /// Memory for one, if there is some: the case must not fail for want of it.
    fn room(device: &Device, case: &CudaCase) -> Result<Option<SavedForward>, CudaError> {
        let (out, lse) = SavedForward::bytes(case);
        // As much again stays free for the check after timing.
        if device.free_bytes()? / 2 < out + lse {
            return Ok(None);
        }
        let place = |bytes| match device.allocate(bytes) {
            Ok(memory) => Ok(Some(memory)),
            Err(CudaError::OutOfMemory { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        Ok(match (place(out)?, place(lse)?) {
            (Some(out), Some(lse)) => Some(SavedForward { out, lse }),
            _ => None,
        })
    }

    fn bytes(case: &CudaCase) -> (u64, u64) {
        let sizes = TensorSizes::new(case.problem());
        let width = case.problem().dtype.bytes();
        (sizes.out * width, sizes.rows * 4)
    }

    fn take(&self, case: &CudaCase, stream: sys::CUstream) -> Result<(), CudaError> {
        let (out, lse) = SavedForward::bytes(case);
        copy(self.out.pointer(), case.figures.out.data, out, stream)?;
        copy(self.lse.pointer(), case.figures.lse, lse, stream)
    }

    fn put(&self, case: &CudaCase, stream: sys::CUstream) -> Result<(), CudaError> {
        let (out, lse) = SavedForward::bytes(case);
        copy(case.figures.out.data, self.out.pointer(), out, stream)?;
        copy(case.figures.lse, self.lse.pointer(), lse, stream)
    }
}

fn copy(to: u64, from: u64, bytes: u64, stream: sys::CUstream) -> Result<(), CudaError> {
    // SAFETY: both are live allocations of at least this size, which do not overlap.
    let copied = unsafe { result::memcpy_dtod_async(to, from, bytes as usize, stream) };
    checked("cuMemcpyDtoDAsync", copied)
}

/// The protocol's word for what stands in the cache, as the clock has it.
pub fn cache(asked: Cache) -> ProbeCache {
    match asked {
        Cache::Cold => ProbeCache::Cold,
        Cache::Hot => ProbeCache::Hot,
    }
}

/// Operations of one host reference: enough that reading the clock is no part of it.
const REFERENCE_LAUNCHES: u32 = 15;

/// Samples, and beside them what the host's time is judged by.
#[derive(Default)]
pub struct TakenSamples {
    pub samples: Vec<Sample>,
    /// An entry a sample, or none.
    pub host_reference_ns: Vec<f64>,
}

/// Times launches of the clock's kernel that does nothing, in nanoseconds; `None` where the
/// driver loads none. The device was idle before and is after.
///
/// Host time of this worker is what the driver takes to launch kernels, so the reference is
/// launches too: recording events or asking for attributes is less than a launch, and other code
/// of the driver. A launch returns once it is queued, and the queue has room for these, so
/// nothing in the time waits for the device; that is waited for after it. The kernel reads and
/// writes no memory, so caches stay as they were, and each sample's run-up launches it just
/// before its gate opens: it is loaded, and the next sample finds nothing new.
fn host_reference(clock: &mut Clock<Cuda>, device: &Device) -> Result<Option<f64>, CudaError> {
    let begin = Instant::now();
    for _ in 0..REFERENCE_LAUNCHES {
        if !clock.device().null_kernel()? {
            return Ok(None);
        }
    }
    let taken = begin.elapsed();
    device.synchronise()?;
    Ok(Some(taken.as_nanos() as f64))
}

/// Takes the samples that `request` asks for, after its warm-up; the clock is configured.
///
/// The warm-up is ungated: loading kernels and compiling synchronise (nvbench#240), and the
/// gate would only wait for the watchdog. Changing inputs is outside of samples and budget.
///
/// # Errors
/// The clock's, the call's, the driver's.
pub fn take(
    clock: &mut Clock<Cuda>,
    device: &mut Device,
    case: &mut CudaCase,
    request: &Measure,
    mut contents: Option<&mut Contents>,
) -> Result<TakenSamples, CudaError> {
    let cache = cache(request.cache);
    // One more: the first after a check finds the device as that left it.
    for _ in 0..=request.warmup {
        case.call()?;
    }
    device.synchronise()?;
    let graph = match request.graph {
        true => Some(clock.capture(|_| case.call().map_err(CudaError::into_probe))?),
        false => None,
    };
    if let Some(graph) = &graph {
        // The first launch uploads the graph.
        clock.device().launch(graph)?;
        device.synchronise()?;
    }
    // Once untimed, before the first sample.
    host_reference(clock, device)?;
    let mut taken = TakenSamples::default();
    let mut spent = Duration::ZERO;
    loop {
        let known = contents.is_some();
        let next = sets::next(request, taken.samples.len() as u32, spent, known);
        if next == NextSample::Enough {
            break;
        }
        if let Some(contents) = &mut contents {
            contents.change(device, case, next == NextSample::Last)?;
        }
        let begin = Instant::now();
        let sample = clock.sample(cache, |timed| match &graph {
            Some(graph) => timed.launch(graph),
            None => case.call().map_err(CudaError::into_probe),
        })?;
        spent += begin.elapsed();
        taken.samples.push(sample);
        taken
            .host_reference_ns
            .extend(host_reference(clock, device)?);
        if next == NextSample::Last {
            break;
        }
    }
    Ok(taken)
}
