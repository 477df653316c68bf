//! `regatta bisect`: which version made it slower.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::measure_args::MeasureArgs;
use super::{Ended, Stop, note, print, reporting, watch_for};
use regatta_core::suite::Metric;
use regatta_judge::judgement::VerdictOutcome;
use regatta_measure::experiment::MeasureOptions;
use regatta_measure::laps::about;
use regatta_measure::versions::bisect::{CaseReading, Ending, Tried, bisect};
use regatta_measure::versions::releases::row;
use regatta_measure::versions::search::Towards;
use regatta_measure::versions::{Spec, Version};
use regatta_report::bisect::{Bisect, page, reading, text};
use regatta_report::files;
use regatta_report::text::{shell_command, shell_quoted};
use regatta_worker::case::CaseId;
use regatta_worker::units::counted;

/// Find the release that made a case slower
///
/// Measures versions in pairs with the good end, as `regatta compare` does, and splits the interval
/// with the largest change first. The final comparison is of the version found with the one before
/// it. Versions that cannot be made, built or run are skipped and named. Exits 0 when one version
/// is named, 3 when none can be: the ends do not differ, several versions share the change, or
/// only versions that do not run lie between. A bisect that was stopped resumes. For commits, use
/// `git bisect run` with `regatta compare` (docs/VERSIONS.md).
#[derive(Args, Debug)]
#[command(
    override_usage = "regatta bisect [OPTIONS] --good <SPEC> --bad <SPEC> <SUITE> [-- <ARGS>]",
    after_long_help = "Examples:\n  \
    regatta bisect jax-sdpa --good pypi:jax==0.4.38 --bad pypi:jax==0.6.2\n  \
    regatta bisect jax-sdpa --good pypi:jax==0.4.38 --bad pypi:jax==0.10.2 --fixed"
)]
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

    /// Compare CPU times, not wall-clock times
    ///
    /// Other programs on its cores do not change it; waiting is not in it. Where such programs
    /// hide the wall-clock time and CPU time shows a change, it decides without this option too.
    #[arg(long)]
    cpu_time: bool,

    /// Machine-readable output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    measure: MeasureArgs,
}

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
        refuse!("--structure-only takes no times, which bisect compares; leave it out");
    }
    let request = args.measure.request();
    let suite = request.load()?;
    let usual = || Path::new("reports").join(format!("{}-bisect", suite.name));
    let directory = args.measure.out.clone().unwrap_or_else(usual);
    if let (Spec::Revision(good), Spec::Revision(bad)) = (&args.good, &args.bad) {
        return Err(by_git(good, bad, &suite_words(args, &request)));
    }
    let environment = args.measure.environment.as_deref();
    let row = row(&args.good, &args.bad, &suite, environment)?;
    files::check_writable(&directory.join(PAGE)).map_err(Stop::usage)?;
    let say = |text: String| {
        if !args.measure.quiet {
            note(text);
        }
    };
    let between = counted(row.len().saturating_sub(2), "version");
    say(format!("{between} between {} and {}", args.good, args.bad));
    let (towards, metric) = (
        if args.fixed {
            Towards::Fixed
        } else {
            Towards::Bad
        },
        if args.cpu_time {
            Metric::CpuTime
        } else {
            Metric::Device
        },
    );
    let tell = |tried: &Tried, case: Option<&CaseId>, more, left| {
        say(line(tried, case, &row, more, left));
    };
    let searched = bisect(&row, towards, metric, &request, &directory, &tell)?;
    let answer = Bisect {
        suite: &suite.name,
        towards,
        searched: &searched,
        row: &row,
        arguments: &suite_words(args, &request),
    };
    let path = directory.join(PAGE);
    let html = page(&answer).map_err(Stop::not_judged)?;
    files::write(&path, &html).map_err(Stop::not_judged)?;
    if args.json {
        print(format!("{}\n", answer.json().map_err(Stop::not_judged)?))?
    } else {
        print(text(&answer))?
    };
    say(format!("report: {}", path.display()));
    Ok(match &searched.ending {
        Ending::Found(found) if found.suspects.is_empty() => 0,
        _ => VerdictOutcome::Inconclusive.exit_code(),
    })
}

/// The error for a search among commits, with the `git bisect` commands that do it.
fn by_git(good: &str, bad: &str, suite: &[String]) -> Stop {
    let compare = ["regatta".to_owned(), "compare".to_owned()];
    let compare = shell_command(&[&compare[..], suite].concat());
    let script = format!(
        "{compare} --base git:{good} --head git:BISECT_HEAD; code=$?; test $code -lt 2 || exit 125; \
         exit $code"
    );
    Stop::Usage(format!(
        "git searches commits, and regatta compares each with the good one:\n  \
         git bisect start --no-checkout --first-parent {bad} {good}\n  \
         git bisect run sh -c {}",
        shell_quoted(&script)
    ))
}

/// The arguments that select the suite and its cases for `regatta compare`.
fn suite_words(args: &BisectArgs, request: &MeasureOptions) -> Vec<String> {
    let mut words = request.arguments();
    for pattern in &args.measure.filter {
        words.extend(["--filter".to_owned(), pattern.clone()]);
    }
    words
}

/// A comparison as a line: its result, and the time that the `more` others take.
fn line(
    tried: &Tried,
    case: Option<&CaseId>,
    row: &[Version],
    more: usize,
    left: Duration,
) -> String {
    let case_reading = match case {
        Some(case) => tried.reading(case),
        None => tried.largest(),
    };
    let result = case_reading.and_then(|case: &CaseReading| {
        let word = case.word()?.name();
        Some(format!("{}, {word}", reading(case)?))
    });
    let result = result.unwrap_or_else(|| {
        let why = tried.why_skipped(case);
        let why = why.unwrap_or_else(|| "it gave no time".to_owned());
        format!("skipped: {why}")
    });
    let against = match tried.low {
        0 => String::new(),
        low => format!(" against {}", row[low].name),
    };
    let left = match more {
        0 => String::new(),
        more => format!(" ({more} more, {})", about(left)),
    };
    format!("{}{against} ... {result}{left}", row[tried.high].name)
}
