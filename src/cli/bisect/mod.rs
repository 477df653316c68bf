//! `regatta bisect`: which version made it slower.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use jiff::Timestamp;

use super::compare::share;
use super::measure_args::MeasureArgs;
use super::{Ended, Stop, note, print, reporting, watch_for};
use regatta_core::record::run_file::Before;
use regatta_core::suite::Suite;
use regatta_core::suite::rules::Metric;
use regatta_judge::judgement::VerdictOutcome;
use regatta_measure::environments::{interpreter_of, released};
use regatta_measure::experiment::MeasureOptions;
use regatta_measure::git::Checkout;
use regatta_measure::laps::about;
use regatta_measure::versions::bisect::{self, BisectStep, Ending, FoundStep, TriedOutcome};
use regatta_measure::versions::comparer::ExperimentComparer;
use regatta_measure::versions::journal::{BisectQuestion, Journal};
use regatta_measure::versions::releases::{MovedPackage, PackageIndex, Pip, moved};
use regatta_measure::versions::search::Towards;
use regatta_measure::versions::{Pin, Spec, Version, row};
use regatta_report::bisect::{Bisect, page, reading, text};
use regatta_report::files;
use regatta_worker::units::{Share, counted};

/// Find the release or the commit that made a case slower
///
/// Measures versions in pairs with the good end, as `regatta compare` does, and splits the interval
/// with the largest change first. The final comparison is of the version found with the one before
/// it. Versions that cannot be made, built or run are skipped and named. Exits 0 when one version
/// is named, 3 when none can be: the ends do not differ, several versions share the change, or
/// only versions that do not run lie between. A bisect that was stopped resumes.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  \
    regatta bisect jax-sdpa --good pypi:jax==0.4.38 --bad pypi:jax==0.6.2\n  \
    regatta bisect jax-sdpa --good pypi:jax==0.4.38 --bad pypi:jax==0.10.2 --fixed\n  \
    regatta bisect ./mine.toml --good git:v1.2 --bad git:HEAD")]
pub struct BisectArgs {
    /// The older version: pypi:NAME==VERSION or git:REVISION
    #[arg(long, value_name = "SPEC")]
    good: Spec,

    /// A newer version of the same
    #[arg(long, value_name = "SPEC")]
    bad: Spec,

    /// Find the version that is good again
    #[arg(long)]
    fixed: bool,

    /// Name a merge, not the commits that it brought
    #[arg(long)]
    first_parent: bool,

    /// The smallest change that counts
    ///
    /// 0.01 for 1 %; by default the suite's threshold.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    threshold: Option<Share>,

    /// Compare CPU times, not wall-clock times
    ///
    /// Other programs on its cores do not change it; waiting is not in it.
    #[arg(long)]
    cpu_time: bool,

    /// Machine-readable output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    measure: MeasureArgs,
}

/// What is said of a version of which nothing better is known.
const NO_TIME: &str = "it gave no time";

/// Name of the page in the report directory.
const PAGE: &str = "report.html";

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &BisectArgs) -> Ended {
    reporting::told_as_json(search(args), args.json)
}

fn search(args: &BisectArgs) -> Ended {
    watch_for("; what was compared is kept, and the same command resumes");
    if args.measure.structure_only {
        return Err(Stop::Usage(anyhow!(
            "--structure-only takes no times, which bisect compares; leave it out"
        )));
    }
    let request = args.measure.request();
    let suite = request.load()?;
    let directory = match &args.measure.out {
        Some(directory) => directory.clone(),
        None => Path::new("reports").join(format!("{}-bisect", suite.name)),
    };
    files::check_writable(&directory.join(PAGE)).map_err(Stop::usage)?;
    let git = Checkout::at(".");
    let index = index(args, &suite)?;
    let row = row(&args.good, &args.bad, index.as_ref(), &git).map_err(Stop::usage)?;
    let question = question(args, &suite, &row);
    let (mut journal, before) = Journal::open(
        &directory,
        &question,
        Timestamp::now(),
        args.measure.no_resume,
    )
    .map_err(Stop::not_judged)?;
    let say = |text: String| {
        if !args.measure.quiet {
            note(text);
        }
    };
    tell(before, &say);
    if journal.tried().is_empty() {
        let between = counted(row.len().saturating_sub(2), "version");
        say(format!("{between} between {} and {}", args.good, args.bad));
    }
    let metric = match args.cpu_time {
        true => Metric::CpuTime,
        false => Metric::Device,
    };
    let mut tried = journal.tried().to_vec();
    let mut comparer = ExperimentComparer {
        measure: &request,
        threshold: args.threshold,
        metric,
        directory: &directory,
        git: &git,
        first_parent: args.first_parent,
        journal: &mut journal,
        began: Instant::now(),
        told: 0,
        tell: &|step, left| {
            if !args.measure.quiet {
                note(line(step, left));
            }
        },
    };
    let ending = bisect::bisect(&row, question.towards, &mut tried, &mut comparer)?;
    let moved = match &ending {
        Ending::Found(found) => packages(found, args, &comparer)?,
        _ => Vec::new(),
    };
    let words = suite_words(args, &request);
    let answer = Bisect {
        question: &question,
        row: &row,
        tried: &tried,
        ending: &ending,
        moved: &moved,
        suite: &words,
    };
    let path = directory.join(PAGE);
    let html = page(&answer).map_err(Stop::not_judged)?;
    files::write(&path, &html).map_err(Stop::not_judged)?;
    match args.json {
        true => print(format!("{}\n", answer.json().map_err(Stop::not_judged)?))?,
        false => print(text(&answer))?,
    }
    say(format!("report: {}", path.display()));
    Ok(match ending.names_one() {
        true => 0,
        false => VerdictOutcome::Inconclusive.exit_code(),
    })
}

/// What is asked, as the journal has it.
fn question(args: &BisectArgs, suite: &Suite, row: &[Version]) -> BisectQuestion {
    // Whatever a comparison depends on beside its versions.
    let plan = format!(
        "{:?}",
        (
            &suite.cases,
            &suite.settings,
            &suite.rules.policy,
            &suite.overrides,
            &suite.workers,
            &suite.environments,
            &suite.build,
            args.threshold,
            &args.measure.environment,
        )
    );
    BisectQuestion {
        suite: suite.name.clone(),
        plan: format!("{:08x}", crc32fast::hash(plan.as_bytes())),
        good: args.good.to_string(),
        bad: args.bad.to_string(),
        towards: match args.fixed {
            true => Towards::Fixed,
            false => Towards::Bad,
        },
        first_parent: args.first_parent,
        row: row.iter().map(|version| version.spec.clone()).collect(),
        processor: args.cpu_time,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The pip of the interpreter that releases would be made with.
fn index(args: &BisectArgs, suite: &Suite) -> Result<Box<dyn PackageIndex>, Stop> {
    let Spec::Release(pins) = &args.good else {
        return Ok(Box::new(Pip {
            interpreter: PathBuf::from("python3"),
            options: Vec::new(),
        }));
    };
    let requirements: Vec<String> = pins.iter().map(Pin::to_string).collect();
    let default = args.measure.environment.as_deref();
    let (_, environment) = released(suite, default, &requirements).map_err(Stop::usage)?;
    Ok(Box::new(Pip {
        interpreter: PathBuf::from(interpreter_of(&environment)),
        options: environment
            .pip_options()
            .flat_map(|line| line.split_whitespace().map(str::to_owned))
            .collect(),
    }))
}

/// Says what became of the bisect that was there before.
fn tell(before: Before, say: &dyn Fn(String)) {
    match before {
        Before::Nothing | Before::Resumed { entries: 0, .. } => {}
        Before::Resumed { entries, .. } => say(format!(
            "resuming: {} of this bisect are kept",
            counted(entries, "comparison")
        )),
        Before::Kept { path, because } => say(format!(
            "a bisect before this one is kept as {} ({})",
            path.display(),
            because.join("; ")
        )),
    }
}

/// The packages whose versions changed at the step.
fn packages(
    found: &FoundStep,
    args: &BisectArgs,
    comparer: &ExperimentComparer,
) -> Result<Vec<MovedPackage>, Stop> {
    if !matches!(args.good, Spec::Release(_)) {
        return Ok(Vec::new());
    }
    let locks = (comparer.lock(&found.before)?, comparer.lock(&found.after)?);
    Ok(match locks {
        (Some(before), Some(after)) => moved(&before, &after),
        _ => Vec::new(),
    })
}

/// The suite and what of it, as `regatta compare` takes it.
fn suite_words(args: &BisectArgs, request: &MeasureOptions) -> Vec<String> {
    let mut words = request.arguments();
    for pattern in &args.measure.filter {
        words.extend(["--filter".to_owned(), pattern.clone()]);
    }
    if let Some(threshold) = args.threshold {
        words.extend(["--threshold".to_owned(), threshold.0.to_string()]);
    }
    words
}

/// A step as it is said: which, what came of it, and how long the others take.
fn line(step: &BisectStep, left: Option<Duration>) -> String {
    let found = step
        .case
        .and_then(|case| step.outcome.cases().iter().find(|of| of.case == *case));
    let said = match (step.outcome, found) {
        (TriedOutcome::Unusable { reason, .. }, _) => format!("skipped: {reason}"),
        (_, Some(of)) => match (reading(of), of.reading) {
            (Some(said), Some(reading)) => format!("{said}, {}", reading.word.text()),
            _ => format!("skipped: {}", of.reason.as_deref().unwrap_or(NO_TIME)),
        },
        (outcome, None) => format!("skipped: {}", outcome.first_reason().unwrap_or(NO_TIME)),
    };
    let against = match step.direct {
        true => format!(" against {}", step.base.name),
        false => String::new(),
    };
    let left = left.map_or(String::new(), |left| format!(" ({} left)", about(left)));
    format!(
        "{} of about {}: {}{against} ... {said}{left}",
        step.number, step.about, step.head.name
    )
}
