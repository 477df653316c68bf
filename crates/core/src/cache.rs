//! The folder that regatta keeps what it can make again in, and files of the binary
//! written there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::output;

/// `$XDG_CACHE_HOME/regatta`, `~/.cache/regatta`, or the temporary folder. It exists
/// when this returns.
///
/// # Errors
/// When neither can be made.
pub fn folder() -> io::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".cache")))
        .unwrap_or_else(std::env::temp_dir);
    let folder = base.join("regatta");
    if fs::create_dir_all(&folder).is_ok() {
        return Ok(folder);
    }
    // A home that is absent or read-only, as in many CI containers.
    let folder = std::env::temp_dir().join("regatta-cache");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes files into a folder of the user's cache and gives the folder; names may hold
/// folders of their own. What is there already is left alone: the folder's name holds a
/// checksum of the contents.
///
/// # Errors
/// When the cache cannot be written.
pub fn install(kind: &str, files: &[(impl AsRef<str>, &[u8])]) -> io::Result<PathBuf> {
    let mut hasher = crc32fast::Hasher::new();
    for (name, bytes) in files {
        hasher.update(name.as_ref().as_bytes());
        hasher.update(bytes);
    }
    let version = env!("CARGO_PKG_VERSION");
    let folder = folder()?.join(format!("{kind}-{version}-{:08x}", hasher.finalize()));
    write(&folder, files)?;
    Ok(folder)
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
