//! The speed of the cores, by constant work of the harness's own.
//!
//! A core whose other hardware thread computes for another machine is slow for seconds, and no
//! counter of the kernel tells. Calls that are timed then take longer than their samples, and nothing
//! is wrong with these.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::thread;
use std::time::Instant;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Cores that are looked at, at the most.
const MAX_CORES: usize = 4;

/// Numbers of the work in the first-level cache, which keeps a core's units busy.
const NEAR: usize = 2_048;
const NEAR_PASSES: usize = 64;

/// Numbers of the work in memory, which shares caches and its paths with other cores: one of each
/// cache line is read.
const FAR: usize = 1 << 20;
const LINE: usize = 16;

/// Numbers of a page at the most: each page is written once, or all would be one.
const PAGE: usize = 1_024;

/// The shortest of so many rounds counts: a round that waited for its core does not.
const ROUNDS: usize = 4;

/// Cores are slower where the same work takes so many times as long.
const SLOWER: f64 = 1.15;

/// The time of the same work on each of some cores, near and far, in nanoseconds, by the core's number.
#[derive(Clone, Debug, Default)]
pub(super) struct CoreSpeeds(BTreeMap<u32, [f64; 2]>);

impl CoreSpeeds {
    /// The speeds now, of the first of these cores.
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

    /// The number of these looks that found no core slower.
    pub(super) fn not_slower(&self, speeds: &[CoreSpeeds]) -> usize {
        let known = speeds.iter().filter(|now| !now.0.is_empty());
        known.filter(|now| !self.are_slower(now)).count()
    }

    /// True if one of the cores is slower now.
    pub(super) fn are_slower(&self, now: &CoreSpeeds) -> bool {
        let both = now.0.iter();
        let mut both = both.filter_map(|(core, now)| Some((self.0.get(core)?, now)));
        both.any(|(then, now)| (0..2).any(|work| now[work] > SLOWER * then[work]))
    }
}

/// The times of the work on a core; `None` where no thread may be put on it.
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

/// Puts this thread on a core.
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

/// The squares of all numbers, added so often: sixteen sums side by side, so that none waits for
/// itself.
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
        // A core that went offline, or is looked at for the first time, tells nothing.
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
