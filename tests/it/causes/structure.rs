//! What of structure fails, warns and is not judged: with times and without, by default and as a
//! suite says.

use regatta::judge::judgement::{Row, VerdictOutcome};
use regatta::judge::{Options, judge};
use regatta::record::side::Side;
use regatta::record::types::Outcome;
use regatta::record::{baseline, run_file};
use regatta::suite;
use serde_json::Value;

use super::{judged, place};
use crate::common::Place;

/// Each way in which what a call does is not told any more, and what is then named.
const UNTOLD: [(&str, &str); 5] = [
    (
        "no-census",
        "launches (2), allocations (2), copies (0), driver_allocations (0), driver_frees (0), \
         module_loads (0) and 2 more: the census failed: CUPTI is taken",
    ),
    (
        "no-structure",
        "launches (2), allocations (2), copies (0), driver_allocations (0), driver_frees (0), \
         module_loads (0) and 2 more: its worker counts no structure",
    ),
    ("no-launches", "launches (2)"),
    (
        "no-count",
        "workspace_bytes (1000): the allocator is another one",
    ),
    (
        "no-calls",
        "driver_allocations (0), driver_frees (0), synchronisations (0)",
    ),
];

const HARMLESS: [&str; 10] = [
    "order",
    "anonymous",
    "unnamed",
    "file",
    "specialised",
    "spaces",
    "hash",
    "jitter",
    "workspace",
    "fewer",
];

/// An allocator has memory left over where a call is counted, and none where it is timed.
#[test]
fn memory_that_is_asked_for_only_where_calls_are_timed_is_counted() {
    let (code, judgement) = judged(&place(""), "when-timed", &[]);
    assert_eq!(code, 1, "{judgement}");
    let changes = judgement["rows"][0]["structure"].as_array().unwrap();
    let told = |change: &Value| change["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = changes.iter().map(told).collect();
    assert_eq!(names, ["driver_allocations", "driver_frees"], "{judgement}");
}

/// What the base tells and the head does not is not judged, with times and without.
#[test]
fn structure_that_vanished_is_not_judged_and_named() {
    let place = place("");
    for (fault, told) in UNTOLD {
        for more in [&["--structure-only"][..], &[]] {
            let (code, judgement) = judged(&place, fault, more);
            assert_eq!(code, 3, "{fault} {more:?}: {judgement:#}");
            let row = &judgement["rows"][0];
            let named = row["uncounted"].as_array().unwrap();
            assert!(!named.is_empty(), "{fault} {more:?}: {row:#}");
            let reasons = judgement["verdict"]["reasons"].as_array().unwrap();
            let reason = format!("counted in the base and not now: {told}");
            let said = |of: &Value| of.as_str().unwrap().ends_with(&reason);
            assert!(reasons.iter().any(said), "{fault} {more:?}: {reasons:?}");
        }
    }
    // The run says why there is nothing in it.
    exits!(
        place,
        0,
        ["run", "./s.toml", "--set", "fake/gpu.fault=no-census"]
    );
    let run = place.run("s");
    let Outcome::Measured(first) = &run.entries[0].outcome else {
        panic!("{:?}", run.entries[0]);
    };
    let uncounted = &first.structure.as_ref().unwrap().uncounted;
    assert_eq!(uncounted["census"], "the census failed: CUPTI is taken");
    let (stdout, _) = exits!(place, 3, ["diff", "s", "reports/s"]);
    assert!(stdout.contains("Structure not judged (1)"), "{stdout}");
    // What the head alone counts is new, and nothing against it.
    exits!(place, 0, ["baseline", "save", "s", "--replace", "--force"]);
    exits!(place, 0, ["gate", "./s.toml"]);
}

#[test]
fn harmless_changes_fail_nothing_with_times_or_without() {
    let place = place("");
    for change in HARMLESS {
        let (code, judgement) = judged(&place, change, &["--structure-only"]);
        assert_eq!(code, 0, "{change}: {judgement:#}");
        let row = &judgement["rows"][0];
        for difference in row["structure"].as_array().unwrap() {
            assert_eq!(difference["action"], "ignore", "{change}: {difference}");
        }
    }
    assert_eq!(judged(&place, "order", &[]).0, 0);
}

#[test]
fn structure_alone_names_what_is_structure_and_passes_what_is_not() {
    let place = place("");
    for (fault, kind) in [
        ("grid", "fill"),
        ("copies", "copies"),
        ("spills", "spills"),
        ("modules", "counts"),
        ("waits", "synchronisation"),
        ("driver-memory", "synchronisation"),
    ] {
        let (code, judgement) = judged(&place, fault, &["--structure-only"]);
        assert_eq!(code, 1, "{fault}: {judgement:#}");
        assert_eq!(judgement["rows"][0]["structure"][0]["kind"], kind);
        let reason = judgement["verdict"]["reasons"][0].as_str().unwrap();
        assert!(
            reason.starts_with("1 of 1 case changed structure"),
            "{reason}"
        );
    }
    // Memory of the driver is a kind of its own, beside the waits that a free brings.
    let (_, judgement) = judged(&place, "driver-memory", &["--structure-only"]);
    let kinds = judgement["rows"][0]["structure"].as_array().unwrap().iter();
    let kinds: Vec<&str> = kinds.map(|of| of["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["synchronisation", "driver-memory", "driver-memory"]);
    for fault in ["clock", "host", "kernel"] {
        assert_eq!(judged(&place, fault, &["--structure-only"]).0, 0, "{fault}");
    }
    let run = place.run("s-structure");
    assert_eq!(run.entries.len(), 1, "one launch a case");
    assert!(place.path().join("reports/s/run.jsonl").exists());
}

#[test]
fn a_suite_says_how_changes_are_taken() {
    let place = place(
        "[policy.structure]\nfill = \"warn\"\nkernel-replaced = \"fail\"\n\
         [[policy.structure.rule]]\nname = \"*copy*\"\naction = \"ignore\"\n",
    );
    for (fault, expected) in [("grid", 0), ("kernel", 1), ("copies", 0), ("spills", 1)] {
        let (code, judgement) = judged(&place, fault, &["--structure-only"]);
        assert_eq!(code, expected, "{fault}: {judgement:#}");
    }
}

#[test]
fn limits_need_no_baseline_and_no_time() {
    let place = place(
        "[[limit]]\nname = \"half of the device\"\ncase = { variant = \"fake/gpu\" }\n\
         count = \"sm_fill\"\nkernel = \"*flash*\"\nat_least = 0.5\n",
    );
    exits!(place, 0, ["run", "./s.toml", "--structure-only"]);
    exits!(place, 0, ["baseline", "remove", "s"]);
    let (code, judgement) = judged(&place, "grid", &["--structure-only"]);
    assert_eq!(code, 1);
    let reason = judgement["verdict"]["reasons"][0].as_str().unwrap();
    assert!(reason.contains("`half of the device`"), "{reason}");
    assert!(reason.contains("1 of 132 SMs"), "{reason}");
    // Nothing against it, and nothing to hold it against.
    let (_, stderr) = exits!(place, 3, ["gate", "./s.toml", "--structure-only", "--json"]);
    assert!(!stderr.contains("panicked"), "{stderr}");
    exits!(
        place,
        1,
        ["run", "./s.toml", "--set", "fake/gpu.fault=grid"]
    );
}

#[test]
fn what_a_suite_cannot_say_of_structure_is_told_with_its_place() {
    let place = Place::new();
    for (more, complaint) in [
        (
            "[policy.structure]\nfil = \"fail\"\n",
            "did you mean `fill`?",
        ),
        (
            "[policy.structure]\nfill = \"error\"\n",
            "policy.structure.fill = \"error\": use `fail`, `warn` or `ignore`",
        ),
        (
            "[[policy.structure.rule]]\naction = \"warn\"\n",
            "matches every case",
        ),
        (
            "[[policy.structure.rule]]\nname = \"*\"\nkind = \"gird\"\naction = \"warn\"\n",
            "did you mean `grid`?",
        ),
        (
            "[[limit]]\nname = \"n\"\ncase = { head_dim = 16 }\ncount = \"blocks\"\n",
            "limits nothing; give `at_least` or `at_most`",
        ),
        (
            "[[limit]]\nname = \"n\"\ncase = { head_dim = 17 }\ncount = \"blocks\"\nat_most = 1\n",
            "limit \"n\": `case` selects no case of this suite",
        ),
        (
            "[[limit]]\nname = \"n\"\ncase = { head_dim = 16 }\ncount = \"copies\"\n\
             kernel = \"*\"\nat_most = 1\n",
            "is not counted by kernel",
        ),
    ] {
        let suite = "schema = 1\ndescription = \"d\"\n[workers.fake]\ncommand = [\"true\"]\n\
                     [[sweep]]\nvariants = [\"fake/gpu\"]\nseq = 32\nhead_dim = 16\n";
        place.write("s.toml", &format!("{suite}{more}"));
        let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
        assert!(stderr.contains(complaint), "{more}: {stderr}");
    }
}

/// What an H200 launched, as committed: with -1 handed over, and as it should be.
#[test]
fn the_lost_sentinel_fails_by_limits_and_by_structure_alone() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let sample = root.join("reports/samples/xformers-0.0.26/run.jsonl");
    let run = run_file::read(&sample).unwrap();
    let baseline = root.join("baselines/xformers-backward/h200-132sm.jsonl");
    let mut base = baseline::read(&baseline).unwrap();
    let mut head = Side::from_run("0.0.26", &run);
    for side in [&mut base, &mut head] {
        side.header.rules = suite::load("xformers-0.0.26").unwrap().rules;
        side.header.settings.structure_only = true;
        for record in side.cases.values_mut() {
            record.device_ns.clear();
            record.host_ns.clear();
        }
    }
    let alone = |side: &Side| judge(side, None, &Options::default());
    let good = alone(&base);
    assert_eq!(
        good.verdict.outcome,
        VerdictOutcome::Passed,
        "{:?}",
        good.verdict
    );
    assert_eq!(good.limits.len(), 6);
    let bad = alone(&head);
    assert_eq!(bad.verdict.outcome, VerdictOutcome::Failed);
    assert!(
        bad.verdict.reasons[0].starts_with("6 limits are broken"),
        "{:?}",
        bad.verdict
    );

    let compared = judge(&head, Some(&base), &Options::default());
    let failed = compared.rows.iter().filter(|row| row.fails_by_structure());
    let failed: Vec<&Row> = failed.collect();
    assert_eq!(failed.len(), 6, "{:?}", compared.verdict);
    assert!(
        failed
            .iter()
            .all(|row| !row.case.0.contains("num_splits_key"))
    );
    let reported = compared
        .rows
        .iter()
        .find(|row| row.case.0 == "torch/efficient:s10000,d32,bwd");
    let told = reported.unwrap().structure_told();
    let kernel = "fmha_cutlassB_f32_aligned_64x64_k32_sm80";
    assert_eq!(
        told[0],
        format!("fill 132 of 132 SMs → 1 of 132 SMs of {kernel}")
    );
    assert!(
        told.contains(&format!("grid 157x1x1 → 1x1x1 of {kernel}")),
        "{told:?}"
    );
}
