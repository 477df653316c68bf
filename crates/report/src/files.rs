//! The edge: rendered reports become files, whole or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use super::{Format, RenderError, Report, names};
use regatta_core::input;
use regatta_core::output::Draft;

/// Why a report could not be written; the message names the path and the fix.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A directory stands where the file should be.
    #[error(
        "cannot write {path}: it is a directory; name a file in it, for example {path}/{example}"
    )]
    IsDirectory {
        /// The target.
        path: PathBuf,
        /// A file in it.
        example: &'static str,
    },
    /// A file stands where a directory should be.
    #[error(
        "cannot write {path}: {parent} is a file, not a directory; move it away, or name another path"
    )]
    ParentIsFile {
        /// The target.
        path: PathBuf,
        /// What is in the way.
        parent: PathBuf,
    },
    /// The directory could not be created.
    #[error("cannot create the directory {path}: {error}; create it, or name another path")]
    Create {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file could not be written.
    #[error(
        "cannot write {path}: {error}; check the permissions and the free space of its directory"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The target is a run, a baseline or a trace.
    #[error(
        "cannot write {path}: a run, a baseline or a trace is there, and reports never replace one"
    )]
    Record {
        /// The target.
        path: PathBuf,
    },
    /// There is nothing to write.
    #[error(transparent)]
    Render(#[from] RenderError),
}

/// What a path leads to, alike for every way to write it: links are followed, and of a file
/// that is not there its folder is.
pub fn place(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match (fs::canonicalize(folder), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Checks that a file can be written at `path`, before hours are spent on what
/// goes into it: creates its directory, and a temporary file there.
///
/// # Errors
/// When it cannot, with what is in the way.
pub fn check_writable(path: &Path) -> Result<(), WriteError> {
    match special(path) {
        true => Ok(()),
        false => draft(&resolved(path)?).map(drop),
    }
}

/// Checks that a file can be made beside `path`, or put in its place by its own writer.
///
/// # Errors
/// As [`check_writable`], but for what is there already.
pub fn check_folder(path: &Path) -> Result<(), WriteError> {
    draft(path).map(drop)
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
    let failed = |error| WriteError::Write {
        path: path.to_owned(),
        error,
    };
    let made = |file: &mut File| {
        let mut out = BufWriter::with_capacity(1 << 16, file);
        make(&mut out)?;
        out.flush().map_err(RenderError::Output)
    };
    let told = |error| match error {
        RenderError::Output(error) => failed(error),
        error => WriteError::Render(error),
    };
    if special(path) {
        let mut file = File::options().write(true).open(path).map_err(failed)?;
        return made(&mut file).map_err(told);
    }
    let mut draft = draft(&resolved(path)?)?;
    made(draft.file()).map_err(told)?;
    draft.keep().map_err(|error| failed(error.error))
}

/// Appends a text to a file that others append to as well, where it has room below `most` bytes
/// in all; `false` where it has none.
///
/// # Errors
/// As [`write()`].
pub fn append(path: &Path, text: &str, most: u64) -> Result<bool, WriteError> {
    let failed = |error| WriteError::Write {
        path: path.to_owned(),
        error,
    };
    let mut options = File::options();
    let mut file = options
        .append(true)
        .create(true)
        .open(path)
        .map_err(failed)?;
    let there = file.metadata().map_err(failed)?.len();
    if there.saturating_add(text.len() as u64) > most {
        return Ok(false);
    }
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(true)
}

/// True for a pipe, a terminal or a device: written to, never replaced.
fn special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// The file that a path leads to: a link stays a link. A run, a baseline or a trace is none
/// to write to, whatever it is called.
fn resolved(path: &Path) -> Result<PathBuf, WriteError> {
    let path = fs::canonicalize(path).unwrap_or(path.to_owned());
    let ending = path.extension().unwrap_or_default();
    if ending == "jsonl" || ending == "trace" || is_record(&path) {
        return Err(WriteError::Record { path });
    }
    Ok(path)
}

/// True when a file begins as regatta's own records do.
fn is_record(path: &Path) -> bool {
    const START: &[u8] = b"{\"kind\":\"";
    let mut start = [0; START.len()];
    let read = input::open(path, u64::MAX).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == START
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
    written
        .map(|name| write_document(dir, format, report, name))
        .collect()
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
        written
            .map(|one| one.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// The file of this path in the making, in a directory that is made where there is none.
fn draft(path: &Path) -> Result<Draft, WriteError> {
    if path.is_dir() {
        return Err(WriteError::IsDirectory {
            path: path.to_owned(),
            example: "report.html",
        });
    }
    let dir = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if let Some(file) = dir.ancestors().find(|ancestor| ancestor.is_file()) {
        return Err(WriteError::ParentIsFile {
            path: path.to_owned(),
            parent: file.to_owned(),
        });
    }
    fs::create_dir_all(dir).map_err(|error| WriteError::Create {
        path: dir.to_owned(),
        error,
    })?;
    Draft::of(path).map_err(|error| WriteError::Write {
        path: error.path,
        error: error.error,
    })
}

#[cfg(test)]
mod tests {
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
        let found = fs::read_dir(&target).unwrap();
        let mut names: Vec<_> = found.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["cases.csv", "index.html", "samples.csv"]);
    }

    #[test]
    fn what_is_in_the_way_is_named_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("taken");
        fs::write(&file, "as it was").unwrap();
        check_writable(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "as it was");
        check_writable(&dir.path().join("new/deep/report.html")).unwrap();
        for (path, told) in [
            (
                dir.path().to_owned(),
                "it is a directory; name a file in it",
            ),
            (file.join("report.html"), "taken is a file, not a directory"),
            (
                file.join("deeper/report.html"),
                "taken is a file, not a directory",
            ),
        ] {
            let error = check_writable(&path).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
