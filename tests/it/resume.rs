//! A killed run goes on where it stopped, and loses at most the case in flight.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::common::Place;
use regatta_core::record::types::Run;

fn complete(run: &Run) {
    assert!(run.end.is_some(), "the run has its last line");
    assert!(run.damage.is_empty(), "{:?}", run.damage);
    let once: BTreeSet<_> = run
        .entries
        .iter()
        .map(|e| (e.invocation, e.case.clone()))
        .collect();
    assert_eq!(once.len(), run.entries.len(), "every case exactly once");
    let planned = run.header.plan.len() * run.header.settings.invocations as usize;
    assert_eq!(run.entries.len(), planned);
}

#[test]
fn torn_and_edited_lines_are_measured_again_and_the_good_ones_kept() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml"]);
    let path = place.path().join("reports/s/run.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    lines.pop();
    let torn = lines.pop().unwrap();
    lines[3] = lines[3].replace("\"device_ns\":[", "\"device_ns\":[1.0,");
    let damaged = format!("{}\n{}", lines.join("\n"), &torn[..torn.len() / 2]);
    fs::write(&path, &damaged).unwrap();

    let (stdout, _) = exits!(place, 3, ["diff", "reports/s", "reports/s"]);
    assert!(stdout.contains("first missing case "), "{stdout}");

    let (_, stderr) = exits!(place, 0, ["run", "./s.toml"]);
    assert!(stderr.contains("resuming: 28 entries"), "{stderr}");
    assert!(stderr.contains("2 lines could not be used"), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.contains("measuring "), "where the time went: {stderr}");
    complete(&place.run("s"));
}

#[test]
fn another_plan_begins_anew_and_keeps_the_old_run() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml"]);
    let path = place.path().join("reports/s/run.jsonl");
    let before = fs::read_to_string(&path).unwrap();
    let (_, stderr) = exits!(place, 0, ["run", "./s.toml", "--invocations", "3"]);
    assert!(stderr.contains("the run before is kept as"), "{stderr}");
    let past = place.path().join("reports/s/past");
    let kept = fs::read_dir(past).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(kept).unwrap(), before);
    complete(&place.run("s"));
}

#[test]
fn two_harnesses_do_not_write_one_run() {
    let place = Place::new();
    place.suite("s", &["fake/silent"], &[], "");
    let mut child = place.started(&["run", "./s.toml"]);
    let path = place.path().join("reports/s/run.jsonl");
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (_, stderr) = exits!(place, 3, ["run", "./s.toml"]);
    assert!(stderr.contains("another regatta is measuring"), "{stderr}");
    child.kill().unwrap();
    child.wait().unwrap();
}
