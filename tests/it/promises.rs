//! A green gate is a promise: what must not pass does not, whatever happens on the way.
//! docs/FAULTS.md has a row for each.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use crate::common::Place;

const SLOWER: [&str; 4] = [
    "gate",
    "./s.toml",
    "--set",
    "fake/steady.slower_percent=100",
];

#[test]
fn a_gate_stopped_while_it_confirms_goes_on_and_fails() {
    // The noisy ones are not decided by their regular invocations.
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/noisy"], &[], "");
    place.edit("s.toml", "floor = 0.02", "floor = 0.05");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    let run = place.path().join("reports/s/run.jsonl");
    fs::remove_file(&run).unwrap();
    let mut child = place.started(&SLOWER);
    let confirming = || {
        let text = fs::read_to_string(&run).unwrap_or_default();
        text.contains("\"kind\":\"owed\"") && text.contains("\"invocation\":5")
    };
    while !confirming() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What is there alone does not pass for the whole: not as a run to be compared, not as a
    // baseline, not as a run without a base.
    exits!(place, 1, ["diff", "s", "reports/s"]);
    exits!(
        place,
        3,
        ["baseline", "save", "s", "reports/s", "--replace"]
    );
    let (_, stderr) = exits!(place, 1, SLOWER);
    assert!(stderr.contains("resuming:"), "{stderr}");
    let run = place.run("s");
    let owed: BTreeMap<_, _> = run
        .owed
        .iter()
        .flat_map(|batch| batch.cases.iter().map(|case| (case, batch.fresh)))
        .collect();
    assert!(owed.keys().all(|case| case.0.starts_with("fake/noisy")));
    let fresh: u32 = owed.values().sum();
    assert_eq!(run.entries.len(), 12 * 5 + fresh as usize);
}

#[test]
fn what_looks_worse_and_is_not_decided_does_not_pass() {
    // One invocation against one, ten times slower, and nothing to confirm it by.
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    place.edit("s.toml", "invocations = 5", "invocations = 1");
    place.edit("s.toml", "confirm = 6", "confirm = 0");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    let slower = "fake/steady.slower_percent=900";
    let (stdout, _) = exits!(place, 3, ["gate", "./s.toml", "--set", slower]);
    assert!(stdout.contains("6 cases look slower"), "{stdout}");
    // Nor with fresh invocations: the base has one.
    place.edit("s.toml", "confirm = 0", "confirm = 6");
    let (_, stderr) = exits!(place, 3, ["gate", "./s.toml", "--set", slower]);
    assert!(stderr.contains("taking 2 fresh invocations"), "{stderr}");
    // Unchanged it passes, and says what could have hidden.
    let (stdout, _) = exits!(place, 0, ["gate", "./s.toml"]);
    let last = stdout.lines().last().unwrap();
    assert!(
        stdout.contains("6 cases undecided, a change of any size could have hidden"),
        "{last}"
    );
}

const SPLITS: &str = "params = { num_splits_key = [\"auto\", 1, 2, 4] }\n\
     [[expect]]\nname = \"automatic splits are good\"\nwithin = 1.10\n\
     case = { num_splits_key = \"auto\" }\nagainst = { num_splits_key = [1, 2, 4] }\n";

#[test]
fn many_times_beyond_a_limit_needs_two_invocations_and_no_statistics() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], SPLITS);
    let bug = "fake/steady.num_splits_key=-1";
    for (invocations, code) in [("1", 3), ("2", 1), ("3", 1), ("5", 1)] {
        let args = [
            "run",
            "./s.toml",
            "--invocations",
            invocations,
            "--set",
            bug,
        ];
        exits!(place, code, args);
        exits!(place, 0, ["run", "./s.toml", "--invocations", invocations]);
    }
}

#[test]
fn the_verdict_survives_whoever_was_to_read_it() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let stdout = |stdout: Stdio, args: &[&str]| {
        let status = place
            .regatta(args)
            .stdout(stdout)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), None);
        status.code().unwrap()
    };
    let gone = || {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let full = || {
        Stdio::from(
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        )
    };
    assert_eq!(stdout(gone(), &SLOWER), 1);
    assert_eq!(stdout(full(), &SLOWER), 1);
    // Nothing is worse: a reader that left needs no answer; one that should have it, does.
    assert_eq!(stdout(gone(), &["gate", "./s.toml"]), 0);
    assert_eq!(stdout(full(), &["gate", "./s.toml"]), 3);
}

#[test]
fn a_report_that_cannot_be_written_costs_no_measurement_and_no_verdict() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let page = place.path().join("reports/s/index.html");
    place.script(
        "if [ $n = 2 ]; then rm -f reports/s/index.html; mkdir -p reports/s/index.html/x; fi",
    );
    // The worker is another one: that is said, and is no reason not to compare.
    let (stdout, stderr) = exits!(place, 1, SLOWER);
    assert!(stdout.contains("FAILED"), "{stdout}");
    assert!(stderr.contains("index.html"), "{stderr}");
    let before = place.run("s").entries;
    fs::remove_dir_all(&page).unwrap();
    let (_, stderr) = exits!(place, 1, SLOWER);
    assert!(stderr.contains("resuming:"), "{stderr}");
    assert_eq!(place.run("s").entries, before, "nothing is measured anew");
    assert!(page.is_file());
}

#[test]
fn two_lines_of_one_case_in_a_baseline_are_refused() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let path = place.baseline();
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().nth(2).unwrap().to_owned();
    fs::write(&path, format!("{text}{line}\n")).unwrap();
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml"]);
    assert!(
        stderr.contains("line 8:") && stderr.contains("stands there twice"),
        "{stderr}"
    );
    exits!(place, 3, ["diff", "s", "reports/s"]);
}

#[test]
fn an_allowed_case_that_crashes_while_it_is_confirmed_does_not_hide_its_time() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    place.edit(
        "s.toml",
        "[policy]\n",
        "[policy]\nallow = [\"fake/steady:*\"]\n",
    );
    // Starts: five regular invocations, the introduction with the first, and then those that
    // confirm.
    place.script("if [ $n -gt 5 ]; then exit 9; fi");
    fs::remove_file(place.path().join("starts")).ok();
    exits!(place, 1, SLOWER);
}

#[test]
fn a_baselines_name_is_not_lost_on_the_runs_that_there_are() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    place.suite("t", &["fake/other"], &[], "");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["run", "./t.toml"]);
    // The newest is t's.
    exits!(place, 0, ["baseline", "save", "s"]);
    let (stdout, _) = exits!(place, 0, ["baseline", "list"]);
    assert!(stdout.contains("suite s,"), "{stdout}");
    let (_, stderr) = exits!(place, 2, ["baseline", "save", "main"]);
    assert!(stderr.contains("there are runs of s, t"), "{stderr}");
    let (_, stderr) = exits!(
        place,
        3,
        ["baseline", "save", "s", "reports/t", "--replace"]
    );
    assert!(stderr.contains("is of suite t"), "{stderr}");
}

/// Runs regatta where the machine is looked at, and gives its exit code and all it says.
fn looked_at(place: &Place, args: &[&str]) -> (i32, String) {
    let mut regatta = place.regatta(args);
    let output = regatta.env("REGATTA_GROUND", "quiet").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let code = output.status.code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&said).into_owned())
}

const CROWDED: [&str; 2] = ["--set", "fake/gpu.fault=crowded"];

#[test]
fn what_is_slow_because_of_the_machine_is_not_judged() {
    let place = Place::with_baseline(&["fake/gpu"], &["--kind", "cuda"], "");
    let gate = [&["gate", "./s.toml"][..], &CROWDED].concat();
    let (code, said) = looked_at(&place, &gate);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("6 cases are not judged because of the machine: 1 other process"),
        "{said}"
    );
    assert!(
        said.contains("end what else computes on the device"),
        "{said}"
    );
    assert!(!said.contains("regressed"), "{said}");
    assert_eq!(place.run("s").entries.len(), 6 * 5, "nothing to confirm");
    // The same times, on any ground.
    exits!(place, 1, gate);
}

#[test]
fn a_run_on_disturbed_ground_makes_no_baseline_unasked() {
    let place = Place::new();
    place.suite("s", &["fake/gpu"], &["--kind", "cuda"], "");
    let run = [&["run", "./s.toml"][..], &CROWDED].concat();
    assert_eq!(looked_at(&place, &run).0, 3);
    let save = ["baseline", "save", "s", "reports/s"];
    let (_, stderr) = exits!(place, 3, save);
    assert!(
        stderr.contains("not judged because of the machine"),
        "{stderr}"
    );
    assert!(stderr.contains("unless --force is given"), "{stderr}");
    exits!(place, 0, [&save[..], &["--force"]].concat());
    // Whoever insists has a base that nothing is held against.
    let (code, said) = looked_at(&place, &["gate", "./s.toml"]);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("the base's times of 6 cases are the machine's"),
        "{said}"
    );
}
