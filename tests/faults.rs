//! Workers that go wrong: a row with its error, exit code 3, and the rest measured.

mod common;

use std::fs;
use std::time::Duration;

use common::Place;
use regatta::record::types::{Outcome, Run};

fn reasons(run: &Run, variant: &str) -> Vec<String> {
    run.entries
        .iter()
        .filter(|entry| entry.case.0.starts_with(variant))
        .map(|entry| match &entry.outcome {
            Outcome::Failed { reason, log } => format!("{reason} {log}"),
            Outcome::Unsupported { reason } => format!("unsupported: {reason}"),
            Outcome::Measured(_) => "measured".to_owned(),
        })
        .collect()
}

fn ran_with(variant: &str, more: &str) -> (Place, Run, String) {
    let place = Place::new();
    let variants = [variant, "fake/steady"];
    place.suite("s", &variants, &[], more);
    let args = [
        "run",
        "./s.toml",
        "--invocations",
        "2",
        "--filter",
        "*:s32*",
    ];
    let (stdout, _) = exits!(
        place,
        3,
        [args[0], args[1], args[2], args[3], args[4], args[5]]
    );
    let run = place.run("s");
    let rest = reasons(&run, "fake/steady");
    assert_eq!(rest, vec!["measured"; 4], "the rest is measured");
    (place, run, stdout)
}

#[test]
fn each_fault_is_told_as_what_it_is() {
    for (variant, says) in [
        ("fake/dead", "an illegal memory access"),
        ("fake/dead", "exit code 7"),
        ("fake/wrong", "relative L2 error 2.5e-1 is above"),
        ("fake/lying", "found by regatta's own float64 check"),
        ("fake/nan", "not finite"),
        ("fake/garbage", "tuning 24 configurations"),
        ("fake/impossible", "a sample of 0 ns"),
    ] {
        let (_, run, stdout) = ran_with(variant, "");
        let reasons = reasons(&run, variant);
        assert_eq!(reasons.len(), 4);
        for reason in reasons {
            assert!(reason.contains(says), "{variant}: {reason}");
        }
        assert!(stdout.contains(variant), "{stdout}");
    }
}

#[test]
fn a_silent_worker_is_killed_after_its_limit() {
    let (_, run, _) = ran_with("fake/silent", "");
    for reason in reasons(&run, "fake/silent") {
        assert!(
            reason.contains("did not answer prepare within 3s"),
            "{reason}"
        );
    }
}

#[test]
fn a_killed_worker_leaves_no_child() {
    let place = Place::new();
    let state = place.path().join("child");
    place.suite(
        "s",
        &["fake/forking"],
        &["--state", state.to_str().unwrap()],
        "",
    );
    let filter = "*:s32,d16";
    exits!(
        place,
        3,
        ["run", "./s.toml", "--invocations", "1", "--filter", filter]
    );
    let child = fs::read_to_string(&state).unwrap();
    let gone = (0..50).any(|_| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // A zombie that init has not reaped yet is as dead as one that is gone.
        let gone = stat.is_empty() || stat.contains(") Z ");
        if !gone {
            std::thread::sleep(Duration::from_millis(20));
        }
        gone
    });
    assert!(gone, "process {child} lives on");
}

#[test]
fn unsupported_is_no_failure_and_can_be_expected() {
    let place = Place::new();
    place.suite("s", &["fake/unsupported", "fake/steady"], &[], "");
    let (stdout, _) = exits!(place, 0, ["run", "./s.toml"]);
    assert!(stdout.contains("unsupported"), "{stdout}");
    exits!(place, 0, ["baseline", "save", "s"]);
    exits!(place, 0, ["gate", "./s.toml"]);
}

#[test]
fn a_suite_may_allow_a_case_to_fail() {
    let place = Place::new();
    place.suite("s", &["fake/dead", "fake/steady"], &[], "");
    let path = place.path().join("s.toml");
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("[policy]\n", "[policy]\nallow = [\"fake/dead:*\"]\n");
    fs::write(&path, text).unwrap();
    exits!(place, 0, ["run", "./s.toml"]);
}
