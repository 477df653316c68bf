//! Looks at a build while it runs, and puts what it cost together.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cause::{Hint, Seen};
use crate::record::built::Built;
use crate::units::{Bytes, Nanoseconds};

/// Between two looks at the processes of a build.
const INTERVAL: Duration = Duration::from_millis(100);

/// A look may take this part of the time: one of hundreds of compilers takes a while.
const LOOKING: u32 = 20;

/// What of a command is a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The building of wheels by pip: what it downloads and unpacks beside that depends on
    /// the network and the disk.
    Wheels,
}

/// A build that runs, and can be looked at.
pub(super) trait Watched {
    /// Waits for its end.
    fn ends_within(&mut self, limit: Duration) -> bool;

    /// What it has cost until now, also when it has just ended.
    fn look(&mut self) -> Look;
}

/// What a build has cost until a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Look {
    /// Since its start.
    pub(super) at: Duration,
    /// Processor time of all that is below it.
    pub(super) cpu: Option<Nanoseconds>,
    /// Memory of all its processes.
    pub(super) memory: Option<Bytes>,
    /// True while pip builds a wheel.
    pub(super) wheel: bool,
    /// What its processes show.
    pub(super) hints: BTreeSet<Hint>,
    /// What looking took.
    pub(super) took: Duration,
}

/// Looks at a build until it ends; `None` where it ran into its limit.
pub(super) fn watch(build: &mut dyn Watched, part: Part, limit: Option<Duration>) -> Option<Tally> {
    let mut tally = Tally::of(part);
    let mut pause = Duration::ZERO;
    loop {
        let ended = build.ends_within(pause);
        let look = build.look();
        tally.see(&look);
        if ended {
            return Some(tally);
        }
        if limit.is_some_and(|limit| look.at >= limit) {
            return None;
        }
        pause = INTERVAL.max(look.took * LOOKING);
    }
}

/// What a build cost, put together of looks at it.
#[derive(Debug)]
pub(super) struct Tally {
    part: Part,
    last: Look,
    wall: Duration,
    cpu: Option<Nanoseconds>,
    peak: Option<Bytes>,
    seen: Seen,
}

impl Tally {
    fn of(part: Part) -> Tally {
        let last = Look {
            cpu: Some(Nanoseconds::ZERO),
            ..Look::default()
        };
        Tally {
            part,
            last,
            wall: Duration::ZERO,
            cpu: None,
            peak: None,
            seen: Seen::default(),
        }
    }

    /// Adds the time since the last look, where that is of the part that is measured.
    fn see(&mut self, look: &Look) {
        // The time of a process whose parent never waits for it is lost when it ends.
        let cpu = match (self.last.cpu, look.cpu) {
            (Some(last), Some(now)) => Some(last.max(now)),
            (last, now) => now.or(last),
        };
        if self.part == Part::Whole || look.wheel || self.last.wheel {
            self.wall += look.at.saturating_sub(self.last.at);
            if let (Some(last), Some(now)) = (self.last.cpu, cpu) {
                self.cpu = Some(self.cpu.unwrap_or_default() + (now - last));
            }
            self.peak = self.peak.max(look.memory);
            self.seen.add(&look.hints);
        }
        self.last = Look {
            cpu,
            ..look.clone()
        };
    }

    pub(super) fn built(&self, cores: u32) -> Option<Built> {
        if self.part == Part::Wheels && self.wall.is_zero() {
            return None;
        }
        let mut built = Built {
            wall_ns: self.wall.into(),
            cpu_ns: self.cpu,
            cores,
            peak_bytes: self.peak,
            ..Built::default()
        };
        let busy = built.cores_busy();
        built.because = busy.and_then(|busy| self.seen.cause(busy, cores));
        Some(built)
    }
}

#[cfg(test)]
mod tests;
