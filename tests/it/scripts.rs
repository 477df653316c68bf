//! Benchmark scripts as they are (docs/SCRIPTS.md), in pairs of two revisions.
//!
//! Their timer is `timeit`, so an interpreter without anything installed runs them.

use std::collections::BTreeSet;
use std::path::Path;

use regatta_core::record::{Compared, Outcome};

use crate::common::{Place, copy, python_with_numpy};

const LIBRARY: &str = "
def total(values):
    return sum(value * value for value in values)
";

const BENCH: &str = "
import sys
import timeit
from library import total

for size in map(int, sys.argv[1:]):
    values = list(range(size))
    took = timeit.timeit(lambda: total(values), number=2)
    print('size', size, took)
    assert took > 0
";

/// A checkout with a script and the library that it measures.
fn checkout(script: &str) -> Place {
    let place = Place::new();
    place.write("library.py", LIBRARY);
    place.write("bench.py", script);
    place.committed()
}

#[test]
fn a_script_is_listed_run_and_compared_with_its_revision() {
    let place = checkout(BENCH);
    let (listed, _) = exits!(
        place,
        0,
        ["list", "--ids", "script:bench.py", "--", "500", "2000"]
    );
    assert_eq!(
        listed,
        "bench.py/total:size=500\nbench.py/total:size=2000\n"
    );
    let quick = ["--invocations", "2", "--quiet", "--threshold", "0.5"];
    let words = [&["run", "script:bench.py"], &quick[..], &["--", "500"]].concat();
    let (stdout, _) = exits!(place, 0, words);
    let unchecked = "results were not checked: no base is beside them";
    assert!(stdout.replace("\n  ", " ").contains(unchecked), "{stdout}");
    place.edit(
        "library.py",
        "value * value",
        "sum([value * value] * 20) / 20",
    );
    let words = [
        &["compare", "script:bench.py", "--base", "git:main"],
        &quick[..],
        &["--", "500", "2000"],
    ];
    let (stdout, _) = exits!(place, 1, words.concat());
    assert!(stdout.starts_with("FAILED"), "{stdout}");
    assert!(stdout.contains("bench.py/total:size=2000"), "{stdout}");
}

#[test]
fn calls_of_one_side_are_new_or_missing_and_a_wrong_result_is_found() {
    let script = "
import array, timeit
from library import total

class Array:
    shape, dtype = (2,), 'int64'

for size in (400, 800):
    timeit.timeit(lambda: total(range(size)), number=2)
";
    let place = checkout(script);
    place.edit("bench.py", "(400, 800)", "(800, 1600)");
    let words = [
        "compare",
        "script:bench.py",
        "--base",
        "git:main",
        "--invocations",
        "1",
    ];
    let (stdout, stderr) = exits!(place, 3, words);
    assert!(stderr.contains("new: 1 of 2 cases"), "{stderr}");
    assert!(stdout.contains("1 missing"), "{stdout}");
    assert!(stdout.contains("bench.py/total:size=400"), "{stdout}");
    let run = place.run("bench-compare/head");
    let mut measured = run.entries.iter().filter_map(|entry| match &entry.outcome {
        Outcome::Measured(measurement) => measurement.compared.clone(),
        _ => None,
    });
    let reason = "the calls return no arrays".to_owned();
    assert_eq!(measured.next_back(), Some(Compared::Nothing(reason)));
}

#[test]
fn a_script_that_cannot_be_served_is_refused_before_anything_is_measured() {
    for (script, words) in [
        ("print('no timer')", "bench.py ended and called no timer"),
        (
            "import timeit\ntimeit.timeit(lambda: 1)\nassert 1 > 2, 'slow'",
            "bench.py:3: AssertionError: slow",
        ),
        ("input()", "bench.py:1: EOFError"),
        ("print('x' * 100_000_000)", "MiB"),
        (
            "def cases():\n    return []",
            "bench.py:1: cases() yields nothing",
        ),
        (
            "class A:\n    def setup(self): 1 / 0\n    def time_a(self): pass",
            "bench.py:3: setup of A.time_a raised bench.py:2: ZeroDivisionError",
        ),
    ] {
        let place = Place::new();
        place.write("bench.py", script);
        let (_, stderr) = exits!(place, 2, ["run", "script:bench.py"]);
        assert!(stderr.contains(words), "{stderr}");
        assert!(!place.path().join("reports/bench/run.jsonl").exists());
    }
    let place = Place::new();
    let (_, stderr) = exits!(place, 2, ["run", "quick", "--", "--fast"]);
    assert!(stderr.contains("those of a script"), "{stderr}");
}

#[test]
fn calls_that_change_from_process_to_process_are_missing() {
    let script = "
import os, timeit
timeit.timeit(lambda: sorted(range(900)), number=2)
# The second process makes another call than the first.
name = 'listed'
timeit.timeit(lambda: 1, number=2) if os.path.exists(name) else timeit.timeit(lambda: max(1, 2))
open(name, 'w').close()
";
    let place = Place::new();
    place.write("bench.py", script);
    let (stdout, _) = exits!(place, 3, ["run", "script:bench.py", "--invocations", "1"]);
    let words = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("ended without the call max,"), "{stdout}");
}

/// Functions that a project times by asv and by a generator; the base is their only reference.
#[test]
#[ignore = "needs NumPy"]
fn ten_of_ten_wrong_results_of_adopted_functions_are_refused() {
    let python = python_with_numpy();
    let place = Place::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/adopted");
    copy(&source, place.path());
    place.write(
        "s.toml",
        "description = 'adopted'\n[workers]\na = 'script:bench_asv.py'\nb = 'script:bench_cases.py'\n\
         [measure]\ninvocations = 1\nsamples = 5\nbudget_ms = 20\n",
    );
    let place = place.committed();
    let words = ["--", "--benchmark", "softmax|matmul"];
    let words = [&["list", "--ids", "script:bench_asv.py"], &words[..]].concat();
    let output = place
        .regatta(&words)
        .env("REGATTA_PYTHON", &python)
        .output();
    assert_eq!(
        String::from_utf8(output.unwrap().stdout).unwrap(),
        "bench_asv.py/Rows.time_softmax:rows=64\nbench_asv.py/Rows.time_softmax:rows=96\n\
         bench_asv.py/Products.time_matmul:call\n"
    );
    let wrong = std::fs::read_to_string(source.join("wrong.py")).unwrap();
    place.write("library.py", &wrong);
    let mut command = place.regatta(&[
        "compare",
        "./s.toml",
        "--base",
        "git:main",
        "--threshold",
        "0.5",
    ]);
    let output = command.env("REGATTA_PYTHON", python).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (mut refused, mut right) = (BTreeSet::new(), BTreeSet::new());
    for entry in place.run("s-compare/head").entries {
        let case = entry.case.to_string();
        let name = case.split(['/', ':']).nth(1).unwrap_or_default().to_owned();
        match entry.outcome {
            Outcome::Measured(measurement) => {
                assert_eq!(measurement.compared, Some(Compared::Base), "{case}");
                let reason = measurement.samples.input_sets_reason.unwrap_or_default();
                assert!(
                    reason.contains("a function that keeps a result passes"),
                    "{case}"
                );
                right.insert(name);
            }
            Outcome::Failed { reason, .. } => {
                assert!(reason.contains("wrong result"), "{case}: {reason}");
                refused.insert(name);
            }
            other => panic!("{case}: {other:?}"),
        }
    }
    assert_eq!(right, ["Rows.time_variance".to_owned()].into());
    assert_eq!(refused.len(), 10, "{refused:?}");
}

/// A benchmark class as Hugging Face has it, with stand-ins for its packages.
#[test]
#[ignore = "needs NumPy"]
fn a_benchmark_that_verifies_its_result_needs_no_base() {
    let python = python_with_numpy();
    let place = Place::new();
    for folder in ["kernels", "torch"] {
        std::fs::create_dir(place.path().join(folder)).unwrap();
    }
    place.write(
        "kernels/__init__.py",
        "get_local_kernel = lambda path: None",
    );
    let base = "class Benchmark:\n    seed = None\n    def setup(self): self.x = self.out = None";
    place.write("kernels/benchmark.py", base);
    place.write(
        "torch/__init__.py",
        "from numpy import allclose\nTensor = type('T', (), {})",
    );
    let script = "
import numpy as np
import torch
from kernels.benchmark import Benchmark

class Twice(Benchmark):
    def benchmark_small(self): self.out = 2 * np.arange(64.0)
    def verify_small(self): return np.arange(64.0) * 2
    def benchmark_wrong(self): self.out = 3 * np.arange(64.0)
    verify_wrong = verify_small
    def benchmark_alone(self): self.out = np.ones(8)
";
    place.write("bench.py", script);
    let ran = |name: &str, code: i32| {
        let words = ["run", "script:bench.py", "--invocations", "1", "--"];
        let words = [&words[..], &["--benchmark", name]].concat();
        let output = place
            .regatta(&words)
            .env("REGATTA_PYTHON", &python)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (right, wrong, alone) = (ran("small", 0), ran("wrong", 1), ran("alone", 0));
    assert!(!right.contains("not checked"), "{right}");
    assert!(
        wrong.contains("out differs from the result of verify_wrong"),
        "{wrong}"
    );
    assert!(
        alone.contains("1 case whose results were not checked"),
        "{alone}"
    );
}

/// A script that was renamed is compared with what it was called: its calls are not all new.
#[test]
fn a_script_that_was_renamed_is_compared_with_its_old_self() {
    let place = checkout(BENCH);
    std::fs::create_dir(place.path().join("my benches")).unwrap();
    place.git(&["mv", "bench.py", "my benches/norms.py"]);
    let script = "script:'my benches/norms.py'";
    let quick = ["--invocations", "1", "--threshold", "0.9", "--json"];
    let words = [
        &["gate", script, "--base", "git:main"],
        &quick[..],
        &["--", "500"],
    ]
    .concat();
    let (code, stdout, stderr) = place.ran(&words);
    let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let row = &answer["rows"][0];
    assert_eq!(row["case"], "norms.py/total:size=500", "{stderr}");
    assert_ne!(row["word"], "new", "{code}: {stderr}");
}

/// As a program does that becomes a daemon.
#[test]
fn a_script_that_closes_the_descriptors_that_it_was_started_with_is_listed() {
    let closing = |last: &str| format!("import os\nos.closerange(3, {last})\n{BENCH}");
    let place = checkout(&closing("256"));
    let words = ["list", "--ids", "script:bench.py", "--", "500"];
    let (listed, _) = exits!(place, 0, words);
    assert_eq!(listed, "bench.py/total:size=500\n");
    place.write("bench.py", &closing("os.sysconf('SC_OPEN_MAX')"));
    let (_, stderr) = exits!(place, 2, words);
    let refusal = "bench.py closed a file descriptor that is regatta's";
    assert!(stderr.contains(refusal), "{stderr}");
    assert!(
        !stderr.contains("Traceback") && !stderr.contains("running.py"),
        "{stderr}"
    );
}

/// As a checkout that a container mounts read-only. Root may write wherever a mode forbids it.
#[test]
fn a_repository_that_takes_no_worktree_is_named() {
    let place = checkout(BENCH);
    std::os::unix::fs::symlink("/proc/self", place.path().join(".git/worktrees")).unwrap();
    let words = ["gate", "script:bench.py", "--base", "git:main", "--", "500"];
    let (_, stderr) = exits!(place, 2, words);
    let stderr = stderr.replace('\n', " ");
    assert!(
        stderr.contains(".git/worktrees cannot be written ("),
        "{stderr}"
    );
    assert!(
        stderr.contains("or measure in a clone of this checkout"),
        "{stderr}"
    );
}

/// A script whose only call takes so many turns, below some lines.
fn counting(lines: u32, turns: u32) -> String {
    let lines = (0..lines).map(|line| format!("x{line} = {line}\n"));
    let call = format!("timeit.timeit(lambda: sum(range({turns})), number=2)\n");
    format!("{}import timeit\n{call}", lines.collect::<String>())
}

#[test]
fn a_script_under_another_name_is_compared_or_the_gate_says_that_nothing_was() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("sub")).unwrap();
    place.write("bench.py", &counting(20, 1_000));
    place.write("sub/other.py", &counting(0, 1_000));
    let place = place.committed();
    place.git(&["checkout", "-q", "-b", "topic"]);
    let renames = |from: &str, to: &str, text: &str| {
        place.git(&["mv", from, to]);
        place.write(to, text);
        place.git(&["commit", "-q", "-a", "-m", to]);
    };
    let gate = |folder: &str, script: &str| {
        let args = ["gate", script, "--base", "git:main", "--invocations", "1"];
        let mut command = place.regatta(&args);
        let output = command.current_dir(place.path().join(folder)).output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (output.status.code(), text)
    };
    // Git does not call it renamed, and both make the same call.
    renames("bench.py", "speed.py", &counting(0, 100_000));
    let (_, text) = gate(".", "script:speed.py");
    assert!(
        text.contains("by pairs") && !text.contains(" new"),
        "{text}"
    );
    // The base lies outside of the folder in which the sides are started.
    renames("speed.py", "sub/moved.py", &counting(20, 100_000));
    let (code, text) = gate("sub", "script:moved.py");
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("as ../bench.py, outside of the folder"),
        "{text}"
    );
    let (_, text) = gate(".", "script:sub/moved.py");
    assert!(
        text.contains("by pairs") && !text.contains(" new"),
        "{text}"
    );
    // Another benchmark, though the old one is the nearest of those that are gone.
    let other = counting(0, 1_000).replace("sum(", "max(");
    renames("sub/moved.py", "another.py", &other);
    let (code, text) = gate(".", "script:another.py");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 new; nothing was compared"), "{text}");
}
