//! `regatta bisect`: which version made it slower.

use std::path::{Path, PathBuf};
use std::time::Duration;

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
use regatta_measure::SetupError;
use regatta_measure::environments::{interpreter_of, released};
use regatta_measure::experiment::MeasureOptions;
use regatta_measure::laps::about;
use regatta_measure::versions::bisect::{BisectStep, Bisection, Ending, Tried, TriedOutcome};
use regatta_measure::versions::journal::{BisectQuestion, Journal};
use regatta_measure::versions::releases::{Pip, moved};
use regatta_measure::versions::search::Towards;
use regatta_measure::versions::{Pin, Spec, Version, row};
use regatta_report::bisect::{Bisect, page, reading, text};
use regatta_report::files;
use regatta_report::text::{shell_command, shell_quoted};
use regatta_worker::units::{Share, counted};

/// Find the release that made a case slower
///
/// Measures versions in pairs with the good end, as `regatta compare` does, and splits the interval
/// with the largest change first. The final comparison is of the version found with the one before
/// it. Versions that cannot be made, built or run are skipped and named. Exits 0 when one version
/// is named, 3 when none can be: the ends do not differ, several versions share the change, or
/// only versions that do not run lie between. A bisect that was stopped resumes. For commits, use
/// `git bisect run` with `regatta compare` (docs/BISECT.md).
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  \
    regatta bisect jax-sdpa --good pypi:jax==0.4.38 --bad pypi:jax==0.6.2\n  \
    regatta bisect jax-sdpa --good pypi:jax==0.4.38 --bad pypi:jax==0.10.2 --fixed")]
pub struct BisectArgs {
    /// The older release: pypi:NAME==VERSION
    #[arg(long, value_name = "SPEC")]
    good: Spec,

    /// A newer release of the same package
    #[arg(long, value_name = "SPEC")]
    bad: Spec,

    /// Find the version that is good again
    #[arg(long)]
    fixed: bool,

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
    reporting::report_error_as_json(search(args), args.json)
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
    if let (Spec::Revision(good), Spec::Revision(bad)) = (&args.good, &args.bad) {
        return Err(by_git(good, bad, &suite_words(args, &request)));
    }
    let environment = args.measure.environment.as_deref();
    let pip = |pins: &[Pin]| pip(&suite, environment, pins);
    let row = row(&args.good, &args.bad, pip)?;
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
    report_before(before, &say);
    if journal.tried().is_empty() {
        let between = counted(row.len().saturating_sub(2), "version");
        say(format!("{between} between {} and {}", args.good, args.bad));
    }
    let metric = match args.cpu_time {
        true => Metric::CpuTime,
        false => Metric::Device,
    };
    let bisection = Bisection {
        row: &row,
        towards: question.towards,
        metric,
        threshold: args.threshold,
        measure: &request,
        directory: &directory,
    };
    let ending = bisection.search(&mut journal, &|step, tried, left| {
        say(line(step, tried, &row, left));
    })?;
    let moved = match &ending {
        Ending::Found(found) => {
            let locks = [
                bisection.lock(&found.before)?,
                bisection.lock(&found.after)?,
            ];
            let [before, after] = locks.map(Option::unwrap_or_default);
            moved(&before, &after)
        }
        _ => Vec::new(),
    };
    let words = suite_words(args, &request);
    let answer = Bisect {
        question: &question,
        row: &row,
        tried: journal.tried(),
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
        row: row.iter().map(|version| version.spec.clone()).collect(),
        processor: args.cpu_time,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Commits are git's to search: how to have it do so.
fn by_git(good: &str, bad: &str, suite: &[String]) -> Stop {
    let compare = ["regatta".to_owned(), "compare".to_owned()];
    let compare = shell_command(&[&compare[..], suite].concat());
    let script = format!(
        "{compare} --base git:{good} --head git:BISECT_HEAD; code=$?; test $code -lt 2 || exit 125; \
         exit $code"
    );
    Stop::Usage(anyhow!(
        "git searches commits, and regatta compares each with the good one:\n  \
         git bisect start --no-checkout --first-parent {bad} {good}\n  \
         git bisect run sh -c {}",
        shell_quoted(&script)
    ))
}

/// The pip of the interpreter that releases would be made with.
fn pip(suite: &Suite, default: Option<&str>, pins: &[Pin]) -> Result<Pip, SetupError> {
    let requirements: Vec<String> = pins.iter().map(Pin::to_string).collect();
    let (_, environment) = released(suite, default, &requirements)?;
    let options = environment.pip_options();
    let options = options.flat_map(|line| line.split_whitespace().map(str::to_owned));
    Ok(Pip {
        interpreter: PathBuf::from(interpreter_of(&environment)),
        options: options.collect(),
    })
}

/// Says what became of the bisect that was there before.
fn report_before(before: Before, say: &dyn Fn(String)) {
    match before {
        Before::Nothing | Before::Resumed { entries: 0, .. } => {}
        Before::Resumed { entries, .. } => say(format!(
            "resuming: kept {} of this bisect",
            counted(entries, "comparison")
        )),
        Before::Kept { path, because } => say(format!(
            "a bisect before this one is kept as {} ({})",
            path.display(),
            because.join("; ")
        )),
    }
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
fn line(step: &BisectStep, tried: &Tried, row: &[Version], left: Duration) -> String {
    let found = match &step.case {
        Some(case) => tried.reading(case),
        None => tried.outcome.largest(),
    };
    let said = match (&tried.outcome, found) {
        (TriedOutcome::Unusable { reason, .. }, _) => format!("skipped: {reason}"),
        (_, Some(of)) => match (reading(of), of.reading) {
            (Some(said), Some(reading)) => format!("{said}, {}", reading.word.text()),
            _ => format!("skipped: {}", of.reason.as_deref().unwrap_or(NO_TIME)),
        },
        (outcome, None) => format!("skipped: {}", outcome.first_reason().unwrap_or(NO_TIME)),
    };
    let against = match step.low {
        0 => String::new(),
        low => format!(" against {}", row[low].name),
    };
    let left = match step.left {
        1 => String::new(),
        more => format!(" ({} more, {})", more - 1, about(left)),
    };
    format!("{}{against} ... {said}{left}", row[step.high].name)
}
