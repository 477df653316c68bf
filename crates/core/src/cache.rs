//! The cache folder, which holds files that regatta can create again, and the files of the binary
//! that are written there.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::checksum::Checksum;
use crate::output;

/// Returns `$XDG_CACHE_HOME/regatta`, `~/.cache/regatta`, or this user's own folder in the
/// temporary one, and creates it.
///
/// # Errors
/// When none of them can be created, or the one in the temporary folder belongs to another user:
/// files in it are executed.
pub fn folder() -> io::Result<PathBuf> {
    let base = base(|name| std::env::var_os(name));
    if let Some(folder) = base.map(|base| base.join("regatta"))
        && fs::create_dir_all(&folder).is_ok()
    {
        return Ok(folder);
    }
    // A home that is absent or read-only, as in many CI containers.
    temporary(&std::env::temp_dir())
}

/// The folder that the user's caches are in. A relative path is ignored, as the XDG base directory
/// specification demands: workers start in other folders.
fn base(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))
}

fn temporary(folder: &Path) -> io::Result<PathBuf> {
    let user = fs::metadata("/proc/self")?.uid();
    let folder = folder.join(format!("regatta-cache-{user}"));
    let made = fs::DirBuilder::new().mode(0o700).create(&folder);
    made.or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    })?;
    let there = fs::symlink_metadata(&folder)?;
    if there.is_dir() && there.uid() == user && there.mode() & 0o022 == 0 {
        Ok(folder)
    } else {
        Err(io::Error::other(format!(
            "{} is not a folder that only this user can write; set XDG_CACHE_HOME to one",
            folder.display()
        )))
    }
}

/// Writes files into a folder of the user's cache and returns that folder. Names may contain
/// subfolders. The folder's name has a checksum of the contents, so existing files are left alone.
/// If the cache is read-only, the temporary folder is used.
///
/// # Errors
/// When neither can be written.
pub fn install(kind: &str, files: &[(impl AsRef<str>, &[u8])]) -> io::Result<PathBuf> {
    let mut sum = Checksum::default();
    for (name, bytes) in files {
        sum.add(name.as_ref());
        sum.add(bytes);
    }
    let name = format!("{kind}-{}-{}", env!("CARGO_PKG_VERSION"), sum.name());
    install_in(&folder()?.join(&name), files).or_else(|error| {
        let other = temporary(&std::env::temp_dir()).map_err(|_| error)?;
        install_in(&other.join(&name), files)
    })
}

/// Two processes that write at the same time write the same contents, and each file is complete at
/// any moment.
fn install_in(folder: &Path, files: &[(impl AsRef<str>, &[u8])]) -> io::Result<PathBuf> {
    write(folder, files).map(|()| folder.to_owned())
}

fn write(folder: &Path, files: &[(impl AsRef<str>, &[u8])]) -> io::Result<()> {
    for (name, bytes) in files {
        let path = folder.join(name.as_ref());
        let folder = path.parent().unwrap_or(folder);
        fs::create_dir_all(folder)?;
        if fs::read(&path).is_ok_and(|there| there == *bytes) {
            continue;
        }
        // Another process may be reading the old file, or writing the same one.
        output::write(&path, bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_relative_folder_is_no_cache() {
        for (cache, home, wanted) in [
            ("/c", "/h", Some("/c")),
            ("c", "/h", Some("/h/.cache")),
            ("", "/h", Some("/h/.cache")),
            ("c", "h", None),
        ] {
            let variable = |name: &str| {
                let value = if name == "HOME" { home } else { cache };
                Some(OsString::from(value))
            };
            assert_eq!(base(variable), wanted.map(PathBuf::from), "{cache} {home}");
        }
    }

    #[test]
    fn a_cache_in_the_temporary_folder_is_this_users_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = temporary(place.path()).unwrap();
        assert_eq!(temporary(place.path()).unwrap(), folder);
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&folder, open).unwrap();
        let error = temporary(place.path()).unwrap_err().to_string();
        assert!(error.contains("set XDG_CACHE_HOME"), "{error}");
        fs::remove_dir(&folder).unwrap();
        std::os::unix::fs::symlink("/usr", &folder).unwrap();
        assert!(temporary(place.path()).is_err());
    }

    #[test]
    fn many_processes_that_install_at_once_leave_each_file_whole() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("kind");
        let text = vec![7; 1 << 16];
        let files: [(&str, &[u8]); 2] = [("a", &text), ("b/c", &text)];
        std::thread::scope(|scope| {
            (0..8).for_each(|_| {
                scope.spawn(|| {
                    install_in(&folder, &files).unwrap();
                    for (name, bytes) in files {
                        assert!(
                            fs::read(folder.join(name)).unwrap() == bytes,
                            "{name} is torn"
                        );
                    }
                });
            });
        });
    }

    #[test]
    fn what_is_torn_is_written_anew_and_the_rest_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files: [(&str, &[u8]); 2] = [("a", b"one"), ("b/c", b"two")];
        write(folder.path(), &files).unwrap();
        let written = |name| fs::metadata(folder.path().join(name)).unwrap().modified();
        let before = written("a").unwrap();
        fs::write(folder.path().join("b/c"), "tw").unwrap();
        write(folder.path(), &files).unwrap();
        assert_eq!(written("a").unwrap(), before);
        assert_eq!(fs::read(folder.path().join("b/c")).unwrap(), b"two");
        let left = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!(left(folder.path()), 2);
        assert_eq!(left(&folder.path().join("b")), 1);
    }
}
