//! The Python worker travels inside the binary and is written out when used.

use std::io;
use std::path::PathBuf;

use crate::cache;

// `FILES`, name and text of each, and `LIBRARIES`: build.rs finds them in workers/python.
include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// Writes the Python worker into the user's cache and gives the path of its `main.py`.
///
/// # Errors
/// When the cache cannot be written.
pub fn install() -> io::Result<PathBuf> {
    let files: Vec<(&str, &[u8])> = FILES
        .iter()
        .map(|(name, text)| (*name, text.as_bytes()))
        .collect();
    Ok(cache::install("python", &files)?.join("main.py"))
}
