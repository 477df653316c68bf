use std::fs;

use super::*;
use crate::machine::{Launch, Operation, Work};
use crate::record::trace::testing;

fn trace() -> Trace {
    let operation = |start: u64, work| Operation {
        stream: Some(7),
        launched_ns: Some(start as i64 - 2),
        ..Operation::new(work, start, start + 5)
    };
    testing::trace(Recording {
        processes: vec![Process {
            pid: 7,
            dropped: 3,
            moments: Some(Moments {
                since: 4,
                of: [("frees".to_owned(), vec![5, 7])].into(),
            }),
            ..Process::default()
        }],
        names: vec!["a\"b\n\u{1b}[31m\u{202e}".to_owned()],
        operations: vec![
            operation(10, Work::Set { bytes: Some(9) }),
            operation(
                20,
                Work::Kernel(Launch {
                    grid: [157, 1, 1],
                    block: [128, 1, 1],
                    cluster: Some([2, 1, 1]),
                    graph: Some(4),
                    ..Launch::default()
                }),
            ),
            Operation {
                operator: Some("step/aten::copy_".into()),
                ..operation(
                    30,
                    Work::Copy {
                        direction: "DtoH".to_owned(),
                        bytes: Some(4),
                    },
                )
            },
        ],
        left_out: 12,
        damage: vec![(
            "7-1.jsonl".to_owned(),
            Damage {
                line: 9,
                problem: "torn".to_owned(),
            },
        )],
    })
}

#[test]
fn a_trace_reads_back_and_is_replaced_only_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&path, &trace(), false).unwrap();
    assert!(is_trace(&path));
    assert_eq!(read(&path).unwrap(), trace());
    let error = write(&path, &trace(), false).unwrap_err().to_string();
    assert!(error.contains("--replace"), "{error}");
    write(&path, &trace(), true).unwrap();
    assert_eq!(trace().header.title(), "python train.py");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_damaged_trace_keeps_its_good_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&path, &trace(), false).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"bytes\":9", "\"bytes\":8")).unwrap();
    let back = read(&path).unwrap().recording;
    assert_eq!(back.operations.len(), 2);
    assert!(
        back.damage[1].1.problem.contains("edited"),
        "{:?}",
        back.damage
    );

    let torn: String = text
        .lines()
        .take(5)
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&path, &torn[..torn.len() - 9]).unwrap();
    let back = read(&path).unwrap().recording;
    let last = back.damage.last().unwrap();
    assert!(last.1.problem.contains("last line is missing"), "{last:?}");

    for (first, says) in [
        ("", "empty"),
        ("{\"kind\":\"run\"}", "checksum"),
        ("{\"kind\":\"trace\",\"schema\":99}", "schema is 99"),
    ] {
        fs::write(&path, first).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(read(&folder.path().join("none")).is_err());
}
