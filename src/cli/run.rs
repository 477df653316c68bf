//! `regatta run`: measures a suite, judges its expectations, and writes the reports.

use clap::Args;

use super::history::{Keep, add_to_history};
use super::reporting::{self, JudgedArgs};
use super::{Ended, watch};
use regatta_core::suite::plan::Place;
use regatta_measure::experiment::Experiment;
use regatta_report::text::shell_command;
use regatta_worker::units::counted;

/// Measure a suite, write the run and its reports
///
/// Exits 0 when every case was measured and checked and the suite's expectations are met, 1 when
/// one is violated, or a case gave a wrong result, crashed or hung, 3 when a case is missing or
/// a violation is only suspected. An unfinished run of the same suite on the same code resumes.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Measure one of N shards, `3/8`, into a folder of its own
    ///
    /// Every command that takes a run takes the folder of all shards, as one run.
    #[arg(long, value_name = "I/N", hide_short_help = true)]
    shard: Option<Place>,

    #[command(flatten)]
    keep: Keep,

    #[command(flatten)]
    judged: JudgedArgs,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &RunArgs) -> Ended {
    args.judged.run(|| measured(args))
}

fn measured(args: &RunArgs) -> Ended {
    if let Some(place) = args.shard {
        return shard(args, place);
    }
    watch();
    let mut measured = Experiment::alone(&args.judged.measure.request())?.run()?;
    let run = measured.folder.clone();
    let ended = reporting::conclude(&mut measured, &args.judged.answers);
    add_to_history(ended, &args.keep, &run, args.judged.measure.quiet)
}

/// Measures a shard. Expectations are judged for all shards together, because a reference may be in
/// another shard.
fn shard(args: &RunArgs, place: Place) -> Ended {
    let answers = &args.judged.answers;
    let judging = [
        ("--json", answers.json),
        ("--all", answers.all),
        ("a report's file", answers.outputs.any()),
        ("--history", args.keep.any()),
    ];
    if let Some((what, _)) = judging.iter().find(|(_, asked)| *asked) {
        refuse!(
            "--shard {place} and {what}: a shard is judged together with all others; pass all of them to \
             `regatta diff` or `regatta history add`"
        );
    }
    watch();
    let arm = Experiment::shard(&args.judged.measure.request(), place)?;
    let whole = arm.directory.parent().unwrap_or(&arm.directory);
    let words = ["regatta", "diff", "--no-base", &whole.display().to_string()].map(str::to_owned);
    arm.say(format!(
        "{} measured of shard {place}; all shards are judged together: {}",
        counted(arm.header.plan.len(), "case"),
        shell_command(&words)
    ));
    Ok(0)
}
