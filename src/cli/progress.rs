//! Progress of a measurement on standard error: a bar on a terminal, nothing else
//! where nobody watches.

use std::io::IsTerminal;
use std::ops::Range;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use regatta::attention::Case;
use regatta::measure::schedule::Block;
use regatta::measure::session::Observer;
use regatta::record::disturbance::{Disturbance, told, worst};
use regatta::record::types::{Entry, Outcome};
use regatta::units::counted;

/// Shows where a schedule is.
pub struct Progress {
    bar: ProgressBar,
    range: Range<u32>,
    failed: usize,
    again: usize,
    disturbed: usize,
    by: Vec<Disturbance>,
}

/// A bar over so many steps, hidden where nobody watches. Whoever makes it clears it.
pub fn bar(steps: usize, quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = "{prefix} [{bar:20}] {pos}/{len} {eta:>4} left  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

impl Progress {
    /// A bar over the cases of these blocks.
    pub fn new(blocks: &[Block], range: Range<u32>, quiet: bool) -> Progress {
        let cases: usize = blocks.iter().map(|block| block.cases.len()).sum();
        Progress {
            bar: bar(cases, quiet),
            range,
            failed: 0,
            again: 0,
            disturbed: 0,
            by: Vec::new(),
        }
    }

    /// What the machine had to do with it, once all is measured.
    pub fn of_the_machine(&self) -> Option<String> {
        let (again, disturbed) = (self.again, self.disturbed);
        (again + disturbed > 0).then(|| {
            format!(
                "the machine was in samples ({}): {} taken again, {} left disturbed",
                told(&self.by),
                counted(again, "measurement"),
                counted(disturbed, "measurement"),
            )
        })
    }
}

impl Observer for Progress {
    fn block(&mut self, block: &Block) {
        let at = block.invocation - self.range.start + 1;
        let of = self.range.len();
        self.bar.set_prefix(format!("invocation {at}/{of}"));
    }

    fn case(&mut self, case: &Case) {
        let mut before = String::new();
        for (number, what) in [
            (self.failed, "failed"),
            (self.again, "measured again"),
            (self.disturbed, "disturbed"),
        ] {
            if number > 0 {
                before += &format!("{number} {what}  ");
            }
        }
        self.bar.set_message(format!("{before}{case}"));
    }

    fn done(&mut self, entry: &Entry) {
        self.failed += usize::from(matches!(entry.outcome, Outcome::Failed { .. }));
        if let Outcome::Measured(measured) = &entry.outcome {
            self.again += usize::from(measured.again.is_some());
            self.disturbed += usize::from(!measured.disturbed.is_empty());
            let before = measured.again.iter().flat_map(|again| &again.by);
            self.by = worst(self.by.iter().chain(before).chain(&measured.disturbed));
        }
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
