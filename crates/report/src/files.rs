//! Writes rendered reports into files, atomically.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use super::figures::{Figure, file_names};
use super::{Format, RenderError, Report, names};
use regatta_core::output::{OutputError, draft, is_special, resolved};
pub use regatta_core::output::{check_folder, check_writable, place};

/// The reason why a report could not be written. The message names the path and the fix.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The path cannot be written.
    #[error(transparent)]
    Target(#[from] OutputError),
    /// The report could not be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
}

fn unwritten(path: &Path, error: io::Error) -> WriteError {
    WriteError::Target(OutputError::advised(path, &error))
}

/// Writes a file atomically: a reader sees the old file or the new one.
///
/// # Errors
/// When its directory cannot be created or written.
pub fn write(path: &Path, text: &str) -> Result<(), WriteError> {
    write_as_made(path, |out| Ok(out.write_all(text.as_bytes())?))
}

/// Writes a file like [`write()`], from a text that is rendered directly into it.
///
/// # Errors
/// As [`write()`], or when rendering fails.
pub fn write_as_made(
    path: &Path,
    make: impl FnOnce(&mut dyn Write) -> Result<(), RenderError>,
) -> Result<(), WriteError> {
    // The error names the requested path, not the target of a link.
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

/// Appends a text to a file to which others append as well, unless it would grow beyond `most`
/// bytes; then returns false.
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

/// Writes every document of a format into a directory, and returns their paths.
///
/// # Errors
/// When one cannot be rendered or written. Earlier ones are then written.
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

/// Writes the files of figures into a folder, and removes files of other figures that an earlier
/// report left there.
///
/// # Errors
/// When one cannot be drawn or written. Earlier ones are then written.
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

/// Writes the reports of every run, `index.html`, `cases.csv` and `samples.csv`, in parallel, since
/// each may take seconds for many cases. Returns the paths, the page first.
///
/// # Errors
/// The first error. The other files are written.
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
