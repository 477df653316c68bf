//! Samples of a case, each on its own inputs.

use std::time::Instant;

use regatta_probe::{CacheState, Cuda, StreamClock, TimedDevice as _};

use super::case::CudaCase;
use super::check::{self, CopiedCall};
use super::driver::{CudaDevice, Graph};
use super::error::CudaError;
use regatta_worker::operator::Direction;
use regatta_worker::protocol::{Cache, Measure, Measured, Prepare};
use regatta_worker::serve::Pause;
use regatta_worker::sets::{self, Rotation, Sample, drawn_calls};
use regatta_worker::units::Nanoseconds;

/// Writes a set of inputs to their addresses and, for a gradient that is timed alone, computes the
/// forward pass. Waits for the device.
fn change(device: &mut CudaDevice, case: &mut CudaCase, seed: u64) -> Result<(), CudaError> {
    check::write_inputs(device, case, seed)?;
    if case.problem.direction == Direction::Backward {
        case.forward_before()?;
    }
    device.synchronise()
}

/// The clock's word for a cache state of the protocol.
pub fn cache(asked: Cache) -> CacheState {
    match asked {
        Cache::Cold => CacheState::Cold,
        Cache::Hot => CacheState::Hot,
    }
}

/// The number of launches in one host reference, so that the time of reading the clock does not
/// matter.
const REFERENCE_LAUNCHES: u32 = 15;

/// Times launches of the clock's empty kernel. Returns `None` if the driver cannot load it. The
/// device is idle before and after.
///
/// Host time of this worker is the driver's time to launch kernels, so the reference is launches
/// too. Recording events or querying attributes takes less time, and runs other code of the driver.
/// A launch returns once it is queued, and the queue has room for these, so none of this time waits
/// for the device; the wait comes after it. The kernel does not access memory, so caches keep their
/// state. Each sample's run-up launches it just before the gate opens, so it is already loaded, and
/// the next sample is not affected.
fn host_reference(
    clock: &mut StreamClock<Cuda>,
    device: &CudaDevice,
) -> Result<Option<Nanoseconds>, CudaError> {
    let begin = Instant::now();
    for _ in 0..REFERENCE_LAUNCHES {
        if !clock.device().null_kernel()? {
            return Ok(None);
        }
    }
    let taken = begin.elapsed();
    device.synchronise()?;
    Ok(Some(taken.into()))
}

/// Takes the samples that `request` asks for, after its warm-up, each on its own set of inputs if
/// `prepared` asks for several. Copies the results of calls that are checked in addition to the
/// last one.
///
/// The warm-up is not gated: loading kernels and compiling synchronise (nvbench#240), and the gate
/// would only wait for the watchdog. Changing inputs and copying results of drawn calls count
/// neither in samples nor in the budget.
///
/// # Errors
/// An error of the clock, the call or the driver.
pub fn take(
    clock: &mut StreamClock<Cuda>,
    device: &mut CudaDevice,
    case: &mut CudaCase,
    request: &Measure,
    prepared: &Prepare,
    pause: Pause<'_>,
) -> Result<(Measured, Vec<CopiedCall>), CudaError> {
    let cache = cache(request.cache);
    // One more call, because the first one after a check finds the device in the state that the
    // check left.
    for _ in 0..=request.warmup {
        case.call()?;
    }
    device.synchronise()?;
    let graph = if request.graph {
        Some(Graph::capture(device.stream, || case.call())?)
    } else {
        None
    };
    if let Some(graph) = &graph {
        // The first launch of a graph uploads it.
        graph.launch(device.stream)?;
        device.synchronise()?;
    }
    // Once without timing, before the first sample.
    host_reference(clock, device)?;
    let mut measured = Measured {
        graph: request.graph,
        ..Measured::default()
    };
    let mut calls = Vec::new();
    let draw = prepared.draw.unwrap_or(prepared.seed);
    let drawn = drawn_calls(request, draw);
    let mut rotation = Rotation::new(prepared.input_sets);
    sets::each(
        request,
        &mut rotation,
        pause,
        |Sample { set, last, .. }| {
            let seed = set.map(|set| prepared.seed.wrapping_add(set.into()));
            if let Some(seed) = seed {
                change(device, case, seed)?;
            }
            let begin = Instant::now();
            let sample = clock.sample(cache, |_| {
                let called = match &graph {
                    Some(graph) => graph.launch(device.stream),
                    None => case.call(),
                };
                called.map_err(CudaError::into_probe)
            })?;
            let spent = begin.elapsed();
            let reference = host_reference(clock, device)?;
            measured.device_ns.push(Nanoseconds(sample.device_ns));
            measured.host_ns.push(Nanoseconds(sample.host_ns));
            measured.host_reference_ns.extend(reference);
            measured.clock_mhz.extend(sample.clock_mhz);
            measured.synchronised |= sample.synchronised;
            let number = measured.device_ns.len() as u32;
            if let Some(seed) = seed
                && !last
                && drawn.contains(&number)
            {
                let call = CopiedCall::copy(device, case, (number, seed, draw))?;
                calls.push(call);
            }
            Ok::<_, CudaError>((spent, Nanoseconds(sample.device_ns)))
        },
    )?;
    // One for each sample, or none.
    if measured.clock_mhz.len() != measured.device_ns.len() {
        measured.clock_mhz.clear();
    }
    measured.input_sets = rotation.map_or(1, |rotation| rotation.sets());
    Ok((measured, calls))
}
