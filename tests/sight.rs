//! What a gate can see, says, and spends: calibrations, sessions, batches, metrics.

use std::path::PathBuf;

use crate::common::Place;
use serde_json::Value;

fn judged(place: &Place, code: i32, args: &[&str]) -> Value {
    let (stdout, _) = exits!(place, code, args);
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// The file of baseline `s` with this ending.
fn kept(place: &Place, ending: &str) -> PathBuf {
    let files = std::fs::read_dir(place.path().join("baselines/s")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let file = files.find(|file| file.to_string_lossy().ends_with(ending));
    file.unwrap()
}

#[test]
fn a_calibration_is_kept_beside_the_baseline_and_told_by_gates() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let (_, stderr) = exits!(place, 0, ["gate", "./s.toml"]);
    assert!(
        stderr.contains("what this gate sees here is not known"),
        "{stderr}"
    );
    let calibrate = ["calibrate", "./s.toml", "--gates", "20", "--json"];
    let found = judged(&place, 0, &calibrate);
    assert_eq!(found["invocations"], 20);
    assert_eq!(found["rates"]["red"], 0.0);
    assert_eq!(found["rates"]["found"]["10"], 1.0);
    let floors = found["cases"].as_object().unwrap().values();
    assert!(
        floors
            .clone()
            .all(|case| case["floor"].as_f64().unwrap() <= 0.02)
    );
    assert_eq!(floors.count(), 6);
    let (_, stderr) = exits!(place, 0, ["gate", "./s.toml"]);
    let said = "on this machine this gate calls 0.0 % of clean sweeps red";
    assert!(stderr.contains(said), "{stderr}");
    // The same of a stored run, which measures nothing.
    let (stdout, _) = exits!(
        place,
        0,
        [
            "calibrate",
            "./s.toml",
            "--gates",
            "20",
            "--run",
            "reports/s-calibration"
        ]
    );
    assert!(stdout.contains(said), "{stdout}");
    assert!(
        stdout.lines().all(|line| line.chars().count() <= 80),
        "{stdout}"
    );
}

#[test]
fn floors_can_be_those_of_the_calibration() {
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/other", "fake/noisy"], &[], "");
    place.edit("s.toml", "floor = 0.02", "floor = \"calibrated\"");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    // Whatever comes of the noisy ones.
    let (_, _, stderr) = place.ran(&["gate", "./s.toml"]);
    assert!(
        stderr.contains("its floors are 5.0 % until then"),
        "{stderr}"
    );
    exits!(place, 0, ["calibrate", "./s.toml", "--gates", "20"]);
    // Two per cent are far beyond the floor of what varies by a tenth of one.
    let slower = "fake/steady.slower_percent=2";
    let judgement = judged(&place, 1, &["gate", "./s.toml", "--json", "--set", slower]);
    let rows = judgement["rows"].as_array().unwrap();
    let steady = rows.iter().filter(|row| {
        let case = row["case"].as_str().unwrap_or_default();
        case.starts_with("fake/steady") && row["word"] == "regressed"
    });
    assert_eq!(steady.count(), 6, "{judgement}");
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml", "--budget", "soon"]);
    assert!(stderr.contains("90s, 15m or 2h"), "{stderr}");
}

#[test]
fn a_calibration_of_another_driver_is_not_used() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    exits!(place, 0, ["calibrate", "./s.toml", "--gates", "20"]);
    let file = kept(&place, ".calibration.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut found: Value = serde_json::from_str(&text).unwrap();
    for fact in found["hard"].as_object_mut().unwrap().values_mut() {
        *fact = Value::from("another");
    }
    std::fs::write(&file, found.to_string()).unwrap();
    let (_, stderr) = exits!(place, 0, ["gate", "./s.toml"]);
    assert!(stderr.contains("is of another machine ("), "{stderr}");
    assert!(!stderr.contains("of clean sweeps red"), "{stderr}");
}

#[test]
fn a_damaged_calibration_is_named() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    exits!(place, 0, ["calibrate", "./s.toml", "--gates", "20"]);
    let file = kept(&place, ".calibration.json");
    std::fs::write(&file, "{\"schema\": 1}").unwrap();
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml"]);
    assert!(stderr.contains("calibration.json"), "{stderr}");
}

#[test]
fn a_baseline_keeps_its_sessions() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let (_, stderr) = exits!(place, 2, ["baseline", "save", "s", "reports/s", "--add"]);
    assert!(stderr.contains("is in baseline s already"), "{stderr}");
    for sessions in 2..=9 {
        exits!(place, 0, ["run", "./s.toml", "--fresh"]);
        let saved = judged(
            &place,
            0,
            &["baseline", "save", "s", "reports/s", "--add", "--json"],
        );
        assert_eq!(saved["sessions"], sessions.min(8));
    }
    let listed = judged(&place, 0, &["baseline", "list", "--json"]);
    assert_eq!(listed[0]["sessions"], 8);
    exits!(place, 0, ["gate", "./s.toml"]);
    let slower = "fake/steady.slower_percent=8";
    let (stdout, _) = exits!(place, 1, ["gate", "./s.toml", "--set", slower]);
    assert!(!stdout.contains("one stored session"), "{stdout}");
    // A part of a baseline is none: its other sessions would be lost unsaid.
    let path = kept(&place, ".jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, whole.replacen("device_ns\":[", "device_ns\":[1,", 1)).unwrap();
    exits!(place, 0, ["run", "./s.toml", "--fresh"]);
    let (_, stderr) = exits!(place, 2, ["baseline", "save", "s", "reports/s", "--add"]);
    assert!(stderr.contains("is damaged"), "{stderr}");
    std::fs::write(&path, whole).unwrap();
    // Another set of cases is no session of it.
    place.edit(
        "s.toml",
        "invocations = 5",
        "invocations = 5\ncache = \"hot\"",
    );
    exits!(place, 0, ["run", "./s.toml", "--fresh"]);
    let (_, stderr) = exits!(place, 3, ["baseline", "save", "s", "reports/s", "--add"]);
    assert!(stderr.contains("is no session of baseline s"), "{stderr}");
}

#[test]
fn what_is_undecided_gets_batches_up_to_the_budget() {
    let place = Place::with_baseline(&["fake/noisy"], &[], "");
    place.edit("s.toml", "confirm = 6", "confirm = 30");
    place.edit("s.toml", "floor = 0.02", "floor = 0.055");
    place.ran(&["gate", "./s.toml"]);
    let run = place.run("s");
    let steps: Vec<u32> = run.owed.iter().map(|batch| batch.fresh).collect();
    assert!([2, 5, 10, 18, 30].starts_with(&steps), "{steps:?}");
    assert!(!steps.is_empty());
    for pair in run.owed.windows(2) {
        let before = &pair[0].cases;
        assert!(pair[1].cases.iter().all(|case| before.contains(case)));
    }
    let (_, stderr) = place_without_time(&place);
    assert!(stderr.contains("--budget leaves no time"), "{stderr}");
    assert_eq!(place.run("s").owed, []);
}

fn place_without_time(place: &Place) -> (String, String) {
    let (_, stdout, stderr) = place.ran(&["gate", "./s.toml", "--fresh", "--budget", "0"]);
    (stdout, stderr)
}

#[test]
fn a_slower_host_fails_where_the_device_does_not() {
    let place = Place::with_baseline(&["fake/gpu"], &["--kind", "cuda"], "");
    let slower = "fake/gpu.fault=slow-host";
    let judgement = judged(&place, 1, &["gate", "./s.toml", "--json", "--set", slower]);
    let reason = judgement["verdict"]["reasons"][0].as_str().unwrap();
    assert!(
        reason.starts_with("the host time of 6 cases regressed"),
        "{reason}"
    );
    let row = &judgement["rows"][0];
    assert_eq!(row["word"], "same");
    assert_eq!(row["metrics"][0]["word"], "regressed");
    // A suite may only want to know.
    place.edit(
        "s.toml",
        "[workers",
        "[policy.metrics]\nhost = { action = \"warn\" }\n[workers",
    );
    let (stdout, _) = exits!(place, 0, ["gate", "./s.toml", "--set", slower]);
    assert!(stdout.contains("Slower beside the device"), "{stdout}");
    place.edit("s.toml", "action = \"warn\"", "action = \"loud\"");
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml"]);
    assert!(stderr.contains("`fail`, `warn` or `ignore`"), "{stderr}");
}

#[test]
fn a_suite_may_demand_what_a_gate_must_see() {
    let sight = "[policy.sight]\nchange = 0.0001\ncases = 0.9\n";
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    place.edit("s.toml", "[workers", &format!("{sight}[workers"));
    let (stdout, _) = exits!(place, 3, ["gate", "./s.toml"]);
    assert!(stdout.contains("0 of 6 cases could have shown"), "{stdout}");
}
