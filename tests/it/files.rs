//! Files that a command line names: what is no file is not waited for, what cannot have been
//! measured is damage, and no report is written over another or over what it is of.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::Place;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// A place with a finished run of suite `s`.
fn measured() -> Place {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml", "--filter", "s32", "--quiet"]);
    place
}

/// The line with its checksum put right, as whoever edits a file on purpose would.
fn sealed(line: &str) -> String {
    let (body, _) = line.rsplit_once(",\"sum\":\"").unwrap();
    let sum = crc32fast::hash(format!("{body}}}").as_bytes());
    format!("{body},\"sum\":\"{sum:08x}\"}}\n")
}

/// Writes the run once more, lines changed.
fn edited(place: &Place, to: &str, change: impl Fn(&str) -> String) {
    let text = fs::read_to_string(place.path().join("reports/s/run.jsonl")).unwrap();
    let lines: String = text.lines().map(|line| sealed(&change(line))).collect();
    fs::create_dir_all(place.path().join(to)).unwrap();
    place.write(&format!("{to}/run.jsonl"), &lines);
}

/// `"NAME":NUMBER` or `"NAME":[NUMBER,` with another number.
fn with_number(line: &str, name: &str, number: &str) -> String {
    for open in [format!("\"{name}\":["), format!("\"{name}\":")] {
        if let Some((before, rest)) = line.split_once(&open) {
            let end = rest.find([',', ']', '}']).unwrap();
            return format!("{before}{open}{number}{}", &rest[end..]);
        }
    }
    line.to_owned()
}

#[test]
fn what_is_no_regular_file_is_refused_in_words_and_not_waited_for() {
    let place = measured();
    let path = |name: &str| place.path().join(name);
    mkfifo(&path("pipe.toml"), Mode::S_IRWXU).unwrap();
    symlink("/dev/zero", path("zero.toml")).unwrap();
    fs::create_dir(path("folder.toml")).unwrap();
    for (suite, says) in [
        ("./pipe.toml", "cannot be read: it is a pipe"),
        ("./zero.toml", "cannot be read: it is a device"),
        ("./folder.toml", "cannot be read: it is a folder"),
    ] {
        let (_, stderr) = exits!(place, 2, ["run", suite]);
        assert!(stderr.contains(says), "{stderr}");
    }
    mkfifo(&path("regatta.toml"), Mode::S_IRWXU).unwrap();
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
    assert!(
        stderr.contains("regatta.toml: cannot be read: it is a pipe"),
        "{stderr}"
    );
    fs::remove_file(path("regatta.toml")).unwrap();

    fs::create_dir(path("piped")).unwrap();
    mkfifo(&path("piped/run.jsonl"), Mode::S_IRWXU).unwrap();
    let (_, stderr) = exits!(place, 2, ["report", "piped"]);
    assert!(stderr.contains("run.jsonl: it is a pipe"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["diff", "reports/s", "piped"]);
    assert!(stderr.contains("run.jsonl: it is a pipe"), "{stderr}");

    fs::create_dir(path("huge")).unwrap();
    let huge = fs::File::create(path("huge/run.jsonl")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let (_, stderr) = exits!(place, 2, ["report", "huge"]);
    assert!(stderr.contains("larger than the 2048 MiB"), "{stderr}");
}

#[test]
fn what_no_clock_shows_is_damage_with_its_line() {
    let place = measured();
    for (name, number, says) in [
        ("first_call_ns", "-5", "first_call_ns holds -5 ns: no time"),
        (
            "device_ns",
            "1e300",
            "device_ns holds 1e300 ns: it is beyond any clock",
        ),
        ("device_ns", "0", "device_ns holds 0 ns"),
        ("out", "-5", "errors holds -5: a distance is never negative"),
    ] {
        edited(&place, "odd", |line| with_number(line, name, number));
        let (stdout, _) = exits!(place, 3, ["diff", "reports/s", "odd"]);
        let stdout = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(stdout.contains(says), "{name}: {stdout}");
        assert!(stdout.contains("odd is damaged: line "), "{name}: {stdout}");
    }
    for (from, to, says) in [
        (
            "\"device_kind\":\"cpu\"",
            "\"device_kind\":\"quantum\"",
            "run.jsonl:1: worker \"fake\" is on a device of kind \"quantum\"",
        ),
        (
            "\"threshold\":0.02",
            "\"threshold\":10.0",
            "run.jsonl:1: policy.threshold is 10, beyond 0 to 1",
        ),
    ] {
        edited(&place, "odd", |line| line.replace(from, to));
        let (_, stderr) = exits!(place, 2, ["diff", "reports/s", "odd"]);
        assert!(stderr.contains(says), "{stderr}");
    }

    exits!(place, 0, ["baseline", "save", "s", "--force"]);
    let folder = place.path().join("baselines/s");
    let file = fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = fs::read_to_string(&file).unwrap();
    let odd: String = text
        .lines()
        .map(|line| sealed(&with_number(line, "first_call", "-5")))
        .collect();
    fs::write(&file, odd).unwrap();
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml", "--filter", "s32"]);
    assert!(
        stderr.contains("is damaged") && stderr.contains("first_call holds -5 ns"),
        "{stderr}"
    );
}

#[test]
fn a_run_without_a_readable_entry_is_no_baseline() {
    let place = measured();
    edited(&place, "torn", |line| {
        line.replace("\"kind\":\"entry\"", "\"kind\":\"entrance\"")
    });
    let (stdout, _) = exits!(place, 0, ["report", "torn"]);
    assert!(stdout.contains("torn/index.html"), "{stdout}");
    let (_, stderr) = exits!(place, 2, ["report", "torn", "--noise"]);
    assert!(
        stderr.contains("torn/run.jsonl is a run without an entry that can be read"),
        "{stderr}"
    );
}

#[test]
fn no_two_reports_go_to_one_place() {
    let place = measured();
    fs::create_dir(place.path().join("out")).unwrap();
    symlink("out", place.path().join("link")).unwrap();
    for arguments in [
        ["--output", "html=x", "--output", "markdown=./x"],
        ["--output", "html=out/x", "--output", "junit=link/x"],
        ["--output", "csv=out", "--output", "html=link/cases.csv"],
        [
            "--output",
            "csv=out",
            "--output",
            "markdown=out/../out/samples.csv",
        ],
        ["--output", "html=-", "--output", "junit=-"],
    ] {
        let command = [&["report", "reports/s"][..], &arguments].concat();
        let (code, _, stderr) = place.ran(&command);
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stderr.contains("is named for two formats"), "{stderr}");
    }
    for (output, told) in [
        ("csv=-", "two tables; name a folder"),
        (
            "htm=x",
            "there is no format `htm`; did you mean `html`? there are html, csv",
        ),
        ("html", "say where it goes: html=PATH"),
        ("perfetto=x", "a run is written as html, csv"),
    ] {
        let (_, stderr) = exits!(place, 2, ["report", "reports/s", "--output", output]);
        assert!(stderr.contains(told), "{output}: {stderr}");
    }
}

#[test]
fn no_report_is_written_over_a_record_whatever_it_is_called() {
    let place = measured();
    let run = place.path().join("reports/s/run.jsonl");
    let text = fs::read_to_string(&run).unwrap();
    fs::copy(&run, place.path().join("mine")).unwrap();
    let (_, stderr) = exits!(place, 2, ["report", "mine", "--output", "html=mine"]);
    assert!(stderr.contains("reports never replace one"), "{stderr}");
    assert_eq!(fs::read_to_string(place.path().join("mine")).unwrap(), text);
}

#[test]
fn runs_of_one_folder_have_a_report_each() {
    let place = measured();
    let past = place.path().join("past");
    fs::create_dir(&past).unwrap();
    for name in ["a.jsonl", "b.jsonl"] {
        fs::copy(place.path().join("reports/s/run.jsonl"), past.join(name)).unwrap();
    }
    exits!(place, 0, ["report", "past/a.jsonl", "past/b.jsonl"]);
    for page in ["past/a/index.html", "past/b/index.html", "past/b/cases.csv"] {
        assert!(place.path().join(page).is_file(), "{page}");
    }
    let (_, stderr) = exits!(place, 2, ["report", "past/a.jsonl", "past/../past/a.jsonl"]);
    assert!(stderr.contains("are one run; name it once"), "{stderr}");
}

#[test]
fn a_dash_is_standard_output() {
    let place = measured();
    for (format, begins) in [
        ("markdown=-", "<!-- regatta: s -->"),
        ("html=-", "<!doctype html>"),
        ("junit=-", "<?xml"),
    ] {
        let (stdout, _) = exits!(place, 0, ["report", "reports/s", "--output", format]);
        assert!(stdout.to_lowercase().starts_with(begins), "{stdout}");
        let (_, stdout, stderr) = place.ran(&["diff", "reports/s", "reports/s", "-o", format]);
        assert!(
            stdout.to_lowercase().starts_with(begins),
            "{stdout}\n{stderr}"
        );
    }
    assert!(!place.path().join("-").exists());
    let twice = [
        "diff",
        "reports/s",
        "reports/s",
        "--json",
        "--output",
        "markdown=-",
    ];
    let (code, stdout, stderr) = place.ran(&twice);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(stderr.contains("both go to standard output"), "{stderr}");
}

#[test]
fn a_suite_cannot_put_a_worker_in_place_of_regattas_own() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let path = place.path().join("s.toml");
    let text = fs::read_to_string(&path).unwrap();
    for name in ["cpu", "cuda", "torch", "jax"] {
        let own = format!("[workers]\n{name} = [\"true\"]\n");
        place.write("s.toml", &text.replace("[workers]\n", &own));
        let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
        let says = format!("`{name}` is a worker of regatta's own");
        assert!(
            stderr.contains("./s.toml:") && stderr.contains(&says),
            "{stderr}"
        );
        place.write("s.toml", &text);
        place.write("regatta.toml", &own);
        let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
        assert!(
            stderr.contains("regatta.toml:2: ") && stderr.contains(&says),
            "{stderr}"
        );
        fs::remove_file(place.path().join("regatta.toml")).unwrap();
    }
    assert!(!Path::new("reports/s/run.jsonl").exists());
}

#[test]
fn a_bad_set_cites_the_command_line() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    for (set, says) in [
        ("fake/steady", "write VARIANT.PARAMETER=VALUE"),
        ("fake/stead.num_splits_key=1", "did you mean fake/steady?"),
        ("fake/steady.splits=1", "has no parameter `splits`"),
        ("fake/steady.num_splits_key=many", "is not possible"),
        (
            "fake/steady.num_splits_key=1,n=2",
            "cannot stand in a case id",
        ),
        ("fake/steady.num splits=1", "cannot name a parameter"),
        (
            "fake/steady.dtype=f16",
            "a selector means the case's own `dtype`",
        ),
    ] {
        let (_, stderr) = exits!(place, 2, ["run", "./s.toml", "--set", set]);
        assert!(
            stderr.contains(&format!("--set {set}: ")) && stderr.contains(says),
            "{stderr}"
        );
        assert!(!stderr.contains("s.toml:"), "{stderr}");
    }
}
