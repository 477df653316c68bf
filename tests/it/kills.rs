//! A gate that is stopped at any moment and resumed reaches the same answer.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use regatta_core::record::Run;

const SLOWER: [&str; 4] = ["gate", "./s.toml", "--set", "fake/steady.slower_percent=50"];
const CLEAN: [&str; 2] = ["gate", "./s.toml"];

/// Every case of every invocation once, and each undecided one in all that it owed.
fn whole(run: &Run) {
    assert!(run.damage.is_empty(), "{:?}", run.damage);
    let entries = run.entries.iter();
    let once: BTreeSet<_> = entries
        .map(|entry| (entry.invocation, &entry.case))
        .collect();
    assert_eq!(once.len(), run.entries.len(), "a sample is there twice");
    let regular = run.header.plan.len() * run.header.settings.invocations as usize;
    // A case that is in several batches has what the largest of them owes.
    let mut owed = std::collections::BTreeMap::new();
    for batch in &run.open {
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

/// Starts a gate and stops it by a signal once its file has `lines` lines and `delay` has passed. True
/// where the signal ended it, false where it had ended before.
fn stop(place: &Place, args: &[&str], signal: Signal, lines: usize, delay: Duration) -> bool {
    let file = RunFile::of(place);
    let mut child = place.started(args);
    while file.lines() < lines && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(delay);
    let _ = kill(Pid::from_raw(child.id() as i32), signal);
    let status = child.wait().unwrap();
    let number = signal as i32;
    status.signal() == Some(number) || status.code() == Some(128 + number)
}

/// Stops gates at `moments` moments while they run, each at another part of its way, and asserts that
/// the gate after it comes to the answer of one that was not stopped.
fn stopped_at(moments: usize) {
    let begin = Instant::now();
    let place = Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    let file = RunFile::of(&place);
    let mut draws = ChaCha8Rng::seed_from_u64(20_261_122);
    let signals = [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM];
    let mut stops = BTreeSet::new();
    for (args, code) in [(&SLOWER[..], 1), (&CLEAN[..], 0)] {
        file.remove();
        assert_eq!(place.ran(args).0, code, "undisturbed");
        let all = file.lines();
        let half = moments.div_ceil(2);
        for moment in 0..half {
            // One that ended before its signal was not stopped: the moment is drawn again.
            let stop_at = (0..20).find_map(|_| {
                file.remove();
                let lines = draws.random_range(all * moment / half..=all * (moment + 1) / half);
                let delay = Duration::from_micros(draws.random_range(0..5_000));
                stop(&place, args, signals[moment % 3], lines, delay).then_some((lines, delay))
            });
            let (lines, delay) = stop_at.expect("a gate that is stopped while it runs");
            stops.insert((code, lines, delay));
            // Every third gate is stopped more than once.
            for _ in 0..2 * usize::from(moment % 3 == 2) {
                let lines = draws.random_range(file.lines()..=all);
                let delay = Duration::from_micros(draws.random_range(0..5_000));
                stop(&place, args, signals[moment % 3], lines, delay);
            }
            let (resumed, stdout, stderr) = place.ran(args);
            let printed = format!("{stdout}{stderr}");
            assert_eq!(resumed, code, "moment {moment} of {args:?}: {printed}");
            whole(&place.run("s"));
        }
    }
    assert_eq!(stops.len(), moments, "two moments are the same: {stops:?}");
    let took = begin.elapsed();
    println!("{moments} gates stopped while they ran, in {took:.1?}");
}

#[test]
fn a_gate_stopped_at_any_moment_comes_to_the_answer_of_one_that_was_not() {
    stopped_at(4);
}

#[test]
#[ignore = "takes a minute"]
fn nightly_forty_gates_stopped_at_any_moment_come_to_the_answer_of_one_that_was_not() {
    stopped_at(40);
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
    // The present part alone does not pass for the whole.
    let save = ["baseline", "save", "s", "reports/s", "--replace"];
    exits!(place, 3, save);
    let (code, stdout, stderr) = place.ran(&gate);
    assert!(stderr.contains("resuming:"), "{stderr}");
    let words: Vec<&str> = stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("by pairs"), "{stdout}");
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
    let steps: Vec<u32> = run.open.iter().map(|batch| 5 + batch.fresh).collect();
    assert!([10, 15, 25, 35].starts_with(&steps), "{steps:?}");
    assert!(!steps.is_empty());
    for pair in run.open.windows(2) {
        let before = &pair[0].cases;
        assert!(pair[1].cases.iter().all(|case| before.contains(case)));
    }
    let (_, stderr) = exits!(place, 2, [&compare[..], &["--time-limit", "soon"]].concat());
    assert!(stderr.contains("90s, 15m or 2h"), "{stderr}");
    let short = ["--no-resume", "--time-limit", "0"];
    let (_, _, stderr) = place.ran(&[&compare[..], &short].concat());
    let says = "--time-limit ends this after 1 of 5 pairs";
    assert!(stderr.contains(says), "{stderr}");
    assert_eq!(place.run("s-compare/head").open, []);
}
