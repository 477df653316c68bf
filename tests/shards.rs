//! A suite in parts, from end to end: what each measures, what they make together, and what is
//! said where one is missing, foreign or of another day.
//!
//! `REGATTA_TEST_KILLS=20 cargo test --test shards` stops shards at twenty moments; without it
//! at a few.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Place, copy, fake_worker};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use regatta::record::run_file;
use regatta::record::types::Run;

const SLOWER: &str = "fake/steady.slower_percent=50";

/// Measures some shards of four of the suite, and gives what the last said.
fn shards(place: &Place, command: &str, which: &[u32], more: &[&str]) -> String {
    let mut said = String::new();
    for index in which {
        let shard = format!("{index}/4");
        let words = [&[command, "./s.toml", "--shard", &shard], more].concat();
        said = exits!(place, 0, words).1;
    }
    said
}

fn next(place: &Place) -> String {
    let (stdout, _) = exits!(place, 0, ["next", "reports/s/shards"]);
    stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn run_of(place: &Place, folder: &str) -> Run {
    run_file::read(&place.path().join(folder).join("run.jsonl")).unwrap()
}

fn entries(run: &Run) -> BTreeSet<(String, u32)> {
    assert!(run.damage.is_empty(), "{:?}", run.damage);
    let all = run.entries.iter();
    let found: BTreeSet<_> = all.map(|e| (e.case.0.clone(), e.invocation)).collect();
    assert_eq!(found.len(), run.entries.len(), "a sample is there twice");
    found
}

#[test]
fn four_shards_make_the_run_of_the_whole() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    let whole = place.run("s");
    fs::remove_dir_all(place.path().join("reports/s")).unwrap();

    let said = shards(&place, "gate", &[1, 2, 3, 4], &[]);
    assert!(
        said.contains("nothing is judged before all are there"),
        "{said}"
    );
    assert!(said.contains("regatta merge reports/s/shards"), "{said}");
    assert_eq!(next(&place), "");
    let (stdout, stderr) = exits!(place, 0, ["merge", "reports/s/shards"]);
    assert!(stdout.contains("passed"), "{stdout}");
    assert!(stderr.contains("4 shards of 12 cases"), "{stderr}");
    let merged = run_of(&place, "reports/s");
    assert_eq!(entries(&merged), entries(&whole));
    assert_eq!(merged.header.plan, whole.header.plan);
    let of = merged.header.merged.as_ref().unwrap();
    assert_eq!(of.shard_of.len(), 12);
    assert!(of.shards.iter().all(|shard| !shard.hosts.is_empty()));
    for file in ["index.html", "cases.csv", "samples.csv"] {
        assert!(place.path().join("reports/s").join(file).exists(), "{file}");
    }
    // It is a run like any other: a baseline is made of it, and it is held against one.
    exits!(place, 0, ["baseline", "save", "t", "reports/s"]);
    exits!(place, 0, ["diff", "t", "reports/s"]);
    // Those that were merged are not gone on with, nor taken for new ones; asked to, it judges
    // them again, and a history knows that it is one run.
    let (_, stderr) = exits!(place, 3, ["merge", "reports/s"]);
    let said = "the 4 shards on";
    assert!(
        stderr.contains(said) && stderr.contains("--again"),
        "{stderr}"
    );
    let again = ["merge", "reports/s", "--again", "--history"];
    exits!(place, 0, again);
    let twice = ["merge", "reports/s", "reports/s/shards/2-of-4", "--again"];
    exits!(place, 0, twice);
    exits!(place, 0, again);
    let (listed, _) = exits!(place, 0, ["history", "--list", "--json"]);
    assert!(listed.contains("\"runs\":1"), "{listed}");
    let said = shards(&place, "gate", &[2], &[]);
    assert!(said.contains("the run before is kept as"), "{said}");
    let (_, stderr) = exits!(place, 3, ["merge", "reports/s"]);
    assert!(
        stderr.contains("is of the sweep that was merged"),
        "{stderr}"
    );
}

#[test]
fn what_is_slower_is_told_once_of_all_shards() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    shards(&place, "gate", &[1, 2, 3, 4], &["--set", SLOWER]);
    let (stdout, _) = exits!(place, 1, ["merge", "reports/s/shards", "--json"]);
    let judged: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(judged["verdict"]["outcome"], "failed");
    exits!(
        place,
        1,
        ["gate", "./s.toml", "--set", SLOWER, "--out", "whole"]
    );
    let (whole, parts) = (run_of(&place, "whole"), run_of(&place, "reports/s"));
    let said = |run: &Run| run.end.as_ref().unwrap().judged.as_ref().unwrap().outcome;
    assert_eq!(said(&whole), said(&parts));
}

#[test]
fn what_is_undecided_is_measured_again_by_the_shards_that_have_it() {
    let place = Place::with_baseline(&["fake/noisy", "fake/other"], &[], "");
    shards(
        &place,
        "gate",
        &[1, 2, 3, 4],
        &["--set", "fake/noisy.slower_percent=12"],
    );
    let mut rounds = 0;
    let mut fresh = 0;
    loop {
        let left = next(&place);
        if left.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds <= 8, "the loop does not end");
        // What is owed is owed until it is there.
        assert_eq!(next(&place), left);
        for index in left.split(' ') {
            let index = [index.parse().unwrap()];
            shards(
                &place,
                "gate",
                &index,
                &["--set", "fake/noisy.slower_percent=12"],
            );
        }
        fresh += left.split(' ').count();
    }
    assert!(
        rounds > 0 && fresh > 0,
        "noise of 40 % leaves nothing undecided"
    );
    let words = ["merge", "reports/s/shards"];
    let (code, stdout, stderr) = place.ran(&words);
    assert!([0, 1, 3].contains(&code), "{stdout}{stderr}");
    let merged = run_of(&place, "reports/s");
    assert!(!merged.owed.is_empty());
    let regular = merged.header.plan.len() * 5;
    assert!(
        entries(&merged).len() > regular,
        "fresh invocations are there"
    );
    assert!(!stderr.contains("are not decided"), "{stderr}");
}

#[test]
fn a_shard_that_is_missing_or_does_not_belong_is_named_with_its_command() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    shards(&place, "gate", &[1, 2, 4], &[]);
    assert_eq!(next(&place), "3");
    let refused = |words: &[&str]| -> String {
        let words = [&["merge", "reports/s/shards"], words].concat();
        exits!(place, 3, words).1
    };
    let said = refused(&[]);
    assert!(said.contains("shard 3/4 is not there"), "{said}");
    assert!(said.contains("regatta gate ./s.toml --shard 3/4"), "{said}");
    assert!(
        run_of(&place, "reports/s").header.merged.is_none(),
        "nothing is written"
    );

    // Another suite's demands.
    place.edit("s.toml", "confirm = 6", "confirm = 5");
    shards(&place, "gate", &[3], &[]);
    let said = refused(&[]);
    assert!(
        said.contains("shard 3/4") && said.contains("what the suite demands changed"),
        "{said}"
    );
    assert!(said.contains("--shard 3/4 --fresh"), "{said}");
    place.edit("s.toml", "confirm = 5", "confirm = 6");

    // Of another number, another command, another setting.
    fs::remove_dir_all(place.path().join("reports/s/shards/3-of-4")).unwrap();
    exits!(place, 0, ["gate", "./s.toml", "--shard", "3/5"]);
    assert!(refused(&[]).contains("another number of shards"));
    fs::remove_dir_all(place.path().join("reports/s/shards/3-of-5")).unwrap();
    exits!(place, 0, ["run", "./s.toml", "--shard", "3/4"]);
    assert!(refused(&[]).contains("it is of `run`, they are of `gate against s"));
    shards(&place, "gate", &[3], &["--set", SLOWER]);
    assert!(refused(&[]).contains("another suite or --set"));

    // Twice, and a half.
    shards(&place, "gate", &[3], &[]);
    let at = |folder: &str| place.path().join("reports/s/shards").join(folder);
    copy(&at("3-of-4"), &at("a-copy"));
    assert!(refused(&[]).contains("shard 3/4 is there twice"));
    fs::remove_dir_all(at("a-copy")).unwrap();
    let path = at("3-of-4").join("run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(&path, lines[..lines.len() - 2].join("\n") + "\n").unwrap();
    let said = refused(&[]);
    assert!(said.contains("was stopped: it has"), "{said}");
    fs::write(&path, format!("{}\n", lines[0])).unwrap();
    assert!(refused(&[]).contains("is empty"), "{said}");
    fs::write(&path, text.replacen("device_ns", "device_nz", 1)).unwrap();
    assert!(refused(&[]).contains("cannot be used"));
    assert_eq!(next(&place), "3");
    shards(&place, "gate", &[3], &[]);
    let inside = "reports/s/shards/2-of-4";
    let (_, stderr) = exits!(place, 2, ["merge", "reports/s/shards", "--out", inside]);
    assert!(stderr.contains("is where shard 2/4 lies"), "{stderr}");
    exits!(place, 0, ["merge", "reports/s/shards"]);

    for (words, why) in [
        (&["merge", "reports/none"][..], "there is no run of a shard"),
        (
            &["merge", "reports/s/run.jsonl"],
            "the run of a whole suite",
        ),
        (
            &["run", "./s.toml", "--shard", "5/4"],
            "there is no shard 5 of 4",
        ),
        (&["run", "./s.toml", "--shard", "half"], "is no shard"),
        (
            &["run", "./s.toml", "--shard", "1/4", "--json"],
            "not judged",
        ),
        (
            &[
                "run",
                "./s.toml",
                "--shard",
                "1/4",
                "--output",
                "html=a.html",
            ],
            "not judged",
        ),
        (&["run", "./s.toml", "--costs", "s"], "--shard"),
    ] {
        let (_, stderr) = exits!(place, 2, words);
        assert!(stderr.contains(why), "{words:?}: {stderr}");
    }
    let save = ["baseline", "save", "x", "reports/s/shards/1-of-4"];
    let (_, stderr) = exits!(place, 3, save);
    assert!(stderr.contains("is shard 1/4 of its suite"), "{stderr}");
}

#[test]
fn parts_of_two_sweeps_are_told_from_each_other_and_a_stopped_merge_is_none() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    let merge = ["merge", "reports/s/shards"];
    let at = |folder: &str| place.path().join("reports/s/shards").join(folder);
    shards(&place, "gate", &[1, 2, 3, 4], &[]);
    copy(&at("2-of-4"), &place.path().join("of-the-first"));
    exits!(place, 0, merge);

    // Three of a second sweep, the fourth was never begun.
    shards(&place, "gate", &[1, 2, 3], &[]);
    let (_, said) = exits!(place, 3, merge);
    assert!(said.contains("is of the sweep that was merged"), "{said}");
    assert!(
        said.contains("regatta gate ./s.toml --shard 4/4\n"),
        "{said}"
    );
    assert!(!said.contains("--shard 1/4"), "{said}");
    assert_eq!(next(&place), "4");
    shards(&place, "gate", &[4], &[]);
    exits!(place, 0, merge);

    // A merge that was stopped while it ended its parts.
    let path = at("3-of-4").join("run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let ended = text.trim_end().rfind('\n').unwrap() + 1;
    assert!(text[ended..].starts_with("{\"kind\":\"end\""), "{text}");
    fs::write(&path, &text[..ended]).unwrap();
    let (_, said) = exits!(place, 3, merge);
    assert!(said.contains("where that merge was stopped"), "{said}");
    assert!(!said.contains("--fresh"), "{said}");
    exits!(place, 0, ["merge", "reports/s/shards", "--again"]);
    assert!(run_of(&place, "reports/s/shards/3-of-4").end.is_some());

    // A part of the first sweep, from wherever it was kept.
    fs::remove_dir_all(at("2-of-4")).unwrap();
    copy(&place.path().join("of-the-first"), &at("2-of-4"));
    let (_, said) = exits!(place, 3, ["merge", "reports/s/shards", "--again"]);
    assert!(said.contains("and no part of that"), "{said}");
    assert!(said.contains("--shard 2/4 --fresh"), "{said}");
}

#[test]
fn what_an_earlier_sweep_left_is_not_judged_as_new() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    place.write(".gitignore", "baselines\nhistory\n");
    place.git(&["init", "-q", "-b", "main"]);
    place.git(&["add", ".gitignore", "s.toml"]);
    place.git(&["commit", "-q", "-m", "first"]);
    // Beside each other in a folder of the checkout that nobody ignores.
    for index in ["1/2", "2/2"] {
        exits!(
            place,
            0,
            ["gate", "./s.toml", "--shard", index, "--out", "here"]
        );
    }
    assert_eq!(exits!(place, 0, ["next", "here"]).0, "");
    // Whole, and not judged yet; the next night measures nothing.
    place.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let (_, stderr) = exits!(place, 3, ["merge", "here"]);
    assert!(stderr.contains("and this checkout is at"), "{stderr}");
    place.git(&["checkout", "-q", "HEAD^"]);
    exits!(place, 0, ["merge", "here"]);
    assert_eq!(exits!(place, 0, ["next", "here"]).0, "");
    exits!(place, 3, ["merge", "here"]);

    // Fewer shards the next time: those that were merged are over.
    exits!(
        place,
        0,
        ["gate", "./s.toml", "--shard", "1/1", "--out", "here"]
    );
    exits!(place, 0, ["merge", "here"]);
}

#[test]
fn a_line_without_an_end_loses_nothing_and_a_part_is_held_while_it_is_judged() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    shards(&place, "gate", &[1, 2, 3, 4], &[]);
    for index in [1, 4] {
        let path = format!("reports/s/shards/{index}-of-4/run.jsonl");
        let path = place.path().join(path);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.trim_end()).unwrap();
    }
    let lock = place.path().join("reports/s/shards/2-of-4/.lock");
    let held = fs::File::create(lock).unwrap();
    held.lock().unwrap();
    let (_, stderr) = exits!(place, 3, ["merge", "reports/s"]);
    assert!(stderr.contains("another regatta is measuring"), "{stderr}");
    drop(held);
    exits!(place, 0, ["merge", "reports/s"]);
    let whole = run_of(&place, "reports/s");
    assert_eq!(entries(&whole).len(), 60);
    assert!(whole.end.is_some() && whole.damage.is_empty());
    let (_, stderr) = exits!(place, 3, ["merge", "reports/s"]);
    assert!(stderr.contains("the 4 shards on"), "{stderr}");

    // A first line that cannot be read is a part that is not there.
    shards(&place, "gate", &[1, 2, 3, 4], &[]);
    fs::write(place.path().join("reports/s/shards/3-of-4/run.jsonl"), "").unwrap();
    assert_eq!(next(&place), "3");
    shards(&place, "gate", &[3], &[]);
    exits!(place, 0, ["merge", "reports/s"]);
}

#[test]
fn schedulers_say_which_shard_it_is() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    for (variables, folder) in [
        (vec![("JOB_COMPLETION_INDEX", "0")], "1-of-3"),
        (
            vec![("CI_NODE_INDEX", "2"), ("CI_NODE_TOTAL", "3")],
            "2-of-3",
        ),
        (
            vec![("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_ARRAY_TASK_MIN", "1")],
            "3-of-3",
        ),
    ] {
        let output = Command::new(assert_cmd::cargo::cargo_bin!("regatta"))
            .args(["run", "./s.toml", "--shard", "env/3"])
            .current_dir(place.path())
            .env("XDG_CACHE_HOME", place.path().join("cache"))
            .env_remove("CI_NODE_INDEX")
            .env_remove("JOB_COMPLETION_INDEX")
            .env_remove("SLURM_ARRAY_TASK_ID")
            .envs(variables)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(place.path().join("reports/s/shards").join(folder).exists());
    }
    exits!(place, 0, ["merge", "reports/s/shards"]);
}

#[test]
fn a_comparison_is_split_with_both_sides_of_a_case_in_one_shard() {
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/other"], &[], "");
    let slow = format!("worker:fake={} --slower 5", fake_worker().display());
    let compare = ["compare", "./s.toml", "--base", "here", "--head", &slow];
    for shard in ["1/3", "2/3", "3/3"] {
        exits!(place, 0, [&compare[..], &["--shard", shard]].concat());
    }
    let (stdout, _) = exits!(place, 1, ["merge", "reports/s-compare"]);
    assert!(stdout.contains("12 of 12 cases regressed"), "{stdout}");
    let [base, head] =
        ["base", "head"].map(|side| run_of(&place, &format!("reports/s-compare/{side}")));
    assert_eq!(entries(&base), entries(&head));
    let inside = "reports/s-compare/shards";
    let (_, stderr) = exits!(place, 2, ["merge", inside, "--again", "--out", inside]);
    assert!(stderr.contains("is where shard"), "{stderr}");
    // The base of one sweep beside the head of another.
    let at = |which: &str| place.path().join("reports/s-compare/shards").join(which);
    copy(&at("1-of-3/base"), &place.path().join("before"));
    for shard in ["1/3", "2/3", "3/3"] {
        exits!(place, 0, [&compare[..], &["--shard", shard]].concat());
    }
    fs::remove_dir_all(at("1-of-3/base")).unwrap();
    copy(&place.path().join("before"), &at("1-of-3/base"));
    let (_, stderr) = exits!(place, 3, ["merge", inside, "--again"]);
    assert!(stderr.contains("shard 1"), "{stderr}");
    // Variants against each other have names of their own.
    let compare = [
        "compare",
        "./s.toml",
        "--base",
        "fake/steady",
        "--head",
        "fake/other",
    ];
    for shard in ["1/2", "2/2"] {
        let more = ["--shard", shard, "--out", "two"];
        exits!(place, 0, [&compare[..], &more].concat());
    }
    let (stdout, _) = exits!(place, 0, ["merge", "two"]);
    assert!(stdout.contains("6 same"), "{stdout}");
}

/// The shards of the suite once more, as another machine would have measured them.
fn elsewhere(place: &Place, shards: &[u32]) {
    for index in shards {
        let at = |folder: &str| place.path().join(folder).join(format!("{index}-of-4"));
        let there = at("elsewhere");
        copy(&at("reports/s/shards"), &there);
        let path = there.join("run.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        let text = rewritten_first(&text, |header| {
            header["machine"]["name"] = "another-9c".into();
            header["machine"]["hard"]["cpu.cores"] = "9".into();
        });
        fs::write(path, text).unwrap();
    }
}

#[test]
fn each_kind_of_machine_has_a_verdict_of_its_own_and_all_shards() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    shards(&place, "run", &[1, 2, 3, 4], &[]);
    elsewhere(&place, &[1, 2, 3, 4]);
    let both = ["merge", "reports/s/shards", "elsewhere", "--again"];
    let (_, stderr) = exits!(place, 0, both);
    assert!(
        stderr.contains("report of all: reports/s/index.html"),
        "{stderr}"
    );
    let page = fs::read_to_string(place.path().join("reports/s/index.html")).unwrap();
    assert!(
        page.contains("another-9c") && page.contains("2 kinds of machine"),
        "{page}"
    );
    let there = place.path().join("reports/s/another-9c/index.html");
    assert!(there.is_file());
    let (stdout, _) = exits!(place, 0, ["baseline", "save", "t", "reports/s"]);
    assert_eq!(stdout.matches("cases of reports/s/").count(), 2, "{stdout}");
    assert!(place.path().join("baselines/t/another-9c.jsonl").is_file());
    let (_, stderr) = exits!(place, 2, ["baseline", "save", "t", "reports/s"]);
    assert!(stderr.contains("--replace"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["next", "reports/s/shards", "elsewhere"]);
    assert!(stderr.contains("name those of one"), "{stderr}");
    let (_, stderr) = exits!(
        place,
        2,
        ["merge", "reports/s/shards", "elsewhere", "--json"]
    );
    assert!(stderr.contains("2 kinds of machine"), "{stderr}");
    // A part of them is none, and one of them among the others is named.
    fs::remove_dir_all(place.path().join("elsewhere/3-of-4")).unwrap();
    let (_, stderr) = exits!(place, 3, both);
    assert!(
        stderr.contains("was measured on another-9c, and most others on"),
        "{stderr}"
    );
    let fresh = Place::new();
    fresh.suite("s", &["fake/steady"], &[], "");
    shards(&fresh, "run", &[1, 2, 3, 4], &[]);
    elsewhere(&fresh, &[2]);
    fs::remove_dir_all(fresh.path().join("reports/s/shards/2-of-4")).unwrap();
    let (_, stderr) = exits!(fresh, 3, both);
    assert!(
        stderr.contains("shard 2/4") && stderr.contains("measure it there"),
        "{stderr}"
    );
}

#[test]
fn each_kind_of_machine_is_held_against_its_own_baseline() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    shards(&place, "gate", &[1, 2, 3, 4], &[]);
    elsewhere(&place, &[1, 2, 3, 4]);
    // A baseline of the other machine is another file of the same name.
    let baselines = place.path().join("baselines/s");
    let own = fs::read_dir(&baselines).unwrap().next().unwrap().unwrap();
    let text = fs::read_to_string(own.path()).unwrap();
    let other = rewritten_first(&text, |first| {
        first["run"]["machine"]["name"] = "another-9c".into();
        first["run"]["machine"]["hard"]["cpu.cores"] = "9".into();
    });
    fs::write(baselines.join("another-9c.jsonl"), other).unwrap();
    let sum = regatta::measure::identity::checksum(&baselines.join("another-9c.jsonl"));
    for index in 1..=4 {
        let path = place
            .path()
            .join(format!("elsewhere/{index}-of-4/run.jsonl"));
        let text = fs::read_to_string(&path).unwrap();
        let text = rewritten_first(&text, |header| {
            header["shard"]["asked"]["gate"]["base"]["sum"] = sum.clone().into();
        });
        fs::write(path, text).unwrap();
    }
    let both = ["merge", "reports/s/shards", "elsewhere"];
    let (stdout, _) = exits!(place, 0, both);
    assert_eq!(stdout.matches("6 same").count(), 2, "{stdout}");
    // One of them by another baseline than the others of its kind.
    let path = place.path().join("elsewhere/2-of-4/run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let text = rewritten_first(&text, |header| {
        header["shard"]["asked"]["gate"]["base"]["sum"] = "other".into();
    });
    fs::write(path, text).unwrap();
    let both = ["merge", "reports/s/shards", "elsewhere", "--again"];
    let (_, stderr) = exits!(place, 3, both);
    assert!(
        stderr.contains("shard 2/4") && stderr.contains("(other)"),
        "{stderr}"
    );
}

/// A file whose first line was changed.
fn rewritten_first(text: &str, change: impl Fn(&mut serde_json::Value)) -> String {
    let (first, rest) = text.split_once('\n').unwrap();
    let mut header: serde_json::Value = serde_json::from_str(first).unwrap();
    header.as_object_mut().unwrap().remove("sum");
    change(&mut header);
    regatta::record::line::write(&header).unwrap() + rest
}

#[test]
fn a_calibration_in_shards_says_how_it_is_drawn() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    for shard in ["1/2", "2/2"] {
        exits!(place, 0, ["calibrate", "./s.toml", "--shard", shard]);
    }
    let (_, stderr) = exits!(place, 0, ["merge", "reports/s-calibration"]);
    let command = "regatta calibrate ./s.toml --run reports/s-calibration";
    assert!(stderr.contains(command), "{stderr}");
}

#[test]
fn more_shards_than_cases_leave_some_with_none() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    for index in 1..=8 {
        exits!(
            place,
            0,
            ["run", "./s.toml", "--shard", &format!("{index}/8")]
        );
    }
    let (_, stderr) = exits!(place, 0, ["merge", "reports/s/shards"]);
    assert!(stderr.contains("8 shards of 6 cases"), "{stderr}");
}

#[test]
fn costs_balance_and_every_shard_must_have_dealt_by_the_same() {
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/other"], &[], "");
    exits!(place, 0, ["run", "./s.toml"]);
    copy(
        &place.path().join("reports/s"),
        &place.path().join("before"),
    );
    for shard in ["1/2", "2/2"] {
        exits!(
            place,
            0,
            ["run", "./s.toml", "--shard", shard, "--costs", "before"]
        );
    }
    exits!(place, 0, ["merge", "reports/s/shards"]);
    let (stdout, _) = exits!(
        place,
        0,
        ["list", "./s.toml", "--shards", "2", "--costs", "before"]
    );
    assert!(stdout.contains("of the mean"), "{stdout}");
}

#[test]
fn shards_killed_at_any_moment_go_on_to_the_verdict_of_the_whole() {
    let asked = std::env::var("REGATTA_TEST_KILLS").ok();
    let moments: usize = asked.map_or(3, |number| number.parse().unwrap());
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    let mut rng = ChaCha8Rng::seed_from_u64(20_261_123);
    for moment in 0..moments {
        let folder = place.path().join("reports/s/shards");
        drop(fs::remove_dir_all(&folder));
        let set: &[&str] = match moment % 2 {
            0 => &[],
            _ => &["--set", SLOWER],
        };
        let killed = rng.random_range(1..=4);
        let run = folder.join(format!("{killed}-of-4/run.jsonl"));
        let lines = || fs::read_to_string(&run).map_or(0, |text| text.lines().count());
        let mut child = started(&place, killed, set);
        let enough = rng.random_range(0..12);
        while lines() < enough && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(rng.random_range(0..3000)));
        // It may have come to its end, which is a moment too.
        drop(child.kill());
        child.wait().unwrap();
        shards(&place, "gate", &[1, 2, 3, 4], set);
        while !next(&place).is_empty() {
            shards(&place, "gate", &[1, 2, 3, 4], set);
        }
        let code = i32::from(!set.is_empty());
        exits!(place, code, ["merge", "reports/s/shards"]);
        let merged = run_of(&place, "reports/s");
        let regular = entries(&merged).into_iter().filter(|(_, at)| *at < 5);
        assert_eq!(regular.count(), 12 * 5, "every case once");
    }
}

fn started(place: &Place, index: u32, more: &[&str]) -> std::process::Child {
    Command::new(assert_cmd::cargo::cargo_bin!("regatta"))
        .args(["gate", "./s.toml", "--shard", &format!("{index}/4")])
        .args(more)
        .current_dir(place.path())
        .env("XDG_CACHE_HOME", place.path().join("cache"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
