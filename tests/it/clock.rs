//! How well times are known: the check of the clocks, the spread of a run, and what a sample is.

use crate::common::Place;

#[test]
fn the_processors_clock_is_checked_wherever_it_runs() {
    let place = Place::new();
    let (stdout, stderr) = exits!(place, 0, ["doctor", "--check-clocks"]);
    assert!(stdout.contains("monotonic clock"), "{stderr}");
    let rows = stdout
        .lines()
        .filter(|line| line.ends_with(|c: char| c.is_ascii_digit()));
    assert!(rows.count() >= 9, "{stdout}");
    assert!(
        stdout.lines().all(|line| line.chars().count() <= 80),
        "{stdout}"
    );
}

#[test]
fn the_spread_of_a_run_is_printed_and_a_baseline_has_none() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml"]);
    let (stdout, _) = exits!(place, 0, ["report", "reports/s", "--noise"]);
    assert!(
        stdout.contains("within") && stdout.contains("between"),
        "{stdout}"
    );
    assert_eq!(stdout.matches("\n  s").count(), 6, "{stdout}");
    let (stdout, _) = exits!(place, 0, ["report", "reports/s", "--noise", "--json"]);
    let runs: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let cases = runs[0]["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 6);
    assert_eq!(cases[0]["invocations"], 5);
    exits!(place, 0, ["baseline", "save", "main", "reports/s"]);
    let (_, stderr) = exits!(place, 2, ["report", "main", "--noise"]);
    assert!(stderr.contains("keeps no samples"), "{stderr}");
}

#[test]
fn a_worker_that_ignores_what_a_sample_is_fails_its_cases() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let (stdout, _) = exits!(place, 3, ["run", "./s.toml", "--set", "graph=true"]);
    assert!(stdout.contains("does not replay CUDA graphs"), "{stdout}");
}
