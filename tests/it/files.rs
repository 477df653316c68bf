//! Files that a command line names: a pipe or a device is not waited for, an impossible
//! value is damage, and no report is written over another or over its own run.

use std::fs;

use regatta_core::record::{Side, baseline};
use regatta_core::suite;
use regatta_judge::judgement::{Row, VerdictOutcome};
use regatta_judge::{Options, judge};

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
            "run.jsonl:1: policy.threshold holds 10, beyond 0 to 1",
        ),
    ] {
        edited(&place, "odd", |line| line.replace(from, to));
        let (_, stderr) = exits!(place, 2, ["diff", "reports/s", "odd"]);
        assert!(stderr.contains(says), "{stderr}");
    }

    exits!(place, 0, ["baseline", "save", "s", "--force"]);
    let mut files = fs::read_dir(place.path().join("baselines/s")).unwrap();
    let file = files.next().unwrap().unwrap().path();
    let text = fs::read_to_string(&file).unwrap();
    let odd = text
        .lines()
        .map(|line| sealed(&with_number(line, "first_call", "-5")));
    fs::write(&file, odd.collect::<String>()).unwrap();
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml", "--filter", "s32"]);
    for says in ["is corrupt", "first_call holds -5 ns"] {
        assert!(stderr.contains(says), "{stderr}");
    }
}

/// The launches of an H200, as committed: with -1 passed on, and as they should be.
#[test]
fn the_lost_sentinel_fails_by_limits_and_by_structure_alone() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let sample = root.join("reports/samples/xformers-0.0.26/run.jsonl");
    let baseline = root.join("baselines/xformers-backward/h200-132sm.jsonl");
    let mut base = baseline::read(&baseline).unwrap();
    let (_, mut head) = Side::read(&sample, "0.0.26").unwrap();
    for side in [&mut base, &mut head] {
        side.header.rules = suite::load("xformers-0.0.26").unwrap().rules;
        side.header.settings.structure_only = true;
        for record in side.cases.values_mut() {
            record.invocations.clear();
        }
    }
    let alone = |side: &Side| judge(side, None, &Options::ALONE);
    let verdict = alone(&base).verdict;
    assert_eq!(verdict.outcome, VerdictOutcome::Passed, "{verdict:?}");
    assert!(verdict.shown.contains("expectations: 6 met"), "{verdict:?}");
    let verdict = alone(&head).verdict;
    assert_eq!(verdict.outcome, VerdictOutcome::Failed);
    assert!(verdict.shown.contains("6 violated"), "{verdict:?}");
    let compared = judge(&head, Some(&base), &Options::ALONE);
    let failed = compared.rows.iter().filter(|row| row.fails_by_structure());
    let failed: Vec<&Row> = failed.collect();
    assert_eq!(failed.len(), 6, "{:?}", compared.verdict);
    let mut ids = failed.iter().map(|row| row.case.0.as_ref());
    assert!(ids.clone().all(|id| !id.contains("num_splits_key")));
    let place = ids.position(|id| id == "torch/efficient:s10000,d32,bwd");
    let changes = failed[place.unwrap()].worth_telling();
    let evidence: Vec<String> = changes.map(ToString::to_string).collect();
    let kernel = "fmha_cutlassB_f32_aligned_64x64_k32_sm80";
    assert_eq!(evidence[0], format!("fill 132 → 1 of 132 SMs of {kernel}"));
    let grid = format!("grid 157x1x1 → 1x1x1 of {kernel}");
    assert!(evidence.contains(&grid), "{evidence:?}");
}
