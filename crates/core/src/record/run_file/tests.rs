//! What is kept of where the time went.

use super::*;
use crate::record::spent::{Phase, Spent};
use crate::record::testing::header;
use crate::record::types::Outcome;

fn spent(phase: Phase, time: f64) -> Spent {
    let mut spent = Spent::default();
    spent.add(phase, Nanoseconds(time));
    spent
}

fn opening(setting_up: f64) -> Opening {
    Opening {
        spent: spent(Phase::SettingUp, setting_up),
        ..Opening::default()
    }
}

fn entry(case: &CaseId, from_ns: f64, time: f64) -> Entry {
    Entry {
        start: None,
        case: case.clone(),
        invocation: 0,
        outcome: Outcome::Unsupported {
            reason: "no".to_owned(),
        },
        spent: Some(Stretch {
            from_ns: Nanoseconds(from_ns),
            phases: spent(Phase::Preparing, time),
        }),
    }
}

#[test]
fn a_run_that_goes_on_has_the_time_of_both_parts_and_none_between() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut header = header();
    header.plan = ["cpu/a:s64,d64", "cpu/b:s64,d64"]
        .map(|id| CaseId(id.to_owned()))
        .into();
    let plan = header.plan.clone();
    let (mut writer, before) = RunWriter::open(folders[0].path(), &header, &opening(10.0)).unwrap();
    assert_eq!(
        (before, writer.from_ns),
        (Before::Nothing, Nanoseconds(0.0))
    );
    writer.append(&entry(&plan[0], 12.0, 30.0)).unwrap();

    // Stopped there; the lock of its folder is this process's until it ends.
    let there = folders[1].path().join(RUN_FILE);
    fs::copy(writer.path(), &there).unwrap();
    let mut later = header.clone();
    later.started = "2026-01-06T12:00:00Z".parse().unwrap();
    let (mut writer, before) = RunWriter::open(folders[1].path(), &later, &opening(5.0)).unwrap();
    assert!(matches!(before, Before::Resumed { entries: 1, .. }));
    assert_eq!(writer.from_ns, Nanoseconds(42.0), "where the first ended");
    writer.append(&entry(&plan[1], 47.0, 20.0)).unwrap();

    let run = read(&there).unwrap();
    assert!(run.damage.is_empty(), "{:?}", run.damage);
    assert_eq!(run.header, header);
    let parts: Vec<_> = run.parts.iter().map(|part| part.started).collect();
    assert_eq!(parts, [header.started, later.started]);
    let from: Vec<f64> = run.stretches().map(|of| of.from_ns.0).collect();
    assert_eq!(from, [0.0, 42.0, 12.0, 47.0]);
    assert_eq!(run.known_until(), Nanoseconds(67.0));
}

/// Both lines as they were written before times were kept.
#[test]
fn a_file_without_times_reads_and_is_written_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(RUN_FILE);
    let mut header = header();
    header.plan = vec![CaseId("cpu/a:s64,d64".to_owned())];
    let mut run = Run::begun(header);
    run.entries.push(Entry {
        start: None,
        spent: None,
        ..entry(&run.header.plan[0], 0.0, 0.0)
    });
    let text = rewritten(&run).unwrap();
    for new in ["parts", "spent"] {
        assert!(!text.contains(new), "{text}");
    }
    fs::write(&path, &text).unwrap();
    assert_eq!(read(&path).unwrap(), run);
    assert_eq!(run.stretches().count(), 0);
}

#[test]
fn times_that_no_clock_shows_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(RUN_FILE);
    let mut header = header();
    header.plan = vec![CaseId("cpu/a:s64,d64".to_owned())];
    let mut run = Run::begun(header);
    let plan = run.header.plan.clone();
    run.entries.push(entry(&plan[0], 0.0, -1.0));
    fs::write(&path, rewritten(&run).unwrap()).unwrap();
    let damage = read(&path).unwrap().damage;
    let said = "cpu/a:s64,d64: spent.preparing is -1 ns: no time is negative";
    assert_eq!(damage[0].problem, said);
}
