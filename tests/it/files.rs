//! Files that a command line names: what is no file is not waited for, what cannot have been
//! measured is damage, and no report is written over another or over what it is of.

use std::fs;

use crate::common::Place;

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
