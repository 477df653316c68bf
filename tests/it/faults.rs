//! Workers that go wrong: a row with its error, exit code 1 where the case did (a wrong
//! result, a crash, a hang) and 3 where that cannot be said, and the rest measured.

use std::fs;

use crate::common::{Place, all_gone};
use regatta_core::record::types::{Fault, Outcome, Run};

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
        assert_eq!(measurement.samples.input_sets, if older { 1 } else { 3 });
        assert_eq!(measurement.errors_after.is_empty(), older);
    }
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
    all_gone(&[child.parse().unwrap()]);
}

/// A worker in a few lines of Perl that answers hello and then does as told.
fn rogue(place: &Place, timeout_s: u32, then: &str) {
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
    let function = "of_a_long_name_".repeat(10_000);
    place.write(
        "s.toml",
        &format!(
            "description = \"d\"\n[measure]\ninvocations = 1\ntimeout_s = {timeout_s}\n\
             [workers]\nrogue = [\"perl\", \"-MIO::Handle\", \"rogue.pl\"]\n\
             [[sweep]]\nvariants = \"rogue/x\"\nhead_dim = 8\nseq = 8\n\
             [[expect]]\nname = \"f\"\ncase = {{ worker = \"rogue\" }}\n\
             metric = \"calls:rogue:{function}\"\nat_most = 0\n"
        ),
    );
}

#[test]
fn a_worker_that_does_not_read_is_killed_after_its_limit() {
    let place = Place::new();
    rogue(&place, 1, "sleep 3600;");
    let (stdout, _) = exits!(place, 1, ["run", "./s.toml"]);
    assert!(
        stdout.contains("did not answer prepare within 1s"),
        "{stdout}"
    );
}

#[test]
fn a_worker_whose_child_holds_its_channel_is_seen_to_be_dead() {
    let place = Place::new();
    rogue(&place, 60, "if (fork() == 0) { sleep 30; exit } exit 11;");
    let (stdout, _) = exits!(place, 1, ["run", "./s.toml"]);
    assert!(stdout.contains("exit code 11"), "{stdout}");
}

#[test]
fn a_worker_that_prints_without_end_is_ended_before_the_disk_is_full() {
    let place = Place::new();
    rogue(&place, 60, "print 'all work and no play ' x 1000 while 1;");
    exits!(place, 3, ["run", "./s.toml"]);
    let reason = &reasons(&place.run("s"), "rogue")[0];
    assert!(reason.contains("printed more than 64 MiB"), "{reason}");
    let log = fs::metadata(place.path().join("reports/s/logs/rogue.log")).unwrap();
    assert!(log.len() <= 1 << 20, "{} bytes", log.len());
}
