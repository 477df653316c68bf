//! Ways to forge times or to leave out work, and honest functions: some for each change, and all of
//! `tests/cheats` each night.

use std::path::Path;
use std::process::Command;

use crate::common::{Place, regatta};

/// Runs `tests/cheats/table.py` with these arguments; all of it is shown where it fails.
fn table(arguments: &[&str]) -> String {
    let python = std::env::var_os("REGATTA_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = Place::new();
    let output = Command::new(python)
        .arg(root.join("tests/cheats/table.py"))
        .arg(regatta())
        .arg(place.path())
        .args(arguments)
        .output()
        .unwrap();
    let log = std::fs::read_to_string(place.path().join("regatta.log")).unwrap_or_default();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{errors}\n{log}");
    printed
}

#[test]
fn ways_to_forge_times_gain_nothing_and_honest_functions_are_not_refused() {
    let printed = table(&[
        "--invocations=1",
        "clock_patched_much",
        "thread_replies_much",
        "checks_dropped",
        "code_replaced",
        "profile_hook",
        "repeats_skipped",
        "ahead_by_audit",
        "touched_later",
        "clock_of_harness",
        "matmul",
        "new_threads",
        "own_buffers",
    ]);
    for (way, words) in [
        ("clock_patched_much", "by a clock outside of the worker"),
        ("thread_replies_much", "by a clock outside of the worker"),
        ("checks_dropped", "has no `checked`"),
        (
            "code_replaced",
            "replaced regatta_worker.clock.threads.usage_lists",
        ),
        ("profile_hook", "left a function on"),
        (
            "repeats_skipped",
            "wrong result in a call that the harness timed",
        ),
        ("ahead_by_audit", "by a clock outside of the worker"),
        ("touched_later", "by a clock outside of the worker"),
        ("clock_of_harness", "no process could be slowed"),
    ] {
        // One that gains is tried once more.
        let line = printed
            .lines()
            .rfind(|line| line.contains(&format!(".{way}: ")));
        assert!(
            line.is_some_and(|line| line.contains(words)),
            "{way}: {printed}"
        );
    }
}

#[test]
#[ignore = "nightly: all ways and honest functions, which takes minutes"]
fn nightly_no_way_gains_and_no_honest_function_is_refused() {
    table(&["--cpu"]);
}
