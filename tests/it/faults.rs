//! Workers that go wrong: a row with its error, exit code 1 where the case did (a wrong
//! result, a crash, a hang) and 3 where that cannot be said, and the rest measured.

use std::fs;
use std::time::Duration;

use crate::common::Place;
use regatta::record::types::{Fault, Outcome, Run};

fn reasons(run: &Run, variant: &str) -> Vec<String> {
    run.entries
        .iter()
        .filter(|entry| entry.case.0.starts_with(variant))
        .map(|entry| match &entry.outcome {
            Outcome::Failed { reason, log, .. } => format!("{reason} {log}"),
            Outcome::Unsupported { reason } => format!("unsupported: {reason}"),
            Outcome::Measured(_) => "measured".to_owned(),
        })
        .collect()
}

/// What each failed entry of a variant failed of.
fn faults(run: &Run, variant: &str) -> Vec<Fault> {
    let of = |outcome: &Outcome| match outcome {
        Outcome::Failed { fault, .. } => Some(*fault),
        _ => None,
    };
    run.entries
        .iter()
        .filter(|entry| entry.case.0.starts_with(variant))
        .filter_map(|entry| of(&entry.outcome))
        .collect()
}

fn ran_with(variant: &str, code: i32) -> (Place, Run, String) {
    let place = Place::new();
    let variants = [variant, "fake/steady"];
    place.suite("s", &variants, &[], "");
    let args = [
        "run",
        "./s.toml",
        "--invocations",
        "2",
        "--filter",
        "*:s32*",
    ];
    let (stdout, _) = exits!(
        place,
        code,
        [args[0], args[1], args[2], args[3], args[4], args[5]]
    );
    let run = place.run("s");
    let rest = reasons(&run, "fake/steady");
    assert_eq!(rest, vec!["measured"; 4], "the rest is measured");
    (place, run, stdout)
}

#[test]
fn each_fault_is_told_as_what_it_is() {
    for (variant, fault, says) in [
        ("fake/dead", Fault::Crash, "an illegal memory access"),
        ("fake/dead", Fault::Crash, "exit code 7"),
        (
            "fake/loses-device",
            Fault::Crash,
            "lost its device: cuStreamSynchronize",
        ),
        (
            "fake/wrong",
            Fault::WrongResult,
            "relative L2 error 2.5e-1 is above",
        ),
        (
            "fake/lying",
            Fault::WrongResult,
            "found by regatta's own float64 check",
        ),
        ("fake/nan", Fault::WrongResult, "not finite"),
        (
            "fake/stale",
            Fault::WrongResult,
            "wrong result after timing: ",
        ),
        (
            "fake/stale-lying",
            Fault::WrongResult,
            "wrong result after timing, found by regatta's own float64 check: ",
        ),
        (
            "fake/eager",
            Fault::Other,
            "20 samples; at least 5 and at most 10 were asked for",
        ),
        ("fake/garbage", Fault::Other, "tuning 24 configurations"),
        ("fake/impossible", Fault::Other, "a sample of 0 ns"),
    ] {
        let code = if fault == Fault::Other { 3 } else { 1 };
        let (_, run, stdout) = ran_with(variant, code);
        let reasons = reasons(&run, variant);
        assert_eq!(reasons.len(), 4);
        for reason in reasons {
            assert!(reason.contains(says), "{variant}: {reason}");
        }
        assert_eq!(faults(&run, variant), vec![fault; 4], "{variant}");
        assert!(stdout.contains(variant), "{stdout}");
    }
}

/// An older worker, and one that dies when it is to let go of its case.
#[test]
fn what_is_no_fault_of_the_case_is_measured() {
    let place = Place::new();
    let variants = ["fake/older", "fake/clings", "fake/steady"];
    place.suite("s", &variants, &[], "");
    exits!(place, 0, ["run", "./s.toml", "--invocations", "1"]);
    for entry in place.run("s").entries {
        let Outcome::Measured(measurement) = &entry.outcome else {
            panic!("{entry:?}");
        };
        let older = entry.case.0.starts_with("fake/older");
        assert_eq!(measurement.input_sets, if older { 1 } else { 3 });
        assert_eq!(measurement.errors_after.is_empty(), older);
    }
}

/// One set asked for: nothing is found after timing, and nothing is said to be.
#[test]
fn with_one_set_of_inputs_a_stale_result_passes_and_the_run_shows_it() {
    let place = Place::new();
    place.suite("s", &["fake/stale"], &[], "");
    let path = place.path().join("s.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replace("[measure]\n", "[measure]\ninput_sets = 1\n"),
    )
    .unwrap();
    exits!(place, 0, ["run", "./s.toml", "--invocations", "1"]);
    for entry in place.run("s").entries {
        let Outcome::Measured(measurement) = &entry.outcome else {
            panic!("{entry:?}");
        };
        assert_eq!(
            (measurement.input_sets, measurement.errors_after.len()),
            (1, 0)
        );
    }
}

#[test]
fn a_device_of_no_known_kind_is_refused_before_anything_is_measured() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &["--kind", "quantum"], "");
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
    assert!(stderr.contains(r#"of the kind "quantum""#), "{stderr}");
    assert!(stderr.contains("one of cpu, cuda"), "{stderr}");
}

/// Each start of a worker whose device is gone takes its time and fails alike.
#[test]
fn a_worker_that_does_not_come_up_again_is_started_once_more_only() {
    let place = Place::new();
    let state = place.path().join("device");
    let args = ["--state", state.to_str().unwrap()];
    place.suite("s", &["fake/loses-device"], &args, "");
    exits!(place, 1, ["run", "./s.toml", "--invocations", "1"]);
    let starts = fs::read_to_string(&state).unwrap();
    assert_eq!(starts, "lost\nstart\n");
    let reasons = reasons(&place.run("s"), "fake/loses-device");
    assert_eq!(reasons.len(), 6);
    let refused = reasons.iter().filter(|r| r.contains("no device; start 1"));
    assert_eq!(refused.count(), 5);
    let mut faults = faults(&place.run("s"), "fake/loses-device");
    faults.sort_unstable();
    assert_eq!(faults[0], Fault::Crash);
    assert_eq!(faults[1..], [Fault::Refused; 5]);
}

#[test]
fn a_silent_worker_is_killed_after_its_limit() {
    let (_, run, _) = ran_with("fake/silent", 1);
    assert_eq!(faults(&run, "fake/silent"), [Fault::Hang; 4]);
    for reason in reasons(&run, "fake/silent") {
        assert!(
            reason.contains("did not answer prepare within 3s"),
            "{reason}"
        );
    }
}

/// True when a process ends within a minute, which a busy machine may take.
fn gone(process: &str) -> bool {
    (0..3000).any(|_| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // A zombie that init has not reaped yet is as dead as one that is gone.
        let gone = stat.is_empty() || stat.contains(") Z ");
        if !gone {
            std::thread::sleep(Duration::from_millis(20));
        }
        gone
    })
}

#[test]
fn a_killed_worker_leaves_no_child() {
    let place = Place::new();
    let state = place.path().join("child");
    place.suite(
        "s",
        &["fake/forking"],
        &["--state", state.to_str().unwrap()],
        "",
    );
    let filter = "*:s32,d16";
    exits!(
        place,
        1,
        ["run", "./s.toml", "--invocations", "1", "--filter", filter]
    );
    let child = fs::read_to_string(&state).unwrap();
    assert!(gone(&child), "process {child} lives on");
}

#[test]
fn unsupported_is_no_failure_and_can_be_expected() {
    let place = Place::new();
    place.suite("s", &["fake/unsupported", "fake/steady"], &[], "");
    let (stdout, _) = exits!(place, 0, ["run", "./s.toml"]);
    assert!(stdout.contains("unsupported"), "{stdout}");
    exits!(place, 0, ["baseline", "save", "s"]);
    exits!(place, 0, ["gate", "./s.toml"]);
}

#[test]
fn a_suite_may_allow_a_case_to_fail() {
    let place = Place::new();
    place.suite("s", &["fake/dead", "fake/steady"], &[], "");
    let path = place.path().join("s.toml");
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("[policy]\n", "[policy]\nallow = [\"fake/dead:*\"]\n");
    fs::write(&path, text).unwrap();
    exits!(place, 0, ["run", "./s.toml"]);
}

/// A worker in a few lines of Perl that answers hello and then does as told.
fn rogue(place: &Place, then: &str) {
    place.write(
        "rogue.pl",
        &format!(
            "open(my $in, '<&=', 3); open(my $out, '>&=', 4); $out->autoflush(1); <$in>;\n\
             print $out '{{\"id\":1,\"type\":\"hello\",\"protocol\":1,\"worker\":\"rogue\",\
             \"device\":{{\"kind\":\"cpu\",\"name\":\"x\",\"memory_bytes\":1000000000}},\
             \"variants\":[{{\"name\":\"x\",\"dtypes\":[\"f32\"],\"directions\":[\"forward\"]}}]}}', \"\\n\";\n\
             {then}\n"
        ),
    );
    // A request that does not fit into a pipe.
    let functions: Vec<String> = (0..2000)
        .map(|number| format!("\"rogue:f{number}{}\"", "_of_a_long_name".repeat(3)))
        .collect();
    let functions = functions.join(", ");
    place.write(
        "s.toml",
        &format!(
            "schema = 1\ndescription = \"d\"\n[measure]\ninvocations = 1\ntimeout_s = 4\n\
             [workers.rogue]\ncommand = [\"perl\", \"-MIO::Handle\", \"rogue.pl\"]\n\
             [[sweep]]\nvariants = \"rogue/x\"\nhead_dim = 8\nseq = 8\n\
             [[count]]\nname = \"f\"\nworker = \"rogue\"\nfunction = [{functions}]\n"
        ),
    );
}

#[test]
fn a_worker_that_does_not_read_is_killed_after_its_limit() {
    let place = Place::new();
    rogue(&place, "sleep 3600;");
    let (stdout, _) = exits!(place, 1, ["run", "./s.toml"]);
    assert!(
        stdout.contains("did not answer prepare within 4s"),
        "{stdout}"
    );
}

#[test]
fn a_worker_whose_child_holds_its_channel_is_seen_to_be_dead() {
    let place = Place::new();
    rogue(&place, "if (fork() == 0) { sleep 30; exit } exit 11;");
    let (stdout, _) = exits!(place, 1, ["run", "./s.toml"]);
    assert!(stdout.contains("exit code 11"), "{stdout}");
}

#[test]
fn a_worker_that_prints_without_end_is_ended_before_the_disk_is_full() {
    let place = Place::new();
    rogue(&place, "print 'all work and no play ' x 1000 while 1;");
    exits!(place, 3, ["run", "./s.toml"]);
    let reason = &reasons(&place.run("s"), "rogue")[0];
    assert!(reason.contains("printed more than 64 MiB"), "{reason}");
    let log = fs::metadata(place.path().join("reports/s/logs/rogue.log")).unwrap();
    assert!(log.len() <= 1 << 20, "{} bytes", log.len());
}

#[test]
fn a_stopped_harness_takes_along_what_its_workers_started() {
    let place = Place::new();
    let state = place.path().join("child");
    place.suite(
        "s",
        &["fake/forking"],
        &["--state", state.to_str().unwrap()],
        "",
    );
    let harness = place
        .regatta(&["run", "./s.toml"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while fs::read_to_string(&state).unwrap_or_default().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = nix::unistd::Pid::from_raw(harness.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let output = harness.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the same command goes on"), "{stderr}");
    assert!(gone(&fs::read_to_string(&state).unwrap()));
}
