//! What each step of a run takes, by the harness's own clock.

use std::time::Instant;

use regatta_core::record::spent::{Phase, Spent, Stretch};
use regatta_worker::units::Nanoseconds;

/// A clock that never goes back, on a run's axis of time.
pub trait Clock {
    /// How far the run is.
    fn now(&self) -> Nanoseconds;
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    began: Instant,
    from_ns: Nanoseconds,
}

impl Monotonic {
    /// At 0 now.
    pub fn begin() -> Monotonic {
        Monotonic {
            began: Instant::now(),
            from_ns: Nanoseconds::ZERO,
        }
    }

    /// The same, of a run that had come to `from_ns` when this one began.
    pub fn going_on(self, from_ns: Nanoseconds) -> Monotonic {
        Monotonic { from_ns, ..self }
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Nanoseconds {
        self.from_ns + self.began.elapsed().into()
    }
}

/// Phases as they pass, one right after the other.
pub struct Laps<'a> {
    clock: &'a dyn Clock,
    from_ns: Nanoseconds,
    last_ns: Nanoseconds,
    phases: Spent,
}

impl<'a> Laps<'a> {
    /// The first phase begins now.
    pub fn begin(clock: &'a dyn Clock) -> Laps<'a> {
        let now = clock.now();
        Laps {
            clock,
            from_ns: now,
            last_ns: now,
            phases: Spent::default(),
        }
    }

    /// What passed since the phase before was this one, whatever came of it.
    pub fn end(&mut self, phase: Phase) {
        let now = self.clock.now();
        self.phases.add(phase, now - self.last_ns);
        self.last_ns = now;
    }

    /// What passed; `None` where no phase did.
    pub fn stretch(self) -> Option<Stretch> {
        (!self.phases.is_empty()).then_some(Stretch {
            from_ns: self.from_ns,
            phases: self.phases,
        })
    }
}
