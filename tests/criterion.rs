//! Criterion's files: written from runs, read into baselines.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Place, copy};
use regatta::judge::judgement::{Judgement, Word};
use regatta::record::baseline;
use regatta::record::criterion;
use regatta::record::side::Side;
use regatta::suite::Cache;
use regatta::units::Ratio;

/// Files that criterion 0.8 wrote: a case of `benches/suite`, one under another
/// spelling of its id with growing numbers of calls, and a benchmark that is no case.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/criterion")
}

/// A copy of the vectors that may be damaged.
fn copied(place: &Place) -> PathBuf {
    let target = place.path().join("criterion");
    copy(&vectors(), &target);
    target
}

/// The only baseline of this name.
fn imported(place: &Place, name: &str) -> Side {
    let folder = place.path().join("baselines").join(name);
    let mut files = fs::read_dir(folder).unwrap();
    baseline::read(&files.next().unwrap().unwrap().path()).unwrap()
}

#[test]
fn a_run_comes_back_with_the_same_medians() {
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/unsupported"], &[], "");
    exits!(place, 0, ["run", "./s.toml", "--invocations", "4", "-q"]);
    let (stdout, stderr) = exits!(place, 0, ["report", "reports/s", "--criterion", "out"]);
    assert!(stdout.contains("6 cases as baseline regatta"), "{stdout}");
    assert!(stderr.contains("is left out: unsupported"), "{stderr}");
    // Once more changes nothing and is no error.
    exits!(place, 0, ["report", "reports/s", "--criterion", "out"]);

    let import = [
        "baseline",
        "import",
        "c",
        "--criterion",
        "out",
        "--baseline",
        "regatta",
        "--suite",
        "./s.toml",
        "--machine-here",
    ];
    let (code, stdout, stderr) = place.ran(&import);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("6 cases of out (regatta), 0 skipped"),
        "{stdout}"
    );

    let run = Side::from_run("run", &place.run("s"));
    let side = imported(&place, "c");
    assert_eq!(side.cases.len(), 6);
    for (id, record) in &side.cases {
        assert_eq!(record.device_ns, run.cases[id].device_ns, "{id}");
        assert_eq!(record.samples, run.cases[id].samples, "{id}");
    }
    assert_eq!(side.header.machine.hard, run.header.machine.hard);

    let (stdout, _) = exits!(place, 0, ["diff", "c", "reports/s", "--json"]);
    let judgement: Judgement = serde_json::from_str(&stdout).unwrap();
    let compared: Vec<_> = judgement
        .rows
        .iter()
        .filter(|r| r.change.is_some())
        .collect();
    assert_eq!(compared.len(), 6);
    for row in compared {
        assert_eq!(row.word, Word::Same, "{row:?}");
        assert_eq!(row.change.as_ref().unwrap().ratio, Ratio::ONE);
    }
    let note = judgement
        .notes
        .iter()
        .find(|note| note.contains("imported from out"));
    assert!(
        note.is_some_and(|note| note.contains("clock")),
        "{:?}",
        judgement.notes
    );
    let (stdout, _) = exits!(place, 0, ["baseline", "list"]);
    assert!(stdout.contains("imported from out"), "{stdout}");
}

#[test]
fn one_invocation_accuses_nobody() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml", "--invocations", "1", "-q"]);
    exits!(
        place,
        0,
        [
            "report",
            "reports/s",
            "--criterion",
            "out",
            "--criterion-baseline",
            "a"
        ]
    );
    let import = [
        "baseline",
        "import",
        "s",
        "--criterion",
        "out",
        "--baseline",
        "a",
        "--suite",
        "./s.toml",
        "--machine-here",
    ];
    let (code, _, stderr) = place.ran(&import);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("invocations a case: 1;"), "{stderr}");
    // The same variant, three times slower: told, but not called.
    let path = place.path().join("reports/s/run.jsonl");
    let mut run = regatta::record::run_file::read(&path).unwrap();
    for entry in &mut run.entries {
        if let regatta::record::types::Outcome::Measured(measurement) = &mut entry.outcome {
            measurement
                .device_ns
                .iter_mut()
                .for_each(|time| *time = *time * 3.0);
        }
    }
    let head = Side::from_run("slow", &run);
    let base = imported(&place, "s");
    let judgement = regatta::judge::judge(&head, Some(&base), &Default::default());
    assert_eq!(judgement.rows.len(), 6);
    for row in &judgement.rows {
        assert_eq!(row.word, Word::Inconclusive, "{row:?}");
        assert!(
            row.reason.as_ref().unwrap().contains("1 against 1"),
            "{row:?}"
        );
    }
}

#[test]
fn what_criterion_wrote_is_read() {
    let read = criterion::read(&vectors(), "new").unwrap();
    let named: Vec<(String, bool)> = read
        .iter()
        .map(|b| (b.identity.full_id.clone(), b.identity.case().is_ok()))
        .collect();
    let expected = [
        ("cpu/naive:s64,d16", true),
        ("cpu/flash/s1024,d64", true),
        ("sort/unstable/1000", false),
    ];
    assert_eq!(named, expected.map(|(id, case)| (id.to_owned(), case)));
    for benchmark in &read {
        let text = fs::read_to_string(benchmark.folder.join("estimates.json")).unwrap();
        let estimates: criterion::Estimates = serde_json::from_str(&text).unwrap();
        let median = estimates.median.point_estimate;
        let ours = benchmark.invocations[0].0;
        assert!(
            (ours / median - 1.0).abs() < 1e-12,
            "{ours} against {median}"
        );
    }

    let place = Place::new();
    let folder = vectors().display().to_string();
    let import = [
        "baseline",
        "import",
        "c",
        "--criterion",
        &folder,
        "--machine-here",
        "--json",
    ];
    let (code, stdout, stderr) = place.ran(&import);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("`sort/unstable/1000` is no case id"),
        "{stderr}"
    );
    let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["cases"], 2);
    assert_eq!(answer["skipped"].as_array().unwrap().len(), 1);
    let side = imported(&place, "c");
    let header = &side.header;
    assert_eq!(
        (header.settings.invocations, header.settings.cache),
        (1, Cache::Hot)
    );
    assert_eq!(header.imported.as_ref().unwrap().baselines, ["new"]);
    assert!(header.git.is_none());
    assert!(
        header.machine.hard.contains_key("cpu"),
        "{:?}",
        header.machine
    );
    // Nothing is replaced unasked.
    let (code, _, stderr) = place.ran(&import);
    assert_eq!(code, 2);
    assert!(stderr.contains("--replace"), "{stderr}");
}

#[test]
fn damage_is_named_and_nothing_is_imported() {
    let sample = "cpu_flash/s1024,d64/new/sample.json";
    for (file, text, says) in [
        (
            sample,
            "{\"sampling_mode\":\"Flat\",\"iters\":[1.0",
            "sample.json:1: ",
        ),
        (sample, "[[1.0],[2.0]]", "not as criterion 0.8 writes it"),
        (
            sample,
            "{\"sampling_mode\":\"Flat\",\"iters\":[1.0],\"times\":[]}",
            "0 of `times`, but 1 of `iters`",
        ),
        (
            sample,
            "{\"sampling_mode\":\"Flat\",\"iters\":[0.0],\"times\":[5.0]}",
            "no time",
        ),
        (
            "cpu_flash/s1024,d64/new/benchmark.json",
            "{\"id\":3}",
            "missing field",
        ),
    ] {
        let place = Place::new();
        fs::write(copied(&place).join(file), text).unwrap();
        let (_, stderr) = exits!(
            place,
            2,
            [
                "baseline",
                "import",
                "c",
                "--criterion",
                "criterion",
                "--machine-here"
            ]
        );
        assert!(stderr.contains(file) && stderr.contains(says), "{stderr}");
        assert!(!place.path().join("baselines").exists());
    }
}

#[test]
fn missing_files_are_filled_in_or_named() {
    let place = Place::new();
    let folder = copied(&place).join("cpu_flash/s1024,d64/new");
    let import = [
        "baseline",
        "import",
        "c",
        "--criterion",
        "criterion",
        "--machine-here",
    ];
    fs::remove_file(folder.join("sample.json")).unwrap();
    fs::remove_file(folder.join("tukey.json")).unwrap();
    let (code, _, stderr) = place.ran(&import);
    assert_eq!(code, 0, "{stderr}");
    let side = imported(&place, "c");
    let flash = side
        .cases
        .iter()
        .find(|(id, _)| id.0.starts_with("cpu/flash"));
    let (_, record) = flash.unwrap();
    assert_eq!((record.device_ns.len(), record.samples), (1, 0));

    fs::remove_file(folder.join("benchmark.json")).unwrap();
    let (code, _, stderr) = place.ran(&import);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("benchmark.json:1: it is missing"),
        "{stderr}"
    );
}

#[test]
fn the_command_line_is_held_to_what_can_be_known() {
    let place = Place::new();
    copied(&place);
    let import = |more: &[&str]| {
        let words = ["baseline", "import", "c", "--criterion", "criterion"];
        let (code, _, stderr) = place.ran(&[&words, more].concat());
        assert_eq!(code, 2, "{more:?}: {stderr}");
        stderr
    };
    let stderr = import(&[]);
    assert!(stderr.contains("say so with --machine-here"), "{stderr}");
    let stderr = import(&["--machine-here", "--baseline", "main"]);
    assert!(stderr.contains("there are: new"), "{stderr}");
    let stderr = import(&["--machine-here", "--suite", "xformers-backward"]);
    assert!(
        stderr.contains("it is no case of suite xformers-backward"),
        "{stderr}"
    );
    assert!(stderr.contains("none of the 3 benchmarks"), "{stderr}");
    let flash = place.path().join("criterion/cpu_flash/s1024,d64");
    copy(&flash.join("new"), &flash.join("base"));
    let stderr = import(&["--machine-here", "--baseline", "new", "--baseline", "base"]);
    assert!(
        stderr.contains("new and base hold the same measurement"),
        "{stderr}"
    );
    fs::remove_dir_all(place.path().join("criterion/cpu_flash")).unwrap();
    fs::remove_dir_all(place.path().join("criterion/cpu")).unwrap();
    let stderr = import(&["--machine-here"]);
    assert!(stderr.contains("can be used"), "{stderr}");
    assert!(!place.path().join("baselines").exists());

    let (_, stderr) = exits!(
        place,
        2,
        [
            "report",
            "r",
            "--criterion",
            "c",
            "--criterion-baseline",
            "change"
        ]
    );
    assert!(stderr.contains("which criterion writes itself"), "{stderr}");
}
