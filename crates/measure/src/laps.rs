//! Where the time of a command goes, by the harness's own clock, and how long what is left of a
//! schedule will take.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use crate::schedule::WorkerBlock;
use regatta_worker::units::{Elapsed, Nanoseconds};

/// A clock that never goes back.
pub trait TimeSource {
    /// The time since some moment.
    fn now(&self) -> Nanoseconds;
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic(Instant);

impl Monotonic {
    /// At 0 now.
    pub fn begin() -> Monotonic {
        Monotonic(Instant::now())
    }
}

impl TimeSource for Monotonic {
    fn now(&self) -> Nanoseconds {
        self.0.elapsed().into()
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
    clock: &'a dyn TimeSource,
    last_ns: Nanoseconds,
}

impl<'a> Laps<'a> {
    /// The first one begins now.
    pub fn begin(clock: &'a dyn TimeSource) -> Laps<'a> {
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

/// Times, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: Duration,
    count: u32,
}

impl Mean {
    fn add(&mut self, took: Duration) {
        self.sum += took;
        self.count += 1;
    }

    fn seconds(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum.as_secs_f64() / f64::from(self.count))
    }
}

/// What is known of one case.
#[derive(Debug, Default)]
struct CaseTime {
    left: u32,
    took: Mean,
}

/// What is known of one worker.
#[derive(Debug, Default)]
struct WorkerTime {
    /// Measurements that are left of cases that were not measured yet.
    unseen: u32,
    took: Mean,
}

/// How long what is left of a schedule will take, by what its cases took so far.
///
/// A case that was measured before counts what it took then, on average, and what starting its
/// worker took where it came first: over an invocation, that is what the invocation takes. One
/// that was not counts as the others of its worker. Of a worker that was not seen yet nothing is
/// known, and so nothing is said.
#[derive(Debug, Default)]
pub struct Estimate {
    cases: HashMap<String, CaseTime>,
    workers: HashMap<String, WorkerTime>,
    /// What is left of cases that were measured before, in seconds.
    seen: f64,
    measured: u32,
}

impl Estimate {
    /// Of a schedule of which nothing has run.
    pub fn new(blocks: &[WorkerBlock]) -> Estimate {
        let mut estimate = Estimate::default();
        for block in blocks {
            let worker = estimate.workers.entry(block.worker.clone()).or_default();
            for case in &block.cases {
                worker.unseen += 1;
                estimate.cases.entry(case.to_string()).or_default().left += 1;
            }
        }
        estimate
    }

    /// A case of this worker was measured.
    pub fn done(&mut self, worker: &str, case: &str, took: Duration) {
        self.measured += 1;
        let (Some(known), Some(of)) = (self.cases.get_mut(case), self.workers.get_mut(worker))
        else {
            return;
        };
        let left = known.left;
        match known.took.seconds() {
            Some(seconds) => self.seen -= seconds * f64::from(left),
            None => of.unseen = of.unseen.saturating_sub(left),
        }
        known.left = left.saturating_sub(1);
        known.took.add(took);
        of.took.add(took);
        let seconds = known.took.seconds().unwrap_or_default();
        self.seen += seconds * f64::from(known.left);
    }

    /// What is left, where the case that runs now has run for so long; `None`: too little is
    /// known.
    pub fn left(&self, running: Duration) -> Option<Duration> {
        if self.measured < ENOUGH {
            return None;
        }
        let mut seconds = self.seen;
        for worker in self.workers.values().filter(|worker| worker.unseen > 0) {
            seconds += f64::from(worker.unseen) * worker.took.seconds()?;
        }
        let left = seconds - running.as_secs_f64();
        Some(Duration::try_from_secs_f64(left.max(0.0)).unwrap_or_default())
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
    fn what_cases_took_is_what_they_will() {
        let mut estimate = Estimate::new(&schedule());
        // What was measured, in how many seconds, and what is left then.
        for (case, took, left) in [
            ("a/x:s8,d8", 1, None),
            ("a/x:s16,d8", 2, None),
            // b may take hours until one of its cases was seen; then the other counts as it.
            ("b/x:s8,d8", 1, Some(6)),
            ("b/x:s16,d8", 2, Some(6)),
            // One that takes longer than it did leaves the others what they were.
            ("b/x:s8,d8", 9, Some(5)),
            ("b/x:s16,d8", 1, Some(3)),
            ("a/x:s8,d8", 1, Some(2)),
            ("a/x:s16,d8", 1, Some(0)),
        ] {
            estimate.done(&case[..1], case, took * SECOND);
            let said = estimate.left(Duration::ZERO);
            assert_eq!(said, left.map(|left| left * SECOND), "{case}");
        }
        assert_eq!(estimate.left(SECOND), Some(Duration::ZERO), "never less");
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
