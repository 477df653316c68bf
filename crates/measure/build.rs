//! Embeds the files of workers in other languages, since `cargo install` installs only binaries:
//! the GPU clock as a shared library, and the Python worker.
//!
//! The probe has no dependencies, so a single call of rustc builds it. If that fails (on a target
//! without shared libraries), it is left out: Python workers then time with plain events, and
//! `regatta doctor` reports that.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python worker's package, relative to this crate's folder.
const PYTHON: &str = "../../python/regatta_worker";

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

/// Rust source with the names and texts of the Python worker's files, and the names of its
/// libraries. Each library has a file `libraries/LIBRARY.py`, so a new one needs only a new file.
fn python_files() -> String {
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join(PYTHON);
    let mut files = Vec::new();
    collect(&root, "", &mut files);
    files.sort();
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

/// Adds the `.py` files in a folder and below. Names are paths from `root`.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder).expect("the folder is part of the source") {
        let path = entry.expect("the folder can be read").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // Python leaves `__pycache__` behind.
        if path.is_dir() && !name.starts_with("__") {
            collect(&path, &format!("{prefix}{name}/"), files);
        } else if name.ends_with(".py") {
            files.push((format!("{prefix}{name}"), path));
        }
    }
}

fn compile(library: &Path) -> Result<(), String> {
    let source = PathBuf::from(variable("DEP_REGATTA_PROBE_SRC"));
    println!("cargo::rerun-if-changed={}", source.display());
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--crate-name", "regatta_probe", "--crate-type", "cdylib"])
        .args(["--edition", "2024", "-C", "strip=symbols", "-C"])
        .arg(format!("opt-level={}", variable("OPT_LEVEL").display()))
        // The same source gives the same library in any folder.
        .arg("--remap-path-prefix")
        .arg(format!("{}=crates/probe/src", source.display()))
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
