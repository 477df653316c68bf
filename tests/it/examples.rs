//! `examples/`: that each is as short as it says, and that those run which need no GPU.
//!
//! `REGATTA_TEST_PYTHON` names an interpreter that has NumPy, and JAX or torch for theirs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Place;
use regatta::record::types::Outcome;

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

/// Runs an example where its module is there, and looks that every case was measured.
fn runs(name: &str, module: &str, builds: bool) {
    let Ok(python) = std::env::var("REGATTA_TEST_PYTHON") else {
        eprintln!("not run: REGATTA_TEST_PYTHON names no interpreter with {module}");
        return;
    };
    let python = std::path::absolute(python).unwrap();
    let imports = std::process::Command::new(&python)
        .args(["-c", &format!("import {module}")])
        .output()
        .unwrap();
    if !imports.status.success() {
        eprintln!("not run: {} has no {module}", python.display());
        return;
    }
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
fn numpy_runs() {
    runs("numpy", "numpy", false);
}

#[test]
fn jax_runs() {
    runs("jax", "jax", false);
}

#[test]
fn torch_runs() {
    runs("torch", "torch", false);
}

#[test]
fn cpp_runs() {
    runs("cpp", "numpy", true);
}

#[test]
fn rust_runs() {
    let place = place_of("rust");
    let worker = assert_cmd::cargo::cargo_bin!("regatta")
        .with_file_name("examples")
        .join("naive-worker");
    place.edit(
        "rust.toml",
        "command = [\"target/release/examples/naive\"]",
        &format!("command = [{:?}]", worker.display().to_string()),
    );
    exits!(place, 0, ["run", "./rust.toml", "--invocations", "1"]);
}

#[test]
fn every_function_has_30_lines_at_the_most() {
    let mut looked_at = 0;
    for name in ["numpy", "torch", "jax", "triton", "cupy", "cpp", "cuda"] {
        for file in fs::read_dir(folder(name)).unwrap().flatten() {
            let path = file.path();
            if !path
                .extension()
                .is_some_and(|ending| ending != "toml" && ending != "so")
            {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
            assert!(lines <= 30, "{} has {lines} lines", path.display());
            looked_at += 1;
        }
        assert!(folder(name).join(format!("{name}.toml")).is_file());
    }
    assert_eq!(looked_at, 8);
    let text = fs::read_to_string(folder("probe").join("clock.cu")).unwrap();
    assert!(text.lines().filter(|line| !line.trim().is_empty()).count() <= 30);
}
