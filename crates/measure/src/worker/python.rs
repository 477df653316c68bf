//! The Python worker travels inside the binary and is written out when used.

use std::io;
use std::path::PathBuf;

use regatta_core::cache;

// `FILES`, name and text of each, and `LIBRARIES`: build.rs finds them in python.
include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// The package, in a folder that holds nothing else: Python imports from that folder, and
/// whatever lay in it would shadow a library's module of the same name.
const PACKAGE: &str = "regatta_worker";

/// Writes the Python worker into the user's cache and gives the folder of its package, which
/// Python runs as it runs a script.
///
/// # Errors
/// When the cache cannot be written.
pub fn install() -> io::Result<PathBuf> {
    let files: Vec<(String, &[u8])> = FILES
        .iter()
        .map(|(name, text)| (format!("{PACKAGE}/{name}"), text.as_bytes()))
        .collect();
    Ok(cache::install("python", &files)?.join(PACKAGE))
}
