//! Progress of a measurement on standard error: a line that is redrawn on a terminal, and a line now
//! and then elsewhere.

use std::fmt;
use std::io::IsTerminal;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::note;
use super::saying::{draw, erase};
use regatta_core::record::disturbance::{Disturbance, describe, worst};
use regatta_core::record::types::{Entry, Outcome};
use regatta_measure::experiment::Listener;
use regatta_measure::laps::{about, watch};
use regatta_measure::schedule::WorkerBlock;
use regatta_measure::session::Observer;
use regatta_report::terminal::COLUMNS;
use regatta_report::text::{shorten_middle, width};
use regatta_worker::attention::Case;
use regatta_worker::units::counted;

/// Standard error, where what an experiment does is shown.
pub struct Terminal;

impl Listener for Terminal {
    fn note(&self, text: &str) {
        note(text);
    }

    fn progress(
        &self,
        blocks: &[WorkerBlock],
        range: Range<u32>,
        quiet: bool,
    ) -> Box<dyn Observer> {
        Box::new(Progress {
            output: ProgressOutput::new(quiet),
            began: Instant::now(),
            range,
            all: blocks.iter().map(|block| block.cases.len()).sum(),
            done: 0,
            invocation: String::new(),
            failed: 0,
            disturbed: 0,
            by: Vec::new(),
        })
    }
}

/// Where progress goes.
enum ProgressOutput {
    Nowhere,
    /// A line of a terminal, redrawn at each step.
    Redrawn,
    /// Lines of a log.
    Lines(Pace),
}

impl ProgressOutput {
    fn new(quiet: bool) -> ProgressOutput {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match (quiet, std::io::stderr().is_terminal() && !dumb) {
            (true, _) => ProgressOutput::Nowhere,
            (false, true) => ProgressOutput::Redrawn,
            (false, false) => ProgressOutput::Lines(Pace::default()),
        }
    }
}

/// Counts steps that several threads take, on a terminal alone.
pub struct Steps {
    all: usize,
    done: AtomicUsize,
    drawn: bool,
}

impl Steps {
    /// Of so many steps.
    pub fn new(all: usize, quiet: bool) -> Steps {
        let drawn = matches!(ProgressOutput::new(quiet), ProgressOutput::Redrawn);
        let done = AtomicUsize::new(0);
        Steps { all, done, drawn }
    }

    /// Counts one that is done.
    pub fn step(&self, name: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.drawn {
            draw(&format!("{done}/{}: {name}", self.all));
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        erase();
    }
}

/// Shows where a schedule is.
struct Progress {
    output: ProgressOutput,
    began: Instant,
    range: Range<u32>,
    all: usize,
    done: usize,
    invocation: String,
    failed: usize,
    disturbed: usize,
    by: Vec<Disturbance>,
}

/// Measurements before anything is said of what is left: one alone is that of a cold start.
const ENOUGH: usize = 3;

impl Progress {
    /// What is left, where each takes as long as those that were made.
    fn left(&self) -> Option<Duration> {
        let left = (self.all - self.done) as f64 / self.done as f64;
        (self.done >= ENOUGH).then(|| self.began.elapsed().mul_f64(left))
    }

    /// `2 failed`, `1 disturbed`.
    fn troubles(&self) -> Vec<String> {
        let troubles = [(self.failed, "failed"), (self.disturbed, "disturbed")];
        let troubles = troubles.into_iter().filter(|(number, _)| *number > 0);
        troubles
            .map(|(number, what)| format!("{number} {what}"))
            .collect()
    }
}

impl Observer for Progress {
    fn block(&mut self, block: &WorkerBlock) {
        let at = block.invocation - self.range.start + 1;
        self.invocation = format!("invocation {at}/{}", self.range.len());
    }

    fn case(&mut self, case: &Case) {
        let (case, troubles) = (case.to_string(), self.troubles());
        let place = CurrentCase {
            done: self.done,
            all: self.all,
            invocation: &self.invocation,
            troubles: &troubles,
            time: Time {
                since: self.began.elapsed(),
                left: self.left(),
            },
            case: &case,
        };
        match &mut self.output {
            ProgressOutput::Nowhere => {}
            ProgressOutput::Redrawn => draw(&place.line()),
            ProgressOutput::Lines(pace) => {
                if pace.is_due(place.time.since, self.done, self.all) {
                    note(place.line());
                }
            }
        }
    }

    fn done(&mut self, entry: &Entry) {
        self.failed += usize::from(matches!(entry.outcome, Outcome::Failed { .. }));
        if let Outcome::Measured(measured) = &entry.outcome {
            self.disturbed += usize::from(!measured.disturbed.is_empty());
            self.by = worst(self.by.iter().chain(&measured.disturbed));
        }
        self.done += 1;
    }

    /// What other programs had to do with it.
    fn summary(&self) -> Option<String> {
        (self.disturbed > 0).then(|| {
            format!(
                "other programs disturbed {} ({}), which never show a case to be the same",
                counted(self.disturbed, "measurement"),
                describe(&self.by),
            )
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        erase();
    }
}

/// Two lines are never nearer to each other.
const AT_MOST: Duration = Duration::from_secs(10);

/// After so long a line is due though less than a tenth was done.
const AT_LEAST: Duration = Duration::from_secs(60);

/// When a line is due: at each tenth, and where that takes long each minute; never more often
/// than every ten seconds.
#[derive(Debug, Default)]
struct Pace {
    last: Duration,
    tenths: usize,
    said: bool,
}

impl Pace {
    /// Whether one is due, so long after the start, with so much done.
    fn is_due(&mut self, since: Duration, done: usize, all: usize) -> bool {
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
struct Time {
    /// Since the start.
    since: Duration,
    /// What is left, where that is known.
    left: Option<Duration>,
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
struct CurrentCase<'a> {
    /// Measurements that were made.
    done: usize,
    /// All of them.
    all: usize,
    /// `invocation 2/5`.
    invocation: &'a str,
    /// How long it takes.
    time: Time,
    /// `2 failed`, the gravest first.
    troubles: &'a [String],
    /// What runs now.
    case: &'a str,
}

impl CurrentCase<'_> {
    /// `37/120, invocation 2/5, 1 min 4 s, about 2 min left: cpu/flash:s512,d64`. What leaves
    /// no room is not in it.
    fn line(&self) -> String {
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
        let mut place = CurrentCase {
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
        let troubles = ["2 failed", "1200 disturbed"].map(str::to_owned);
        place.troubles = &troubles;
        place.time.left = Some(Duration::from_secs(121));
        let line = place.line();
        assert!(line.ends_with("left, 2 failed"), "{line}");
        assert!(width(&line) <= COLUMNS);
    }
}
