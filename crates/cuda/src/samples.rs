//! Samples of a case, each on inputs of its own.

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

/// Makes a set of inputs at the addresses that they have, and the forward before a gradient that
/// is timed alone; the device is idle after.
fn change(device: &mut CudaDevice, case: &mut CudaCase, seed: u64) -> Result<(), CudaError> {
    check::write_inputs(device, case, seed)?;
    if case.problem.direction == Direction::Backward {
        case.forward_before()?;
    }
    device.synchronise()
}

/// The protocol's word for what stands in the cache, as the clock has it.
pub fn cache(asked: Cache) -> CacheState {
    match asked {
        Cache::Cold => CacheState::Cold,
        Cache::Hot => CacheState::Hot,
    }
}

/// Operations of one host reference: enough that reading the clock does not count.
const REFERENCE_LAUNCHES: u32 = 15;

/// Times launches of the clock's kernel that does nothing; `None` where the
/// driver loads none. The device was idle before and is after.
///
/// Host time of this worker is what the driver takes to launch kernels, so the reference is
/// launches too: recording events or asking for attributes is less than a launch, and other code
/// of the driver. A launch returns once it is queued, and the queue has room for these, so
/// nothing in the time waits for the device; that is waited for after it. The kernel reads and
/// writes no memory, so caches stay as they were, and each sample's run-up launches it just
/// before its gate opens: it is loaded, and the next sample finds nothing new.
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

/// Takes the samples that `request` asks for, after its warm-up, each on a set of inputs where
/// `prepared` asks for several; and copies the results of calls that are checked beside the last.
///
/// The warm-up is ungated: loading kernels and compiling synchronise (nvbench#240), and the
/// gate would only wait for the watchdog. Changing inputs, and copying from the results of drawn
/// calls, is outside of samples and budget.
///
/// # Errors
/// The clock's, the call's, the driver's.
pub fn take(
    clock: &mut StreamClock<Cuda>,
    device: &mut CudaDevice,
    case: &mut CudaCase,
    request: &Measure,
    prepared: &Prepare,
    pause: Pause<'_>,
) -> Result<(Measured, Vec<CopiedCall>), CudaError> {
    let cache = cache(request.cache);
    // One more: the first after a check finds the device as that left it.
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
        // The first launch uploads the graph.
        graph.launch(device.stream)?;
        device.synchronise()?;
    }
    // Once untimed, before the first sample.
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
    // As many as samples, or none.
    if measured.clock_mhz.len() != measured.device_ns.len() {
        measured.clock_mhz.clear();
    }
    measured.input_sets = rotation.map_or(1, |rotation| rotation.sets());
    Ok((measured, calls))
}
