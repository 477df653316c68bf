//! `regatta submit`: what is printed to be run by others, and the wait for jobs of a Slurm whose
//! commands are scripts here. A real one is in `tests/slurm/`.

mod printed;
mod standin;

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use regatta::record::run_file;
use standin::Slurm;

/// The words of most tests.
const SUBMIT: [&str; 6] = ["submit", "--slurm", "./s.toml", "--run", "--shards", "4"];

/// Sentences are broken where the terminal ends, which is no matter here.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn it_waits_tells_how_far_it_is_and_exits_with_the_verdicts_code() {
    for code in [0, 1, 2, 3] {
        let slurm = Slurm::new();
        slurm.answers("2", "printf '7|1|RUNNING|None\\n7|2|RUNNING|None\\n7|3|PENDING|Resources\\n7|4|PENDING|Resources\\n8|N/A|PENDING|Dependency\\n'");
        slurm.answers(
            "3",
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
        );
        slurm.answers("last", &Slurm::ends(code));
        let (ended, stdout, stderr) = slurm.ran(&SUBMIT);
        assert_eq!(ended, i32::from(code), "{stderr}");
        assert_eq!(stdout, "the answer\n");
        let said = flowing(&stderr);
        for part in [
            "submitted: array 7, and job 8 behind it",
            "of 4 shards 0 ended, 2 run, 2 wait (Resources)",
            "Unable to contact slurm controller; asking again",
            "what was said",
        ] {
            assert!(said.contains(part), "{part}: {stderr}");
        }
        assert_eq!(
            slurm.calls("sbatch"),
            [
                "--parsable reports/s/slurm/task.sh",
                "--parsable --dependency=afterany:7 reports/s/slurm/behind.sh"
            ]
        );
    }
}

#[test]
fn jobs_that_were_cancelled_are_no_verdict() {
    let slurm = Slurm::new();
    slurm.answers(
        "last",
        "printf '7|1|COMPLETED|None\\n7|2|CANCELLED|None\\n8|N/A|CANCELLED|None\\n'",
    );
    let (code, stdout, stderr) = slurm.ran(&[&SUBMIT[..], &["--json"]].concat());
    assert_eq!(code, 3, "{stderr}");
    let said = flowing(&stderr);
    for part in [
        "job 8 is CANCELLED (Reason=NonZeroExitCode, ExitCode=0:15)",
        "1 of 2 tasks of the last array ended by themselves",
        "the same command goes on",
        "scancel --me --name=regatta-s-",
    ] {
        assert!(said.contains(part), "{part}: {stderr}");
    }
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["verdict"]["outcome"], "not-judged");
    // Those that Slurm has forgotten are not waited for either.
    let slurm = Slurm::new();
    slurm.answers("last", "true");
    let (code, _, stderr) = slurm.ran(&SUBMIT);
    assert_eq!(code, 3);
    assert!(
        flowing(&stderr).contains("knows no job of it any more"),
        "{stderr}"
    );
}

#[test]
fn what_sbatch_refuses_is_told_and_leaves_no_job() {
    let slurm = Slurm::new();
    slurm.answers("last", "true");
    slurm.does(
        "sbatch",
        "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1",
    );
    let (code, _, stderr) = slurm.ran(&SUBMIT);
    assert_eq!(code, 2);
    assert!(
        flowing(&stderr).contains("invalid partition specified: x"),
        "{stderr}"
    );
    slurm.does(
        "sbatch",
        "echo 'sbatch: error: Invalid generic resource (gres) specification' >&2; exit 1",
    );
    let (_, _, stderr) = slurm.ran(&SUBMIT);
    assert!(
        flowing(&stderr).contains("--gpus says how many"),
        "{stderr}"
    );
    slurm.does(
        "sbatch",
        "case \"$*\" in *afterany*) exit 1 ;; *) echo '7;cluster' ;; esac",
    );
    assert_eq!(slurm.ran(&SUBMIT).0, 2);
    assert_eq!(slurm.calls("scancel"), ["7"]);
}

#[test]
fn the_same_command_again_waits_for_what_is_there() {
    let slurm = Slurm::new();
    let (code, stdout, _) = slurm.ran(&[&SUBMIT[..], &["--no-wait"]].concat());
    assert_eq!(code, 0);
    assert!(
        stdout.contains("array 7") && stdout.contains("job 8"),
        "{stdout}"
    );
    let running = "printf '7|1|RUNNING|None\\n8|N/A|PENDING|Dependency\\n'";
    slurm.answers("2", running);
    slurm.answers("last", &Slurm::ends(0));
    let (code, _, stderr) = slurm.ran(&SUBMIT);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("it was submitted before"), "{stderr}");
    assert_eq!(slurm.calls("sbatch").len(), 2);
    // One that asks for something else would be in their way.
    slurm.answers("last", running);
    let (code, _, stderr) = slurm.ran(&[&SUBMIT[..], &["--strict"]].concat());
    assert_eq!(code, 2);
    assert!(
        stderr.contains("scancel --me --name=regatta-s-"),
        "{stderr}"
    );
}

#[test]
fn stopped_it_says_what_goes_on() {
    let slurm = Slurm::new();
    slurm.answers(
        "last",
        "printf '7|1|RUNNING|None\\n8|N/A|PENDING|Dependency\\n'",
    );
    let path = format!("{}/bin:/usr/bin:/bin", slurm.place.path().display());
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("regatta"));
    command
        .args(SUBMIT)
        .env("PATH", path)
        .current_dir(slurm.place.path());
    let child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while slurm.calls("squeue").len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "it never waits");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = flowing(&String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("what was submitted goes on"), "{said}");
    assert!(said.contains("scancel --me --name=regatta-s-"), "{said}");
    assert!(slurm.calls("scancel").is_empty());
}

#[test]
fn shards_of_a_verdict_are_not_taken_for_new_ones() {
    for (before, args, kept) in [
        ("1", &[][..], false),
        ("0", &[], false),
        // What could not be decided goes on.
        ("3", &[], true),
        ("3", &["--fresh"], false),
    ] {
        let slurm = Slurm::new();
        let root = slurm.place.path().join("reports/s");
        fs::create_dir_all(root.join("shards/1-of-4")).unwrap();
        fs::create_dir_all(root.join("slurm")).unwrap();
        fs::write(root.join("exit-code"), format!("{before}\n")).unwrap();
        fs::write(root.join("slurm/1.code"), "0\n").unwrap();
        slurm.answers("last", &Slurm::ends(0));
        let (code, _, stderr) = slurm.ran(&[&SUBMIT[..], args].concat());
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(
            root.join("shards/1-of-4").exists(),
            kept,
            "{before} {args:?}"
        );
        assert_eq!(root.join("past").exists(), !kept, "{before} {args:?}");
        assert!(!root.join("slurm/1.code").exists());
    }
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    let slurm = Slurm::new();
    let nothing = slurm.place.path().display().to_string();
    let kubernetes = &[
        "submit",
        "--kubernetes",
        "./s.toml",
        "--image",
        "i",
        "--run",
    ][..];
    let more = |more: &[&'static str]| [kubernetes, more].concat();
    for (words, code, part) in [
        (vec!["submit", "quick"], 2, "--slurm"),
        (
            vec!["submit", "--kubernetes", "quick", "--shards", "2"],
            2,
            "--image",
        ),
        (kubernetes.to_vec(), 2, "--shards N"),
        (more(&["--shards", "2", "--fresh"]), 2, "--out"),
        (more(&["--shards", "2", "--out", "/data"]), 2, "/reports"),
        (
            more(&["--shards", "2", "--out", "a/../../x"]),
            2,
            "/reports",
        ),
        (more(&["--shards", "2", "--json"]), 2, "YAML"),
        (
            more(&["--shards", "2", "--partition", "p"]),
            2,
            "--partition",
        ),
        (
            vec!["submit", "--slurm", "quikc", "--shards", "2"],
            2,
            "quick",
        ),
        (
            vec!["submit", "--slurm", "quick", "--shards", "0"],
            2,
            "--shards",
        ),
        (
            vec!["submit", "--slurm", "quick", "--run"],
            2,
            "need no GPU",
        ),
        (
            vec!["submit", "--slurm", "quick", "--shards", "2"],
            3,
            "no baseline `quick`",
        ),
        (
            vec!["submit", "--slurm", "./s.toml", "--run"],
            2,
            "--shards N: there is no `sinfo`",
        ),
        (SUBMIT.to_vec(), 2, "--dry-run"),
        ([&SUBMIT[..], &["--shard", "1/4"]].concat(), 2, "--shards N"),
        (vec!["run", "./s.toml", "--costs", "s"], 2, "--shard I/N"),
        (
            [&SUBMIT[..], &["--out", "a\\b"]].concat(),
            2,
            "cannot be written into a script",
        ),
        (
            [&SUBMIT[..], &["--account", "a\nb"]].concat(),
            2,
            "more than one line",
        ),
    ] {
        let (ended, _, stderr) = slurm.place.ran_with(&words, &[("PATH", &nothing)]);
        assert_eq!(ended, code, "{words:?}: {stderr}");
        assert!(flowing(&stderr).contains(part), "{words:?}: {stderr}");
    }
}

#[test]
fn the_whole_of_shards_is_what_one_gate_says() {
    let place = crate::common::Place::with_baseline(&["fake/steady", "fake/other"], &[], "");
    let slower = ["--set", "fake/steady.slower_percent=30"];
    let gate = [&["gate", "./s.toml", "--out", "one"][..], &slower].concat();
    assert_eq!(place.ran(&gate).0, 1);
    let slurm = Slurm::at_once(place);
    // Two tasks are lost, and begun again.
    for lost in ["lose.1", "lose.3"] {
        slurm.place.write(lost, "");
    }
    let submit = ["submit", "--slurm", "./s.toml", "--shards", "3"];
    let (code, stdout, stderr) = slurm.ran(&[&submit[..], &slower].concat());
    let log = slurm.file("behind.log").unwrap_or_default() + &slurm.file("tasks.log").unwrap();
    assert_eq!(code, 1, "{stdout}{stderr}{log}");
    assert!(stdout.contains("6 of 12 cases regressed"), "{stdout}");
    let entries = |folder: &str| {
        let path = slurm.place.path().join(folder).join(run_file::RUN_FILE);
        let run = run_file::read(&path).unwrap();
        let entries = run.entries.iter();
        let all: Vec<_> = entries
            .map(|entry| (entry.case.clone(), entry.invocation))
            .collect();
        let apart: BTreeSet<_> = all.iter().cloned().collect();
        assert_eq!(all.len(), apart.len(), "{folder}: an entry is there twice");
        apart
            .into_iter()
            .map(|(case, _)| case)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(entries("reports/s"), entries("one"));
    assert_eq!(slurm.file("reports/s/exit-code").unwrap(), "1\n");
    assert!(slurm.file("reports/s/index.html").is_some());
}
