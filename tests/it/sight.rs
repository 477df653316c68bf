//! What a gate can see, says, and spends: sessions, batches, metrics.

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
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml", "--budget", "soon"]);
    assert!(stderr.contains("90s, 15m or 2h"), "{stderr}");
    let (_, stderr) = place_without_time(&place);
    assert!(stderr.contains("--budget leaves no time"), "{stderr}");
    assert_eq!(place.run("s").owed, []);
}

fn place_without_time(place: &Place) -> (String, String) {
    let (_, stdout, stderr) = place.ran(&["gate", "./s.toml", "--fresh", "--budget", "0"]);
    (stdout, stderr)
}
