//! Files that are written whole or not at all: a reader sees the old one or the new one.
//!
//! The one place that writes by way of a temporary file, which lies in the folder of the
//! file itself, because only there is a rename atomic. What was begun and is not kept is
//! removed.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, PersistError};

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {error}")]
pub struct OutputError {
    /// The file itself, not the temporary one.
    pub path: PathBuf,
    /// The system's own words.
    pub error: io::Error,
}

impl From<OutputError> for io::Error {
    fn from(error: OutputError) -> io::Error {
        io::Error::new(error.error.kind(), error)
    }
}

/// A file in the making.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    /// Begins the file of this path, of which nothing is to be seen until it is kept. Others
    /// may read it then, as far as the umask allows.
    ///
    /// # Errors
    /// When its folder is absent or cannot be written.
    pub fn of(path: &Path) -> Result<Draft, OutputError> {
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        // `tempfile` puts the temporary file's name into the system's words, and its mode would
        // be its owner's alone.
        let mut code = None;
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o666);
        let file = tempfile::Builder::new().make_in(folder, |at| {
            let made = options.open(at);
            made.inspect_err(|error| code = error.raw_os_error())
        });
        Ok(Draft {
            file: file
                .map_err(|error| refused(path, code.map_or(error, io::Error::from_raw_os_error)))?,
            path: path.to_owned(),
        })
    }

    /// What is written to.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Adds to it.
    ///
    /// # Errors
    /// When there is no room.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        let written = self.file.as_file_mut().write_all(bytes);
        written.map_err(|error| refused(&self.path, error))
    }

    /// Waits until the device has all of it: a record outlives a loss of power.
    ///
    /// # Errors
    /// When the device says that it has not.
    pub fn settle(&self) -> Result<(), OutputError> {
        let settled = self.file.as_file().sync_data();
        settled.map_err(|error| refused(&self.path, error))
    }

    /// Puts it in its place, over what is there.
    ///
    /// # Errors
    /// When that cannot be replaced, as a folder cannot.
    pub fn keep(self) -> Result<(), OutputError> {
        kept(&self.path, self.file.persist(&self.path))
    }

    /// Puts it in its place, where nothing is.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] where something is; otherwise as [`keep`](Draft::keep).
    pub fn keep_as_new(self) -> Result<(), OutputError> {
        kept(&self.path, self.file.persist_noclobber(&self.path))
    }
}

fn kept(path: &Path, moved: Result<File, PersistError>) -> Result<(), OutputError> {
    let moved = moved.map_err(|error| error.error);
    moved.map(drop).map_err(|error| refused(path, error))
}

/// Writes a file, over what is there.
///
/// # Errors
/// When it cannot be written; what was there is as it was.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
    let mut draft = Draft::of(path)?;
    draft.add(bytes)?;
    draft.keep()
}

fn refused(path: &Path, error: io::Error) -> OutputError {
    OutputError {
        path: path.to_owned(),
        error,
    }
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
        let mut draft = Draft::of(&path).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (_, temporary) = draft.file.into_parts();
        draft.file = NamedTempFile::from_parts(full, temporary);
        let error = draft.add(b"new").unwrap_err();
        assert_eq!(error.error.kind(), io::ErrorKind::StorageFull);
        let told = error.to_string();
        assert!(told.contains("/file: No space left"), "{told}");
        drop(draft);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn what_is_new_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let draft = |text: &[u8]| {
            let mut draft = Draft::of(&path).unwrap();
            draft.add(text).unwrap();
            draft
        };
        draft(b"one").keep_as_new().unwrap();
        let error = draft(b"two").keep_as_new().unwrap_err();
        assert_eq!(error.error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(names(folder.path()), ["file"]);
    }
}
