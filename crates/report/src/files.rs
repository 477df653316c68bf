//! The edge: rendered reports become files, whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use super::figures::{Figure, file_names};
use super::{Format, RenderError, Report, names};
use regatta_core::output::{OutputError, draft, is_special, resolved};
pub use regatta_core::output::{check_folder, check_writable, place};

/// Why a report could not be written; the message names the path and the fix.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Nothing can be written there.
    #[error(transparent)]
    Target(#[from] OutputError),
    /// There is nothing to write.
    #[error(transparent)]
    Render(#[from] RenderError),
}

fn unwritten(path: &Path, error: io::Error) -> WriteError {
    WriteError::Target(OutputError::advised(path, &error))
}

/// Writes a file so that a reader sees the old one or the new one, never a part.
///
/// # Errors
/// When its directory cannot be created or written.
pub fn write(path: &Path, text: &str) -> Result<(), WriteError> {
    write_as_made(path, |out| Ok(out.write_all(text.as_bytes())?))
}

/// The same of a text that is written as it is made.
///
/// # Errors
/// As [`write()`], or when it cannot be made.
pub fn write_as_made(
    path: &Path,
    make: impl FnOnce(&mut dyn Write) -> Result<(), RenderError>,
) -> Result<(), WriteError> {
    // By the name that was asked for, not where its link leads.
    let failed = |error| unwritten(path, error);
    let made = |file: &mut File| {
        let mut out = BufWriter::with_capacity(1 << 16, file);
        make(&mut out)?;
        out.flush().map_err(RenderError::Output)
    };
    let write_error = |error| match error {
        RenderError::Output(error) => failed(error),
        error => WriteError::Render(error),
    };
    if is_special(path) {
        let mut file = File::options().write(true).open(path).map_err(failed)?;
        return made(&mut file).map_err(write_error);
    }
    let mut draft = draft(&resolved(path)?)?;
    made(draft.file()).map_err(write_error)?;
    draft.keep().map_err(|error| failed(error.error))
}

/// Appends a text to a file that others append to as well, where it has room below `most` bytes
/// in all; `false` where it has none.
///
/// # Errors
/// As [`write()`].
pub fn append(path: &Path, text: &str, most: u64) -> Result<bool, WriteError> {
    let failed = |error| unwritten(path, error);
    let mut options = File::options();
    let file = options.append(true).create(true).open(path);
    let mut file = file.map_err(failed)?;
    let there = file.metadata().map_err(failed)?.len();
    if there.saturating_add(text.len() as u64) > most {
        return Ok(false);
    }
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(true)
}

/// Writes every document of a format into a directory, under their own names.
/// Returns the paths.
///
/// # Errors
/// When one cannot be rendered or written; those before it are.
pub fn write_format(
    dir: &Path,
    format: Format,
    report: &Report,
) -> Result<Vec<PathBuf>, WriteError> {
    let written = names(format).iter();
    let written = written.map(|name| write_document(dir, format, report, name));
    written.collect()
}

fn write_document(
    dir: &Path,
    format: Format,
    report: &Report,
    name: &'static str,
) -> Result<PathBuf, WriteError> {
    let path = dir.join(name);
    write_as_made(&path, |out| super::write(format, report, name, out))?;
    Ok(path)
}

/// Writes the files of figures into a folder, and removes those of other figures, which an earlier
/// report left there.
///
/// # Errors
/// When one cannot be drawn or written; those before it are.
pub fn write_figures(dir: &Path, figures: &[Figure]) -> Result<(), WriteError> {
    let mut stale: Vec<String> = file_names().collect();
    for figure in figures {
        for (name, bytes) in figure.files()? {
            write_as_made(&dir.join(&name), |out| Ok(out.write_all(&bytes)?))?;
            stale.retain(|other| *other != name);
        }
    }
    for path in stale.iter().map(|name| dir.join(name)) {
        if path.is_file() && check_writable(&path).is_ok() {
            fs::remove_file(&path).map_err(|error| unwritten(&path, error))?;
        }
    }
    Ok(())
}

/// Writes what stands beside every run, `index.html`, `cases.csv` and `samples.csv`, all at
/// once: of many cases each takes seconds. Returns the paths, the page first.
///
/// # Errors
/// The first of those that cannot be rendered or written; the others are.
pub fn write_all(dir: &Path, report: &Report) -> Result<Vec<PathBuf>, WriteError> {
    thread::scope(|scope| {
        let formats = [Format::Html, Format::Csv].into_iter();
        let all = formats.flat_map(|format| names(format).iter().map(move |name| (format, name)));
        let writing: Vec<_> = all
            .map(|(format, name)| scope.spawn(move || write_document(dir, format, report, name)))
            .collect();
        let written = writing.into_iter().map(|one| one.join());
        let written = written.map(|one| one.unwrap_or_else(|panic| resume_unwind(panic)));
        written.collect()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fixture;

    #[test]
    fn a_report_is_three_files_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("reports/quick");
        let scene = fixture::passed();
        for _ in 0..2 {
            write_all(&target, &scene.report()).unwrap();
        }
        let entries = fs::read_dir(&target).unwrap().map(Result::unwrap);
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert_eq!(names, ["cases.csv", "index.html", "samples.csv"]);
    }
}
