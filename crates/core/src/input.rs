//! Reads files from outside: only regular ones, and only up to a size limit.
//!
//! A path on a command line may name anything: reading a pipe without a writer never returns, and
//! `/dev/zero` never ends. Each reader sets its own limit, and this module has the wording of every
//! refusal.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, BufRead, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOCTTY, O_NONBLOCK};
use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The limit for a file that is written by hand: a suite, a `regatta.toml`, a file of requirements.
pub const WRITTEN_BY_HAND: u64 = 4 * MIB;
/// The limit for a run or a baseline.
pub const RUN: u64 = 2048 * MIB;
/// The limit for a history, which is read line by line.
pub const HISTORY: u64 = 4 * RUN;
/// The limit for a trace or a raw recording, which are read line by line.
pub const TRACE: u64 = 64 * KIB * MIB;
/// The limit for one line of a trace.
pub const LINE: u64 = 64 * MIB;
/// The limit for a ledger of kernels.
pub const LEDGER: u64 = 64 * MIB;
/// The limit for a compiled kernel in the cache.
pub const IMAGE: u64 = 256 * MIB;

/// Opens a regular file of at most `most` bytes, without ever waiting for another process.
///
/// # Errors
/// When it is missing, when it is something else (a folder, a pipe, a device), or larger.
pub fn open(path: &Path, most: u64) -> io::Result<File> {
    // The kind is checked before opening, because opening a device may have an effect.
    regular(fs::metadata(path)?.file_type())?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK | O_NOCTTY)
        .open(path)?;
    let metadata = file.metadata()?;
    regular(metadata.file_type())?;
    if metadata.len() > most {
        Err(too_large(most))
    } else {
        Ok(file)
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open`], or when it cannot be read.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Metadata cannot enforce the limit: a file under /proc reports size 0, and any file may grow
    // meanwhile.
    open(path, most)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        Err(too_large(most))
    } else {
        Ok(bytes)
    }
}

/// Reads a text file of at most `most` bytes.
///
/// # Errors
/// As [`bytes`], or [`ErrorKind::InvalidData`] when it is not UTF-8.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let problem = format!("it is not UTF-8 at byte {at}");
        io::Error::new(ErrorKind::InvalidData, problem)
    })
}

/// The first `most` bytes of a regular file; empty if it cannot be read.
pub fn beginning(path: &Path, most: u64) -> Vec<u8> {
    let mut start = Vec::new();
    let read = open(path, u64::MAX).and_then(|file| file.take(most).read_to_end(&mut start));
    read.map_or(Vec::new(), |_| start)
}

/// The result of [`line()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line with the line feed that ends it.
    Whole,
    /// The last line, without a line feed, or the first `most` bytes of a longer line.
    Cut,
    /// The end of the file.
    None,
}

/// Reads the next line into `into`, with its line feed. Of a line longer than `most` bytes the
/// beginning is read, and the rest is skipped.
///
/// # Errors
/// When the file cannot be read.
pub fn line(file: &mut impl BufRead, most: u64, into: &mut Vec<u8>) -> io::Result<Line> {
    into.clear();
    let read = Read::take(&mut *file, most).read_until(b'\n', into)? as u64;
    match (into.ends_with(b"\n"), read) {
        (true, _) => Ok(Line::Whole),
        (false, 0) => Ok(Line::None),
        (false, read) => {
            if read == most {
                file.skip_until(b'\n')?;
            }
            Ok(Line::Cut)
        }
    }
}

/// The sorted entries of a folder for which `keep` returns true; empty if the folder cannot be
/// read.
pub fn paths_in(folder: &Path, keep: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| keep(path));
    paths.sort();
    paths
}

fn regular(kind: FileType) -> io::Result<()> {
    let (error, what) = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => (ErrorKind::IsADirectory, "a folder"),
        _ if kind.is_fifo() => (ErrorKind::InvalidInput, "a pipe"),
        _ if kind.is_socket() => (ErrorKind::InvalidInput, "a socket"),
        _ => (ErrorKind::InvalidInput, "a device"),
    };
    let problem = format!("it is {what}, not a regular file");
    Err(io::Error::new(error, problem))
}

/// The error for a file larger than `most` bytes.
pub fn too_large(most: u64) -> io::Error {
    let (size, unit) = match most {
        _ if most >= MIB => (most / MIB, "MiB"),
        _ if most >= KIB => (most / KIB, "KiB"),
        _ => (most, "bytes"),
    };
    let problem = format!("it is larger than the {size} {unit} that are read of such a file");
    io::Error::new(ErrorKind::FileTooLarge, problem)
}

/// A line of a file that could not be used. The other lines are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Counts from 1.
    pub line: usize,
    /// The fault in it.
    pub problem: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    fn refused(path: &Path, most: u64) -> String {
        text(path, most).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_read_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert!(refused(&pipe, 10).starts_with("it is a pipe,"));
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(refused(&socket, 10).starts_with("it is a socket,"));
        assert!(refused(Path::new("/dev/zero"), 10).starts_with("it is a device,"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert!(refused(&link, 10).starts_with("it is a device,"));
        let error = text(folder.path(), 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        assert_eq!(error.to_string(), "it is a folder, not a regular file");
        let absent = text(&folder.path().join("none"), 10).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_not_beyond() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(text(&path, 10).unwrap(), "0123456789");
        let error = bytes(&path, 9).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        let expected = "larger than the 9 bytes";
        assert!(error.to_string().contains(expected), "{error}");
        // The kernel reports its length as 0.
        assert!(refused(Path::new("/proc/self/maps"), 9).contains("larger"));
        // A hole of 1 TiB takes neither time nor memory.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(refused(&path, RUN).contains("larger than the 2048 MiB"));
        fs::write(&path, b"ab\xff").unwrap();
        assert_eq!(refused(&path, 10), "it is not UTF-8 at byte 2");
    }
}
