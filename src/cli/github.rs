//! What GitHub Actions shows of an answer: annotations, and the summary of a step.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Stop, note, print, print_as_made};
use regatta_report::{self as report, Format, Report, files};

/// The file that a step's summary is appended to.
const SUMMARY: &str = "GITHUB_STEP_SUMMARY";
/// A summary of more bytes than these is not shown at all.
const LARGEST: u64 = 1 << 20;

fn summary() -> Option<PathBuf> {
    let path = env::var_os(SUMMARY).filter(|path| !path.is_empty());
    path.map(PathBuf::from)
}

/// True for the file of this step's summary, which others append to as well.
pub fn is_summary(path: &Path) -> bool {
    summary().is_some_and(|summary| files::place(&summary) == files::place(path))
}

/// Appends the report to a step's summary, where it has room.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn summarise(report: &Report, path: &Path) -> Result<(), Stop> {
    let documents = report::render(Format::Markdown, report).map_err(Stop::not_judged)?;
    for document in documents {
        let text = format!("{}\n", document.text);
        if !files::append(path, &text, LARGEST).map_err(Stop::not_judged)? {
            note(
                "the summary of this step is full (1 MiB), and the report is not in it; give it \
                 a step of its own, or name a file: --output markdown=report.md",
            );
        }
    }
    Ok(())
}

/// Annotates why there is no report. Nobody may be reading it.
pub fn complain(why: &str, aside: bool) {
    let line = report::complaint(why);
    match aside {
        false => drop(print(format!("{line}\n"))),
        true => note(line),
    }
}

/// Appends a report to the step's summary, where there is one.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn fill_summary(report: &Report) -> Result<(), Stop> {
    summary().map_or(Ok(()), |path| summarise(report, &path))
}

/// Prints the annotations of a report, to standard error where standard output holds JSON.
///
/// # Errors
/// When one cannot be written: exit code 3.
pub fn annotate(report: &Report, aside: bool) -> Result<(), Stop> {
    for name in report::names(Format::Github) {
        let make = |out: &mut dyn Write| report::write(Format::Github, report, name, out);
        match aside {
            false => print_as_made(make)?,
            true => {
                let mut bytes = Vec::new();
                make(&mut bytes).map_err(Stop::not_judged)?;
                String::from_utf8_lossy(&bytes).lines().for_each(note);
            }
        }
    }
    Ok(())
}
