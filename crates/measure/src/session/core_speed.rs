//! Measures the speed of the cores with constant work of the harness's own.
//!
//! A core whose other hardware thread computes for another virtual machine is slow for seconds, and
//! no kernel counter shows that. Calls that are timed then take longer than honest samples that
//! were taken before.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::thread;
use std::time::Instant;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The number of cores that are measured, at most.
const MAX_CORES: usize = 4;

/// Size of the work in the first-level cache, in numbers. It keeps a core's arithmetic units busy.
const NEAR: usize = 2_048;
const NEAR_PASSES: usize = 64;

/// Size of the work in memory, in numbers. It shares caches and the path to memory with other
/// cores. One number of each cache line (`LINE` numbers) is read.
const FAR: usize = 1 << 20;
const LINE: usize = 16;

/// Numbers in a page, at most. One number of each page is written, because unwritten pages all map
/// to the same page of zeros.
const PAGE: usize = 1_024;

/// Rounds of the work on each core. The shortest counts, so that a round in which the thread waited
/// for its core does not.
const ROUNDS: usize = 4;

/// A core is slower if the same work takes this many times as long.
const SLOWER: f64 = 1.15;

/// Times of the same work in nanoseconds, `[in the cache, in memory]`, by core number.
#[derive(Clone, Debug, Default)]
pub(super) struct CoreSpeeds(BTreeMap<u32, [f64; 2]>);

impl CoreSpeeds {
    /// Measures the first [`MAX_CORES`] of `cores`.
    pub(super) fn now(cores: &[u32]) -> CoreSpeeds {
        let cores = cores.iter().take(MAX_CORES);
        CoreSpeeds(
            cores
                .filter_map(|core| Some((*core, on_core(*core)?)))
                .collect(),
        )
    }

    /// The shorter times of both.
    pub(super) fn faster(self, other: &CoreSpeeds) -> CoreSpeeds {
        self.merged(other, f64::min)
    }

    /// The longer times of both.
    pub(super) fn slower(self, other: &CoreSpeeds) -> CoreSpeeds {
        self.merged(other, f64::max)
    }

    fn merged(mut self, other: &CoreSpeeds, each: fn(f64, f64) -> f64) -> CoreSpeeds {
        for (core, times) in &other.0 {
            let own = self.0.entry(*core).or_insert(*times);
            *own = [each(own[0], times[0]), each(own[1], times[1])];
        }
        self
    }

    /// The number of `speeds` in which no core is slower than here. Empty ones do not count.
    pub(super) fn not_slower(&self, speeds: &[CoreSpeeds]) -> usize {
        let known = speeds.iter().filter(|now| !now.0.is_empty());
        known.filter(|now| !self.are_slower(now)).count()
    }

    /// True if a core that both measured is slower in `now`.
    pub(super) fn are_slower(&self, now: &CoreSpeeds) -> bool {
        let both = now.0.iter();
        let mut both = both.filter_map(|(core, now)| Some((self.0.get(core)?, now)));
        both.any(|(then, now)| (0..2).any(|work| now[work] > SLOWER * then[work]))
    }
}

/// The times of the work on `core`; `None` if no thread can be pinned to it.
fn on_core(core: u32) -> Option<[f64; 2]> {
    let timed = thread::spawn(move || {
        is_pinned(core).then(|| {
            let (near, mut far) = (vec![1.0_f32; NEAR], vec![0.0_f32; FAR]);
            far.iter_mut().step_by(PAGE).for_each(|first| *first = 1.0);
            let far = || far.iter().step_by(LINE).sum();
            [shortest(|| squares(&near)), shortest(far)]
        })
    });
    timed.join().ok().flatten()
}

/// Pins this thread to `core`. Returns false if that fails.
fn is_pinned(core: u32) -> bool {
    let mut one = CpuSet::new();
    let set = usize::try_from(core).map(|core| one.set(core));
    matches!(set, Ok(Ok(()))) && sched_setaffinity(Pid::from_raw(0), &one).is_ok()
}

fn shortest(work: impl Fn() -> f32) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        black_box(work());
        began.elapsed().as_nanos() as f64
    });
    rounds.fold(f64::MAX, f64::min)
}

/// Sums the squares of all numbers [`NEAR_PASSES`] times, in sixteen independent sums, so that no
/// addition waits for the one before.
fn squares(numbers: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LINE];
    for _ in 0..NEAR_PASSES {
        for some in black_box(numbers).chunks_exact(LINE) {
            for (sum, number) in sums.iter_mut().zip(some) {
                *sum += number * number;
            }
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_take_longer_are_slower() {
        let speeds = |near: f64, far: f64| {
            CoreSpeeds(BTreeMap::from([(0, [100.0, 200.0]), (3, [near, far])]))
        };
        let then = speeds(100.0, 200.0);
        assert!(!then.are_slower(&speeds(114.0, 229.0)));
        assert!(then.are_slower(&speeds(116.0, 200.0)));
        assert!(then.are_slower(&speeds(100.0, 231.0)));
        assert!(!then.are_slower(&speeds(50.0, 100.0)));
        assert!(
            speeds(120.0, 100.0)
                .faster(&then)
                .are_slower(&speeds(116.0, 100.0))
        );
        assert!(then.are_slower(&speeds(120.0, 100.0).slower(&then)));
        // A core that is missing on one side (offline, or not measured before) counts as not
        // slower.
        assert!(!then.are_slower(&CoreSpeeds::default()));
        assert!(!CoreSpeeds::default().are_slower(&then));
        let looks = [then.clone(), speeds(150.0, 200.0), CoreSpeeds::default()];
        assert_eq!(then.not_slower(&looks), 1);
    }

    #[test]
    fn each_core_has_a_time_of_both_kinds_of_work() {
        let cores = crate::interference::allowed_cores();
        let CoreSpeeds(times) = CoreSpeeds::now(&cores);
        assert_eq!(times.len(), cores.len().min(MAX_CORES));
        assert!(
            times.values().flatten().all(|time| *time > 100.0),
            "{times:?}"
        );
    }
}
