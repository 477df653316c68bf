//! Runs go into a history, and it tells what changed: the whole way, on the fake worker.

use std::fs;

use crate::common::Place;

/// A place with a suite `s` of one variant and a run of it.
fn place() -> Place {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    place
}

/// Measures the suite anew, its worker made slower by this factor, and adds the run as of a day.
fn night(place: &Place, day: usize, factor: f64) {
    let worker = crate::common::fake_worker().display().to_string();
    let text = fs::read_to_string(place.path().join("s.toml")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("fake = "))
        .unwrap();
    let percent = 100.0 * (factor - 1.0);
    let command = format!("fake = [{worker:?}, \"--slower\", \"{percent}\"]");
    place.write("s.toml", &text.replace(line, &command));
    exits!(place, 0, ["run", "./s.toml", "--no-resume", "--quiet"]);
    let at = format!("2026-05-{day:02}");
    let (stdout, _) = exits!(place, 0, ["history", "add", "reports/s", "--at", &at]);
    assert!(stdout.contains("added to history/s/"), "{stdout}");
}

fn json(place: &Place, args: &[&str]) -> serde_json::Value {
    let (stdout, _) = exits!(place, 0, [&["history"], args, &["--json"]].concat());
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn a_version_that_got_slower_is_a_change_on_its_day() {
    let place = place();
    for day in 1..=20 {
        night(&place, day, if day < 11 { 1.0 } else { 1.5 });
    }
    let (stdout, _) = exits!(place, 0, ["history"]);
    for part in [
        "20 runs of 6 cases, 2026-05-01 to 2026-05-20",
        "Slower (1)",
        "2026-05-11",
    ] {
        assert!(stdout.contains(part), "{part}:\n{stdout}");
    }
    assert!(
        stdout.lines().all(|line| line.chars().count() <= 80),
        "{stdout}"
    );
    let told = json(&place, &["s"]);
    assert_eq!(told["events"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(told["events"][0]["run"]["at"], "2026-05-11T00:00:00Z");
    let told = json(&place, &["s", "--since", "2026-05-15"]);
    assert_eq!(told["events"].as_array().unwrap().len(), 0);
    let told = json(&place, &["s", "--case", "*s32*bwd"]);
    assert_eq!(told["cases"].as_array().unwrap().len(), 1);

    // The page links to those runs that still are where they were, by their own start.
    exits!(place, 0, ["history", "--output", "html=pages/h.html"]);
    let page = fs::read_to_string(place.path().join("pages/h.html")).unwrap();
    assert!(page.contains("1 change since"), "{page}");
    let page = page.replace("&#x2f;", "/");
    assert_eq!(page.matches("../reports/s/index.html").count(), 1);
    let (stdout, _) = exits!(place, 0, ["history", "--list", "s"]);
    assert_eq!(stdout.lines().count(), 21);
    assert!(stdout.contains("6 of 6"), "{stdout}");
}

#[test]
fn a_run_is_added_once_and_only_when_it_has_ended() {
    let place = place();
    let (_, stderr) = exits!(place, 2, ["history"]);
    assert!(stderr.contains("no history in history"), "{stderr}");
    exits!(place, 0, ["run", "./s.toml", "--history"]);
    let (stdout, _) = exits!(place, 0, ["history", "--list"]);
    assert!(stdout.contains("1 run of 6 cases"), "{stdout}");
    let (stdout, _) = exits!(place, 0, ["history", "add", "reports/s"]);
    assert!(stdout.contains("skipped, this run is in"), "{stdout}");
    let told = json(&place, &["add", "reports/s/run.jsonl"]);
    assert_eq!(told[0]["added"], false);

    let run = place.path().join("reports/s/run.jsonl");
    let text = fs::read_to_string(&run).unwrap();
    let unfinished: String = text
        .lines()
        .take(10)
        .map(|line| format!("{line}\n"))
        .collect();
    place.write("unfinished.jsonl", &unfinished);
    let (_, stderr) = exits!(place, 2, ["history", "add", "unfinished.jsonl"]);
    assert!(stderr.contains("the run is not finished"), "{stderr}");
    exits!(place, 0, ["baseline", "save", "s"]);
    let baseline = place.baseline().display().to_string();
    let (_, stderr) = exits!(place, 2, ["history", "add", &baseline]);
    assert!(stderr.contains("is a baseline"), "{stderr}");
    exits!(place, 2, ["history", "add", "nowhere"]);
    exits!(place, 2, ["history", "add", "reports/s", "--at", "May"]);
    exits!(
        place,
        0,
        ["run", "./s.toml", "--structure-only", "--out", "counted"]
    );
    let (_, stderr) = exits!(place, 2, ["history", "add", "counted"]);
    assert!(stderr.contains("took structure alone"), "{stderr}");
}

#[test]
fn a_gate_adds_its_run_whatever_it_says_of_it() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    exits!(place, 0, ["gate", "./s.toml", "--history"]);
    place.suite("s", &["fake/steady"], &["--slower", "50"], "");
    exits!(
        place,
        1,
        ["gate", "./s.toml", "--history=elsewhere", "--quiet"]
    );
    let runs = json(&place, &["--list", "s"]);
    assert_eq!(runs.as_array().unwrap().len(), 1);
    let runs = json(&place, &["--list", "s", "--history", "elsewhere"]);
    assert_eq!(runs[0]["run"]["verdict"], "failed");
    assert_eq!(runs[0]["timed"], 6);

    // So does one that is held against another version.
    let worker = format!("worker:fake={}", crate::common::fake_worker().display());
    let words = ["gate", "./s.toml", "--base", &worker, "--history=beside"];
    exits!(place, 1, words);
    let runs = json(&place, &["--list", "s", "--history", "beside"]);
    assert_eq!(runs.as_array().unwrap().len(), 1);
    assert_eq!(runs[0]["run"]["verdict"], "failed");

    // A green run that could not be kept is not told as if it had been.
    place.suite("s", &["fake/steady"], &[], "");
    place.write("taken", "");
    let (_, stderr) = exits!(place, 3, ["gate", "./s.toml", "--history=taken"]);
    assert!(stderr.contains("was not added to the history"), "{stderr}");
}

#[test]
fn what_is_damaged_is_named_and_the_rest_is_used() {
    let place = place();
    for day in 1..=3 {
        night(&place, day, 1.0);
    }
    let folder = place.path().join("history/s");
    let file = fs::read_dir(folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 40]).unwrap();
    let (stdout, stderr) = exits!(place, 0, ["history"]);
    assert!(stdout.contains("2 runs of 6 cases"), "{stdout}");
    assert!(stderr.contains(":4: the last line is cut off"), "{stderr}");
    let (_, stderr) = exits!(place, 0, ["history", "add", "reports/s"]);
    assert!(stderr.contains("the last line is cut off"), "{stderr}");
    let (stdout, stderr) = exits!(place, 0, ["history"]);
    assert!(stdout.contains("3 runs of 6 cases"), "{stdout}");
    assert!(stderr.is_empty(), "{stderr}");

    let lines: Vec<&str> = text.lines().collect();
    fs::write(&file, format!("{}\n", lines[1])).unwrap();
    let (_, stderr) = exits!(place, 2, ["history"]);
    assert!(stderr.contains("its first line is missing"), "{stderr}");
    fs::write(&file, "").unwrap();
    exits!(place, 2, ["history"]);
    exits!(place, 0, ["history", "add", "reports/s"]);
}

#[test]
fn what_cannot_be_meant_is_said() {
    let place = place();
    night(&place, 1, 1.0);
    for (args, told) in [
        (&["other"][..], "there is no such history"),
        (&["--machine", "none"], "there is no such history"),
        (&["--since", "soon"], "use a span before the newest run"),
        (&["--case", "naive"], "no case of"),
        (&["--reference", "2027-01-01"], "no run of the history"),
        (
            &["--output", "html=-", "--json"],
            "both go to standard output",
        ),
        (
            &["--output", "html=history/s/x.jsonl"],
            "reports never replace one",
        ),
    ] {
        let (_, stderr) = exits!(place, 2, [&["history"], args].concat());
        assert!(stderr.contains(told), "{args:?}: {stderr}");
    }
    // A case that has no change is told with its level, however short the history.
    let (stdout, _) = exits!(place, 0, ["history", "--case", "s64"]);
    assert!(stdout.contains("No change since 2026-04-01"), "{stdout}");
    assert!(stdout.contains("fake/steady:s64,d16,bwd"), "{stdout}");
    let (_, stderr) = exits!(place, 2, ["history", "--clock", "cpu"]);
    assert!(stderr.contains("has a processor time"), "{stderr}");
}
