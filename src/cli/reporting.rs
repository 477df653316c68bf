//! The outputs of a judgement: the terminal, a report folder, files of chosen formats.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::measure_args::MeasureArgs;
use super::outputs::{Outputs, annotate, complain, fill_summary};
use super::{Ended, Stop, note, on_save, print, print_as_made, print_json};
use regatta_core::record::run_file::RUN_FILE;
use regatta_core::record::{Judged, RunEnd, RunHeader, now};
use regatta_judge::judgement::{Judgement, VerdictOutcome};
use regatta_measure::experiment::MeasuredRun;
use regatta_measure::laps::Laps;
use regatta_report::judgement::terminal;
use regatta_report::summary::took;
use regatta_report::{self as report, Format, Report, files};

/// The form of the printed answer, and its further outputs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct Answers {
    /// Print the judgement as JSON
    #[arg(long)]
    pub json: bool,

    /// Print every case, not only those that matter
    #[arg(long)]
    pub all: bool,

    /// The files it goes to.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// The arguments of a command that measures and judges.
#[derive(Args, Debug)]
pub struct JudgedArgs {
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Measure again whenever a file of the checkout is saved, until Ctrl-C
    ///
    /// Files that git tracks count, and code and suites that it does not ignore; one that is saved
    /// while something is measured has it measured again. On a GPU libraries stay imported, and the
    /// next workers wait with the device open, half a GiB of its memory each.
    #[arg(long, hide_short_help = true)]
    watch: bool,

    #[command(flatten)]
    pub answers: Answers,
}

impl JudgedArgs {
    /// Runs a command, or with `--watch` runs it each time that a file is saved.
    ///
    /// # Errors
    /// See [`super::Stop`].
    pub fn run(&self, measured: impl Fn() -> Ended) -> Ended {
        let answer = || {
            let ended = self.answers.check().and_then(|()| measured());
            report_stop(ended, &self.measure.suite, &self.answers)
        };
        if self.watch {
            on_save::repeat(&self.measure.pool, self.measure.out.as_deref(), answer)
        } else {
            answer()
        }
    }
}

impl Answers {
    /// Checks before any work that the files can be written, and that only one document goes to
    /// standard output.
    ///
    /// # Errors
    /// The first fault: exit code 2.
    pub fn check(&self) -> Result<(), Stop> {
        self.outputs.check_of_run(self.json)?;
        if self.outputs.prints() && self.outputs.annotates() {
            refuse!(
                "--output github=- and a report named `-` both go to standard output; name a file \
                 for one"
            );
        }
        Ok(())
    }

    /// Prints the answer, unless a file goes to standard output.
    fn print(&self, report: &Report) -> Result<(), Stop> {
        if self.outputs.prints() {
            Ok(())
        } else {
            answer(report, self)
        }
    }

    /// Writes the files and annotates.
    fn write(&self, report: &Report) -> [Result<(), Stop>; 2] {
        let files = self.outputs.write(report);
        let note = || {
            if self.outputs.annotates() {
                if !self.outputs.summarises() {
                    fill_summary(report)?;
                }
                annotate(report, self.json)?;
            }
            Ok(())
        };
        [files, note()]
    }
}

/// Writes the page and the tables into a report folder.
///
/// # Errors
/// When one cannot be written: exit code 3.
pub fn write(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, Stop> {
    files::write_all(folder, report).map_err(Stop::not_judged)
}

/// Prints the answer for a measured run, writes its reports into a folder, and ends its file.
///
/// The exit code is the verdict's even if the output fails, because a regression stays one. If
/// nothing is worse and the answer could not be written, it is 3. A run whose reports could not be
/// written is not ended, so the same command judges it again without measuring.
///
/// # Errors
/// None: a failure to write or print is reported.
pub fn conclude(measured: &mut MeasuredRun, answers: &Answers) -> Ended {
    let mut laps = Laps::begin();
    let quiet = measured.arm.quiet;
    let say = |text: String| {
        if !quiet {
            note(text);
        }
    };
    let verdict = &measured.judgement.verdict;
    let end = RunEnd {
        finished: now(),
        judged: Some(Judged {
            base: measured.base.as_ref().map(|base| base.id.clone()),
            outcome: verdict.outcome,
            reasons: verdict.reasons.clone(),
        }),
    };
    measured.run.end = Some(end.clone());
    let file = [measured.file()];
    let base_files = base_files(&file[0], &measured.run.header);
    let report = Report {
        judgement: &measured.judgement,
        head: &measured.run,
        side: &measured.head,
        files: &file,
        base: measured.base.as_ref().map(|base| &base.side),
        base_files: &base_files,
    };
    let answered = answers.print(&report);
    let written = write(&measured.folder, &report);
    let mut spent = measured.arm.spent;
    spent.reporting += laps.end();
    let written = written.and_then(|_| measured.files.finish(end));
    let page = measured.folder.join("index.html");
    match &written {
        Ok(()) => say(format!("report: {}", page.display())),
        Err(_) => note(
            "the reports could not be written; the run is kept, and the same command judges it \
             again without measuring",
        ),
    }
    let others = answers.write(&report);
    let all = measured.arm.began.elapsed().into();
    say(took(all, spent, measured.spent_on_base));
    let results = [answered, written].into_iter().chain(others);
    ended(&measured.judgement, results)
}

/// The file of the base that was measured in pairs with this run, which is beside it.
pub fn base_files(head: &Path, header: &RunHeader) -> Vec<PathBuf> {
    let folder = head.parent().filter(|folder| folder.ends_with("head"));
    let base = folder.map(|folder| folder.with_file_name("base").join(RUN_FILE));
    let base = base.filter(|base| header.pairing.is_some() && base.is_file());
    base.into_iter().collect()
}

/// Reports the parts of the answer that could not be written, and returns the exit code of the
/// verdict.
fn ended(judgement: &Judgement, results: impl IntoIterator<Item = Result<(), Stop>>) -> Ended {
    let outcome = judgement.verdict.outcome;
    let mut failed = false;
    for stop in results.into_iter().filter_map(Result::err) {
        failed = true;
        note(format!("the verdict is: {}; {stop}", outcome.text()));
    }
    match (outcome, failed) {
        (VerdictOutcome::Passed, true) => Ok(VerdictOutcome::Inconclusive.exit_code()),
        (outcome, _) => Ok(outcome.exit_code()),
    }
}

/// Prints and writes the answer for a stored run, and returns the exit code.
///
/// # Errors
/// None: a failure to write or print is reported.
pub fn show(report: &Report, answers: &Answers) -> Ended {
    let answered = std::iter::once(answers.print(report));
    ended(report.judgement, answered.chain(answers.write(report)))
}

/// Prints the answer.
fn answer(report: &Report, answers: &Answers) -> Result<(), Stop> {
    if answers.json {
        for name in report::names(Format::Json) {
            print_as_made(|out| report::write(Format::Json, report, name, out))?;
        }
        return Ok(());
    }
    print_as_made(|out| terminal(report.judgement, answers.all).write(true, out))
}

/// If a command ends before judging, reports the reason as JSON, in the files and as an annotation,
/// as far as these were requested.
fn report_stop(ended: Ended, suite: &str, answers: &Answers) -> Ended {
    let (Err(stop), outputs) = (&ended, &answers.outputs) else {
        return ended;
    };
    let json = answers.json;
    if outputs.annotates() {
        complain(&stop.to_string(), json);
    }
    let refusal = Judgement::refused(suite, stop.to_string());
    if stop.exit_code() == 2 {
        return report_error_as_json(ended, json);
    }
    outputs.write_refusal(&refusal);
    if json && let Ok(Some(text)) = report::render_refusal(Format::Json, &refusal) {
        // Errors are ignored, because standard error has the reason in any case.
        let _ = print(text);
    }
    ended
}

/// If a command ends before its answer and JSON was requested, prints the reason as JSON.
pub fn report_error_as_json(ended: Ended, json: bool) -> Ended {
    if let (Err(stop), true) = (&ended, json) {
        let answer = json!({ "error": stop.to_string(), "exit_code": stop.exit_code() });
        let _ = print_json(&answer);
    }
    ended
}
