//! `regatta gate`: measure, compare with a baseline, report.

use clap::Args;

use super::history::{Keep, add_to_history};
use super::reporting::{self, JudgedArgs};
use super::{Ended, watch};
use regatta_measure::experiment::{Experiment, gate};
use regatta_measure::versions::Spec;

/// Measure a suite and compare it with a baseline
///
/// Compares one run with the baseline. Cases that it does not show to be the same are measured in
/// pairs with the code of the baseline if it is available, or else judged with an allowance
/// for day-to-day variation. With --base all cases are measured in pairs.
///
/// Exits 0 when everything was measured and checked and nothing is worse or may be. Exits 1 when
/// something is worse: slower, a violated expectation or limit, a wrong result, a crash or a hang,
/// or a worse structure (fewer blocks, added copies, spills), unless `policy.ignore` names it.
/// Exits 3 when it is inconclusive: no baseline, another machine, missing cases, or a suspected
/// regression that is not confirmed. A gate that was stopped resumes.
#[derive(Args, Debug)]
pub struct GateArgs {
    /// The baseline [default: the suite's name]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,

    /// Measure in pairs with another version: git:main
    ///
    /// In place of a baseline. `regatta compare --help` lists what a version can be.
    #[arg(long, value_name = "SPEC", conflicts_with = "baseline")]
    base: Vec<Spec>,

    #[command(flatten)]
    keep: Keep,

    #[command(flatten)]
    judged: JudgedArgs,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &GateArgs) -> Ended {
    args.judged.run(|| measured(args))
}

fn measured(args: &GateArgs) -> Ended {
    watch();
    let request = args.judged.measure.request();
    let mut measured = if args.base.is_empty() {
        gate(&request, args.baseline.as_deref())?
    } else {
        // The suite's expectations are judged as well.
        Experiment::compare(&request, &args.base, &[Spec::Here], true)?.run()?
    };
    let run = measured.arm.directory.clone();
    let ended = reporting::conclude(&mut measured, &args.judged.answers);
    add_to_history(ended, &args.keep, &run, args.judged.measure.quiet)
}
