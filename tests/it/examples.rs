//! `examples/`: those run which need no GPU.
//!
//! `REGATTA_TEST_PYTHON` names an interpreter that has NumPy, and JAX for its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Place;
use regatta_core::record::types::Outcome;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name)
}

/// A place with the files of an example.
fn place_of(name: &str) -> Place {
    let place = Place::new();
    for file in fs::read_dir(folder(name)).unwrap().flatten() {
        if file.path().is_file() {
            fs::copy(file.path(), place.path().join(file.file_name())).unwrap();
        }
    }
    place
}

/// Runs an example, and looks that every case was measured.
fn runs(name: &str, builds: bool) {
    let python = std::env::var("REGATTA_TEST_PYTHON");
    let python = python.expect("REGATTA_TEST_PYTHON names a Python with its library");
    let python = std::path::absolute(python).unwrap();
    let place = place_of(name);
    let suite = format!("./{name}.toml");
    let run = ["run", &suite, "--invocations", "1"];
    let build = ["build", &suite];
    for args in [&build[..], &run].into_iter().skip(usize::from(!builds)) {
        let output = place
            .regatta(args)
            .env("REGATTA_PYTHON", &python)
            .env("JAX_PLATFORMS", "cpu")
            .env("CUDA_VISIBLE_DEVICES", "")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
    }
    let run = place.run(name);
    assert!(!run.entries.is_empty());
    for entry in &run.entries {
        assert!(matches!(entry.outcome, Outcome::Measured(_)), "{entry:?}");
    }
}

#[test]
#[ignore = "needs NumPy"]
fn numpy_runs() {
    runs("numpy", false);
}

#[test]
#[ignore = "needs JAX"]
fn jax_runs() {
    runs("jax", false);
}

#[test]
#[ignore = "needs NumPy"]
fn cpp_runs() {
    runs("cpp", true);
}

#[test]
fn rust_runs() {
    let place = place_of("rust");
    let worker = Path::new(env!("CARGO_BIN_EXE_regatta"))
        .with_file_name("examples")
        .join("naive-worker");
    place.edit(
        "rust.toml",
        "workers.mine = [\"target/release/examples/naive\"]",
        &format!("workers.mine = [{:?}]", worker.display().to_string()),
    );
    exits!(place, 0, ["run", "./rust.toml", "--invocations", "1"]);
}
