use std::fs;

use super::*;
use crate::record::testing::header;
use crate::record::{Fault, line};

fn times(ns: f64) -> CaseTimes {
    CaseTimes {
        device_ns: Nanoseconds(ns),
        invocations_ns: vec![Nanoseconds(ns), Nanoseconds(1.25 * ns)],
        host_ns: Some(Nanoseconds(9_012.0)),
        cpu_ns: None,
        disturbed: false,
    }
}

fn timed(ns: f64) -> Outcome<CaseTimes> {
    Outcome::Measured(times(ns))
}

fn run(number: i64, cases: &[(&str, Outcome<CaseTimes>)]) -> Reduced {
    let header = header();
    Reduced {
        suite: "quick".to_owned(),
        machine: "xeon-2c".to_owned(),
        about: About {
            id: format!("{number:08x}-100"),
            at: Timestamp::from_second(1_700_000_000 + 86_400 * number).unwrap(),
            started: None,
            label: format!("reports/{number}"),
            git: header.git,
            tool: header.tool,
            verdict: Some(VerdictOutcome::Passed),
            versions: BTreeMap::from([("cpu".to_owned(), BTreeMap::new())]),
            facts: header.machine.hard,
        },
        cases: cases
            .iter()
            .map(|(id, outcome)| (CaseId((*id).into()), outcome.clone()))
            .collect(),
    }
}

const A: &str = "cpu/a:s64,d64";
const B: &str = "cpu/b:s64,d64";
const C: &str = "cpu/c:s64,d64";

fn path(store: &HistoryStore) -> PathBuf {
    store.root().join("quick/xeon-2c.jsonl")
}

fn added(store: &HistoryStore, run: Reduced) -> Added {
    store.add(&[run]).unwrap().remove(0)
}

fn damage(added: Added) -> Vec<String> {
    match added {
        Added::New { damage, .. } => damage,
        Added::Already { .. } => panic!("it was there already"),
    }
}

#[test]
fn what_was_added_reads_back_by_case_and_in_the_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = HistoryStore::new(folder.path());
    let reason = || "signal 11".to_owned();
    let unsupported: Outcome<CaseTimes> = Outcome::Unsupported { reason: reason() };
    let missing = Outcome::Missing { reason: reason() };
    let failed = Outcome::failed(reason(), Fault::Crash);
    let disturbed = CaseTimes {
        disturbed: true,
        ..times(0.7)
    };
    let runs = [
        run(2, &[(B, timed(118_632.0)), (A, timed(1_000.25))]),
        run(1, &[(C, unsupported), (A, timed(0.5))]),
        run(
            3,
            &[(B, failed), (C, Outcome::Measured(disturbed)), (A, missing)],
        ),
    ];
    for (place, run) in runs.iter().enumerate() {
        let Added::New { runs, new, .. } = added(&store, run.clone()) else {
            panic!("{place}");
        };
        assert_eq!((runs, new), (place + 1, [2, 1, 0][place]));
    }
    let history = History::read(&path(&store)).unwrap();
    assert!(history.damage.is_empty(), "{:?}", history.damage);
    let ids: Vec<&str> = history.cases.iter().map(|id| &*id.0).collect();
    assert_eq!(ids, [A, B, C]);
    let order: Vec<&str> = history
        .runs
        .iter()
        .map(|r| r.about.label.as_str())
        .collect();
    assert_eq!(order, ["reports/1", "reports/2", "reports/3"]);
    for (kept, added) in history.runs.iter().zip([&runs[1], &runs[0], &runs[2]]) {
        assert_eq!(kept.about, added.about);
        let mut results: Vec<(CaseId, Outcome<CaseTimes>)> = kept
            .results
            .iter()
            .map(|(number, outcome)| (history.cases[*number as usize].clone(), outcome.clone()))
            .collect();
        let mut expected = added.cases.clone();
        results.sort_by(|a, b| a.0.cmp(&b.0));
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(results, expected);
    }
    let listed = store.list();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].suite, "quick");
}

#[test]
fn a_line_that_was_cut_off_is_named_and_the_rest_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = HistoryStore::new(folder.path());
    added(&store, run(1, &[(A, timed(1.0))]));
    let one = fs::read_to_string(path(&store)).unwrap();
    added(&store, run(2, &[(A, timed(2.0)), (B, timed(3.0))]));
    let whole = fs::read_to_string(path(&store)).unwrap();
    for length in one.len() + 1..whole.len() - 1 {
        fs::write(path(&store), &whole[..length]).unwrap();
        let read = History::read(&path(&store)).unwrap();
        assert_eq!((read.runs.len(), read.damage.len()), (1, 1), "{length}");
        assert_eq!(read.damage[0].line, 3);
    }
    let problems = damage(added(&store, run(3, &[(B, timed(4.0))])));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("xeon-2c.jsonl:3"), "{problems:?}");
    let read = History::read(&path(&store)).unwrap();
    assert_eq!((read.runs.len(), read.damage.len()), (2, 0));
    assert_eq!(read.runs[1].results, [(1, timed(4.0))]);

    // A missing line feed at the end does not damage the file.
    fs::write(path(&store), whole.trim_end()).unwrap();
    assert!(damage(added(&store, run(3, &[(C, timed(4.0))]))).is_empty());
    let read = History::read(&path(&store)).unwrap();
    assert_eq!((read.runs.len(), read.damage.len()), (3, 0));
}

#[test]
fn a_line_that_cannot_be_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let store = HistoryStore::new(folder.path());
    added(&store, run(1, &[(A, timed(1_000.0))]));
    let text = fs::read_to_string(path(&store)).unwrap();
    let (first, second) = text.split_once('\n').unwrap();
    for (from, to, problem) in [
        (":1000.0", ":-5", "a time of -5 ns"),
        ("[1000.0", "[0", "a time of 0 ns"),
        ("\"measured\"", "\"cooked\"", "unknown variant"),
        (
            "\"kind\":\"run\"",
            "\"kind\":\"history\"",
            "something unknown",
        ),
    ] {
        let changed = second.trim_end().replace(from, to);
        let mut value: serde_json::Value = serde_json::from_str(&changed).unwrap();
        value.as_object_mut().unwrap().remove("sum");
        let edited = line::write(&value).unwrap();
        fs::write(path(&store), format!("{first}\n{edited}")).unwrap();
        let read = History::read(&path(&store)).unwrap();
        assert!(read.runs.is_empty(), "{to}");
        assert!(
            read.damage[0].problem.contains(problem),
            "{:?}",
            read.damage
        );
    }
}
