//! Where the time of a command goes, by the harness's own clock, and how long what is left of a
//! schedule will take.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use crate::schedule::WorkerBlock;
use regatta_worker::units::{Elapsed, Nanoseconds};

/// A clock of the harness, which never goes back.
pub trait HarnessClock {
    /// The time since some moment.
    fn now(&self) -> Nanoseconds;
}

/// The time since a moment, by the system's monotonic clock.
impl HarnessClock for Instant {
    fn now(&self) -> Nanoseconds {
        self.elapsed().into()
    }
}

/// What each part of a command's work took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeSpent {
    /// Reading the suite, finding its workers, asking which code and machine this is.
    pub setting_up: Nanoseconds,
    /// Starting and ending workers.
    pub workers: Nanoseconds,
    /// Preparing, checking, measuring and counting cases.
    pub cases: Nanoseconds,
    /// Reading runs back and judging them.
    pub judging: Nanoseconds,
    /// Writing the reports.
    pub reporting: Nanoseconds,
}

impl AddAssign for TimeSpent {
    fn add_assign(&mut self, other: TimeSpent) {
        self.setting_up += other.setting_up;
        self.workers += other.workers;
        self.cases += other.cases;
        self.judging += other.judging;
        self.reporting += other.reporting;
    }
}

/// Times that follow each other.
pub struct Laps<'a> {
    clock: &'a dyn HarnessClock,
    last_ns: Nanoseconds,
}

impl<'a> Laps<'a> {
    /// The first one begins now.
    pub fn begin(clock: &'a dyn HarnessClock) -> Laps<'a> {
        let last_ns = clock.now();
        Laps { clock, last_ns }
    }

    /// What passed since the one before.
    pub fn end(&mut self) -> Nanoseconds {
        let now = self.clock.now();
        now - std::mem::replace(&mut self.last_ns, now)
    }
}

/// Measurements before anything is said: one alone is that of a cold start.
const ENOUGH: u32 = 3;

/// The measurements of one worker: those that are left, and what the others took.
#[derive(Debug, Default)]
struct WorkerTime {
    left: u32,
    measured: u32,
    took: Duration,
}

/// How long what is left of a schedule will take, by what the cases of each worker took so far, on
/// average, with what starting it took. Of a worker that was not seen yet nothing is known.
#[derive(Debug, Default)]
pub struct Estimate {
    workers: HashMap<String, WorkerTime>,
}

impl Estimate {
    /// Of a schedule of which nothing has run.
    pub fn new(blocks: &[WorkerBlock]) -> Estimate {
        let mut estimate = Estimate::default();
        for block in blocks {
            let worker = estimate.workers.entry(block.worker.clone()).or_default();
            worker.left += block.cases.len() as u32;
        }
        estimate
    }

    /// A case of this worker was measured.
    pub fn done(&mut self, worker: &str, took: Duration) {
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.left = worker.left.saturating_sub(1);
            worker.measured += 1;
            worker.took += took;
        }
    }

    /// What is left, where the case that runs now has run for so long; `None`: too little is
    /// known.
    pub fn left(&self, running: Duration) -> Option<Duration> {
        let workers = || self.workers.values();
        if workers().map(|worker| worker.measured).sum::<u32>() < ENOUGH {
            return None;
        }
        let mut left = Duration::ZERO;
        for worker in workers().filter(|worker| worker.left > 0) {
            left += worker.took.checked_div(worker.measured)? * worker.left;
        }
        Some(left.saturating_sub(running))
    }
}

/// A time that was estimated, in no more digits than are meant: `about 40 s`, `about 3 min`.
pub fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let step = match seconds {
        seconds if seconds < 60.0 => 5.0,
        seconds if seconds < 600.0 => 10.0,
        _ => 60.0,
    };
    let seconds = (seconds / step).ceil().max(1.0) * step;
    format!("about {}", watch(Duration::from_secs_f64(seconds)))
}

/// A time in whole seconds, as it is read off a watch: `41 s`, `2 min 7 s`.
pub fn watch(time: Duration) -> String {
    let seconds = time.as_secs_f64().round();
    if seconds < 60.0 {
        return format!("{seconds:.0} s");
    }
    let text = Elapsed(Nanoseconds::of_seconds(seconds)).to_string();
    let whole = text.strip_suffix(" 0 s").or(text.strip_suffix(" 0 min"));
    whole.unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Two invocations of two workers with two cases each.
    fn schedule() -> Vec<WorkerBlock> {
        let block = |invocation, worker: &str| WorkerBlock {
            invocation,
            worker: worker.to_owned(),
            cases: ["s8,d8", "s16,d8"]
                .map(|problem| format!("{worker}/x:{problem}").parse().unwrap())
                .to_vec(),
        };
        vec![block(0, "a"), block(0, "b"), block(1, "b"), block(1, "a")]
    }

    #[test]
    fn cases_that_are_left_take_as_long_as_others_of_their_worker() {
        let mut estimate = Estimate::new(&schedule());
        // The worker, in how many seconds, and what is left then.
        for (worker, took, left) in [
            ("a", 1, None),
            ("a", 2, None),
            // b may take hours until one of its cases was seen; then the other counts as it.
            ("b", 1, Some(6)),
            ("b", 3, Some(7)),
            ("b", 5, Some(6)),
            ("b", 1, Some(3)),
        ] {
            estimate.done(worker, took * SECOND);
            let said = estimate.left(Duration::ZERO);
            assert_eq!(said, left.map(|left| left * SECOND), "{worker} {took}");
        }
        assert_eq!(
            estimate.left(9 * SECOND),
            Some(Duration::ZERO),
            "never less"
        );
    }

    #[test]
    fn an_estimate_has_few_digits() {
        for (seconds, said) in [
            (0.0, "about 5 s"),
            (41.2, "about 45 s"),
            (58.0, "about 1 min"),
            (121.0, "about 2 min 10 s"),
            (601.0, "about 11 min"),
            (3_599.0, "about 1 h"),
            (4_000.0, "about 1 h 7 min"),
        ] {
            assert_eq!(about(Duration::from_secs_f64(seconds)), said);
        }
        assert_eq!(watch(Duration::from_millis(41_600)), "42 s");
    }
}
