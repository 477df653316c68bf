//! Progress of a measurement on standard error: on a terminal a line that is redrawn, elsewhere an
//! occasional line.

use std::io::IsTerminal;
use std::ops::{Range, RangeInclusive};
use std::time::{Duration, Instant};

use super::note;
use super::saying::{draw, erase};
use regatta_core::record::disturbance::{Disturbance, describe, worst};
use regatta_core::record::{Entry, Outcome};
use regatta_measure::experiment::Listener;
use regatta_measure::laps::{about, watch};
use regatta_measure::schedule::Block;
use regatta_measure::session::Observer;
use regatta_report::terminal::COLUMNS;
use regatta_report::text::{shorten_middle, width};
use regatta_worker::case::Case;
use regatta_worker::units::counted;

/// Shows the progress of an experiment on standard error.
pub struct Terminal;

impl Listener for Terminal {
    fn note(&self, text: &str) {
        note(text);
    }

    fn progress(&self, blocks: &[Block], range: Range<u32>, quiet: bool) -> Box<dyn Observer> {
        Box::new(Progress {
            output: ProgressOutput::new(quiet),
            began: Instant::now(),
            range,
            all: blocks.iter().map(|block| block.cases().count()).sum(),
            done: 0,
            invocation: String::new(),
            failed: 0,
            first_failure: None,
            disturbed: 0,
            by: Vec::new(),
        })
    }
}

/// The form of progress.
enum ProgressOutput {
    Nowhere,
    /// One line on a terminal, redrawn at each step.
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

/// The progress of a schedule.
struct Progress {
    output: ProgressOutput,
    began: Instant,
    range: Range<u32>,
    all: usize,
    done: usize,
    invocation: String,
    failed: usize,
    /// The first failed case with its reason, until it is shown, so that a suite that fails
    /// throughout can be stopped early.
    first_failure: Option<String>,
    disturbed: usize,
    by: Vec<Disturbance>,
}

/// The number of measurements before the remaining time is estimated, because the first has a cold
/// start.
const ENOUGH: usize = 3;

impl Progress {
    /// `37/120, invocation 2/5, 1 min 4 s, about 2 min left, 2 failed: cpu/flash:s512,d64`, at
    /// `since` the start. Parts without room are left out.
    fn line(&self, since: Duration, case: &str) -> String {
        let (done, all) = (self.done, self.all);
        let mut line = format!("{done}/{all}, {}, {}", self.invocation, watch(since));
        if done >= ENOUGH {
            let left = since.mul_f64((all - done) as f64 / done as f64);
            line += &format!(", {} left", about(left));
        }
        for (number, what) in [(self.failed, "failed"), (self.disturbed, "disturbed")] {
            let trouble = format!(", {number} {what}");
            if number > 0 && width(&line) + width(&trouble) <= COLUMNS {
                line += &trouble;
            }
        }
        match COLUMNS.saturating_sub(width(&line) + 2) {
            // Too few columns to distinguish cases.
            ..16 => line,
            room => format!("{line}: {}", shorten_middle(case, room)),
        }
    }
}

impl Observer for Progress {
    fn invocations(&mut self, numbers: RangeInclusive<u32>) {
        let [first, last] = [numbers.start(), numbers.end()].map(|at| at - self.range.start + 1);
        let all = self.range.len();
        self.invocation = if first == last {
            format!("invocation {first}/{all}")
        } else {
            format!("invocations {first}-{last}/{all}")
        };
    }

    fn case(&mut self, case: &Case) {
        let since = self.began.elapsed();
        let line = self.line(since, &case.to_string());
        match &mut self.output {
            ProgressOutput::Redrawn => {
                self.first_failure.take().into_iter().for_each(note);
                draw(&line);
            }
            ProgressOutput::Lines(pace) => {
                if pace.is_due(since, self.done, self.all) {
                    self.first_failure.take().into_iter().for_each(note);
                    note(line);
                }
            }
            ProgressOutput::Nowhere => {}
        }
    }

    fn done(&mut self, entry: &Entry) {
        if let Outcome::Failed { reason, .. } = &entry.outcome {
            if self.failed == 0 {
                self.first_failure = Some(format!("failed: {}: {reason}", entry.case));
            }
            self.failed += 1;
        }
        if let Outcome::Measured(measured) = &entry.outcome {
            self.disturbed += usize::from(!measured.disturbed.is_empty());
            self.by = worst(self.by.iter().chain(&measured.disturbed));
        }
        self.done += 1;
    }

    /// The interference of other programs.
    fn summary(&self) -> Option<String> {
        (self.disturbed > 0).then(|| {
            let number = counted(self.disturbed, "measurement");
            format!("other programs disturbed {number} ({})", describe(&self.by))
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        erase();
    }
}

/// The shortest time between two lines.
const AT_MOST: Duration = Duration::from_secs(10);

/// The time after which a line is due although less than a tenth was done.
const AT_LEAST: Duration = Duration::from_secs(60);

/// Decides when a line is due: at each tenth, and after a minute without one, but never more often
/// than every ten seconds.
#[derive(Debug, Default)]
struct Pace {
    last: Duration,
    tenths: usize,
}

impl Pace {
    /// True if a line is due at `since` the start, with `done` of `all` steps done.
    fn is_due(&mut self, since: Duration, done: usize, all: usize) -> bool {
        let quiet = since.saturating_sub(self.last);
        let tenths = 10 * done / all.max(1);
        let due = quiet >= AT_LEAST || quiet >= AT_MOST && tenths > self.tenths;
        if due {
            (self.last, self.tenths) = (since, tenths);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which a line is due, if each of `steps` steps takes `each`.
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
        let tenths = due(1_000, Duration::from_millis(100));
        assert!(tenths.into_iter().eq((10..=90).step_by(10)));
        // Half an hour: each minute, and each tenth, which is one of these here.
        let lines = due(900, Duration::from_secs(2));
        assert!((29..=40).contains(&lines.len()), "{lines:?}");
        assert!(lines.windows(2).all(|two| two[1] - two[0] >= 10));
        // One case a minute and a half: each of them.
        assert_eq!(due(4, Duration::from_secs(90)), [90, 180, 270]);
    }

    #[test]
    fn a_line_fits_whatever_runs() {
        let mut progress = Progress {
            output: ProgressOutput::Nowhere,
            began: Instant::now(),
            range: 0..5,
            all: 120,
            done: 37,
            invocation: "invocation 2/5".to_owned(),
            failed: 0,
            first_failure: None,
            disturbed: 0,
            by: Vec::new(),
        };
        let since = Duration::from_secs(64);
        let case = format!("fake/{}:s64,d64,bwd", "x".repeat(200));
        let line = progress.line(since, &case);
        let begins = "37/120, invocation 2/5, 1 min 4 s, about 2 min 30 s left: fake/";
        assert!(line.starts_with(begins), "{line}");
        assert_eq!(width(&line), COLUMNS);
        (progress.failed, progress.disturbed) = (2, 1200);
        let line = progress.line(since, &case);
        assert!(line.ends_with("left, 2 failed"), "{line}");
        (progress.done, progress.failed, progress.disturbed) = (2, 0, 0);
        let line = progress.line(since, "cpu/flash:s64,d64");
        assert_eq!(line, "2/120, invocation 2/5, 1 min 4 s: cpu/flash:s64,d64");
    }
}
