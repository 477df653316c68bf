//! `regatta run`: measure a suite, judge what it expects, write the reports.

use clap::Args;

use super::history::{Keep, kept};
use super::measure_args::MeasureArgs;
use super::measuring::Ready;
use super::reporting::{self, Answers};
use super::{Ended, in_part};
use regatta::judge::Options;
use regatta::record::shard::Asked;

/// Measure a suite, write the run and its reports
///
/// Exits 0 when every case was measured and checked and nothing is worse than the suite
/// expects, 1 when an expectation or a limit is broken or a case gave a wrong result,
/// crashed or hung, 3 when something could not be measured, looks worse than its limit and
/// was not decided, or the machine was in the times. An unfinished run of the same suite on the same code goes on where
/// it stopped.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Call an inconclusive result not judged (exit code 3)
    #[arg(long, hide_short_help = true)]
    strict: bool,

    #[command(flatten)]
    keep: Keep,

    #[command(flatten)]
    measure: MeasureArgs,

    #[command(flatten)]
    answers: Answers,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &RunArgs) -> Ended {
    reporting::told(measured(args), &args.answers)
}

fn measured(args: &RunArgs) -> Ended {
    args.answers.check()?;
    let beyond = [("--strict", args.strict), ("--history", args.keep.any())];
    in_part::refuse_answers(&args.measure.shard, &args.answers, &beyond)?;
    let mut ready = Ready::prepare(&args.measure, Asked::Run)?;
    if ready.header.shard.is_some() {
        return in_part::measured(&mut ready, None);
    }
    let writer = ready.measure(None)?;
    let options = Options {
        strict: args.strict,
        same_suite: true,
        wants_base: false,
        ..Options::default()
    };
    let ended = reporting::conclude(
        &ready,
        &ready.directory,
        writer,
        None,
        &options,
        &args.answers,
    );
    kept(ended, &args.keep, &ready.directory, ready.quiet())
}
