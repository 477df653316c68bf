//! `regatta gate`: measure, hold against a baseline, confirm, report.

use std::time::Duration;

use clap::Args;

use super::compare::duration;
use super::history::{Keep, kept};
use super::measure_args::MeasureArgs;
use super::reporting::{self, Answers};
use super::{Ended, watch};
use regatta_judge::Options;
use regatta_measure::experiment::comparison::{Comparison, Question};
use regatta_measure::experiment::gate::gate;
use regatta_measure::versions::spec::Spec;

/// Measure a suite and hold it against a baseline
///
/// Exits 0 when everything was measured and checked and nothing is worse or may be, 1 when
/// something is worse: slower, a broken expectation or limit, a wrong result, a crash or a
/// hang, or a structure that got worse (fewer blocks, added copies, spills;
/// [policy.structure] says which). Exits 3 when it cannot say: no baseline, another machine,
/// cases that could not be measured, something looks worse and was not decided, or the
/// machine was in the times (others on its cores, steal, throttling). A gate that was stopped
/// goes on where it was.
#[derive(Args, Debug)]
pub struct GateArgs {
    /// The baseline [default: the suite's name]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,

    /// Another version: git:main, pypi:jax==0.5.0
    ///
    /// In place of a baseline, measured in turn with this one. `regatta compare --help` has all
    /// that a version can be.
    #[arg(long, value_name = "SPEC", conflicts_with = "baseline")]
    against: Vec<Spec>,

    /// Measure no longer than this: 90s, 15m
    ///
    /// No batch of fresh invocations is taken that would end later than this after the start.
    /// What is not decided by then is said.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,

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
pub fn run(args: &GateArgs) -> Ended {
    reporting::told(measured(args), &args.answers)
}

fn measured(args: &GateArgs) -> Ended {
    args.answers.check()?;
    watch();
    let request = args.measure.request();
    let measured = match args.against.is_empty() {
        true => {
            let baseline = args.baseline.as_deref();
            gate(&request, baseline, args.budget, Options::gate(args.strict))?
        }
        // A comparison in which what the suite demands counts.
        false => Comparison::prepare(&Question {
            measure: &request,
            base: &args.against,
            head: &[Spec::Here],
            directory: None,
            floor: None,
            processor: false,
            budget: args.budget,
            demands: true,
            options: Options::comparison(args.strict),
        })?
        .measured()?,
    };
    let run = measured.ready.directory.clone();
    let ended = reporting::conclude(measured, &args.answers);
    kept(ended, &args.keep, &run, args.measure.quiet)
}
