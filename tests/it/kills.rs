//! A gate stopped at any moment goes on to the answer of one that was not.
//!
//! `REGATTA_TEST_KILLS=40 cargo test --test it kills` stops it at forty moments; without it at a
//! few.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use regatta_core::record::types::Run;

const SLOWER: [&str; 4] = ["gate", "./s.toml", "--set", "fake/steady.slower_percent=50"];
const CLEAN: [&str; 2] = ["gate", "./s.toml"];

fn moments() -> usize {
    let asked = std::env::var("REGATTA_TEST_KILLS").ok();
    asked.map_or(4, |number| {
        number.parse().expect("REGATTA_TEST_KILLS is a number")
    })
}

/// Every case of every invocation once, and each undecided one in all that it owed.
fn whole(run: &Run) {
    assert!(run.damage.is_empty(), "{:?}", run.damage);
    let once: BTreeSet<_> = run
        .entries
        .iter()
        .map(|entry| (entry.invocation, entry.case.clone()))
        .collect();
    assert_eq!(once.len(), run.entries.len(), "a sample is there twice");
    let regular = run.header.plan.len() * run.header.settings.invocations as usize;
    // A case that is in several batches has what the largest of them owes.
    let mut owed = std::collections::BTreeMap::new();
    for batch in &run.owed {
        for case in &batch.cases {
            let most = owed.entry(case).or_insert(0);
            *most = batch.fresh.max(*most);
        }
    }
    let fresh: u32 = owed.values().sum();
    let fresh = fresh as usize;
    assert_eq!(run.entries.len(), regular + fresh, "a sample is lost");
}

/// The run file of the suite, and how many lines it has.
struct RunFile(PathBuf);

impl RunFile {
    fn of(place: &Place) -> RunFile {
        RunFile(place.path().join("reports/s/run.jsonl"))
    }

    fn lines(&self) -> usize {
        fs::read_to_string(&self.0).map_or(0, |text| text.lines().count())
    }

    fn remove(&self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// Starts a gate and stops it by a signal once its file has so many lines, or soon after.
fn stop(place: &Place, args: &[&str], signal: Signal, lines: usize, after: Duration) {
    let file = RunFile::of(place);
    let mut child = place.started(args);
    while file.lines() < lines && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(after);
    // It may have ended by itself.
    let _ = kill(Pid::from_raw(child.id() as i32), signal);
    child.wait().unwrap();
}

#[test]
fn a_gate_stopped_at_any_moment_comes_to_the_answer_of_one_that_was_not() {
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    let file = RunFile::of(&place);
    let mut draws = ChaCha8Rng::seed_from_u64(20_261_122);
    let signals = [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM];
    for (args, code) in [(&SLOWER[..], 1), (&CLEAN[..], 0)] {
        file.remove();
        assert_eq!(place.ran(args).0, code, "undisturbed");
        let all = file.lines();
        for moment in 0..moments().div_ceil(2) {
            file.remove();
            // Every third gate is stopped more than once.
            for _ in 0..=2 * usize::from(moment % 3 == 2) {
                let lines = draws.random_range(file.lines()..=all);
                let after = Duration::from_micros(draws.random_range(0..5_000));
                stop(&place, args, signals[moment % 3], lines, after);
            }
            let (went_on, stdout, stderr) = place.ran(args);
            assert_eq!(
                went_on, code,
                "moment {moment} of {args:?}: {stdout}{stderr}"
            );
            whole(&place.run("s"));
        }
    }
}

#[test]
fn a_gate_stopped_while_it_measures_pairs_goes_on() {
    // The noisy ones are not shown to be the same by one run.
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/noisy"], &[], "");
    place.script("");
    place.write(".gitignore", "baselines\nreports\ncache\nstarts\n");
    place.git(&["init", "-q", "-b", "main"]);
    place.git(&["add", "-A"]);
    place.git(&["commit", "-q", "-m", "one"]);
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    place.edit("worker.sh", "exec", "true\nexec");
    place.git(&["commit", "-q", "-am", "two"]);
    let pairs = place.path().join("reports/s/pairs/head/run.jsonl");
    let gate = ["gate", "./s.toml"];
    let mut child = place.started(&gate);
    let measuring = || {
        let text = fs::read_to_string(&pairs).unwrap_or_default();
        text.contains("\"invocation\":2")
    };
    while !measuring() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What is there alone does not pass for the whole.
    exits!(
        place,
        3,
        ["baseline", "save", "s", "reports/s", "--replace"]
    );
    let (code, stdout, stderr) = place.ran(&gate);
    assert!(stderr.contains("resuming:"), "{stderr}");
    assert!(stdout.contains("by pairs"), "{stdout}");
    assert_ne!(code, 2, "{stderr}");
    assert_eq!(place.run("s").entries.len(), 12 * 5);
}

#[test]
fn what_is_open_is_measured_again_within_the_time_limit() {
    let place = Place::new();
    place.suite("s", &["fake/noisy"], &[], "");
    let compare = ["compare", "./s.toml", "--base", "here"];
    place.ran(&compare);
    let run = place.run("s-compare/head");
    let steps: Vec<u32> = run.owed.iter().map(|batch| 5 + batch.fresh).collect();
    assert!([10, 15, 25, 35].starts_with(&steps), "{steps:?}");
    assert!(!steps.is_empty());
    for pair in run.owed.windows(2) {
        let before = &pair[0].cases;
        assert!(pair[1].cases.iter().all(|case| before.contains(case)));
    }
    let (_, stderr) = exits!(place, 2, [&compare[..], &["--time-limit", "soon"]].concat());
    assert!(stderr.contains("90s, 15m or 2h"), "{stderr}");
    let short = ["--no-resume", "--time-limit", "0"];
    let (_, _, stderr) = place.ran(&[&compare[..], &short].concat());
    assert!(stderr.contains("--time-limit leaves no time"), "{stderr}");
    assert_eq!(place.run("s-compare/head").owed, []);
}
