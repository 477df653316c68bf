//! Writes files atomically: a reader sees the old file or the new one.
//!
//! This is the only module that writes through a temporary file. It is in the folder of the file
//! itself, because only there is a rename atomic. A draft that is not kept is removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, PersistError};

use crate::input;

/// The reason why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {error}")]
pub struct OutputError {
    /// The path of the file, not of the temporary one.
    pub path: PathBuf,
    /// The system's error, or a description of the obstacle with its fix.
    pub error: io::Error,
}

impl OutputError {
    fn new(path: &Path, error: io::Error) -> OutputError {
        OutputError {
            path: path.to_owned(),
            error,
        }
    }

    /// The obstacle at a path, and the fix.
    fn in_the_way(path: &Path, why: impl Into<String>) -> OutputError {
        OutputError::new(path, io::Error::other(why.into()))
    }

    /// The system refused to write a file, with what may help.
    pub fn advised(path: &Path, error: &io::Error) -> OutputError {
        let fix = "check the permissions and the free space of its directory";
        OutputError::in_the_way(path, format!("{error}; {fix}"))
    }
}

impl From<OutputError> for io::Error {
    fn from(error: OutputError) -> io::Error {
        io::Error::new(error.error.kind(), error)
    }
}

/// A file that is being written, and appears only when it is kept.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    /// Begins a file, which is invisible under `path` until it is kept. Its mode then follows the
    /// umask.
    ///
    /// # Errors
    /// When its folder is absent or cannot be written.
    pub fn create(path: &Path) -> Result<Draft, OutputError> {
        let folder = folder_of(path);
        // By default `tempfile` would put the temporary name into the system's error, and restrict
        // the mode to the owner.
        let mut code = None;
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o666);
        let file = tempfile::Builder::new().make_in(folder, |at| {
            let made = options.open(at);
            made.inspect_err(|error| code = error.raw_os_error())
        });
        Ok(Draft {
            file: file.map_err(|error| {
                OutputError::new(path, code.map_or(error, io::Error::from_raw_os_error))
            })?,
            path: path.to_owned(),
        })
    }

    /// The file that is written to.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Adds to it.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        let written = self.file.as_file_mut().write_all(bytes);
        written.map_err(|error| OutputError::new(&self.path, error))
    }

    /// Waits until the data is on the device, so that a record survives a loss of power.
    ///
    /// # Errors
    /// When the device reports an error.
    pub fn settle(&self) -> Result<(), OutputError> {
        let settled = self.file.as_file().sync_data();
        settled.map_err(|error| OutputError::new(&self.path, error))
    }

    /// Moves the file to its path, and replaces an existing file.
    ///
    /// # Errors
    /// When the existing entry cannot be replaced, such as a folder.
    pub fn keep(self) -> Result<(), OutputError> {
        kept(&self.path, self.file.persist(&self.path))
    }

    /// Moves the file to its path, where nothing may exist yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something exists there; otherwise as
    /// [`keep`](Draft::keep).
    pub fn keep_as_new(self) -> Result<(), OutputError> {
        kept(&self.path, self.file.persist_noclobber(&self.path))
    }
}

fn kept(path: &Path, moved: Result<File, PersistError>) -> Result<(), OutputError> {
    let moved = moved.map_err(|error| error.error);
    moved
        .map(drop)
        .map_err(|error| OutputError::new(path, error))
}

/// The folder that a file is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Writes a file, and replaces an existing one.
///
/// # Errors
/// When it cannot be written. An existing file is then unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
    let mut draft = Draft::create(path)?;
    draft.add(bytes)?;
    draft.keep()
}

/// The absolute path without links, as far as the path exists, so that two ways to write a path can
/// be compared.
pub fn place(path: &Path) -> PathBuf {
    let Ok(whole) = std::path::absolute(path) else {
        return path.to_owned();
    };
    let real = whole.ancestors().find_map(|ancestor| {
        let below = whole.strip_prefix(ancestor).ok()?;
        let real = fs::canonicalize(ancestor).ok()?;
        // Joining an empty path would append a slash.
        Some(if below == Path::new("") {
            real
        } else {
            real.join(below)
        })
    });
    real.unwrap_or(whole)
}

/// Checks that a report can be written to `path`, before hours are spent on its contents, and
/// leaves nothing behind. An existing file is replaced only if regatta wrote it, also behind a
/// link.
///
/// # Errors
/// When it cannot, with the obstacle.
pub fn check_writable(path: &Path) -> Result<(), OutputError> {
    if is_special(path) {
        return Ok(());
    }
    let path = resolved(path)?;
    if path.is_file() && !is_report(&path) {
        return Err(foreign(&path));
    }
    check_folder(&path)
}

/// Checks that a file can be created in the folder of `path`, and that `path` itself can be
/// written.
///
/// # Errors
/// As [`check_writable`], without the check of an existing file.
pub fn check_folder(path: &Path) -> Result<(), OutputError> {
    not_in_the_way(path)?;
    let folder = folder_of(path);
    let there = folder.ancestors().find(|ancestor| ancestor.is_dir());
    let there = there.unwrap_or(Path::new("."));
    let probe = there.join(path.file_name().unwrap_or_default());
    Draft::create(&probe).map(drop).map_err(|error| {
        if there == folder {
            OutputError::advised(path, &error.error)
        } else {
            not_created(path, folder, &error.error)
        }
    })
}

/// True for a pipe, a terminal or a device, which is written to and never replaced.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// The target of a path, so that a link stays a link. A run, a baseline or a trace is refused,
/// whatever its name is.
///
/// # Errors
/// When the target is one of these.
pub fn resolved(path: &Path) -> Result<PathBuf, OutputError> {
    let path = fs::canonicalize(path).unwrap_or(path.to_owned());
    let ending = path.extension().unwrap_or_default();
    if ending == "jsonl" || ending == "trace" || is_record(&path) {
        let why = "a run, a baseline or a trace is there, and reports never replace one";
        return Err(OutputError::in_the_way(&path, why));
    }
    if is_foreign(&path) {
        Err(foreign(&path))
    } else {
        Ok(path)
    }
}

fn foreign(path: &Path) -> OutputError {
    let why = "regatta did not write the file that is there; move it away, or name another folder";
    OutputError::in_the_way(path, why)
}

/// Texts near the beginning of reports, by format: pages, Markdown, JUnit, JSON, annotations,
/// Perfetto, the metrics of Bencher and of github-action-benchmark, and pictures.
const MARKS: [&str; 15] = [
    "content=\"regatta\"",
    "class=\"suite\">regatta",
    "<!-- regatta",
    "<testsuite name=\"regatta ",
    "\"kind\": \"judgement\"",
    "\"kind\":\"judgement\"",
    "::error title=",
    "::warning title=",
    "::notice title=",
    "{\"displayTimeUnit\":\"ns\",\"otherData\":",
    "\"latency\": {\n      \"lower_value\": ",
    "\"range\": \"± ",
    "case,variant,",
    "case,invocation,sample,",
    "tEXtSoftware\0regatta",
];

/// True for a file that may be a report of regatta, or is empty.
fn is_report(path: &Path) -> bool {
    let start = input::beginning(path, 1 << 16);
    let start = String::from_utf8_lossy(&start);
    // `{}` and `[]` are lists of metrics of a run without times.
    ["", "{}", "[]"].contains(&start.trim()) || MARKS.iter().any(|mark| start.contains(mark))
}

/// The names of report files, with a text near the beginning of each.
pub const REPORT_FILES: [(&str, &str); 3] = [
    ("index.html", "class=\"suite\">regatta"),
    ("cases.csv", "case,variant,"),
    ("samples.csv", "case,invocation,sample,"),
];

/// True if a file has the name of a report and another program wrote it.
fn is_foreign(path: &Path) -> bool {
    let mut names = REPORT_FILES.iter();
    let Some((_, mark)) = names.find(|(name, _)| path.ends_with(name)) else {
        return false;
    };
    let start = input::beginning(path, 1 << 16);
    !start.is_empty() && !String::from_utf8_lossy(&start).contains(mark)
}

/// True when a file begins as regatta's own records do.
fn is_record(path: &Path) -> bool {
    const START: &[u8] = b"{\"kind\":\"";
    input::beginning(path, START.len() as u64) == START
}

/// A draft of the file at `path`; creates missing folders.
///
/// # Errors
/// As [`check_writable`], without the check of an existing file.
pub fn draft(path: &Path) -> Result<Draft, OutputError> {
    not_in_the_way(path)?;
    let dir = folder_of(path);
    fs::create_dir_all(dir).map_err(|error| not_created(path, dir, &error))?;
    Draft::create(path).map_err(|error| OutputError::advised(&error.path, &error.error))
}

fn not_created(path: &Path, folder: &Path, error: &io::Error) -> OutputError {
    let fix = "create it, or name another path";
    OutputError::in_the_way(
        path,
        format!("cannot create {}: {error}; {fix}", folder.display()),
    )
}

/// Refuses a path where a folder is, or below a file.
fn not_in_the_way(path: &Path) -> Result<(), OutputError> {
    if path.is_dir() {
        let example = path.join("report.html");
        let example = example.display();
        let why = format!("it is a directory; name a file in it, for example {example}");
        return Err(OutputError::in_the_way(path, why));
    }
    let dir = folder_of(path);
    if let Some(file) = dir.ancestors().find(|ancestor| ancestor.is_file()) {
        let file = file.display();
        let why = format!("{file} is a file, not a directory; move it away, or name another path");
        return Err(OutputError::in_the_way(path, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_file_is_replaced_whole_and_others_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for text in ["a longer text", "short"] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(names(folder.path()), ["file"]);
        // As a file that is made in the plain way is.
        let plain = folder.path().join("plain");
        File::create(&plain).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
    }

    #[test]
    fn a_full_disk_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, b"old").unwrap();
        let mut draft = Draft::create(&path).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (_, temporary) = draft.file.into_parts();
        draft.file = NamedTempFile::from_parts(full, temporary);
        let error = draft.add(b"new").unwrap_err();
        assert_eq!(error.error.kind(), io::ErrorKind::StorageFull);
        let message = error.to_string();
        assert!(message.contains("/file: No space left"), "{message}");
        drop(draft);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn what_is_new_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let draft = |text: &[u8]| {
            let mut draft = Draft::create(&path).unwrap();
            draft.add(text).unwrap();
            draft
        };
        draft(b"one").keep_as_new().unwrap();
        let error = draft(b"two").keep_as_new().unwrap_err();
        assert_eq!(error.error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn a_file_of_a_reports_name_that_is_no_report_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mark) in REPORT_FILES {
            let path = dir.path().join(name);
            fs::write(&path, "somebody's own").unwrap();
            let error = check_writable(&path).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("move it away"),
                "{error}"
            );
            for text in ["", mark] {
                fs::write(&path, text).unwrap();
                check_writable(&path).unwrap();
            }
        }
    }

    #[test]
    fn a_file_of_the_users_is_replaced_under_no_name_and_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (name, text) in [
            ("s.toml", "description = \"regatta\"\n"),
            ("conf.py", "import regatta\n"),
            ("package.json", "{\"name\": \"regatta\"}"),
            ("README.md", "# regatta\n"),
        ] {
            fs::write(path(name), text).unwrap();
            std::os::unix::fs::symlink(path(name), path("index.html")).unwrap();
            for asked in [name, "index.html"] {
                let error = check_writable(&path(asked)).unwrap_err().to_string();
                assert!(
                    error.contains(name) && error.contains("move it away"),
                    "{error}"
                );
            }
            assert_eq!(fs::read_to_string(path(name)).unwrap(), text);
            fs::remove_file(path("index.html")).unwrap();
        }
        for text in [
            "<!-- regatta: s -->\n",
            " \n",
            "{}\n",
            "<meta name=\"generator\" content=\"regatta\">",
        ] {
            fs::write(path("README.md"), text).unwrap();
            check_writable(&path("README.md")).unwrap();
        }
    }

    #[test]
    fn what_is_in_the_way_is_named_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("taken");
        fs::write(&file, "").unwrap();
        check_writable(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
        check_writable(&dir.path().join("new/deep/report.html")).unwrap();
        assert!(!dir.path().join("new").exists(), "a check leaves nothing");

        let error = check_writable(dir.path()).unwrap_err().to_string();
        let expected = "it is a directory; name a file in it";
        assert!(error.contains(expected), "{error}");
        for below in ["report.html", "deeper/report.html"] {
            let error = check_writable(&file.join(below)).unwrap_err().to_string();
            let expected = "taken is a file, not a directory";
            assert!(error.contains(expected), "{error}");
        }
    }
}
