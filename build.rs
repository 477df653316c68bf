//! What the binary carries for workers in other languages, since `cargo install` installs
//! binaries alone: the GPU clock, compiled as a shared library, and the Python worker's files.
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
    let library = out.join("libregatta_probe.so");
    if let Err(problem) = compile(&library) {
        println!(
            "cargo::warning=no GPU clock for Python workers: {}",
            problem.replace('\n', " | ")
        );
        fs::write(&library, []).expect("OUT_DIR can be written");
    }
}

/// Names and texts of `workers/python/*.py`, and the libraries among them: each has a file
/// `LIBRARY_worker.py`, so that one more is one more file.
fn python_files() -> String {
    let folder = Path::new(&variable("CARGO_MANIFEST_DIR")).join("workers/python");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(&folder).expect("workers/python is part of the source");
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "py"))
        .collect();
    files.sort();
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().display().to_string();
    let texts: String = files
        .iter()
        .map(|path| format!("    ({:?}, include_str!({path:?})),\n", name(path)))
        .collect();
    let libraries: Vec<String> = files
        .iter()
        .filter_map(|path| Some(name(path).strip_suffix("_worker.py")?.to_owned()))
        .collect();
    format!(
        "const FILES: &[(&str, &str)] = &[\n{texts}];\n\
         /// The libraries the Python worker knows.\n\
         pub const LIBRARIES: &[&str] = &{libraries:?};\n"
    )
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
