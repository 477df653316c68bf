//! The minimum detectable change that a comparison prints: planted changes of that size are called.

use std::fmt::Write;

use serde_json::Value;

use crate::common::{Place, fake_worker};

/// Cases of a suite, and how many suites.
const CASES: usize = 40;
const SUITES: usize = 3;

/// The least share that is called, in percent. The program prints a size that is called in 95 of 100.
const CALLED: usize = 93;

/// Three digits each, so that no length is a part of another.
fn lengths() -> impl Iterator<Item = usize> {
    (100..).take(CASES)
}

/// Cases whose times differ by a fifth from start to start. `slower` has what is planted, of each a
/// whole number of percent.
fn compared(seed: usize, slower: &[i64]) -> Vec<Value> {
    let place = Place::new();
    let mut script = "noisy".to_owned();
    for (length, percent) in lengths().zip(slower) {
        write!(script, ",s{length}:+{percent}%").unwrap();
    }
    let worker = fake_worker().display().to_string();
    let lengths: Vec<usize> = lengths().collect();
    place.write(
        "s.toml",
        &format!(
            "description = \"planted changes\"\n[workers]\n\
             fake = [{worker:?}, \"--seed\", \"{}\", \"--script\", \"{script}\"]\n\
             [measure]\ninvocations = 5\nsamples = 5\ntimeout_s = 60\n\
             [policy]\nthreshold = 0.02\n\
             [[sweep]]\nvariants = [\"fake/gpu\"]\nseq = {lengths:?}\nhead_dim = 16\n",
            2 * seed + 1
        ),
    );
    let base = format!("worker:fake={worker} --seed {} --script noisy", 2 * seed);
    let words = ["compare", "./s.toml", "--base", &base, "--json"];
    let (_, stdout, stderr) = place.ran(&words);
    let judgement: Value = serde_json::from_str(&stdout).expect(&stderr);
    let mut rows: Vec<Value> = judgement["rows"].as_array().unwrap().clone();
    rows.sort_by_key(|row| row["case"].to_string());
    assert_eq!(rows.len(), CASES, "{stderr}");
    rows
}

/// The smallest change that the device time of a row would show, in percent.
fn detectable(row: &Value) -> f64 {
    let metrics = row["metrics"].as_array().unwrap();
    let mut device = metrics.iter().filter(|row| row["metric"] == "device");
    let device = device.next().unwrap();
    100.0 * device["detectable"].as_f64().expect("it is printed")
}

#[test]
#[ignore = "takes two minutes"]
fn planted_changes_of_the_size_that_is_printed_are_called() {
    let (mut called, mut sizes) = (0, Vec::new());
    for suite in 0..SUITES {
        let printed: Vec<f64> = compared(10 * suite + 1, &[])
            .iter()
            .map(detectable)
            .collect();
        // Rounded down: no more than what is printed.
        let planted: Vec<i64> = printed
            .iter()
            .map(|percent| percent.floor() as i64)
            .collect();
        let rows = compared(10 * suite + 2, &planted);
        called += rows.iter().filter(|row| row["word"] == "regressed").count();
        sizes.extend(planted);
    }
    let all = CASES * SUITES;
    println!(
        "{called} of {all} planted changes of {} to {} % are called",
        sizes.iter().min().unwrap(),
        sizes.iter().max().unwrap()
    );
    assert!(100 * called >= CALLED * all, "{called} of {all}");
}
