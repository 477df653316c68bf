//! A green gate is a promise: what must not pass does not, whatever happens on the way.
//! docs/FAULTS.md has a row for each.

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

/// A checkout that was committed once more since the baseline of its suite `s`.
fn committed_since(variants: &[&str]) -> Place {
    let place = Place::new();
    place.suite("s", variants, &[], "");
    place.script("set -- \"$@\" --slower ${SLOWER:-0}");
    place.write(".gitignore", "baselines\nreports\ncache\nstarts\n");
    place.git(&["init", "-q", "-b", "main"]);
    place.git(&["add", "-A"]);
    place.git(&["commit", "-q", "-m", "one"]);
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    place.edit("worker.sh", "exec", "true\nexec");
    place.git(&["commit", "-q", "-am", "two"]);
    place
}

#[test]
fn pairs_of_the_same_code_hide_nothing() {
    // What made it slower is in no file of the revision: beside that it is as slow.
    let place = committed_since(&["fake/steady"]);
    let undone = |place: &Place| place.edit("worker.sh", "true\nexec", "exec");
    let moved = |place: &Place| drop(place.git(&["commit", "-q", "-am", "three"]));
    let suites = |place: &Place| {
        place.edit("s.toml", "worker.sh\"", "worker.sh\", \"--slower\", \"3\"");
    };
    let variable = |place: &Place| {
        place.edit("s.toml", ", \"--slower\", \"3\"", "");
        let environment = "[environments.fake]\nenv = { SLOWER = \"3\" }\n[workers]";
        place.edit("s.toml", "[workers]", environment);
    };
    let unknown = "no change of the code is known";
    type Change<'a> = &'a dyn Fn(&Place);
    let rows: [(Change, &str, &str); 4] = [
        (&undone, "3", unknown),
        (&moved, "3", unknown),
        (&suites, "0", "the command of worker fake was"),
        (&variable, "0", "SLOWER of worker fake was"),
    ];
    for (change, slower, why) in rows {
        change(&place);
        let (code, stdout, stderr) = place.ran_with(&["gate", "./s.toml"], &[("SLOWER", slower)]);
        assert_eq!(code, 3, "{why}: {stdout}{stderr}");
        assert!(stderr.contains(why), "{why}: {stderr}");
    }
}

#[test]
fn a_filter_is_named_in_every_format_with_what_it_left_out() {
    let place = Place::with_baseline(&["fake/steady", "fake/noisy"], &[], "");
    let formats = [
        "html=f/r.html",
        "csv=f",
        "json=f/r.json",
        "junit=f/r.xml",
        "markdown=f/r.md",
        "github=f/r.txt",
    ];
    let mut words = vec!["gate", "./s.toml", "--filter", "steady"];
    words.extend(formats.iter().flat_map(|format| ["--output", format]));
    let (stdout, _) = exits!(place, 0, words);
    let mut texts = vec![stdout];
    for name in ["r.html", "cases.csv", "r.json", "r.xml", "r.md", "r.txt"] {
        texts.push(fs::read_to_string(place.path().join("f").join(name)).unwrap());
    }
    for text in texts {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("--filter steady left out 6 cases"), "{text}");
    }
}

#[test]
fn a_gate_stopped_while_it_measures_pairs_goes_on() {
    // The noisy ones are not shown to be the same by one run.
    let place = committed_since(&["fake/steady", "fake/noisy"]);
    let pairs = place.path().join("reports/s/pairs/head/run.jsonl");
    let gate = ["gate", "./s.toml"];
    let mut child = place.started(&gate);
    let measuring = || {
        let text = fs::read_to_string(&pairs).unwrap_or_default();
        text.contains("\"invocation\":2")
    };
    while !measuring() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What is there alone does not pass for the whole.
    exits!(
        place,
        3,
        ["baseline", "save", "s", "reports/s", "--replace"]
    );
    let (code, stdout, stderr) = place.ran(&gate);
    assert!(stderr.contains("resuming:"), "{stderr}");
    assert!(stdout.contains("by pairs"), "{stdout}");
    assert_ne!(code, 2, "{stderr}");
    assert_eq!(place.run("s").entries.len(), 12 * 5);
}

#[test]
fn what_may_be_worse_and_is_not_decided_does_not_pass() {
    // One invocation against one, ten times slower, and the code of the baseline is gone.
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    place.edit("s.toml", "invocations = 5", "invocations = 1");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    place.script("");
    let slower = "fake/steady.slower_percent=900";
    let (stdout, _) = exits!(place, 3, ["gate", "./s.toml", "--set", slower]);
    assert!(stdout.contains("6 inconclusive"), "{stdout}");
    // One invocation does not show that anything is the same either.
    let (stdout, _) = exits!(place, 3, ["gate", "./s.toml"]);
    let told = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let needed = "the base has 1 invocation, and 5 are needed";
    assert!(told.contains(needed), "{stdout}");
}

#[test]
fn what_is_open_is_measured_again_within_the_time_limit() {
    let place = Place::new();
    place.suite("s", &["fake/noisy"], &[], "");
    let compare = ["compare", "./s.toml", "--base", "here"];
    place.ran(&compare);
    let run = place.run("s-compare/head");
    let steps: Vec<u32> = run.owed.iter().map(|batch| 5 + batch.fresh).collect();
    assert!([10, 15, 25, 35].starts_with(&steps), "{steps:?}");
    assert!(!steps.is_empty());
    for pair in run.owed.windows(2) {
        let before = &pair[0].cases;
        assert!(pair[1].cases.iter().all(|case| before.contains(case)));
    }
    let (_, stderr) = exits!(place, 2, [&compare[..], &["--time-limit", "soon"]].concat());
    assert!(stderr.contains("90s, 15m or 2h"), "{stderr}");
    let short = ["--no-resume", "--time-limit", "0"];
    let (_, _, stderr) = place.ran(&[&compare[..], &short].concat());
    assert!(stderr.contains("--time-limit leaves no time"), "{stderr}");
    assert_eq!(place.run("s-compare/head").owed, []);
}

#[test]
fn a_gate_begins_no_pairs_that_would_end_after_the_time_limit() {
    let place = committed_since(&["fake/noisy"]);
    let pairs = place.path().join("reports/s/pairs");
    let gate = ["gate", "./s.toml"];
    let (_, stderr) = exits!(place, 3, [&gate[..], &["--time-limit", "0"]].concat());
    assert!(stderr.contains("leaves no time for pairs"), "{stderr}");
    assert!(!pairs.exists());
    let (_, _, stderr) = place.ran(&gate);
    assert!(stderr.contains("in pairs with revision"), "{stderr}");
    assert!(pairs.exists());
}

const SPLITS: &str = "params = { num_splits_key = [\"auto\", 1, 2, 4] }\n\
     [[expect]]\nname = \"automatic splits are good\"\nwithin = 1.10\n\
     case = { num_splits_key = \"auto\" }\nagainst = { num_splits_key = [1, 2, 4] }\n";

#[test]
fn an_expectation_is_measured_until_it_is_decided() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], SPLITS);
    let bug = "fake/steady.num_splits_key=-1";
    for invocations in ["1", "2", "5"] {
        let args = [
            "run",
            "./s.toml",
            "--invocations",
            invocations,
            "--set",
            bug,
        ];
        exits!(place, 1, args);
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
fn a_comparison_whose_reports_cannot_be_written_goes_on_with_both_runs() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let page = place.path().join("reports/s-compare/index.html");
    fs::create_dir_all(page.join("x")).unwrap();
    let words = ["compare", "./s.toml", "--base", "here"];
    let (_, stderr) = exits!(place, 3, words);
    assert!(stderr.contains("could not be written"), "{stderr}");
    fs::remove_dir_all(&page).unwrap();
    let (_, _, stderr) = place.ran(&words);
    assert_eq!(stderr.matches("resuming:").count(), 2, "{stderr}");
    assert!(!stderr.contains("is kept as"), "{stderr}");
    assert!(page.is_file());
}

#[test]
fn an_allowed_case_that_crashes_later_does_not_hide_its_time() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    place.edit(
        "s.toml",
        "[policy]\n",
        "[policy]\noptional = [\"fake/steady:*\"]\n",
    );
    // Starts: five regular invocations, the introduction with the first, and then those that
    // confirm.
    place.script("if [ $n -gt 5 ]; then exit 9; fi");
    fs::remove_file(place.path().join("starts")).ok();
    exits!(place, 1, SLOWER);
}

/// Runs regatta where the machine is looked at, and gives its exit code and all it says.
fn looked_at(place: &Place, args: &[&str]) -> (i32, String) {
    let mut regatta = place.regatta(args);
    let output = regatta.env_remove("REGATTA_WATCH").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let code = output.status.code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&said).into_owned())
}

const CROWDED: [&str; 2] = ["--set", "fake/gpu.fault=crowded"];

#[test]
fn what_other_programs_disturbed_shows_nothing_of_a_stored_run() {
    let place = Place::with_baseline(&["fake/gpu"], &["--kind", "cuda"], "");
    place.script("");
    let gate = [&["gate", "./s.toml"][..], &CROWDED].concat();
    let (code, said) = looked_at(&place, &gate);
    assert_eq!(code, 3, "{said}");
    for part in ["1 other process", "end what else computes on the device"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("regressed"), "{said}");
    assert_eq!(place.run("s").entries.len(), 6 * 5, "more would not help");
}
