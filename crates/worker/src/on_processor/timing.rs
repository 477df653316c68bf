//! The timing method on a processor: which calls are timed, and what happens before each.

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;

use super::memory::ResidentMemory;
use super::threads::{CallUsage, OneCore, Threads};
use super::{ProcessorCase, last_level_cache};
use crate::protocol::{Cache, Measure, Measured, Repeat};
use crate::serve::{Pause, Refusal};
use crate::sets::{self, Rotation, Sample};
use crate::units::Nanoseconds;

/// The size to sweep if the size of the cache is unknown.
const ASSUMED_CACHE: u64 = 64 << 20;
/// The largest sweep, beyond which a sweep costs too much.
const LARGEST_SWEEP: u64 = 1 << 30;
const CACHE_LINE: usize = 64;

/// Takes the samples that `request` asks for. Each has the inputs that `rotation` chooses; without
/// a rotation the inputs stay the same.
///
/// Warm-up calls are not timed. Then, for each sample: the inputs change, the cache is swept (cold)
/// or left (hot), and one call is timed with the monotonic clock. The sweep is not part of the
/// sample but counts towards the budget, which bounds the waiting time; changing inputs counts in
/// neither. CPU time, threads and their waits for a core are read around each sample, outside of
/// the monotonic clock's readings. A call on one thread is timed without its waits, and on one core
/// if the request names it. After a `pause`, one call is made and not timed, since another process
/// has used the caches.
///
/// `kept` keeps the buffer of the sweep for the next request. `look` is called after each call
/// except the last, with the call's number from 1 and its set of inputs.
///
/// # Errors
/// Too little memory for the sweep, missing inputs, or a request for a CUDA graph.
pub fn measure(
    request: &Measure,
    kept: &mut Option<Sweep>,
    mut rotation: Option<Rotation>,
    timed: &mut dyn ProcessorCase,
    pause: Pause<'_>,
    look: &mut dyn FnMut(u32, u32, &dyn ProcessorCase),
) -> Result<Measured, Refusal> {
    if request.graph {
        let reason = "CUDA graphs need a GPU, and this variant runs on the processor; measure with \
                      graph = false";
        return Err(Refusal::Unsupported(reason.to_owned()));
    }
    let sweep = match request.cache {
        Cache::Cold if kept.is_none() => Some(&*kept.insert(Sweep::new()?)),
        Cache::Cold => kept.as_ref(),
        Cache::Hot => None,
    };
    let (mut threads, mut usages) = (Threads::new(), Vec::new());
    let mut core = OneCore::new(request.core);
    for _ in 0..request.warmup {
        threads.begin();
        timed.call();
        core.saw(&threads.end());
    }
    core.begin();
    let mut device_ns = Vec::new();
    let mut memory = ResidentMemory::begin();
    sets::each(request, &mut rotation, pause, |sample| {
        let Sample { set, last, resumed } = sample;
        if resumed {
            timed.call();
        }
        if let Some(set) = set {
            timed.change(set)?;
        }
        let start = Instant::now();
        if let Some(sweep) = sweep {
            sweep.run();
        }
        memory.read();
        threads.begin();
        let wall_ns = time(|| timed.call());
        let usage = threads.end();
        core.saw(&usage);
        let device = usage.device_ns(wall_ns);
        device_ns.push(device);
        usages.push(usage);
        let spent = start.elapsed();
        if !last {
            look(device_ns.len() as u32, set.unwrap_or(0), timed);
        }
        Ok::<_, Refusal>((spent, device))
    })?;
    // A thread that was missed in up to one call of ten does not change a median.
    let missed = usages.iter().filter(|usage| usage.missed_thread).count();
    let counted = 10 * missed <= usages.len();
    Ok(Measured {
        device_ns,
        cpu_ns: each(&usages, |usage| usage.cpu_ns),
        preempted: each(&usages, |usage| usage.preempted),
        page_faults: each(&usages, |usage| usage.page_faults),
        threads: each(&usages, |usage| usage.threads.filter(|_| counted)),
        waited_ns: each(&usages, |usage| usage.waited_ns.filter(|_| counted)),
        core: core.pinned(),
        peak_bytes: memory.peak(),
        growth_bytes_per_call: memory.growth(),
        input_sets: rotation.map_or(1, |rotation| rotation.sets()),
        ..Measured::default()
    })
}

/// Makes the calls that `request` asks for, on its core.
pub fn repeat(request: Repeat, timed: &mut dyn ProcessorCase) {
    let mut core = OneCore::new(request.core);
    core.pin();
    for _ in 0..request.calls {
        timed.call();
    }
}

/// A figure of each call; empty if it is unknown for any of them.
fn each<T>(usages: &[CallUsage], figure: impl Fn(&CallUsage) -> Option<T>) -> Vec<T> {
    let figures = usages.iter().map(figure);
    figures.collect::<Option<_>>().unwrap_or_default()
}

/// The time of a call.
pub fn time(call: impl FnOnce()) -> Nanoseconds {
    let start = Instant::now();
    call();
    start.elapsed().into()
}

/// A buffer larger than the last-level cache. Reading it evicts everything else.
pub struct Sweep {
    buffer: Vec<u8>,
}

impl Sweep {
    fn new() -> Result<Sweep, String> {
        let cache = last_level_cache().unwrap_or(ASSUMED_CACHE);
        // A quarter larger, since caches do not evict strictly in order.
        let size = (cache + cache / 4).min(LARGEST_SWEEP) as usize;
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(size)
            .map_err(|_| format!("cold cache: could not allocate {size} bytes"))?;
        // Not zeros, because the kernel would map all of them to one page.
        buffer.resize(size, 1);
        Ok(Sweep { buffer })
    }

    /// Each thread reads its share of the buffer, which also fills its own caches.
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

    /// Counts calls and changes of inputs.
    #[derive(Default)]
    struct Counted {
        calls: u32,
        sets: Vec<u32>,
    }

    impl ProcessorCase for Counted {
        fn call(&mut self) {
            self.calls += 1;
        }

        fn change(&mut self, set: u32) -> Result<(), String> {
            self.sets.push(set);
            Ok(())
        }

        fn results(&self) -> Vec<Vec<f32>> {
            vec![vec![self.calls as f32]]
        }
    }

    fn request(warmup: u32, samples: u32, min_samples: u32, budget_ms: u64) -> Measure {
        Measure {
            warmup,
            samples,
            min_samples,
            budget_ms,
            cache: Cache::Hot,
            ..Measure::default()
        }
    }

    const GO_ON: fn(Vec<Nanoseconds>) -> Result<bool, Refusal> = |_| Ok(false);

    /// Takes samples without changing the inputs.
    fn timed(request: &Measure, counted: &mut Counted) -> Result<Measured, Refusal> {
        let look = &mut |_, _, _: &dyn ProcessorCase| {};
        measure(request, &mut None, None, counted, &mut { GO_ON }, look)
    }

    fn samples(samples: u32, min_samples: u32, budget_ms: u64) -> (usize, u32) {
        let request = request(3, samples, min_samples, budget_ms);
        let mut counted = Counted::default();
        let measured = timed(&request, &mut counted).unwrap();
        assert!(
            counted.sets.is_empty(),
            "without a rotation the inputs stay"
        );
        assert_eq!(measured.input_sets, 1);
        (measured.device_ns.len(), counted.calls)
    }

    #[test]
    fn each_sample_has_other_inputs_and_the_last_one_those_that_are_checked() {
        let request = request(2, 5, 1, u64::MAX);
        let mut counted = Counted::default();
        let rotation = Rotation::new(3);
        let mut seen = Vec::new();
        let mut look =
            |call, set, of: &dyn ProcessorCase| seen.push((call, set, of.results()[0][0]));
        let measured = measure(
            &request,
            &mut None,
            rotation,
            &mut counted,
            &mut { GO_ON },
            &mut look,
        )
        .unwrap();
        assert_eq!(counted.sets, [2, 3, 4, 5, 1]);
        assert_eq!(seen, [(1, 2, 3.0), (2, 3, 4.0), (3, 4, 5.0), (4, 5, 6.0)]);
        assert_eq!(counted.calls, 2 + 5);
        assert_eq!((measured.device_ns.len(), measured.input_sets), (5, 6));
    }

    #[test]
    fn each_sample_has_its_processor_time_and_a_graph_is_refused() {
        let mut request = request(1, 3, 3, 0);
        let mut counted = Counted::default();
        let measured = timed(&request, &mut counted).unwrap();
        assert_eq!((measured.device_ns.len(), counted.calls), (3, 1 + 3));
        assert_eq!((measured.cpu_ns.len(), measured.preempted.len()), (3, 3));
        request.graph = true;
        let error = timed(&request, &mut counted).unwrap_err();
        assert!(matches!(&error, Refusal::Unsupported(reason) if reason.contains("graph = false")));
        assert_eq!(counted.calls, 4, "refused before any call");
    }

    #[test]
    fn the_budget_bounds_samples_but_not_below_the_least() {
        assert_eq!(samples(5, 2, u64::MAX), (5, 8));
        assert_eq!(samples(5, 2, 0), (2, 5));
        assert_eq!(samples(0, 2, 1000), (2, 5));
    }
}
