//! The Python worker travels inside the binary and is written out when used.

use std::io;
use std::path::PathBuf;

use crate::cache;

/// The libraries the Python worker knows.
pub const LIBRARIES: [&str; 3] = ["torch", "jax", "triton"];

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../workers/python/", $name)))
    };
}

/// Its files: name and text.
const FILES: [(&str, &str); 18] = [
    file!("census.py"),
    file!("channel.py"),
    file!("counters.py"),
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
    file!("triton_flash.py"),
    file!("triton_worker.py"),
];

/// Writes the Python worker into the user's cache and gives the path of its `main.py`.
///
/// # Errors
/// When the cache cannot be written.
pub fn install() -> io::Result<PathBuf> {
    let files = FILES.map(|(name, text)| (name, text.as_bytes()));
    Ok(cache::install("python", &files)?.join("main.py"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
