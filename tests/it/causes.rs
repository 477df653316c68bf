//! What accounts for a change: of a time, of a first call, of memory; and how a suite has
//! structure taken. Which cause each fault has is in `situations.txt`.

use crate::common::{Place, fake_worker};
use regatta_core::record::side::Side;
use regatta_core::record::{baseline, run_file};
use regatta_core::suite;
use regatta_judge::judgement::{Row, VerdictOutcome, Word};
use regatta_judge::{Options, judge};
use serde_json::Value;

/// A suite of one case, with a baseline of it.
fn place(more: &str) -> Place {
    let place = Place::new();
    let worker = fake_worker().display().to_string();
    let suite = format!(
        "description = \"one case\"\n\
         [measure]\ninvocations = 5\nsamples = 10\n\
         [workers]\nfake = [{worker:?}]\n\
         [[sweep]]\nvariants = [\"fake/gpu\"]\nseq = 32\nhead_dim = 16\n\
         [policy]\nthreshold = 0.02\n{more}"
    );
    place.write("s.toml", &suite);
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    place
}

fn judged(place: &Place, fault: &str, more: &[&str]) -> (i32, Value) {
    let set = format!("fake/gpu.fault={fault}");
    let args = [&["gate", "./s.toml", "--json", "--set", &set], more].concat();
    let (code, stdout, stderr) = place.ran(&args);
    let value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{fault}: {stderr}"));
    (code, value)
}

/// Where the change of a first call went is told beside it.
#[test]
fn a_first_call_says_where_its_time_went() {
    let place = place("");
    let (code, judgement) = judged(&place, "compiles", &[]);
    assert_eq!(code, 1, "{judgement:#}");
    let metrics = judgement["rows"][0]["metrics"].as_array().unwrap();
    let first = metrics.iter().find(|of| of["metric"] == "first_call");
    let account = &first.unwrap_or_else(|| panic!("{judgement:#}"))["account"];
    assert_eq!(account["change_ns"], 80e6, "{account}");
    assert_eq!(account["lines"][0]["name"], "compiling", "{account}");
    assert_eq!(account["lines"][0]["growth_ns"], 79e6, "{account}");
    assert_eq!(account["unexplained_ns"], 1e6, "{account}");
    let set = ["gate", "./s.toml", "--set", "fake/gpu.fault=compiles"];
    let (stdout, _) = exits!(place, 1, set);
    let told = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = "first call +80.0 ms = compiling 1 → 4 +79.0";
    assert!(told.contains(words), "{stdout}");
    let page = std::fs::read_to_string(place.path().join("reports/s/index.html")).unwrap();
    for part in [
        "compiling 1 → 4 +79.0</li>",
        r#""accounts":[["first call +80.0 ms",[["#,
    ] {
        assert!(page.contains(part), "the page has no {part}");
    }
}

/// What is told adds up, and is told in text as in JSON.
#[test]
fn an_account_is_the_change_and_is_told() {
    let place = Place::with_baseline(&["fake/gpu"], &[], "");
    let (code, judgement) = judged(&place, "clone", &[]);
    assert_eq!(code, 1);
    let row = &judgement["rows"][0];
    let account = &row["account"];
    let number = |value: &Value| value.as_f64().unwrap();
    let lines = account["lines"].as_array().unwrap();
    let sum: f64 = lines.iter().map(|line| number(&line["growth_ns"])).sum();
    let all = sum + number(&account["unexplained_ns"]);
    assert!(
        (all - number(&account["change_ns"])).abs() < 1e-3,
        "{account:#}"
    );
    let added = lines.iter().find(|line| line["item"] == "added").unwrap();
    // It takes 1.3 µs, for 1 µs of which the copy from the host runs beside it.
    assert_eq!(number(&added["growth_ns"]), 800.0, "{account:#}");
    assert!(number(&row["findings"][0]["share"]) > 0.5, "{row:#}");
    let clone = "fake/gpu.fault=clone";
    let (stdout, _) = exits!(
        place,
        1,
        ["gate", "./s.toml", "--set", clone, "--no-resume", "--all"]
    );
    let told = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("µs = copy kernel direct_copy_kernel added +0.80"),
        "{stdout}"
    );
    let page = std::fs::read_to_string(place.path().join("reports/s/index.html")).unwrap();
    assert!(
        page.contains("direct_copy_kernel added"),
        "the page tells it too"
    );
    let cases = ["diff", "s", "reports/s", "--output", "csv=csv"];
    exits!(place, 1, cases);
    let cases = std::fs::read_to_string(place.path().join("csv/cases.csv")).unwrap();
    assert!(cases.contains("added +0.80"), "{cases}");
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
            record.invocations.clear();
        }
    }
    let alone = |side: &Side| judge(side, None, &Options::ALONE);
    let good = alone(&base);
    assert_eq!(
        good.verdict.outcome,
        VerdictOutcome::Passed,
        "{:?}",
        good.verdict
    );
    let met = good.expectations.iter().filter(|of| of.word == Word::Same);
    assert_eq!(met.count(), 6);
    let bad = alone(&head);
    assert_eq!(bad.verdict.outcome, VerdictOutcome::Failed);
    assert!(
        bad.verdict.shown.contains("6 violated"),
        "{:?}",
        bad.verdict
    );

    let compared = judge(&head, Some(&base), &Options::ALONE);
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
    assert_eq!(told[0], format!("fill 132 → 1 of 132 SMs of {kernel}"));
    assert!(
        told.contains(&format!("grid 157x1x1 → 1x1x1 of {kernel}")),
        "{told:?}"
    );
}
