//! The verdict from end to end, on a worker whose times are made up.

mod common;

use common::Place;
use regatta::record::side::Side;
use regatta::record::types::Outcome;

fn with_baseline(variants: &[&str]) -> Place {
    Place::with_baseline(variants, &[], "")
}

#[test]
fn nothing_changed_passes_and_leaves_its_reports() {
    let place = with_baseline(&["fake/steady", "fake/other"]);
    let (stdout, _) = exits!(place, 0, ["gate", "./s.toml"]);
    assert!(stdout.to_lowercase().contains("passed"), "{stdout}");
    for file in ["run.jsonl", "index.html", "cases.csv", "samples.csv"] {
        assert!(place.path().join("reports/s").join(file).exists(), "{file}");
    }
    let past = std::fs::read_dir(place.path().join("reports/s/past")).unwrap();
    assert_eq!(past.count(), 1, "the run before is kept");
}

#[test]
fn a_lost_split_is_confirmed_named_and_explained() {
    let place = with_baseline(&["fake/steady", "fake/other"]);
    let (stdout, stderr) = exits!(
        place,
        1,
        ["gate", "./s.toml", "--set", "fake/steady.num_splits_key=1"]
    );
    assert!(!stderr.contains("fresh invocations"), "{stderr}");
    assert!(stdout.contains("  all fake/steady, d16;"), "{stdout}");
    assert!(stdout.contains("\n  s64,bwd "), "{stdout}");
    assert!(
        stdout.contains("num_splits_key"),
        "the cause is named: {stdout}"
    );
    assert!(
        !stdout.contains("fake/other:"),
        "what did not change is not accused: {stdout}"
    );
    let run = place.run("s");
    let mut fresh = run.entries.iter().filter(|entry| entry.invocation >= 5);
    assert_eq!(fresh.next(), None, "what is decided is not measured again");
}

#[test]
fn small_changes_below_the_floor_pass() {
    let place = with_baseline(&["fake/steady"]);
    exits!(
        place,
        0,
        ["gate", "./s.toml", "--set", "fake/steady.slower_percent=1"]
    );
    exits!(
        place,
        1,
        ["gate", "./s.toml", "--set", "fake/steady.slower_percent=5"]
    );
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
    // Another machine's file, sums and all, as it would come from that machine.
    let side = regatta::record::baseline::read(&file).unwrap();
    let mut other: Side = side.clone();
    other
        .header
        .machine
        .hard
        .insert("cpu.cores".to_owned(), "96".to_owned());
    other.header.machine.name = "big-96c".to_owned();
    std::fs::remove_file(&file).unwrap();
    let store = regatta::record::baseline::Store::new(place.path().join("baselines"));
    store
        .save("s", &other, other.header.started, false)
        .unwrap();
    let (_, stderr) = exits!(place, 3, ["gate", "./s.toml"]);
    assert!(stderr.contains("cpu.cores: 96 there"), "{stderr}");

    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&file, text.replace("\"schema\":2", "\"schema\":3")).unwrap();
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml"]);
    assert!(stderr.contains("its schema is 3"), "{stderr}");
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
    assert!(stdout.starts_with("s\n"), "{stdout}");
    exits!(place, 0, ["baseline", "show", "s"]);
    exits!(place, 0, ["baseline", "remove", "s"]);
    exits!(place, 3, ["gate", "./s.toml"]);
}

#[test]
fn expectations_need_no_baseline() {
    let place = Place::new();
    let expect = "params = { num_splits_key = [\"auto\", 1, 2, 4] }\n\
         [[expect]]\nname = \"automatic splits are good\"\nwithin = 1.10\n\
         case = { num_splits_key = \"auto\" }\nagainst = { num_splits_key = [1, 2, 4] }\n";
    place.suite("s", &["fake/steady"], &[], expect);
    exits!(place, 0, ["run", "./s.toml"]);
    let (stdout, _) = exits!(
        place,
        1,
        ["run", "./s.toml", "--set", "fake/steady.num_splits_key=-1"]
    );
    assert!(stdout.contains("automatic splits are good"), "{stdout}");
    let past = place.path().join("reports/s/past");
    let before = std::fs::read_dir(past)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let (stdout, _) = exits!(place, 1, ["diff", before.to_str().unwrap(), "reports/s"]);
    assert!(stdout.contains("\n  s64,bwd "), "{stdout}");
}

#[test]
fn a_worker_killed_in_mid_run_costs_one_case_in_one_invocation() {
    let place = Place::new();
    let state = place.path().join("state");
    let args = ["--state", state.to_str().unwrap()];
    place.suite("s", &["fake/steady", "fake/dies-once"], &args, "");
    std::fs::write(&state, "died").unwrap();
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    std::fs::remove_file(&state).unwrap();
    let (stdout, _) = exits!(place, 1, ["gate", "./s.toml"]);
    assert!(stdout.contains("fake/dies-once"), "{stdout}");
    let run = place.run("s");
    assert_eq!(run.entries.len(), 12 * 5, "the rest is measured");
    let failed: Vec<_> = run
        .entries
        .iter()
        .filter(|e| matches!(e.outcome, Outcome::Failed { .. }))
        .collect();
    assert_eq!(failed.len(), 1);
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
        &["baseline", "show", "s", "--json"],
    ] {
        let (code, stdout, stderr) = place.ran(args);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        let value: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert!(!value.is_null(), "{args:?}");
    }
}

#[test]
fn output_fits_and_pipes_cleanly() {
    let place = with_baseline(&["fake/steady", "fake/other"]);
    let (stdout, stderr) = exits!(
        place,
        1,
        [
            "gate",
            "./s.toml",
            "--all",
            "--set",
            "fake/steady.num_splits_key=1"
        ]
    );
    for line in stdout.lines().chain(stderr.lines()) {
        assert!(
            line.chars().count() <= 80,
            "{} columns: {line}",
            line.chars().count()
        );
        assert!(!line.contains('\x1b'), "escape codes in a pipe: {line:?}");
    }
}

#[test]
fn everything_slower_at_once_does_not_pass() {
    let place = Place::new();
    place.suite(
        "s",
        &["fake/steady"],
        &[],
        "heads = [1, 2, 3, 4, 5, 6, 7, 8]\nbatch = [1, 2, 3]\n",
    );
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    let all = ["gate", "./s.toml", "--set", "fake/steady.slower_percent=30"];
    let (stdout, _) = exits!(place, 1, [all[0], all[1], all[2], all[3]]);
    assert!(stdout.contains("144 of 144 cases regressed"), "{stdout}");
}

#[test]
fn a_part_of_a_suite_or_an_overridden_run_makes_no_baseline_by_chance() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml", "--filter", "s32"]);
    let (_, stderr) = exits!(place, 3, ["baseline", "save", "s", "reports/s"]);
    assert!(stderr.contains("--filter s32"), "{stderr}");
    exits!(place, 3, ["baseline", "save", "s"]);
    let set = "fake/steady.slower_percent=50";
    exits!(place, 0, ["run", "./s.toml", "--set", set]);
    let (_, stderr) = exits!(place, 3, ["baseline", "save", "s", "reports/s"]);
    assert!(stderr.contains("--set"), "{stderr}");
    exits!(place, 0, ["baseline", "save", "s", "reports/s", "--force"]);
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
    let edited = text.replace("\"device_ns\":[", "\"device_ns\":[1.0,");
    let cut: String = text
        .lines()
        .take(6)
        .map(|line| format!("{line}\n"))
        .collect();
    for damaged in [edited, cut] {
        std::fs::write(&file, damaged).unwrap();
        let (_, stderr) = exits!(place, 2, ["gate", "./s.toml"]);
        assert!(stderr.contains("is damaged"), "{stderr}");
        assert!(!place.path().join("reports/s/run.jsonl").exists());
    }
}

#[test]
fn a_part_of_a_suite_is_held_against_the_same_part() {
    let place = with_baseline(&["fake/steady", "fake/other"]);
    let (stdout, _) = exits!(place, 0, ["gate", "./s.toml", "--filter", "fake/other*"]);
    assert!(stdout.contains("6 same"), "{stdout}");
}

#[test]
fn cases_that_a_suite_has_gained_are_added_and_no_failure() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let both = "[[sweep]]\nvariants = [\"fake/steady\"]\nseq = [32]\nhead_dim = 16\n\
                direction = \"both\"\n";
    place.suite("s", &["fake/steady"], &[], both);
    let (stdout, stderr) = exits!(place, 0, ["gate", "./s.toml"]);
    assert!(stdout.contains("6 same, 1 added"), "{stdout}{stderr}");
}
