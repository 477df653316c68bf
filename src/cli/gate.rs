//! `regatta gate`: measure, hold against a baseline, confirm, report.

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;

use super::comparing::{Comparison, Question};
use super::deciding::{AgainstStored, decide, duration, incomparable};
use super::history::{Keep, kept};
use super::measure_args::{MeasureArgs, in_folder};
use super::measuring::Ready;
use super::reporting::{self, Answers, Base};
use super::{Ended, Stop, sides};
use regatta_core::record::baseline::Store;
use regatta_core::record::side::Side;
use regatta_core::record::types::BaseId;
use regatta_judge::Options;
use regatta_measure::identity::checksum;
use regatta_measure::versions::spec::Spec;
use regatta_report::text::shell_command;

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
    let ended = match args.against.is_empty() {
        true => gate(args),
        false => against(args),
    };
    reporting::told(ended, &args.answers)
}

/// The gate against another version: a comparison in which what the suite demands counts.
fn against(args: &GateArgs) -> Ended {
    let question = Question {
        measure: &args.measure,
        base: &args.against,
        head: &[Spec::Here],
        directory: None,
        floor: None,
        processor: false,
        budget: args.budget,
        demands: true,
        options: Options::comparison(args.strict),
    };
    args.answers.check()?;
    let comparison = Comparison::prepare(&question)?;
    let run = comparison.of_head().to_owned();
    kept(
        comparison.conclude(&args.answers),
        &args.keep,
        &run,
        args.measure.quiet,
    )
}

fn gate(args: &GateArgs) -> Ended {
    args.answers.check()?;
    let mut ready = Ready::prepare(&args.measure, None)?;
    let options = Options::gate(args.strict);
    let name = args
        .baseline
        .clone()
        .unwrap_or_else(|| ready.suite.name.clone());
    let store = Store::new(&args.measure.baselines);
    let mut base = match find(&store, &name, &ready)? {
        Some(base) => Some(base),
        // Limits need none.
        None if args.measure.structure_only && args.baseline.is_none() => None,
        None => {
            return Err(Stop::NotJudged(anyhow!(
                "there is no baseline `{name}` in {}; make one from a run that passed:\n  {}",
                store.root().display(),
                making(&store, &name, &ready),
            )));
        }
    };
    if let Some(base) = &mut base {
        // A part of the suite is held against the same part of the baseline.
        base.side.keep(&ready.header.suite.filter);
        refuse_before_measuring(&ready, &base.side, &options, &store)?;
    }
    let id = base.as_ref().map(|base| base.id.clone());
    let mut writer = ready.measure(id)?;
    if let Some(base) = &base {
        let mut batches = AgainstStored {
            ready: &mut ready,
            writer: &mut writer,
            base,
            options: &options,
        };
        decide(&mut batches, args.budget)?;
    }
    let ended = reporting::conclude(
        &ready,
        &ready.directory,
        writer,
        base.as_ref(),
        &options,
        &args.answers,
    );
    kept(ended, &args.keep, &ready.directory, ready.quiet())
}

/// The baseline of this name for this machine, or else for another; `None` where there is
/// none at all.
fn find(store: &Store, name: &str, ready: &Ready) -> Result<Option<Base>, Stop> {
    let own = store.of_machine(name, &ready.header.machine.name);
    // One of another machine is read too, so that what differs can be said.
    let path = match own.map_err(Stop::usage)? {
        Some(path) => Some(path),
        None => store.files(name).map_err(Stop::usage)?.into_iter().next(),
    };
    let Some(path) = path else {
        return Ok(None);
    };
    let id = BaseId {
        name: name.to_owned(),
        sum: checksum(&path),
    };
    let side = sides::whole_baseline(&path)?;
    Ok(Some(Base { id, side }))
}

/// A comparison that will be refused need not be measured for.
fn refuse_before_measuring(
    ready: &Ready,
    base: &Side,
    options: &Options,
    store: &Store,
) -> Result<(), Stop> {
    let Some(lines) = incomparable(ready, base, options, ["there", "here"]) else {
        return Ok(());
    };
    Err(Stop::NotJudged(anyhow!(
        "baseline `{}` cannot be compared with this machine and suite (nothing was measured):\n\
         {lines}\nmake one here:\n  {}",
        base.label,
        making(store, &base.label, ready),
    )))
}

/// The commands that make a baseline of this suite.
fn making(store: &Store, name: &str, ready: &Ready) -> String {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    let run = [
        words(&["regatta", "run"]),
        ready.header.suite.arguments.clone(),
    ]
    .concat();
    let directory = ready.directory.display().to_string();
    let mut save = words(&["regatta", "baseline"]);
    save.extend(in_folder(store.root()));
    save.extend(words(&["save", name, &directory]));
    format!("{}\n  {}", shell_command(&run), shell_command(&save))
}
