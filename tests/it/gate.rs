//! The verdict from end to end, on a worker whose times are made up.

use crate::common::Place;
use regatta_core::record::side::Side;

fn with_baseline(variants: &[&str]) -> Place {
    Place::with_baseline(variants, &[], "")
}

#[test]
fn an_unknown_baseline_says_how_to_make_one_and_measures_nothing() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let (_, stderr) = exits!(place, 3, ["gate", "./s.toml", "--baseline", "main"]);
    assert!(stderr.contains("regatta baseline save main"), "{stderr}");
    assert!(!place.path().join("reports/s/run.jsonl").exists());
}

#[test]
fn a_baseline_of_another_machine_or_schema_is_refused() {
    let place = with_baseline(&["fake/steady"]);
    let folder = place.path().join("baselines/s");
    let file = std::fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = std::fs::read_to_string(&file).unwrap();
    let schema = format!("\"schema\":{}", regatta_core::record::SCHEMA_VERSION);
    // Another machine's file, sums and all, as it would come from that machine.
    let side = regatta_core::record::baseline::read(&file).unwrap();
    let mut other: Side = side.clone();
    other
        .header
        .machine
        .hard
        .insert("cpu.cores".to_owned(), "96".to_owned());
    other.header.machine.name = "big-96c".to_owned();
    std::fs::remove_file(&file).unwrap();
    let store = regatta_core::record::baseline::Store::new(place.path().join("baselines"));
    store
        .save("s", &other, other.header.started, false)
        .unwrap();
    let (_, stderr) = exits!(place, 3, ["gate", "./s.toml"]);
    assert!(stderr.contains("cpu.cores: 96 there"), "{stderr}");

    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&file, text.replace(&schema, "\"schema\":99")).unwrap();
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml"]);
    assert!(stderr.contains("its schema is 99"), "{stderr}");
}

#[test]
fn baselines_are_never_replaced_by_chance_nor_made_of_failures() {
    let place = with_baseline(&["fake/steady"]);
    let (_, stderr) = exits!(place, 2, ["baseline", "save", "s"]);
    assert!(stderr.contains("--replace"), "{stderr}");
    exits!(place, 0, ["baseline", "save", "s", "--replace"]);
    place.suite("bad", &["fake/steady", "fake/dead"], &[], "");
    exits!(place, 1, ["run", "./bad.toml"]);
    let (_, stderr) = exits!(place, 3, ["baseline", "save", "bad", "reports/bad"]);
    assert!(stderr.contains("did not pass"), "{stderr}");
    let (stdout, _) = exits!(place, 0, ["baseline", "list"]);
    assert!(stdout.starts_with("  s: suite s, "), "{stdout}");
    exits!(place, 0, ["baseline", "list", "s"]);
    exits!(place, 0, ["baseline", "remove", "s"]);
    exits!(place, 3, ["gate", "./s.toml"]);
}

#[test]
fn json_is_for_machines() {
    let place = with_baseline(&["fake/steady"]);
    for args in [
        &["gate", "./s.toml", "--json"][..],
        &["diff", "s", "reports/s", "--json"],
        &["run", "./s.toml", "--json"],
        &["list", "./s.toml", "--json"],
        &["baseline", "list", "--json"],
        &["baseline", "list", "s", "--json"],
    ] {
        let (code, stdout, stderr) = place.ran(args);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        let value: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert!(!value.is_null(), "{args:?}");
    }
}

#[test]
fn a_damaged_baseline_is_refused_before_measuring() {
    let place = with_baseline(&["fake/steady", "fake/other"]);
    let folder = place.path().join("baselines/s");
    let file = std::fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_dir_all(place.path().join("reports")).unwrap();
    let edited = text.replace("\"device\":", "\"device\":1");
    let cut: String = text
        .lines()
        .take(6)
        .map(|line| format!("{line}\n"))
        .collect();
    for damaged in [edited, cut] {
        std::fs::write(&file, damaged).unwrap();
        let (_, stderr) = exits!(place, 2, ["gate", "./s.toml"]);
        assert!(
            stderr.contains("damaged") || stderr.contains("edited"),
            "{stderr}"
        );
        assert!(!place.path().join("reports/s/run.jsonl").exists());
    }
}
