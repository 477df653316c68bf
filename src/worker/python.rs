//! The Python worker travels inside the binary and is written out when used.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The libraries the Python worker knows.
pub const LIBRARIES: [&str; 2] = ["torch", "jax"];

/// Its files: name and text.
const FILES: [(&str, &str); 0] = [];

/// Writes the Python worker into the user's cache and gives the path of its
/// `main.py`. Files already there are left alone: the folder's name is a checksum
/// of their contents.
///
/// # Errors
/// When the cache cannot be written.
pub fn install() -> io::Result<PathBuf> {
    let mut hasher = crc32fast::Hasher::new();
    for (name, text) in FILES {
        hasher.update(name.as_bytes());
        hasher.update(text.as_bytes());
    }
    let version = env!("CARGO_PKG_VERSION");
    let folder = cache()?.join(format!("python-{version}-{:08x}", hasher.finalize()));
    fs::create_dir_all(&folder)?;
    for (name, text) in FILES {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            continue;
        }
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        file.write_all(text.as_bytes())?;
        file.persist(&path)?;
    }
    Ok(folder.join("main.py"))
}

/// `$XDG_CACHE_HOME/regatta`, `~/.cache/regatta`, or the temporary folder.
fn cache() -> io::Result<PathBuf> {
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
