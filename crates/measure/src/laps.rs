//! The time of a command by its parts, by the harness's own clock.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use regatta_worker::units::{Elapsed, Nanoseconds};

/// The time of each part of a command's work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeSpent {
    /// Reading the suite, finding its workers, identifying the code and the machine.
    pub setting_up: Nanoseconds,
    /// Starting and ending workers.
    pub workers: Nanoseconds,
    /// Preparing, checking, measuring and counting cases.
    pub cases: Nanoseconds,
    /// Timing calls by the harness's own clock.
    pub clocks: Nanoseconds,
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
        self.clocks += other.clocks;
        self.judging += other.judging;
        self.reporting += other.reporting;
    }
}

/// A stopwatch for consecutive times.
pub struct Laps(Instant);

impl Laps {
    /// Starts the first lap.
    pub fn begin() -> Laps {
        Laps(Instant::now())
    }

    /// Ends a lap, and returns its length.
    pub fn end(&mut self) -> Nanoseconds {
        let before = std::mem::replace(&mut self.0, Instant::now());
        (self.0 - before).into()
    }
}

/// An estimated time, rounded up to few digits: `about 40 s`, `about 3 min`.
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

/// A time in whole seconds: `41 s`, `2 min 7 s`.
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
