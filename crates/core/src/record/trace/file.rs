//! A trace's file: one record on each line, with a checksum.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use super::Trace;
use super::reader::{FileBeingRead, Numbered, Reader, TraceLine};
use crate::input;
use crate::output::Draft;
use crate::record::line::{self, Lines};
use crate::record::{RecordError, check_kind};

/// The ending of a trace's file.
pub const EXTENSION: &str = "trace";

/// Writes a trace atomically. An existing file is replaced only if `replace` is set.
///
/// # Errors
/// When a file exists and `replace` is not set, or it cannot be written.
pub fn write(path: &Path, trace: &Trace, replace: bool) -> Result<(), RecordError> {
    let io = |error| RecordError::io(path, error);
    let mut draft = Draft::create(path)?;
    let mut out = BufWriter::new(draft.file());
    lines(&mut out, trace).map_err(io)?;
    out.flush().map_err(io)?;
    drop(out);
    let kept = if replace {
        draft.keep()
    } else {
        draft.keep_as_new()
    };
    kept.map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => RecordError::taken(path),
        _ => error.into(),
    })
}

fn lines(out: &mut impl Write, trace: &Trace) -> io::Result<()> {
    let recording = &trace.recording;
    let header = TraceLine::Trace(Box::new(trace.header.clone()));
    let processes = recording.processes.iter().cloned().map(TraceLine::Process);
    let names = recording.names.iter().cloned();
    let names = names.map(|name| TraceLine::Name { id: None, name });
    let mut numbers: HashMap<&Arc<str>, u32> = HashMap::new();
    let mut operators = Vec::new();
    for operator in recording
        .operations
        .iter()
        .filter_map(|o| o.operator.as_ref())
    {
        numbers.entry(operator).or_insert_with(|| {
            let operator = operator.to_string();
            operators.push(TraceLine::Operator { id: None, operator });
            operators.len() as u32 - 1
        });
    }
    let damage = recording.damage.iter().cloned();
    let damage = damage.map(|(file, damage)| TraceLine::Damage { file, damage });
    for record in std::iter::once(header)
        .chain(processes)
        .chain(names)
        .chain(operators)
        .chain(damage)
    {
        out.write_all(line::write(&record)?.as_bytes())?;
    }
    for operation in &recording.operations {
        let numbered = operation.clone();
        let numbered: Numbered = numbered.with_operator(|operator| numbers.get(&operator).copied());
        out.write_all(line::write(&numbered)?.as_bytes())?;
    }
    let end = TraceLine::End {
        operations: recording.operations.len(),
        left_out: recording.left_out,
    };
    out.write_all(line::write(&end)?.as_bytes())
}

/// True when a file begins as a trace does.
pub fn is_trace(path: &Path) -> bool {
    const START: &[u8] = b"{\"kind\":\"trace\",";
    input::beginning(path, START.len() as u64) == START
}

/// Reads a trace. Lines that cannot be used are reported in the recording's `damage`.
///
/// # Errors
/// When the file is missing, or its first line is not that of a trace this version reads.
pub fn read(path: &Path) -> Result<Trace, RecordError> {
    check_kind(path, &["trace"])?;
    let mut file = Lines::open(path, input::TRACE, input::LINE)?;
    let header = file.first("trace")?;
    let mut reader = Reader::default();
    let label = path.display().to_string();
    let mut numbers = FileBeingRead::default();
    let mut finished = false;
    while let Some(text) = file.next_line()? {
        let taken = line::check(&text).and_then(|()| reader.take(&text, &mut numbers));
        match taken {
            Ok(end) => finished |= end,
            Err(problem) => {
                let damage = file.damage(problem);
                reader.recording.damage.push((label.clone(), damage));
            }
        }
    }
    if !finished {
        let missing = file.damage("its last line is missing".to_owned());
        reader.recording.damage.push((label, missing));
    }
    // Sorted by start, in case the file was edited.
    let recording = reader.finish(usize::MAX);
    Ok(Trace { header, recording })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::machine::{Launch, Moments, Operation, Process, Recording, Work};
    use crate::record::Damage;
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
}
