//! Two versions measured in turn, from end to end, on a worker whose times are made up.

use std::collections::BTreeSet;
use std::fs;

use crate::common::{Place, fake_worker};
use regatta_core::record::run_file;
use regatta_core::record::types::Run;

fn place(variants: &[&str]) -> Place {
    let place = Place::new();
    place.suite("s", variants, &[], "");
    place
}

/// The fake worker, so many percent slower, as a version.
fn slower(percent: &str) -> String {
    format!("worker:fake={} --slower {percent}", fake_worker().display())
}

fn run(place: &Place, side: &str) -> Run {
    let folder = place.path().join("reports/s-compare").join(side);
    run_file::read(&folder.join(run_file::RUN_FILE)).unwrap()
}

#[test]
fn the_same_code_passes_and_both_runs_alternate() {
    let place = place(&["fake/steady", "fake/other"]);
    let (stdout, _) = exits!(place, 0, ["compare", "./s.toml", "--base", "here"]);
    assert!(stdout.contains("12 same"), "{stdout}");
    for file in [
        "index.html",
        "cases.csv",
        "base/run.jsonl",
        "head/run.jsonl",
    ] {
        let path = place.path().join("reports/s-compare").join(file);
        assert!(path.exists(), "{file}");
    }
    let (base, head) = (run(&place, "base"), run(&place, "head"));
    // Pairs have one order of cases; which side comes first is a coin's.
    let order = |run: &Run| -> Vec<_> {
        let entries = run.entries.iter();
        entries.map(|e| (e.invocation, e.case.clone())).collect()
    };
    assert_eq!(order(&base), order(&head));
    let (base, head) = (base.header.turn.unwrap(), head.header.turn.unwrap());
    assert_eq!(base.pair, head.pair);
    assert_ne!(base.side, head.side);
}

#[test]
fn a_parameter_and_a_variant_are_versions_too() {
    let place = place(&["fake/steady", "fake/slow"]);
    let words = ["compare", "./s.toml", "--base", "here", "--head"];
    let (stdout, _) = exits!(
        place,
        1,
        [&words[..], &["fake/steady.num_splits_key=1"]].concat()
    );
    assert!(!stdout.contains("fake/slow:s64"), "{stdout}");

    let words = [
        "compare",
        "./s.toml",
        "--base",
        "fake/steady",
        "--head",
        "fake/slow",
    ];
    let (stdout, _) = exits!(place, 1, words);
    assert!(stdout.contains("worst regression fake/slow:"), "{stdout}");
    // Each run tells what it measured; together they are judged as then.
    assert!(
        run(&place, "base").header.plan[0]
            .0
            .starts_with("fake/steady:")
    );
    let folder = |side| format!("reports/s-compare/{side}");
    let words = ["diff", &folder("base"), &folder("head")];
    let (stdout, _) = exits!(place, 1, words);
    assert!(stdout.contains("worst regression fake/slow:"), "{stdout}");
}

#[test]
fn a_gate_against_a_version_needs_no_baseline_and_holds_what_the_suite_demands() {
    let place = Place::new();
    let limit = "[[expect]]\nname = \"one thread\"\ncase = { variant = \"fake/steady\" }\n\
                 metric = \"threads\"\nat_most = 1\n";
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["gate", "./s.toml", "--base", "here"]);
    exits!(place, 1, ["gate", "./s.toml", "--base", &slower("-6")]);
    place.suite("s", &["fake/steady"], &[], limit);
    exits!(place, 0, ["compare", "./s.toml", "--base", "here"]);
    let (stdout, _) = exits!(place, 1, ["gate", "./s.toml", "--base", "here"]);
    assert!(stdout.contains("one thread"), "{stdout}");
    let (_, stderr) = exits!(
        place,
        2,
        ["gate", "./s.toml", "--base", "here", "--baseline", "s"]
    );
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}

/// Cuts lines off the end of a side's run.
fn cut(place: &Place, side: &str, lines: usize) {
    let path = place
        .path()
        .join("reports/s-compare")
        .join(side)
        .join("run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let all: Vec<&str> = text.lines().collect();
    fs::write(&path, all[..all.len() - lines].join("\n") + "\n").unwrap();
}

#[test]
fn a_comparison_that_was_stopped_goes_on_by_whole_pairs() {
    let place = place(&["fake/steady"]);
    let words = ["compare", "./s.toml", "--base", "here"];
    exits!(place, 0, words);
    cut(&place, "base", 1);
    cut(&place, "head", 3);
    let (_, stderr) = exits!(place, 0, words);
    // 30 entries a side, of which 28 pairs are whole.
    assert_eq!(
        stderr.matches("resuming: 28 entries").count(),
        2,
        "{stderr}"
    );
    for side in ["base", "head"] {
        let run = run(&place, side);
        let once: BTreeSet<_> = run
            .entries
            .iter()
            .map(|e| (e.invocation, &e.case))
            .collect();
        assert_eq!((run.entries.len(), once.len()), (30, 30), "{side}");
        assert!(run.end.is_some() && run.damage.is_empty());
    }
    // Where one side's file is gone, nothing lies beside the other's.
    cut(&place, "base", 1);
    fs::remove_file(place.path().join("reports/s-compare/head/run.jsonl")).unwrap();
    let (_, stderr) = exits!(place, 0, words);
    assert!(!stderr.contains("resuming"), "{stderr}");
}

/// A checkout whose worker is a script that is built, with a commit a percentage.
fn checkout(percents: &[&str]) -> Place {
    let place = Place::new();
    place.checkout();
    for percent in percents {
        let script = match *percent {
            "broken" => "echo cannot build this >&2; exit 3\n".to_owned(),
            percent => format!(
                "mkdir -p made; echo built >> made/times\n\
                 echo 'exec {} --slower {percent} \"$@\"' > made/serve.sh\n",
                fake_worker().display()
            ),
        };
        place.write("build.sh", &script);
        place.git(&["add", "-A"]);
        place.git(&["commit", "-q", "-m", percent]);
    }
    place
}

#[test]
fn a_revision_is_built_once_in_a_folder_of_its_own() {
    let place = checkout(&["0", "broken", "9"]);
    let words = [
        "compare",
        "./s.toml",
        "--base",
        "git:HEAD~2",
        "--head",
        "git:HEAD",
    ];
    let (stdout, _) = exits!(place, 1, words);
    assert!(stdout.contains("6 regressed"), "{stdout}");
    let head = run(&place, "head").header;
    let base = run(&place, "base").header;
    assert_ne!(head.git.unwrap().revision, base.git.unwrap().revision);
    exits!(place, 1, words);
    let built = fs::read_dir(place.path().join("cache/regatta/revisions")).unwrap();
    let checkouts: Vec<_> = built.flatten().map(|entry| entry.path()).collect();
    assert_eq!(checkouts.len(), 1);
    for entry in fs::read_dir(&checkouts[0]).unwrap().flatten() {
        if let Ok(times) = fs::read_to_string(entry.path().join("made/times")) {
            assert_eq!(times, "built\n", "{:?}", entry.path());
            // Something else in the place of what was built is built anew.
            let stale = format!("exec {} --slower 9 \"$@\"\n", fake_worker().display());
            fs::write(entry.path().join("made/serve.sh"), stale).unwrap();
        }
    }
    exits!(place, 1, words);
    assert!(
        !place.path().join("made").exists(),
        "the checkout is left alone"
    );
    let (_, stderr) = exits!(place, 2, ["compare", "./s.toml", "--base", "git:HEAD~1"]);
    assert!(stderr.contains("git:HEAD~1: ./s.toml:"), "{stderr}");
    assert!(stderr.contains("failed (exit status: 3)"), "{stderr}");
    assert!(stderr.contains("cannot build this"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["compare", "./s.toml", "--base", "git:nowhere"]);
    assert!(stderr.contains("`nowhere` names no commit"), "{stderr}");
}

#[test]
fn a_base_that_loads_the_checkout_is_no_base() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &["--loads", "lib.txt"], "");
    place.write(".gitignore", "reports\ncache\nbaselines\n");
    place.write("lib.txt", "0");
    place.git(&["init", "-q", "-b", "main"]);
    place.git(&["add", "-A"]);
    place.git(&["commit", "-q", "-m", "one"]);
    place.write("lib.txt", "300");
    let compare = |command: &str| place.ran(&[command, "./s.toml", "--base", "git:main"]);
    // Each side has its own.
    assert_eq!(compare("gate").0, 1);
    let here = place.path().display().to_string();
    let suite = fs::read_to_string(place.path().join("s.toml")).unwrap();
    std::os::unix::fs::symlink(&here, place.path().join("cache/link")).unwrap();
    let loads = "\"--loads\", \"lib.txt\"";
    for (what, from, to) in [
        (
            "an argument",
            loads,
            format!("\"--loads\", \"{here}/lib.txt\""),
        ),
        (
            "a symlink",
            loads,
            format!("\"--loads\", \"{here}/cache/link/lib.txt\""),
        ),
        (
            "a word with a value",
            loads,
            format!("{loads}, \"--other={here}/lib.txt\""),
        ),
        (
            "the suite's variable",
            "[[sweep]]",
            format!("[environments.fake]\nenv = {{ LIB = \"{here}/lib.txt\" }}\n[[sweep]]"),
        ),
    ] {
        place.write("s.toml", &suite.replacen(from, &to, 1));
        for command in ["gate", "compare"] {
            let (code, stdout, stderr) = compare(command);
            assert_eq!(code, 3, "{what}: {stdout}{stderr}");
            assert!(stderr.contains("git:main loaded"), "{what}: {stderr}");
            assert!(stderr.contains("lib.txt"), "{what}: {stderr}");
        }
    }
    // What a worker alone knows: a variable of the caller, an editable install.
    place.write("s.toml", &suite.replacen(&format!(", {loads}"), "", 1));
    let variable = [("FAKE_LOADS", &*format!("{here}/lib.txt"))];
    let words = ["gate", "./s.toml", "--base", "git:main"];
    let (code, _, stderr) = place.ran_with(&words, &variable);
    assert_eq!(code, 3, "{stderr}");
    // A revision of which nothing is loaded was not measured.
    let (code, _, stderr) = compare("gate");
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("git:main loaded no file"), "{stderr}");
}

#[test]
fn two_gates_of_one_revision_wait_for_each_other() {
    let place = checkout(&["1", "0"]);
    place.edit("build.sh", "mkdir", "sleep 0.3; mkdir");
    place.git(&["commit", "-q", "-am", "slow to build"]);
    let gate = |out: &'static str| {
        let words = [
            "compare",
            "./s.toml",
            "--base",
            "git:HEAD~1",
            "--head",
            "git:HEAD",
        ];
        let mut regatta = place.regatta(&[&words[..], &["--out", out]].concat());
        regatta.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let codes = ["reports/a", "reports/b"]
        .map(gate)
        .map(|mut gate| gate.wait().unwrap().code());
    assert_eq!(codes, [Some(0); 2]);
}
