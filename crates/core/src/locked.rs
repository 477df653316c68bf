//! Folders that several processes share: one is made by one process at a time, while no other uses
//! it, and replaced or removed only when no process uses it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::secrets;

/// A shared folder, or a file, that this process uses, or makes while no other does. The lock is
/// a file beside it, which the kernel lets go of when the process ends, however it ends.
#[derive(Debug)]
pub struct LockedFolder {
    path: PathBuf,
    /// `None` where no process can write, which then makes and removes nothing either.
    _file: Option<File>,
}

/// A folder is made as often for one use before that is given up.
const MAX_ATTEMPTS: u32 = 5;

/// The ways to use a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Reads it, beside others.
    Shared,
    /// Makes, replaces or removes it, alone.
    Alone,
}

impl LockedFolder {
    /// The folder at `path` for use beside other processes; where it is not whole, it is made first,
    /// by this process or by the one that is making it now, which is waited for.
    ///
    /// # Errors
    /// When the lock cannot be had, or what `make` fails with.
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
            // Between making and using it the lock is free for a moment: check again.
            drop(lock);
        }
        let problem = "something changes it as soon as it is made";
        Err(E::from(io::Error::other(format!(
            "{}: {problem}",
            path.display()
        ))))
    }

    /// The folder for use beside other processes. Waits for one that makes it.
    ///
    /// # Errors
    /// When the lock cannot be had.
    pub fn shared(path: &Path) -> io::Result<LockedFolder> {
        LockedFolder::wait(path, Use::Shared)
    }

    /// The folder for this process alone. Waits for all that use it.
    ///
    /// # Errors
    /// When the lock cannot be had.
    pub fn alone(path: &Path) -> io::Result<LockedFolder> {
        LockedFolder::wait(path, Use::Alone)
    }

    /// The folder for this process alone; `None` where another uses it.
    ///
    /// # Errors
    /// When the lock cannot be had.
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
            // Opening the lock says why where this fails.
            let _ = fs::create_dir_all(folder);
        }
        let mut options = File::options();
        let file = match options.create(true).read(true).append(true).open(&lock) {
            Ok(file) => file,
            // Prepared in an image, say: what is there is used as it is.
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
            // Whoever had it before may have removed the folder with its lock.
            Ok(()) if !is_file_of(&file, &lock) => LockedFolder::attempt(path, what),
            Ok(()) => LockedFolder::noted(path, what, Some(file)).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(named(&lock, &error)),
        }
    }

    /// Writes down who has it, for those that wait.
    fn noted(path: &Path, what: Use, file: Option<File>) -> io::Result<LockedFolder> {
        if let Some(mut file) = file.as_ref() {
            if what == Use::Alone {
                file.set_len(0)?;
            }
            // One write: others append to it as well. On a full disk measuring goes ahead without it.
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

    /// Removes the folder and its lock, which this process has alone.
    ///
    /// # Errors
    /// When something of it cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        removed(&self.path)?;
        removed(&lock_path(&self.path))
    }
}

/// Removes a file or folder, if it is there. A link is removed, not followed.
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

/// The lock lies beside what it locks, which may be replaced as a whole.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// True where this path still names the file that is open.
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

/// The process that uses or makes a folder, by its number and command.
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
