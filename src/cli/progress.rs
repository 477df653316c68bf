//! Progress of a measurement on standard error: a bar on a terminal, nothing else
//! where nobody watches.

use std::io::IsTerminal;
use std::ops::Range;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use regatta::attention::Case;
use regatta::measure::schedule::Block;
use regatta::measure::session::Observer;
use regatta::record::types::{Entry, Outcome};

/// Shows where a schedule is.
pub struct Progress {
    bar: ProgressBar,
    range: Range<u32>,
    failed: usize,
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
        }
    }
}

impl Observer for Progress {
    fn block(&mut self, block: &Block) {
        let at = block.invocation - self.range.start + 1;
        let of = self.range.len();
        self.bar.set_prefix(format!("invocation {at}/{of}"));
    }

    fn case(&mut self, case: &Case) {
        let failed = match self.failed {
            0 => String::new(),
            n => format!("{n} failed  "),
        };
        self.bar.set_message(format!("{failed}{case}"));
    }

    fn done(&mut self, entry: &Entry) {
        self.failed += usize::from(matches!(entry.outcome, Outcome::Failed { .. }));
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
