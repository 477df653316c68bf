//! Stored traces: what `regatta report` shows of one, and `regatta diff` of two.

mod kineto;

use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::outputs::{OF_TRACES, Outputs, is_stdout, put};
use super::{Ended, Stop, note, print, print_as_made, print_json};
use regatta_core::record::trace::{Trace, file};
use regatta_judge::trace::{Analysis, analyse, compare, runs_of};
use regatta_report::trace as shown;
use regatta_report::{Format, files};
use regatta_worker::units::Share;

/// Writes the files of a trace that were asked for.
///
/// # Errors
/// When one cannot be written: exit code 3.
pub fn write(outputs: &Outputs, trace: &Trace, analysis: &Analysis) -> Result<(), Stop> {
    for (format, path) in outputs.wanted() {
        match format {
            Format::Perfetto => write_perfetto(path, trace)?,
            _ => keep_page(
                path,
                shown::page(trace, analysis).map_err(Stop::not_judged)?,
            )?,
        }
    }
    Ok(())
}

fn keep_page(path: &Path, text: String) -> Result<(), Stop> {
    put(path, text)?;
    note(format!("report: {}", path.display()));
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

/// `regatta report TRACE`: prints its table, or writes the files that were asked for.
///
/// # Errors
/// See [`super::Stop`].
pub fn report(path: &str, outputs: &Outputs) -> Ended {
    outputs.check("a trace", &OF_TRACES)?;
    let trace = read(Path::new(path))?;
    let analysis = analyse(&trace.recording);
    match outputs.any() {
        true => write(outputs, &trace, &analysis)?,
        false => print(shown::table(&trace, &analysis))?,
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
    threshold: Option<Share>,
    as_json: bool,
    outputs: &Outputs,
) -> Ended {
    let (before, after) = (base.read()?, head.read()?);
    let comparison = compare((base.trace, &before), (head.trace, &after), threshold);
    for (_, page) in outputs.wanted() {
        let text = shown::compared(&comparison, &before, &after).map_err(Stop::not_judged)?;
        keep_page(page, text)?;
    }
    match as_json {
        true => {
            print_json(&comparison)?;
        }
        false if outputs.prints() => {}
        false => print(shown::difference(&comparison, true))?,
    }
    Ok(comparison.verdict.outcome.exit_code())
}
