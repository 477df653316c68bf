//! Where the time of a command goes, by the harness's own clock.

use std::ops::AddAssign;
use std::time::Instant;

use regatta_worker::units::Nanoseconds;

/// A clock that never goes back.
pub trait Clock {
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

impl Clock for Monotonic {
    fn now(&self) -> Nanoseconds {
        self.0.elapsed().into()
    }
}

/// What each part of a command's work took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
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

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.setting_up += other.setting_up;
        self.workers += other.workers;
        self.cases += other.cases;
        self.judging += other.judging;
        self.reporting += other.reporting;
    }
}

/// Times that follow each other.
pub struct Laps<'a> {
    clock: &'a dyn Clock,
    last_ns: Nanoseconds,
}

impl<'a> Laps<'a> {
    /// The first one begins now.
    pub fn begin(clock: &'a dyn Clock) -> Laps<'a> {
        let last_ns = clock.now();
        Laps { clock, last_ns }
    }

    /// What passed since the one before.
    pub fn end(&mut self) -> Nanoseconds {
        let now = self.clock.now();
        now - std::mem::replace(&mut self.last_ns, now)
    }
}
