//! What the `cuda` worker says of a device that is missing, old, full or lost, by a
//! driver that plays each (tests/workers/driver.c). What it says of a real one is
//! `suites/native.toml` on a GPU.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Place;
use regatta_core::record::types::Outcome;

const SUITE: &str = r#"
description = "two variants on a device that is not there"
[measure]
invocations = 1
samples = 3
[[sweep]]
variants = ["cuda/flash-mma", "cuda/naive"]
seq = 2048
heads = 8
head_dim = 64
dtype = "bf16"
"#;

/// A folder without a compiler.
const NOWHERE: &str = "/nonexistent";

/// A folder with the driver in it, compiled by the C compiler that rustc links with.
fn driver(place: &Place) -> PathBuf {
    let folder = place.path().join("driver");
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers/driver.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-w", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(source)
        .status()
        .expect("a C compiler is installed");
    assert!(compiled.success());
    folder
}

/// regatta on a device that behaves as told.
fn driven(place: &Place, mode: &str, cuda: &str, args: &[&str]) -> std::process::Command {
    let mut command = place.regatta(args);
    command
        .env("LD_LIBRARY_PATH", driver(place))
        .env("MOCK_CUDA", mode)
        .env("MOCK_CUDA_STATE", place.path().join("lost"))
        .env("REGATTA_CUDA", cuda)
        // NVRTC asks the driver for more than this one has.
        .env(
            "REGATTA_COMPILER",
            if cuda.starts_with(NOWHERE) {
                "nvrtc"
            } else {
                "nvcc"
            },
        );
    command
}

/// Runs it; gives exit code, output and errors.
fn ran(place: &Place, mode: &str, cuda: &str, args: &[&str]) -> (i32, String, String) {
    let output = driven(place, mode, cuda, args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    (code, text(&output.stdout), text(&output.stderr))
}

/// How each case of the suite ended, sorted by case.
fn outcomes(place: &Place, mode: &str, cuda: &str) -> Vec<String> {
    place.write("s.toml", SUITE);
    let (code, stdout, stderr) = ran(place, mode, cuda, &["run", "./s.toml"]);
    // A device that is lost is a crash, and one that writes nothing gives wrong results.
    let worse = mode.starts_with("lost") || !cuda.starts_with(NOWHERE);
    let expected = if worse { 1 } else { 3 };
    assert_eq!(code, expected, "{stdout}{stderr}");
    let told = |outcome: &Outcome| match outcome {
        Outcome::Failed { reason, .. } => format!("failed: {reason}"),
        Outcome::Unsupported { reason } => format!("unsupported: {reason}"),
        Outcome::Measured(_) => "measured".to_owned(),
    };
    let mut entries = place.run("s").entries;
    entries.sort_by(|a, b| a.case.0.cmp(&b.case.0));
    entries.iter().map(|entry| told(&entry.outcome)).collect()
}

#[test]
fn no_driver_and_no_device_are_told_before_anything_is_measured() {
    let place = Place::new();
    place.write("s.toml", SUITE);
    let (code, _, stderr) = place.ran(&["run", "./s.toml"]);
    if !stderr.contains("libcuda.so.1 not found") {
        eprintln!("not run in part: this machine has a CUDA driver");
    } else {
        assert_eq!(code, 2, "{stderr}");
    }
    let (code, _, stderr) = ran(&place, "no-device", "", &["run", "./s.toml"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("no CUDA device"), "{stderr}");
    assert!(stderr.contains("CUDA_ERROR_NO_DEVICE"), "{stderr}");
    let run = place.path().join("reports/s/run.jsonl");
    assert!(!run.exists(), "nothing was measured");
}

#[test]
fn doctor_tells_each_from_the_other() {
    let place = Place::new();
    let (_, stdout, _) = ran(&place, "no-device", "", &["doctor"]);
    assert!(stdout.contains("absent cuda: no CUDA device"), "{stdout}");
    let (_, stdout, _) = ran(&place, "", NOWHERE, &["doctor"]);
    assert!(stdout.contains("6 variants on Mock GPU"), "{stdout}");
    assert!(stdout.contains("compiler none"), "{stdout}");
}

#[test]
fn a_device_too_old_is_unsupported() {
    let place = Place::new();
    let found = outcomes(&place, "old", NOWHERE);
    let says = "needs compute capability 8.0; this device has 7.5";
    assert_eq!(
        found,
        ["flash-mma", "naive"].map(|name| format!("unsupported: cuda/{name} {says}"))
    );
}

#[test]
fn short_memory_fails_the_case_with_what_was_needed_and_free() {
    let place = Place::new();
    let found = outcomes(&place, "busy", NOWHERE);
    assert_eq!(found.len(), 2);
    for outcome in found {
        assert!(
            outcome.starts_with("failed: the case and its float64 reference need 0."),
            "{outcome}"
        );
        assert!(outcome.contains("0.0 of 16.0 GiB are free"), "{outcome}");
    }
    let place = Place::new();
    for outcome in outcomes(&place, "full", NOWHERE) {
        assert!(outcome.contains("out of device memory"), "{outcome}");
    }
}

#[test]
fn a_lost_device_fails_its_case_and_the_worker_starts_once_more() {
    let lost = "lost its device: cuMemAlloc failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)";
    let place = Place::new();
    let found = outcomes(&place, "lost-once", NOWHERE);
    let is_lost = |outcome: &&String| outcome.contains(lost);
    assert_eq!(found.iter().filter(is_lost).count(), 1, "{found:?}");
    // The other case got a new process, and as far as one gets without a compiler.
    let went_on = |outcome: &&String| outcome.contains("is not here");
    assert_eq!(found.iter().filter(went_on).count(), 1, "{found:?}");

    let place = Place::new();
    let found = outcomes(&place, "lost-for-good", NOWHERE);
    assert_eq!(found.iter().filter(is_lost).count(), 1, "{found:?}");
    let gone = |outcome: &&String| outcome.contains("CUDA_ERROR_NO_DEVICE");
    assert_eq!(found.iter().filter(gone).count(), 1, "{found:?}");
}

#[test]
fn without_a_compiler_the_case_says_where_one_was_looked_for() {
    let place = Place::new();
    for outcome in outcomes(&place, "", NOWHERE) {
        assert!(outcome.contains(NOWHERE), "{outcome}");
        assert!(outcome.contains("REGATTA_CUDA"), "{outcome}");
    }
}

/// With a compiler and a device that executes nothing, the poison stays in the results.
#[test]
#[ignore = "needs CUDA's compilers"]
fn a_kernel_that_writes_nothing_is_found_out() {
    let cuda = std::env::var("REGATTA_TEST_CUDA").expect("it names a CUDA toolkit");
    let place = Place::new();
    for outcome in outcomes(&place, "", &cuda) {
        assert!(outcome.contains("never written"), "{outcome}");
    }
}

/// The place of `examples/cuda`: a kernel of somebody's, its contract, and a suite.
fn own(place: &Place) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cuda");
    for name in ["attention.cu", "attention.toml", "cuda.toml"] {
        std::fs::copy(folder.join(name), place.path().join(name)).unwrap();
    }
}

/// How the cases of `examples/cuda` ended, with the exit code of a wrong result, 1, or of one
/// that there is not, 3.
fn of_own(place: &Place, cuda: &str, expected: i32) -> Vec<String> {
    let run = ["run", "./cuda.toml", "--invocations", "1"];
    let (code, _, stderr) = ran(place, "", cuda, &run);
    assert_eq!(code, expected, "{stderr}");
    let run = place.run("cuda");
    let entries = run.entries.iter();
    entries
        .map(|entry| format!("{:?}", entry.outcome))
        .collect()
}

#[test]
fn what_somebodys_kernel_does_not_take_is_unsupported() {
    let place = Place::new();
    own(&place);
    place.edit("cuda.toml", "heads = 4", "heads = 4\nkv_heads = 2");
    let run = ["run", "./cuda.toml", "--invocations", "1"];
    let (code, _, stderr) = ran(&place, "", NOWHERE, &run);
    assert_eq!(code, 3, "{stderr}");
    let entries = place.run("cuda").entries;
    assert!(!entries.is_empty());
    for entry in entries {
        let outcome = format!("{:?}", entry.outcome);
        assert!(
            outcome.contains("mine/attention requires heads == kv_heads"),
            "{outcome}"
        );
    }
}

/// As unsupported, it would pass a gate.
#[test]
fn a_formula_that_no_launch_can_have_fails_the_case() {
    let place = Place::new();
    own(&place);
    place.edit(
        "attention.toml",
        "\"batch * seq_q * heads\"",
        "\"seq_q - 128\"",
    );
    let outcomes = of_own(&place, NOWHERE, 3);
    let words = "[variants.attention] forward 1, grid: `seq_q - 128` is 0; it is 1 or more";
    let wrong = |outcome: &&String| outcome.starts_with("Failed") && outcome.contains(words);
    assert_eq!(outcomes.iter().filter(wrong).count(), 1, "{outcomes:?}");
}

/// With a compiler and a device that executes nothing.
#[test]
#[ignore = "needs CUDA's compilers"]
fn somebodys_kernel_is_compiled_and_held_to_the_reference() {
    let cuda = std::env::var("REGATTA_TEST_CUDA").expect("it names a CUDA toolkit");
    let place = Place::new();
    own(&place);
    for outcome in of_own(&place, &cuda, 1) {
        assert!(outcome.contains("never written"), "{outcome}");
    }
    let output = driven(&place, "", &cuda, &["run", "./cuda.toml", "--no-resume"])
        .env("MOCK_CUDA_PARAMETERS", "8 8 8 8 4 4 4 8 4")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    for entry in place.run("cuda").entries {
        let outcome = format!("{:?}", entry.outcome);
        let words = "attention takes 8 bytes as argument 8, and the `int` of its contract has 4";
        assert!(outcome.contains(words), "{outcome}");
    }
    place.edit(
        "attention.toml",
        "entry = \"attention\"",
        "entry = \"forward\"",
    );
    for outcome in of_own(&place, &cuda, 3) {
        assert!(
            outcome.contains("no entry point `forward`; it has attention"),
            "{outcome}"
        );
    }
    own(&place);
    place.edit("attention.cu", "total = 0, sum = 0", "total = 0; sum = 0");
    for outcome in of_own(&place, &cuda, 3) {
        assert!(outcome.contains("attention.cu(14)"), "{outcome}");
    }
}
