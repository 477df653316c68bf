//! Compiles the GPU clock as a shared library, to be embedded and handed to workers in
//! other languages: `cargo install` installs binaries alone.
//!
//! `probe/` has no dependencies, so one call of rustc is enough. Where that fails (a
//! target without shared libraries) the build goes on without: Python workers then time
//! by plain events, and `regatta doctor` says so.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let library = Path::new(&variable("OUT_DIR")).join("libregatta_probe.so");
    if let Err(problem) = compile(&library) {
        println!(
            "cargo::warning=no GPU clock for Python workers: {}",
            problem.replace('\n', " | ")
        );
        std::fs::write(&library, []).expect("OUT_DIR can be written");
    }
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
