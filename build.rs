//! What the binary carries for workers in other languages, since `cargo install` installs
//! binaries alone: the GPU clock, compiled as a shared library, and the Python worker's files.
//! Also the built-in suites: one more is one more file.
//!
//! `probe/` has no dependencies, so one call of rustc is enough. Where that fails (a
//! target without shared libraries) the build goes on without: Python workers then time
//! by plain events, and `regatta doctor` says so.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(variable("OUT_DIR"));
    fs::write(out.join("python_files.rs"), python_files()).expect("OUT_DIR can be written");
    fs::write(out.join("suites.rs"), suites()).expect("OUT_DIR can be written");
    let library = out.join("libregatta_probe.so");
    if let Err(problem) = compile(&library) {
        println!(
            "cargo::warning=no GPU clock for Python workers: {}",
            problem.replace('\n', " | ")
        );
        fs::write(&library, []).expect("OUT_DIR can be written");
    }
}

/// Names and texts of the Python worker's package, and the libraries in it: each has a file
/// `libraries/LIBRARY.py`, so that one more is one more file.
fn python_files() -> String {
    let files = files_below("python/regatta_worker", ".py");
    let texts: String = files
        .iter()
        .map(|(name, path)| format!("    ({name:?}, include_str!({path:?})),\n"))
        .collect();
    let libraries: Vec<&str> = files
        .iter()
        .filter_map(|(name, _)| name.strip_prefix("libraries/")?.strip_suffix(".py"))
        .filter(|name| !name.starts_with('_'))
        .collect();
    format!(
        "const FILES: &[(&str, &str)] = &[\n{texts}];\n\
         /// The libraries the Python worker knows.\n\
         pub const LIBRARIES: &[&str] = &{libraries:?};\n"
    )
}

/// Names and texts of `suites/*.toml`.
fn suites() -> String {
    let suites: String = files("suites", ".toml")
        .iter()
        .map(|(name, path)| {
            let name = name.trim_end_matches(".toml");
            format!("    ({name:?}, include_str!({path:?})),\n")
        })
        .collect();
    format!(
        "/// The suites in the binary: name and text.\n\
         pub const BUILTIN: &[(&str, &str)] = &[\n{suites}];\n"
    )
}

/// Names and paths of the files in a folder of the source that end so, sorted.
fn files(folder: &str, ending: &str) -> Vec<(String, PathBuf)> {
    let folder = Path::new(&variable("CARGO_MANIFEST_DIR")).join(folder);
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(&folder).expect("the folder is part of the source");
    let mut found: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.to_owned();
            name.ends_with(ending).then_some((name, path))
        })
        .collect();
    found.sort();
    found
}

/// The same with the folders in it: a file's name is its path from the first.
fn files_below(folder: &str, ending: &str) -> Vec<(String, PathBuf)> {
    let mut found = files(folder, ending);
    for (name, path) in files(folder, "") {
        // Without what Python leaves behind.
        if path.is_dir() && !name.starts_with("__") {
            let inner = files_below(&format!("{folder}/{name}"), ending);
            found.extend(
                inner
                    .into_iter()
                    .map(|(file, path)| (format!("{name}/{file}"), path)),
            );
        }
    }
    found.sort();
    found
}

fn compile(library: &Path) -> Result<(), String> {
    let source = PathBuf::from(variable("DEP_REGATTA_PROBE_SRC"));
    println!("cargo::rerun-if-changed={}", source.display());
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--crate-name", "regatta_probe", "--crate-type", "cdylib"])
        .args(["--edition", "2024", "-O", "-C", "strip=symbols"])
        // The same source gives the same library wherever it lies.
        .arg("--remap-path-prefix")
        .arg(format!("{}=probe/src", source.display()))
        .arg("--target")
        .arg(variable("TARGET"))
        .arg("-o")
        .arg(library)
        .arg(source.join("lib.rs"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        rustc.arg("-C").arg(option);
    }
    let run = rustc.output().map_err(|error| error.to_string())?;
    if run.status.success() && library.is_file() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&run.stderr);
    Err(format!("rustc ended with {}: {}", run.status, words.trim()))
}

/// A variable that cargo sets for every build script.
fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_default()
}
