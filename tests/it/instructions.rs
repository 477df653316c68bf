//! Instructions that hardware counts: a gate for code that no times are needed for.

use crate::common::Place;
use regatta_core::record::side::Side;

const ASKED: [&str; 2] = ["gate", "./s.toml"];

fn gate(fault: &str, more: &[&str]) -> (Place, i32, String, String) {
    let place = counted();
    let set = format!("fake/gpu.fault={fault}");
    let mut words = ASKED.to_vec();
    words.extend(["--set", &set]);
    words.extend(more);
    let (code, stdout, stderr) = place.ran(&words);
    (place, code, stdout, stderr)
}

/// A baseline whose instructions were counted, as the suite asks.
fn counted() -> Place {
    let place = Place::new();
    place.suite("s", &["fake/gpu"], &[], "");
    place.edit(
        "s.toml",
        "samples = 10",
        "samples = 10\ninstructions = true",
    );
    for words in [&["run", "./s.toml"][..], &["baseline", "save", "s"]] {
        let (code, stdout, stderr) = place.ran(words);
        assert_eq!(code, 0, "{stdout}{stderr}");
    }
    place
}

#[test]
fn one_instruction_in_a_hundred_more_fails_where_times_are_the_same() {
    let (place, code, stdout, stderr) = gate("more-instructions", &[]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(
        stdout.contains("instructions 100000 → 101000 (+1.00 %) of "),
        "{stdout}"
    );
    let run = place.run("s");
    let side = Side::from_run("head", &run);
    let record = side.cases.values().next().unwrap();
    let counters = record.counters.as_ref().unwrap();
    // Three calls in each of three invocations.
    assert_eq!(counters.calls, 9);
    let exact = counters.kernels.values().map(|kernel| {
        let counts = kernel.instructions.values();
        counts.map(|counts| counts.is_exact()).collect::<Vec<_>>()
    });
    let exact: Vec<bool> = exact.flatten().collect();
    assert!(exact.contains(&true) && exact.contains(&false), "{exact:?}");
}

#[test]
fn no_time_is_needed() {
    let place = Place::new();
    place.suite("s", &["fake/gpu"], &[], "");
    let words = ["--set", "instructions=true", "--structure-only"];
    let run = |verb: &str, more: &[&str]| {
        let mut all = vec![verb, "./s.toml"];
        all.extend(words);
        all.extend(more);
        place.ran(&all)
    };
    let (code, stdout, stderr) = run("run", &[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let saved = place.ran(&["baseline", "save", "s", "reports/s-structure", "--force"]);
    assert_eq!(saved.0, 0, "{saved:?}");
    let (code, stdout, stderr) = run("gate", &[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let (code, stdout, _) = run("gate", &["--set", "fake/gpu.fault=more-instructions"]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("(+1.00 %)"), "{stdout}");
}

#[test]
fn what_is_not_counted_any_more_is_not_judged_and_says_why() {
    for (fault, why) in [
        ("no-instructions", "performance counters need root"),
        ("lost-instructions", "reads no hardware counters"),
    ] {
        let (_place, code, stdout, stderr) = gate(fault, &[]);
        assert_eq!(code, 3, "{stdout}{stderr}");
        assert!(stdout.contains("instructions"), "{stdout}");
        assert!(stdout.contains(why), "{stdout}");
    }
    // The base has counts, and this gate did not ask for them.
    let place = counted();
    place.edit("s.toml", "instructions = true", "instructions = false");
    let (code, stdout, stderr) = place.ran(&ASKED);
    assert_eq!(code, 3, "{stdout}{stderr}");
    let words: Vec<&str> = stdout.split_whitespace().collect();
    let asked = "ask for them with --set instructions=true";
    assert!(words.join(" ").contains(asked), "{stdout}");
}

#[test]
fn nothing_is_lost_where_they_cannot_be_counted_at_all() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let (code, stdout, stderr) = place.ran(&["run", "./s.toml", "--set", "instructions=true"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let (_, plain, _) = place.ran(&["run", "./s.toml", "--no-resume"]);
    assert!(!plain.contains("are not counted"), "{plain}");
}

#[test]
fn the_account_says_what_hardware_counted() {
    let (_place, code, stdout, stderr) = gate("grid", &[]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    // However lines break.
    let text = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("same instructions"), "{stdout}");
}

#[test]
fn more_of_them_is_the_cause_where_the_kernel_takes_longer() {
    let (_place, code, stdout, _) = gate("more-work", &[]);
    assert_eq!(code, 1, "{stdout}");
    let first = stdout
        .lines()
        .find(|line| line.contains("more-instructions"));
    assert!(
        first.is_some_and(|line| line.contains("flash (instructions +50.0 %)")),
        "{stdout}"
    );
}
