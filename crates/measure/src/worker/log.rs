//! The file that a worker's output goes to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

use regatta_core::last_words;

/// A worker that prints more than this is ended.
const LONGEST: u64 = 64 << 20;

/// What is kept of the log of such a worker.
const KEPT: u64 = 1 << 20;

/// A log of the workers before that is longer than this is cut before another is started.
const LONGEST_BEFORE: u64 = 8 << 20;

/// What is looked through for the fault when a worker fails.
const READ: u64 = 64 << 10;

/// The part of a log that one process writes.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Where this process began.
    start: u64,
}

impl Log {
    /// Opens a log to be appended to, and bounds what is in it already.
    ///
    /// # Errors
    /// When it cannot be made or written.
    pub(super) fn open(path: &Path) -> io::Result<(Log, File)> {
        if fs::metadata(path).is_ok_and(|log| log.is_file() && log.len() > LONGEST_BEFORE) {
            let mut text = b"(what stood before was left out)\n".to_vec();
            text.extend(tail(path, KEPT)?);
            fs::write(path, text)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            // Nobody may be reading from what is there under this name, if it is a pipe.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        let log = Log {
            path: path.to_owned(),
            start: file.metadata()?.len(),
        };
        Ok((log, file))
    }

    /// True when this process printed more than anybody will read.
    pub(super) fn is_too_long(&self) -> bool {
        let length = fs::metadata(&self.path).map_or(0, |log| log.len());
        length.saturating_sub(self.start) > LONGEST
    }

    /// Cuts what this process printed to its beginning, which may be of use; the rest of
    /// such a log is not.
    pub(super) fn cut(&self) {
        if let Ok(log) = OpenOptions::new().write(true).open(&self.path) {
            let _ = log.set_len(self.start + KEPT);
        }
    }

    /// The lines that this process printed last, and those that name its fault.
    pub(super) fn excerpt(&self) -> String {
        let length = fs::metadata(&self.path).map_or(0, |log| log.len());
        // Begun anew meanwhile, it holds what this process printed since.
        let own = length.checked_sub(self.start).unwrap_or(length);
        let text = tail(&self.path, own.min(READ)).unwrap_or_default();
        last_words::excerpt(&String::from_utf8_lossy(&text))
    }
}

/// The last so many bytes of a file.
fn tail(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_process_has_its_own_part_and_what_was_before_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker.log");
        fs::write(&path, "before\n").unwrap();
        let (log, mut file) = Log::open(&path).unwrap();
        writeln!(file, "mine").unwrap();
        assert_eq!(log.excerpt(), "mine");
        assert!(!log.is_too_long());
        let long = vec![b'x'; usize::try_from(LONGEST_BEFORE).unwrap() + 1];
        fs::write(&path, long).unwrap();
        let (log, _) = Log::open(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 2 * KEPT);
        assert_eq!(log.excerpt(), "");
    }

    #[test]
    fn a_pipe_without_a_reader_is_refused_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker.log");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Log::open(&path).is_err());
    }
}
