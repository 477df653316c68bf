//! Where a judgement goes: the terminal, a report folder, files of chosen formats.

use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::measuring::Ready;
use super::{Ended, Stop, note, print, print_as_made};
use regatta::judge;
use regatta::judge::judgement::{Judgement, VerdictOutcome};
use regatta::measure::laps::Laps;
use regatta::record::entries::Entries;
use regatta::record::run_file::{Known, RunWriter};
use regatta::record::side::Side;
use regatta::record::spent::Phase;
use regatta::record::types::{BaseId, Judged, RunEnd};
use regatta::report::timings::Timings;
use regatta::report::{self, Format, Report, files, terminal};

/// How the answer is printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct Show {
    /// Print the judgement as JSON
    #[arg(long)]
    pub json: bool,

    /// Print every case, not only those that matter
    #[arg(long)]
    pub all: bool,
}

/// Report files of chosen formats.
#[derive(Args, Clone, Debug)]
pub struct Outputs {
    /// Write one self-contained page
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,

    /// Write cases.csv and samples.csv into a folder
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,

    /// Write Markdown, for a comment on a pull request
    #[arg(long, value_name = "PATH")]
    markdown: Option<PathBuf>,

    /// Write JUnit XML, for the test view of a CI system
    #[arg(long, value_name = "PATH")]
    junit: Option<PathBuf>,
}

impl Outputs {
    fn wanted(&self) -> impl Iterator<Item = (Format, &PathBuf)> {
        let pairs = [
            (Format::Html, &self.html),
            (Format::Csv, &self.csv),
            (Format::Markdown, &self.markdown),
            (Format::Junit, &self.junit),
        ];
        pairs
            .into_iter()
            .filter_map(|(format, path)| Some((format, path.as_ref()?)))
    }

    /// The page that was asked for.
    pub fn html(&self) -> Option<&Path> {
        self.html.as_deref()
    }

    /// True when a file was asked for.
    pub fn any(&self) -> bool {
        self.wanted().next().is_some()
    }

    /// True when a file was asked for that is not the page.
    pub fn beside_html(&self) -> bool {
        self.wanted().any(|(format, _)| format != Format::Html)
    }

    /// True when one goes to standard output, which nothing else may then go to.
    pub fn prints(&self) -> bool {
        self.wanted().any(|(_, path)| is_stdout(path))
    }

    /// Finds out before any work whether the files can be written, each in a place of its own.
    ///
    /// # Errors
    /// The first that cannot: exit code 2.
    pub fn check(&self) -> Result<(), Stop> {
        let mut taken: Vec<PathBuf> = Vec::new();
        for (format, path) in self.wanted() {
            let targets = match format {
                Format::Csv if is_stdout(path) => {
                    return Err(Stop::Usage(anyhow!(
                        "--csv -: these are two tables; name a folder for them"
                    )));
                }
                Format::Csv => vec![path.join("cases.csv"), path.join("samples.csv")],
                _ => vec![path.clone()],
            };
            for target in targets {
                if !is_stdout(&target) {
                    files::check_writable(&target).map_err(Stop::usage)?;
                }
                let place = files::place(&target);
                if taken.contains(&place) {
                    return Err(Stop::Usage(anyhow!(
                        "{} is named for two formats",
                        target.display()
                    )));
                }
                taken.push(place);
            }
        }
        Ok(())
    }

    /// Writes the files asked for.
    ///
    /// # Errors
    /// When one cannot be written: exit code 3.
    pub fn write(&self, report: &Report) -> Result<(), Stop> {
        for (format, path) in self.wanted() {
            if format == Format::Csv {
                files::write_format(path, format, report).map_err(Stop::not_judged)?;
                continue;
            }
            for name in report::names(format) {
                match is_stdout(path) {
                    true => print_as_made(|out| report::write(format, report, name, out))?,
                    false => {
                        let make = |out: &mut dyn Write| report::write(format, report, name, out);
                        files::write_as_made(path, make).map_err(Stop::not_judged)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// `-` stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a document where the command line wants it.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn put(path: &Path, text: String) -> Result<(), Stop> {
    match is_stdout(path) {
        true => print(text),
        false => files::write(path, &text).map_err(Stop::not_judged),
    }
}

/// Writes the page and the tables into a report folder.
///
/// # Errors
/// When one cannot be written: exit code 3.
pub fn write(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, Stop> {
    files::write_all(folder, report).map_err(Stop::not_judged)
}

/// A baseline that a run is held against.
pub struct Base {
    /// Which, as the run's file names it.
    pub id: BaseId,
    /// What it holds.
    pub side: Side,
}

/// Judges a run that was measured to its end, writes its reports into a folder, ends its file
/// and prints the answer.
///
/// The exit code is the verdict's whatever becomes of the output: what is worse is worse
/// though nobody could be told. Where nothing is worse and the answer could not be written
/// down, it is 3. A run whose reports could not be written is not ended: the same command
/// judges it again without measuring.
///
/// # Errors
/// When the run's file cannot be read back.
pub fn conclude(
    ready: &Ready,
    folder: &Path,
    mut writer: RunWriter,
    base: Option<&Base>,
    options: &judge::Options,
    show: &Show,
) -> Ended {
    let mut laps = Laps::begin(&ready.clock);
    let label = ready.label();
    let path = writer.path().to_owned();
    let read = Side::read(&path, &label, &mut Known::default());
    let (mut run, side) = read.map_err(Stop::not_judged)?;
    let judgement = judge::judge(&side, base.map(|base| &base.side), options);
    laps.end(Phase::Judging);
    let mut end = RunEnd {
        finished: Timestamp::now(),
        judged: Some(Judged {
            base: base.map(|base| base.id.clone()),
            outcome: judgement.verdict.outcome,
            reasons: judgement.verdict.reasons.clone(),
        }),
        spent: ready.judging.clone(),
    };
    run.end = Some(end.clone());
    let report = Report {
        judgement: &judgement,
        head: &run,
        side: Cow::Borrowed(&side),
        entries: Entries::Stored(&path),
        base: base.map(|base| &base.side),
    };
    let written = write(folder, &report);
    laps.end(Phase::Reporting);
    end.spent.extend(laps.stretch());
    let written = written.and_then(|_| writer.finish(end.clone()).map_err(Stop::not_judged));
    let page = folder.join("index.html");
    match &written {
        Ok(()) => ready.say(format!("report: {}", page.display())),
        Err(_) => note(
            "the reports could not be written; the run is kept, and the same command judges it \
             again without measuring",
        ),
    }
    let told = answer(&report, show);
    run.end = Some(end);
    // Whoever asks for no word on it need not wait for it either.
    if !ready.quiet()
        && let Ok(Some(timings)) = Timings::of(&run, Entries::Stored(&path))
    {
        ready.say(timings.said());
    }
    ended(&judgement, [written, told])
}

/// The exit code of a verdict, after telling what kept it from being told.
fn ended(judgement: &Judgement, told: [Result<(), Stop>; 2]) -> Ended {
    let outcome = judgement.verdict.outcome;
    let mut untold = false;
    for stop in told.into_iter().filter_map(Result::err) {
        match stop {
            // Whoever read the output went away: nothing is wrong with the answer.
            Stop::Unread => {}
            Stop::Usage(error) | Stop::NotJudged(error) => {
                untold = true;
                note(format!("the verdict is: {}; {error:#}", outcome.text()));
            }
        }
    }
    match (outcome, untold) {
        (VerdictOutcome::Passed, true) => Ok(VerdictOutcome::NotJudged.exit_code()),
        (outcome, _) => Ok(outcome.exit_code()),
    }
}

/// Prints the answer to a stored run, unless a report went where it would go, and gives the
/// exit code; `files` is what came of writing its reports.
///
/// # Errors
/// None: what cannot be written or printed is told.
pub fn show(report: &Report, show: Option<&Show>, files: Result<(), Stop>) -> Ended {
    let told = show.map_or(Ok(()), |show| answer(report, show));
    ended(report.judgement, [files, told])
}

/// Prints the answer.
fn answer(report: &Report, show: &Show) -> Result<(), Stop> {
    if show.json {
        for name in report::names(Format::Json) {
            print_as_made(|out| report::write(Format::Json, report, name, out))?;
        }
        return Ok(());
    }
    let options = terminal::Options {
        colour: true,
        all: show.all,
    };
    print_as_made(|out| terminal::write(report.judgement, options, out))
}

/// Where a command ends before there is anything to judge, and JSON was asked for, says so
/// there as well.
pub fn told_as_json(ended: Ended, json: bool) -> Ended {
    let outcome = match &ended {
        Err(Stop::Usage(error)) if json => json!({ "error": format!("{error:#}") }),
        Err(Stop::NotJudged(error)) if json => json!({
            "verdict": {
                "outcome": VerdictOutcome::NotJudged,
                "reasons": [format!("{error:#}")],
            }
        }),
        _ => return ended,
    };
    // What went wrong is told on standard error in any case.
    let _ = print(format!("{outcome}\n"));
    ended
}
