//! What a tuner chose, told apart from what the code takes: by black box, on a fake worker
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
        "description = \"one case\"\n\
         [measure]\ninvocations = 5\nsamples = 10\n\
         [policy]\nthreshold = 0.02\n\
         [workers]\nfake = [{:?}{}]\n\
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
    assert_eq!(evidence, "BLOCK_M 128 → 64, num_warps 8 → 4");
    // Pinned, the code is as fast as it was.
    gated(&place, 0, &PINNED);
    // Slower code stays slower, and the tuner is no cause of it.
    tuner(&place, "\"fake/tuned\"", "--tuner 64 --slower 50");
    let judgement = gated(&place, 1, &PINNED);
    assert!(
        !reasons(&judgement).contains("tuner"),
        "{}",
        reasons(&judgement)
    );
}

/// What looks into a folder of baselines takes its name.
#[test]
fn baselines_that_lie_elsewhere_are_found_by_every_command() {
    let place = place("\"fake/tuned\"");
    let [usual, kept] = ["baselines", "kept"].map(|name| place.path().join(name));
    std::fs::rename(usual, kept).unwrap();
    let gate = ["gate", "./s.toml"];
    exits!(place, 3, gate);
    let kept = ["--baselines", "kept"];
    exits!(place, 0, [&gate[..], &kept].concat());
    let compare = ["compare", "./s.toml", "--base", "run:s"];
    exits!(place, 0, [&compare[..], &kept].concat());
}
