//! `regatta run`: measure a suite, judge what it expects, write the reports.

use clap::Args;

use super::Ended;
use super::measuring::{MeasureArgs, Ready, finish};
use super::reporting::{self, Show};
use crate::judge::{self, Options};
use crate::record::side::Side;
use crate::report::Report;

/// Measure a suite, write the run and its reports
///
/// Exits 0 when every case was measured and every expectation holds, 1 when an
/// expectation is broken, 3 when something could not be measured. An unfinished
/// run of the same suite goes on where it stopped.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    measure: MeasureArgs,

    /// Call an inconclusive result not judged (exit code 3)
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    show: Show,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &RunArgs) -> Ended {
    let mut ready = Ready::prepare(&args.measure)?;
    let writer = ready.measure()?;
    let run = finish(writer)?;
    let label = ready.directory.display().to_string();
    let options = Options {
        strict: args.strict,
        same_suite: true,
        wants_base: false,
    };
    let judgement = judge::judge(&Side::from_run(label, &run), None, &options);
    let report = Report {
        judgement: &judgement,
        head: &run,
        base: None,
    };
    reporting::write(&ready.directory, &report)?;
    reporting::show(&report, &args.show, Some(&ready.directory))
}
