//! Progress where nobody watches: a line now and then.

use std::fmt;
use std::time::Duration;

use regatta_measure::experiment::estimate::{about, watch};
use regatta_report::terminal::COLUMNS;
use regatta_report::text::{shorten_middle, width};

/// Two lines are never nearer to each other.
const AT_MOST: Duration = Duration::from_secs(10);

/// After so long a line is due though less than a tenth was done.
const AT_LEAST: Duration = Duration::from_secs(60);

/// When a line is due: at each tenth, and where that takes long each minute; never more often
/// than every ten seconds.
#[derive(Debug, Default)]
pub struct Pace {
    last: Duration,
    tenths: usize,
    said: bool,
}

impl Pace {
    /// Whether one is due, so long after the start, with so much done.
    pub fn is_due(&mut self, since: Duration, done: usize, all: usize) -> bool {
        let quiet = since.saturating_sub(self.last);
        let tenths = 10 * done / all.max(1);
        let wanted = !self.said || tenths > self.tenths || quiet >= AT_LEAST;
        let due = quiet >= AT_MOST && wanted;
        if due {
            *self = Pace {
                last: since,
                tenths,
                said: true,
            };
        }
        due
    }
}

/// How long it has taken, and will.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Since the start.
    pub since: Duration,
    /// What is left, where that is known.
    pub left: Option<Duration>,
}

impl fmt::Display for Time {
    /// `1 min 4 s, about 2 min left`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&watch(self.since))?;
        match self.left {
            Some(left) => write!(f, ", {} left", about(left)),
            None => Ok(()),
        }
    }
}

/// Where a schedule is.
#[derive(Debug)]
pub struct Place<'a> {
    /// Measurements that were made.
    pub done: usize,
    /// All of them.
    pub all: usize,
    /// `invocation 2/5`.
    pub invocation: &'a str,
    /// How long it takes.
    pub time: Time,
    /// `2 failed`, the gravest first.
    pub troubles: &'a [String],
    /// What runs now.
    pub case: &'a str,
}

impl Place<'_> {
    /// `37/120, invocation 2/5, 1 min 4 s, about 2 min left: cpu/flash:s512,d64`. What leaves
    /// no room is not in it.
    pub fn line(&self) -> String {
        let (done, all, invocation) = (self.done, self.all, self.invocation);
        let mut line = format!("{done}/{all}, {invocation}, {}", self.time);
        for trouble in self.troubles {
            if width(&line) + 2 + width(trouble) <= COLUMNS {
                line += &format!(", {trouble}");
            }
        }
        match COLUMNS.saturating_sub(width(&line) + 2) {
            // Not enough to tell one from another.
            ..16 => line,
            room => format!("{line}: {}", shorten_middle(self.case, room)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds after which a line is due, of steps that take so long each.
    fn due(steps: usize, each: Duration) -> Vec<u64> {
        let mut pace = Pace::default();
        let lines = (0..steps).filter(|step| {
            let since = each * (*step as u32);
            pace.is_due(since, *step, steps)
        });
        lines.map(|step| (each * step as u32).as_secs()).collect()
    }

    #[test]
    fn a_short_run_says_nothing_and_a_long_one_little() {
        assert!(due(1_000, Duration::from_millis(9)).is_empty());
        // 100 s: first after ten seconds, then each tenth.
        assert_eq!(
            due(1_000, Duration::from_millis(100)),
            [10, 20, 30, 40, 50, 60, 70, 80, 90]
        );
        // Half an hour: each minute, and each tenth, which is one of these here.
        let lines = due(900, Duration::from_secs(2));
        assert!((29..=40).contains(&lines.len()), "{lines:?}");
        assert!(lines.windows(2).all(|two| two[1] - two[0] >= 10));
        // One case a minute and a half: each of them.
        assert_eq!(due(4, Duration::from_secs(90)), [90, 180, 270]);
    }

    #[test]
    fn a_line_fits_whatever_runs() {
        let case = format!("fake/{}:s64,d64,bwd", "x".repeat(200));
        let mut place = Place {
            done: 37,
            all: 120,
            invocation: "invocation 2/5",
            time: Time {
                since: Duration::from_secs(64),
                left: Some(Duration::from_secs(121)),
            },
            troubles: &[],
            case: &case,
        };
        let line = place.line();
        assert!(
            line.starts_with("37/120, invocation 2/5, 1 min 4 s, about 2 min 10 s left: fake/")
        );
        assert_eq!(width(&line), COLUMNS);
        (place.time.left, place.case) = (None, "cpu/flash:s64,d64");
        assert_eq!(
            place.line(),
            "37/120, invocation 2/5, 1 min 4 s: cpu/flash:s64,d64"
        );
        let troubles = ["2 failed", "33 measured again", "1200 disturbed"].map(str::to_owned);
        place.troubles = &troubles;
        place.time.left = Some(Duration::from_secs(121));
        let line = place.line();
        assert!(line.ends_with("left, 2 failed"), "{line}");
        assert!(width(&line) <= COLUMNS);
    }
}
