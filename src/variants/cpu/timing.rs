//! The timing contract on a processor: which calls are timed, and what comes before.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::device::last_level_cache;
use super::tensors::filled;
use crate::worker::protocol::{Cache, Measure, Measured};

/// Swept when the size of the cache is unknown.
const ASSUMED_CACHE: u64 = 64 << 20;
/// Swept at the most: beyond this a sweep costs more than it tells.
const LARGEST_SWEEP: u64 = 1 << 30;
const CACHE_LINE: usize = 64;

/// Takes the samples that `request` asks for of `call`.
///
/// Warm-up calls are untimed. Then, for each sample: the cache is swept (cold) or
/// left (hot), and one call is timed with the monotonic clock. The sweep is outside
/// the sample but inside the budget, which is there to bound the waiting.
///
/// # Errors
/// When there is no memory to sweep.
pub fn measure(request: &Measure, mut call: impl FnMut()) -> Result<Measured, String> {
    let sweep = match request.cache {
        Cache::Cold => Some(Sweep::new()?),
        Cache::Hot => None,
    };
    for _ in 0..request.warmup {
        call();
    }
    let budget = Duration::from_millis(request.budget_ms);
    let start = Instant::now();
    let mut device_ns = Vec::new();
    for sample in 0..request.samples.max(request.min_samples) {
        if sample >= request.min_samples && start.elapsed() >= budget {
            break;
        }
        if let Some(sweep) = &sweep {
            sweep.run();
        }
        device_ns.push(time(&mut call));
    }
    Ok(Measured {
        device_ns,
        ..Measured::default()
    })
}

/// Nanoseconds of one call.
pub fn time(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_nanos() as f64
}

/// A buffer larger than the last-level cache: once it has been read, nothing else
/// is cached.
struct Sweep {
    buffer: Vec<u8>,
}

impl Sweep {
    fn new() -> Result<Sweep, String> {
        let cache = last_level_cache().unwrap_or(ASSUMED_CACHE);
        // A quarter more, since caches do not evict strictly in order.
        let size = (cache + cache / 4).min(LARGEST_SWEEP) as usize;
        // Not zeros: the kernel would map them all onto one page.
        let buffer = filled(size, 1).map_err(|error| format!("cold cache: {error}"))?;
        Ok(Sweep { buffer })
    }

    /// Every thread reads its share of the buffer, which also fills its own caches.
    fn run(&self) {
        let share = self.buffer.len().div_ceil(rayon::current_num_threads());
        self.buffer.par_chunks(share).for_each(|share| {
            let lines = share.iter().step_by(CACHE_LINE);
            black_box(lines.fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(samples: u32, min_samples: u32, budget_ms: u64) -> (usize, u32) {
        let mut calls = 0;
        let request = Measure {
            warmup: 3,
            samples,
            min_samples,
            budget_ms,
            cache: Cache::Hot,
        };
        let measured = measure(&request, || calls += 1).unwrap();
        (measured.device_ns.len(), calls)
    }

    #[test]
    fn the_budget_bounds_samples_but_not_below_the_least() {
        assert_eq!(samples(5, 2, u64::MAX), (5, 8));
        assert_eq!(samples(5, 2, 0), (2, 5));
        assert_eq!(samples(0, 2, 1000), (2, 5));
    }
}
