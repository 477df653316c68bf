//! Locks for folders that several processes share. One process at a time creates, replaces or
//! removes a folder, and only while no other process uses it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::secrets;

/// A lock on a folder or a file, shared for use or exclusive for changes. The lock is a file beside
/// it, which the kernel releases when the process ends, however it ends.
#[derive(Debug)]
pub struct LockedFolder {
    path: PathBuf,
    /// `None` on a read-only file system, where no process can change the folder.
    _file: Option<File>,
}

/// The number of attempts to create a folder that another process changes each time.
const MAX_ATTEMPTS: u32 = 5;

/// The ways to use a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Reads the folder, together with other processes.
    Shared,
    /// Creates, replaces or removes the folder, exclusively.
    Alone,
}

impl LockedFolder {
    /// Locks the folder at `path` for shared use. If `is_whole` returns false, this process creates
    /// it first with `make`, or waits for the process that is creating it.
    ///
    /// # Errors
    /// When the lock cannot be taken, or the error of `make`.
    pub fn made<E: From<io::Error>>(
        path: &Path,
        is_whole: impl Fn() -> bool,
        mut make: impl FnMut() -> Result<(), E>,
    ) -> Result<LockedFolder, E> {
        for _ in 0..MAX_ATTEMPTS {
            let lock = LockedFolder::shared(path)?;
            if is_whole() {
                return Ok(lock);
            }
            drop(lock);
            // Another process may have made it while this one waited.
            let lock = LockedFolder::alone(path)?;
            if !is_whole() {
                make()?;
            }
            // The lock is free for a moment between creating and using the folder, so check again.
            drop(lock);
        }
        let problem = "something changes it as soon as it is made";
        Err(E::from(io::Error::other(format!(
            "{}: {problem}",
            path.display()
        ))))
    }

    /// Locks the folder for shared use. Waits for a process that changes it.
    ///
    /// # Errors
    /// When the lock cannot be taken.
    pub fn shared(path: &Path) -> io::Result<LockedFolder> {
        LockedFolder::wait(path, Use::Shared)
    }

    /// Locks the folder exclusively. Waits for all processes that use it.
    ///
    /// # Errors
    /// When the lock cannot be taken.
    pub fn alone(path: &Path) -> io::Result<LockedFolder> {
        LockedFolder::wait(path, Use::Alone)
    }

    /// The folder for this process alone; `None` where another uses it.
    ///
    /// # Errors
    /// When the lock cannot be taken.
    pub fn try_alone(path: &Path) -> io::Result<Option<LockedFolder>> {
        LockedFolder::attempt(path, Use::Alone)
    }

    fn wait(path: &Path, what: Use) -> io::Result<LockedFolder> {
        let lock = lock_path(path);
        loop {
            if let Some(lock) = LockedFolder::attempt(path, what)? {
                return Ok(lock);
            }
            anstream::eprintln!("waiting for {}, which {}", holder(path), verb(path, what));
            let Ok(file) = File::open(&lock) else {
                continue;
            };
            match what {
                Use::Shared => file.lock_shared(),
                Use::Alone => file.lock(),
            }
            .map_err(|error| named(&lock, &error))?;
        }
    }

    fn attempt(path: &Path, what: Use) -> io::Result<Option<LockedFolder>> {
        let lock = lock_path(path);
        if let Some(folder) = lock.parent() {
            // If this fails, opening the lock reports the reason.
            let _ = fs::create_dir_all(folder);
        }
        let mut options = File::options();
        let file = match options.create(true).read(true).append(true).open(&lock) {
            Ok(file) => file,
            // The folder may be part of a container image. It is then used as it is.
            Err(error) if what == Use::Shared && is_read_only(&error) => {
                return LockedFolder::noted(path, what, None).map(Some);
            }
            Err(error) => return Err(named(&lock, &error)),
        };
        let tried = match what {
            Use::Shared => file.try_lock_shared(),
            Use::Alone => file.try_lock(),
        };
        match tried {
            // The previous holder may have removed the folder with its lock file.
            Ok(()) if !is_file_of(&file, &lock) => LockedFolder::attempt(path, what),
            Ok(()) => LockedFolder::noted(path, what, Some(file)).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(named(&lock, &error)),
        }
    }

    /// Writes the process id into the lock file, for messages of processes that wait.
    fn noted(path: &Path, what: Use, file: Option<File>) -> io::Result<LockedFolder> {
        if let Some(mut file) = file.as_ref() {
            if what == Use::Alone {
                file.set_len(0)?;
            }
            // A single write, because others append as well. On a full disk the measurement
            // continues without it.
            let _ = file.write_all(format!("{}\n", std::process::id()).as_bytes());
        }
        Ok(LockedFolder {
            path: path.to_owned(),
            _file: file,
        })
    }

    /// The folder that is locked.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder and its lock file; the lock must be exclusive.
    ///
    /// # Errors
    /// When a part of it cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        removed(&self.path)?;
        removed(&lock_path(&self.path))
    }
}

/// Removes a file or folder, if it exists. A link is removed, not followed.
///
/// # Errors
/// When it cannot be removed.
pub fn removed(path: &Path) -> io::Result<()> {
    let gone = match fs::symlink_metadata(path) {
        Ok(facts) if facts.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The path of the lock file, beside the folder, which may be replaced as a whole.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// True if `path` still names the open file.
fn is_file_of(file: &File, path: &Path) -> bool {
    let number = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let open = file.metadata().map(number);
    let there = fs::metadata(path).map(number);
    matches!((open, there), (Ok(open), Ok(there)) if open == there)
}

fn is_read_only(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(
        error.kind(),
        PermissionDenied | ReadOnlyFilesystem | NotFound
    )
}

fn named(lock: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", lock.display()))
}

fn verb(path: &Path, what: Use) -> String {
    match what {
        Use::Shared => format!("makes {}", path.display()),
        Use::Alone => format!("uses {}", path.display()),
    }
}

/// The process that uses or changes a folder, by its number and command.
pub fn holder(path: &Path) -> String {
    let text = fs::read_to_string(lock_path(path)).unwrap_or_default();
    let own = std::process::id();
    let mut numbers = text.lines().filter_map(|line| line.parse::<u32>().ok());
    let words = |number: u32| {
        let command = fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let words = command.split(|byte| *byte == 0);
        let words = words.filter(|word| !word.is_empty());
        let words: Vec<String> = words
            .map(|word| String::from_utf8_lossy(word).escape_debug().to_string())
            .collect();
        let words = secrets::command_line(&words).join(" ");
        (!words.is_empty()).then(|| format!("process {number} ({words})"))
    };
    let living = numbers.rfind(|&number| number != own && words(number).is_some());
    living
        .and_then(words)
        .unwrap_or_else(|| "another process".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn of_many_at_once_one_makes_it_and_none_replaces_what_another_uses() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("made");
        let (makers, users) = (AtomicU32::new(0), AtomicU32::new(0));
        let use_it = || {
            let lock = LockedFolder::made(
                &folder,
                || folder.join("whole").is_file(),
                || {
                    assert_eq!(users.load(Ordering::SeqCst), 0, "somebody uses it");
                    makers.fetch_add(1, Ordering::SeqCst);
                    removed(&folder)?;
                    fs::create_dir(&folder)?;
                    thread::sleep(Duration::from_millis(5));
                    fs::write(folder.join("whole"), "")
                },
            );
            let lock = lock.unwrap();
            users.fetch_add(1, Ordering::SeqCst);
            assert!(folder.join("whole").is_file());
            thread::sleep(Duration::from_millis(2));
            assert!(folder.join("whole").is_file());
            users.fetch_sub(1, Ordering::SeqCst);
            drop(lock);
        };
        thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(use_it))));
        assert_eq!(makers.load(Ordering::SeqCst), 1);
        // Broken, it is made again once no process uses it.
        fs::remove_file(folder.join("whole")).unwrap();
        thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(use_it))));
        assert_eq!(makers.load(Ordering::SeqCst), 2);
        let used = LockedFolder::shared(&folder).unwrap();
        assert!(LockedFolder::try_alone(&folder).unwrap().is_none());
        drop(used);
        LockedFolder::try_alone(&folder)
            .unwrap()
            .unwrap()
            .remove()
            .unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn who_has_it_is_named_while_it_lives() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("made");
        let _lock = LockedFolder::alone(&folder).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        // For a moment after it was started it has no command line.
        let command = format!("/proc/{}/cmdline", child.id());
        while fs::read(&command).unwrap().is_empty() {
            thread::yield_now();
        }
        fs::write(lock_path(&folder), format!("1\n{}\n", child.id())).unwrap();
        assert_eq!(
            holder(&folder),
            format!("process {} (sleep 60)", child.id())
        );
        child.kill().unwrap();
        child.wait().unwrap();
        fs::write(lock_path(&folder), format!("{}\n", child.id())).unwrap();
        assert_eq!(holder(&folder), "another process");
    }
}
