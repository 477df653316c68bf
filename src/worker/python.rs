//! The Python worker travels inside the binary and is written out when used.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The libraries the Python worker knows.
pub const LIBRARIES: [&str; 2] = ["torch", "jax"];

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../workers/python/", $name)))
    };
}

/// Its files: name and text.
const FILES: [(&str, &str); 14] = [
    file!("channel.py"),
    file!("cutlass_splits.py"),
    file!("device.py"),
    file!("inputs.py"),
    file!("jax_clock.py"),
    file!("jax_worker.py"),
    file!("main.py"),
    file!("probe.py"),
    file!("problem.py"),
    file!("reference.py"),
    file!("timing.py"),
    file!("torch_census.py"),
    file!("torch_variants.py"),
    file!("torch_worker.py"),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_worker_is_in_the_binary() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/workers/python");
        let mut there: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".py"))
            .collect();
        there.sort();
        let embedded: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(there, embedded);
    }
}
