//! What a tuner chose, held apart from what the code takes: by black box, on a fake worker
//! whose tuner chooses as it is told.

use crate::common::{Place, fake_worker};
use serde_json::Value;

const PINNED: [&str; 4] = [
    "--set",
    "fake/tuned.BLOCK_M=128",
    "--set",
    "fake/tuned.num_warps=8",
];

/// Writes the suite with a tuner that chooses so.
fn tuner(place: &Place, variants: &str, how: &str) {
    let how: Vec<String> = how
        .split_whitespace()
        .map(|word| format!(", {word:?}"))
        .collect();
    let suite = format!(
        "schema = 1\ndescription = \"one case\"\n\
         [measure]\ninvocations = 5\nsamples = 10\nground = \"any\"\n\
         [policy]\nfloor = 0.02\nconfirm = 5\n\
         [workers.fake]\ncommand = [{:?}{}]\n\
         [[sweep]]\nvariants = [{variants}]\nseq = 32\nhead_dim = 16\n",
        fake_worker().display().to_string(),
        how.concat(),
    );
    place.write("s.toml", &suite);
}

/// A place with a baseline whose tuner chose the larger block.
fn place(variants: &str) -> Place {
    let place = Place::new();
    tuner(&place, variants, "");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    place
}

fn gated(place: &Place, code: i32, more: &[&str]) -> Value {
    let args = [&["gate", "./s.toml", "--json", "--quiet"], more].concat();
    let (stdout, _) = exits!(place, code, args);
    serde_json::from_str(&stdout).unwrap()
}

fn reasons(judgement: &Value) -> String {
    let reasons = judgement["verdict"]["reasons"].as_array().unwrap();
    let reasons: Vec<&str> = reasons.iter().filter_map(Value::as_str).collect();
    reasons.join("\n")
}

#[test]
fn a_tuner_that_chose_otherwise_is_told_apart_from_slower_code() {
    let place = place("\"fake/tuned\"");
    tuner(&place, "\"fake/tuned\"", "--tuner 64");
    let judgement = gated(&place, 1, &[]);
    let row = &judgement["rows"][0];
    assert_eq!(row["findings"][0]["cause"], "tuner-chose", "{row:#}");
    let evidence = row["findings"][0]["evidence"].as_str().unwrap();
    assert_eq!(
        evidence,
        "the tuner chose BLOCK_M 128 → 64, num_warps 8 → 4"
    );
    let told = "pin it on both sides: --set fake/tuned.BLOCK_M=128 --set fake/tuned.num_warps=8, \
                or all cases with --pin s";
    assert!(
        reasons(&judgement).ends_with(told),
        "{}",
        reasons(&judgement)
    );
    // The advice is a command that decides: the code is as fast as it was.
    gated(&place, 0, &PINNED);
    let pinned = gated(&place, 0, &["--pin", "s"]);
    assert_eq!(pinned["rows"][0]["tuner"], Value::Null);
    let run = place.run("s");
    let pins = run.header.suite.pins.values().next().unwrap();
    assert_eq!(pins.get("BLOCK_M").to_string(), "128");
    // A run that was pinned can be pinned to again.
    gated(&place, 0, &["--pin", "reports/s"]);
    // What is set by hand is no choice of a tuner's, and --pin does not take it away.
    let by_hand = [
        "gate",
        "./s.toml",
        "--set",
        "fake/tuned.BLOCK_M=64",
        "--pin",
        "s",
    ];
    let (stdout, stderr) = exits!(place, 1, by_hand);
    assert!(
        stderr.contains("--pin s: the suite or --set gives a parameter"),
        "{stderr}"
    );
    assert!(!stdout.contains("the tuner chose"), "{stdout}");
    assert!(stdout.contains("BLOCK_M"), "{stdout}");
    // Slower code stays slower, and the tuner is no cause of it.
    tuner(&place, "\"fake/tuned\"", "--tuner 64 --slower 50");
    let judgement = gated(&place, 1, &["--pin", "s"]);
    assert!(
        !reasons(&judgement).contains("tuner"),
        "{}",
        reasons(&judgement)
    );
}

#[test]
fn a_tuner_that_chooses_now_this_now_that_is_not_judged_as_one_time() {
    let place = place("\"fake/tuned\"");
    tuner(&place, "\"fake/tuned\"", "--tuner flips --state flips");
    let judgement = gated(&place, 3, &[]);
    assert_eq!(judgement["rows"][0]["word"], "inconclusive");
    let told = "the tuner chose BLOCK_M 128 with num_warps 8 in 3 of 5 invocations, BLOCK_M 64 \
                with num_warps 4 in 2; pin it on both sides: --set fake/tuned.BLOCK_M=128";
    assert!(
        reasons(&judgement).contains(told),
        "{}",
        reasons(&judgement)
    );
    // A baseline keeps which invocation chose what.
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s", "--replace", "--force"]);
    tuner(&place, "\"fake/tuned\"", "");
    let judgement = gated(&place, 3, &[]);
    assert!(
        reasons(&judgement).contains("of the base"),
        "{}",
        reasons(&judgement)
    );
    // Of candidates that are as good it matters to nobody.
    let place = self::place("\"fake/tuned\"");
    tuner(
        &place,
        "\"fake/tuned\"",
        "--tuner flips-alike --state alike",
    );
    let judgement = gated(&place, 0, &[]);
    let notes = judgement["notes"].to_string();
    assert!(notes.contains("does not choose alike"), "{notes}");
}

#[test]
fn a_variant_that_cannot_be_pinned_says_so() {
    let place = place("\"fake/tuned-fixed\"");
    tuner(&place, "\"fake/tuned-fixed\"", "--tuner 64");
    let judgement = gated(&place, 1, &[]);
    let told = "nothing pins it: fake/tuned-fixed has no parameter";
    assert!(
        reasons(&judgement).contains(told),
        "{}",
        reasons(&judgement)
    );
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml", "--pin", "s"]);
    let told = "--pin s pins nothing: fake/tuned-fixed cannot be pinned to BLOCK_M = 128";
    assert!(stderr.contains(told), "{stderr}");
}

#[test]
fn what_cannot_be_pinned_to_is_a_mistake_of_the_command_line() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let (_, stderr) = exits!(place, 2, ["gate", "./s.toml", "--pin", "s"]);
    assert!(stderr.contains("no tuner chose anything in it"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml", "--pin", "nothing"]);
    assert!(stderr.contains("nothing is neither a file"), "{stderr}");
    place.write("torn.jsonl", "{\"kind\":\"header\"");
    exits!(place, 2, ["run", "./s.toml", "--pin", "torn.jsonl"]);
    place.write("empty.jsonl", "");
    exits!(place, 2, ["run", "./s.toml", "--pin", "empty.jsonl"]);
}

#[test]
fn both_sides_of_a_comparison_are_pinned() {
    let place = place("\"fake/tuned\"");
    tuner(&place, "\"fake/tuned\"", "--tuner 64");
    let worker = fake_worker().display().to_string();
    let base = format!("worker:fake={worker}");
    let args = ["compare", "./s.toml", "--base", &base, "--json", "--quiet"];
    let (stdout, _) = exits!(place, 1, args);
    let judgement: Value = serde_json::from_str(&stdout).unwrap();
    assert!(reasons(&judgement).contains("the folder of the base's run"));
    let pinned = [&args[..], &["--pin", "s"]].concat();
    let (stdout, _) = exits!(place, 0, pinned);
    let judgement: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(judgement["rows"][0]["word"], "same");
}

#[test]
fn a_baseline_keeps_what_the_tuner_chose_in_its_sessions() {
    let place = place("\"fake/tuned\"");
    tuner(&place, "\"fake/tuned\"", "--tuner 64");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s", "--add"]);
    let judgement = gated(&place, 3, &[]);
    let told = "the tuner chose BLOCK_M 64 with num_warps 4 in 5 of 10 invocations of the base in \
                2 sessions, BLOCK_M 128 with num_warps 8 in 5; pin it on both sides";
    assert!(
        reasons(&judgement).contains(told),
        "{}",
        reasons(&judgement)
    );
}

/// What looks into a folder of baselines takes its name, and advice names it.
#[test]
fn baselines_that_lie_elsewhere_are_found_by_every_command() {
    let place = place("\"fake/tuned\"");
    let [usual, kept] = ["baselines", "kept"].map(|name| place.path().join(name));
    std::fs::rename(usual, kept).unwrap();
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml", "--pin", "s"]);
    assert!(stderr.contains("s is neither a file"), "{stderr}");
    let kept = ["--baselines", "kept"];
    let run = ["run", "./s.toml", "--pin", "s"];
    exits!(place, 0, [&run[..], &kept].concat());
    let run = place.run("s");
    assert_eq!(
        run.header.suite.arguments,
        ["./s.toml", "--pin", "s", "--baselines", "kept"],
        "by which it can be measured again"
    );
    let compare = ["compare", "./s.toml", "--base", "run:s"];
    exits!(place, 0, [&compare[..], &kept].concat());
    let (_, stderr) = exits!(place, 0, [&["gate", "./s.toml"][..], &kept].concat());
    let told = "`regatta calibrate ./s.toml --baselines kept` measures it";
    assert!(stderr.contains(told), "{stderr}");
}
