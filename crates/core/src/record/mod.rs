//! Records: runs and baselines, on disk and as one side of a comparison.

pub mod baseline;
pub mod disturbance;
pub mod figures;
mod header;
pub mod history;
pub mod identity;
pub mod line;
mod reduced;
pub mod run_file;
pub mod shards;
mod side;
pub mod sound;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
mod types;

pub use header::*;
pub use side::*;
pub use types::*;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use serde::Deserialize;

use crate::checksum;
use crate::input;
use crate::output::{Draft, OutputError};
use crate::suite::{FILE_NAME_RULE, names_a_file};

/// Version of the file formats in `docs/FORMAT.md`.
pub const SCHEMA_VERSION: u32 = 4;

/// Version of the method of timing. Times of different methods are never compared.
pub const METHOD_VERSION: u32 = 1;

/// The present time by this machine's clock, limited to what a file can hold if the clock is many
/// thousands of years off.
pub fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

fn timestamp(time: SystemTime) -> Timestamp {
    let nearest = if time < SystemTime::UNIX_EPOCH {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    Timestamp::try_from(time).unwrap_or(nearest)
}

/// The errors of records.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system reported an error.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is invalid: file, line and fault.
    #[error("{0}")]
    Invalid(String),
    /// The file is of another schema.
    #[error(
        "{path}: its schema is {found}, this regatta reads {SCHEMA_VERSION}; \
         measure again, or use the version that wrote it"
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema of the file.
        found: u32,
    },
    /// Another process is writing to this path.
    #[error("{0}: another regatta writes there now; wait for it, or choose another folder")]
    Busy(PathBuf),
    /// The request cannot be done with the record: the reason, and the fix.
    #[error("{0}")]
    Refused(String),
    /// A record that cannot be written as JSON.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl RecordError {
    /// A file that could not be read or written.
    pub fn io(path: &Path, error: io::Error) -> RecordError {
        RecordError::Io {
            path: path.to_owned(),
            error,
        }
    }

    /// A run that cannot be added to a history.
    pub fn not_added(path: &Path, why: &str) -> RecordError {
        RecordError::Refused(format!("{}: {why}", path.display()))
    }

    /// A trace whose file already exists.
    pub fn taken(path: &Path) -> RecordError {
        RecordError::Refused(format!(
            "{} is there already; name another file with --out, or replace it with --replace",
            path.display()
        ))
    }

    /// A line that does not follow the file's format.
    pub fn invalid(path: &Path, line: usize, problem: impl Into<String>) -> RecordError {
        let problem = problem.into();
        RecordError::Invalid(format!("{}:{line}: {problem}", path.display()))
    }
}

impl From<OutputError> for RecordError {
    fn from(error: OutputError) -> RecordError {
        RecordError::io(&error.path, error.error)
    }
}

/// Refuses a name that is not valid for a folder.
///
/// # Errors
/// [`RecordError::Refused`].
pub fn check_name(name: &str) -> Result<(), RecordError> {
    if names_a_file(name) {
        Ok(())
    } else {
        Err(RecordError::Refused(format!(
            "`{name}` cannot name a folder; use {FILE_NAME_RULE}"
        )))
    }
}

/// The file of a machine in a folder. The machine's name may come from a foreign run file, so it is
/// checked.
///
/// # Errors
/// [`RecordError::Refused`] where the name cannot be a file's.
pub fn machine_file(folder: &Path, machine: &str) -> Result<PathBuf, RecordError> {
    if names_a_file(machine) {
        Ok(folder.join(format!("{machine}.jsonl")))
    } else {
        Err(RecordError::Refused(format!(
            "the run's machine is called `{machine}`, which cannot name a file; its \
             `machine.name` was edited, or is of another regatta: measure it again"
        )))
    }
}

/// Refuses a file of another schema before its first line is read as one of ours:
/// another schema's line may hold anything.
///
/// # Errors
/// [`RecordError::Schema`].
pub fn check_schema(path: &Path, first: &str) -> Result<(), RecordError> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u32,
    }
    match serde_json::from_str::<Versioned>(first) {
        Ok(Versioned { schema }) if schema != SCHEMA_VERSION => Err(RecordError::Schema {
            path: path.to_owned(),
            found: schema,
        }),
        _ => Ok(()),
    }
}

/// The kinds of records by the first line of their files, and which command reads each.
const KINDS: &str = "\
run: `regatta report RUN` and `regatta diff BASE HEAD` read runs
baseline: `regatta gate SUITE --baseline NAME` and `regatta diff BASE HEAD` read baselines
trace: `regatta report TRACE` reads one, and `regatta diff BASE HEAD` compares two
history: `regatta history SUITE` reads histories";

/// Refuses a file whose first line says that it is a record of another kind than those `wanted`.
/// A file that cannot be read, or is not a record, is left to its reader.
///
/// # Errors
/// [`RecordError::Refused`].
pub fn check_kind(path: &Path, wanted: &[&str]) -> Result<(), RecordError> {
    // 32 bytes hold `{"kind":"baseline",` and every other kind.
    let start = input::beginning(path, 32);
    let mut kinds = KINDS.lines().filter_map(|line| line.split_once(": "));
    let kind =
        kinds.find(|(kind, _)| start.starts_with(format!("{{\"kind\":\"{kind}\",").as_bytes()));
    match (kind, wanted) {
        (Some((kind, fix)), [asked_for, ..]) if !wanted.contains(&kind) => {
            let path = path.display();
            Err(RecordError::Refused(format!(
                "{path} is a {kind}, and a {asked_for} is asked for; {fix}"
            )))
        }
        _ => Ok(()),
    }
}

/// The CRC-32 and the length of the contents of a run's files, one after the other. They show that
/// a file was edited, in less time than [`checksum::of_file`] takes.
///
/// # Errors
/// When one cannot be read, or is larger than a run may be.
fn sum_of(files: &[impl AsRef<Path>]) -> Result<String, RecordError> {
    let (mut crc, mut length) = (crc32fast::Hasher::new(), 0);
    for path in files.iter().map(AsRef::as_ref) {
        let add = |piece: &[u8]| {
            crc.update(piece);
            length += piece.len();
        };
        let read = input::open(path, input::RUN).and_then(|file| checksum::pieces(file, add));
        read.map_err(|error| RecordError::io(path, error))?;
    }
    Ok(format!("{:08x}-{length}", crc.finalize()))
}

/// Writes a record atomically, and waits until it is on the device.
///
/// # Errors
/// When it cannot be written. An existing file is then unchanged.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    let write = || -> Result<(), OutputError> {
        let mut draft = Draft::create(path)?;
        draft.add(bytes)?;
        draft.settle()?;
        draft.keep()
    };
    Ok(write()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_run_have_one_sum_and_a_pipe_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        files
            .iter()
            .for_each(|file| std::fs::write(file, "").unwrap());
        assert_eq!(sum_of(&files).unwrap(), "00000000-0");
        std::fs::write(&files[0], "1234").unwrap();
        std::fs::write(&files[1], "56789").unwrap();
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(sum_of(&files).unwrap(), "cbf43926-9");
        let error = sum_of(&[Path::new("/dev/zero")]).unwrap_err().to_string();
        assert!(error.starts_with("/dev/zero"), "{error}");
    }

    #[test]
    fn a_record_of_another_kind_is_named_with_the_command_that_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |kind: &str| {
            let path = folder.path().join(kind);
            let first = format!("{{\"kind\":\"{kind}\",\"schema\":{SCHEMA_VERSION}}}\n");
            std::fs::write(&path, first).unwrap();
            path
        };
        let read = |wanted: &str, kind: &str| {
            let path = file(kind);
            let refused = match wanted {
                "a trace" => trace::file::read(&path).err(),
                "a history" => history::History::read(&path).err(),
                _ => baseline::read(&path).err(),
            };
            refused.unwrap().to_string()
        };
        for (wanted, kind, fix) in [
            ("a trace", "run", "report RUN"),
            ("a history", "baseline", "gate SUITE --baseline NAME"),
            ("a baseline", "trace", "report TRACE"),
            ("a baseline", "history", "history SUITE"),
        ] {
            let words = format!("is a {kind}, and {wanted} is asked for; `regatta {fix}`");
            let error = read(wanted, kind);
            assert!(error.contains(&words), "{error}");
        }
        let error = read("a trace", "trace");
        assert!(error.contains("no checksum"), "{error}");
    }

    #[test]
    fn a_clock_that_is_far_off_gives_the_nearest_time() {
        let years = std::time::Duration::from_secs(35_000 * 31_556_952);
        let [after, before] = [
            SystemTime::UNIX_EPOCH.checked_add(years),
            SystemTime::UNIX_EPOCH.checked_sub(years),
        ];
        assert_eq!(timestamp(after.unwrap()), Timestamp::MAX);
        assert_eq!(timestamp(before.unwrap()), Timestamp::MIN);
        let epoch = timestamp(SystemTime::UNIX_EPOCH);
        assert_eq!(epoch, Timestamp::UNIX_EPOCH);
    }
}
