//! The folder that regatta keeps what it can make again in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `$XDG_CACHE_HOME/regatta`, `~/.cache/regatta`, or the temporary folder. It exists
/// when this returns.
///
/// # Errors
/// When neither can be made.
pub(crate) fn folder() -> io::Result<PathBuf> {
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
