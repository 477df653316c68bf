//! A suite in shards: what each measures, what they say together, and what is refused.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::Place;
use regatta_core::record::run_file;
use serde_json::Value;

const SLOWER: [&str; 2] = ["--set", "fake/other.slower_percent=30"];

/// Every `fake/other` is compared with the `fake/steady` of the same problem.
const EXPECTED: &str = "[[expect]]\nname = \"as fast as steady\"\n\
                        case.variant = \"fake/other\"\nagainst.variant = \"fake/steady\"\nwithin = 1.1\n";

/// Measures some shards of four of the suite `s`, and gives what the last said.
fn shards(place: &Place, which: &[u32], more: &[&str]) -> String {
    let mut said = String::new();
    for index in which {
        let shard = format!("{index}/4");
        let words = [&["run", "./s.toml", "--shard", &shard], more].concat();
        place.same_noise();
        said = exits!(place, 0, words).1;
    }
    said
}

fn at(place: &Place, index: u32) -> PathBuf {
    let folder = format!("reports/s/shard-{index}-of-4");
    place.path().join(folder)
}

/// A judgement as JSON, but for what runs are called, when they began and on how many machines.
fn judged(place: &Place, code: i32, words: &[&str]) -> Value {
    let (stdout, _) = exits!(place, code, [words, &["--json"]].concat());
    let mut judged: Value = serde_json::from_str(&stdout).unwrap();
    judged["head"] = Value::Null;
    judged["notes"] = Value::Null;
    judged
}

#[test]
fn shards_are_dealt_in_turn_and_say_together_what_the_whole_says() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &["--seed", "7"], EXPECTED);
    fs::remove_dir_all(place.path().join("reports/s")).unwrap();
    let whole = ["run", "./s.toml", "--out", "whole", SLOWER[0], SLOWER[1]];
    place.same_noise();
    exits!(place, 1, whole);
    // No shard says anything of an expectation whose cases another may have.
    let said = shards(&place, &[3, 1, 4, 2], &SLOWER);
    assert!(said.contains("3 cases measured of shard 2/4"), "{said}");
    assert!(said.contains("regatta diff --no-base reports/s"), "{said}");

    let run = |folder: PathBuf| run_file::read(&folder.join("run.jsonl")).unwrap();
    let all = run(place.path().join("whole")).header.plan;
    let mut dealt: Vec<_> = (1..=4)
        .flat_map(|index| run(at(&place, index)).header.plan)
        .collect();
    dealt.sort();
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(dealt, sorted);
    // The dear ones, which are backward, do not fall to one shard.
    for index in 1..=4 {
        let plan = run(at(&place, index)).header.plan;
        let backward = plan.iter().filter(|case| case.0.contains("bwd")).count();
        assert!((1..=2).contains(&backward), "{plan:?}");
    }

    let of_shards = ["diff", "--no-base", "reports/s"];
    assert_eq!(
        judged(&place, 1, &of_shards),
        judged(&place, 1, &["diff", "--no-base", "whole"])
    );
    let against = |runs: &[&str]| judged(&place, 1, &[&["diff", "--baseline", "s"], runs].concat());
    let one = against(&["whole"]);
    assert_eq!(one["verdict"]["outcome"], "failed");
    assert_eq!(against(&["reports/s"]), one);
    // In any order, and by their folders or files.
    let named = [2, 4, 1, 3].map(|index| at(&place, index).display().to_string());
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    assert_eq!(against(&named), one);
    exits!(place, 1, ["diff", "s", "reports/s"]);

    exits!(place, 0, ["report", "whole"]);
    exits!(place, 0, ["report", "reports/s"]);
    for table in ["cases.csv", "samples.csv"] {
        let lines = |folder: &str| {
            let text = fs::read_to_string(place.path().join(folder).join(table)).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines("reports/s"), lines("whole"), "{table}");
    }
    assert!(place.path().join("reports/s/index.html").exists());
}

#[test]
fn a_shard_that_was_killed_goes_on() {
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/other"], &[], "");
    let long = ["--invocations", "60"];
    shards(&place, &[1, 2, 4], &long);
    let words = ["run", "./s.toml", "--shard", "3/4", long[0], long[1]];
    let mut child = Command::new(std::path::Path::new(env!("CARGO_BIN_EXE_regatta")))
        .args(words)
        .current_dir(place.path())
        .env("REGATTA_WATCH", "no")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = || {
        fs::read_to_string(at(&place, 3).join("run.jsonl")).map_or(0, |text| text.lines().count())
    };
    while lines() < 5 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (_, said) = exits!(place, 3, ["diff", "--no-base", "reports/s"]);
    assert!(said.contains("was not measured to its end"), "{said}");
    let said = shards(&place, &[3], &long);
    assert!(
        said.contains("entries of an unfinished run are kept"),
        "{said}"
    );
    exits!(place, 0, ["diff", "--no-base", "reports/s"]);
}
