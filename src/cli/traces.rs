//! Stored traces: what `regatta report` shows of one, and `regatta diff` of two.

mod kineto;

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;

use super::outputs::{is_stdout, put};
use super::{Ended, Stop, note, print, print_as_made};
use regatta::judge::trace::{Analysis, analyse, compare, runs_of};
use regatta::record::trace::{Trace, file};
use regatta::report::files;
use regatta::report::trace as shown;
use regatta::units::Share;

/// Prints an answer as JSON.
///
/// # Errors
/// When it cannot be printed.
pub fn json(answer: &impl Serialize) -> Result<(), Stop> {
    let text = serde_json::to_string(answer).map_err(Stop::not_judged)?;
    print(format!("{text}\n"))
}

/// Writes the page of a trace.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn write_page(path: &Path, trace: &Trace, analysis: &Analysis) -> Result<(), Stop> {
    let text = shown::page(trace, analysis).map_err(Stop::not_judged)?;
    keep_page(path, text)
}

fn keep_page(path: &Path, text: String) -> Result<(), Stop> {
    put(path, text)?;
    note(format!("page: {}", path.display()));
    Ok(())
}

/// True when a word of the command line names a trace: regatta's, or one of PyTorch's
/// profiler.
pub fn is_trace(word: &str) -> bool {
    let path = Path::new(word);
    // A file that calls itself one is read as one, and its damage named.
    path.is_file()
        && (file::is_trace(path)
            || path.extension().is_some_and(|e| e == "trace")
            || kineto::is(path))
}

/// Reads a trace, whoever wrote it.
fn read(path: &Path) -> Result<Trace, Stop> {
    match kineto::is(path) {
        true => kineto::read(path),
        false => file::read(path).map_err(Stop::usage),
    }
}

/// `regatta report TRACE`: prints its table, or writes its page or what Perfetto opens.
///
/// # Errors
/// See [`super::Stop`].
pub fn report(path: &str, html: Option<&Path>, perfetto: Option<&Path>) -> Ended {
    if let (Some(html), Some(perfetto)) = (html, perfetto)
        && files::place(html) == files::place(perfetto)
    {
        return Err(Stop::Usage(anyhow!(
            "{} is named for two formats",
            html.display()
        )));
    }
    if let Some(file) = perfetto.filter(|file| !is_stdout(file)) {
        files::check_writable(file).map_err(Stop::usage)?;
    }
    let trace = read(Path::new(path))?;
    if let Some(file) = perfetto {
        write_perfetto(file, &trace)?;
    }
    let analysis = || analyse(&trace.recording);
    match html {
        Some(html) => write_page(html, &trace, &analysis())?,
        None if perfetto.is_some() => {}
        None => print(shown::table(&trace, &analysis()))?,
    }
    Ok(0)
}

fn write_perfetto(path: &Path, trace: &Trace) -> Result<(), Stop> {
    if is_stdout(path) {
        return print_as_made(|out| shown::perfetto(trace, out));
    }
    let written = files::write_as_made(path, |out| shown::perfetto(trace, out));
    written.map_err(Stop::not_judged)?;
    note(format!("for Perfetto: {}", path.display()));
    Ok(())
}

/// One side of a diff: a trace, and further ones of the same program.
pub struct DiffSide<'a> {
    /// What is compared in all detail.
    pub trace: &'a str,
    /// Of these the times count alone.
    pub runs: &'a [PathBuf],
}

impl DiffSide<'_> {
    fn read(&self) -> Result<Trace, Stop> {
        let mut trace = read(Path::new(self.trace))?;
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let mut known = vec![real(Path::new(self.trace))];
        for path in self.runs {
            let place = real(path);
            if known.contains(&place) {
                return Err(Stop::Usage(anyhow!(
                    "{} is named twice; a run that is counted twice says that runs do not differ",
                    path.display()
                )));
            }
            known.push(place);
            let further = read(path)?;
            if further.recording.operations.is_empty() {
                return Err(Stop::Usage(anyhow!(
                    "{} has no operation; leave it out",
                    path.display()
                )));
            }
            trace.header.earlier.extend(runs_of(&further));
        }
        Ok(trace)
    }
}

/// `regatta diff` of two traces.
///
/// # Errors
/// See [`super::Stop`].
pub fn diff(
    [base, head]: [DiffSide; 2],
    floor: Option<Share>,
    as_json: bool,
    page: Option<&Path>,
) -> Ended {
    let (before, after) = (base.read()?, head.read()?);
    let comparison = compare((base.trace, &before), (head.trace, &after), floor);
    if let Some(page) = page {
        let text = shown::compared(&comparison, &before, &after).map_err(Stop::not_judged)?;
        keep_page(page, text)?;
    }
    match as_json {
        true => json(&comparison)?,
        false if page.is_some_and(is_stdout) => {}
        false => print(shown::difference(&comparison, true))?,
    }
    Ok(comparison.verdict.outcome.exit_code())
}
