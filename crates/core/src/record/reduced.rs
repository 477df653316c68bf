//! The reduced cases of a run that has ended, in a file beside the run's: the lines of a baseline.
//!
//! They have a third of the run's size, and everything that is judged. The file contains the
//! checksum of the run's file, and is ignored if that has changed.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::baseline::{self, CaseLine};
use super::line::{self, Lines};
use super::{Limited, OpenCases, RecordError, Run, RunEnd, RunHeader, SCHEMA_VERSION, Side};
use crate::input;
use crate::output::Draft;

/// The name of the file, in the folder of the run's file.
pub const CASES_FILE: &str = "cases.jsonl";

/// A line of the file.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum ReducedLine<'a> {
    Cases(&'a ReducedHeader),
    Case(&'a CaseLine),
}

#[derive(Serialize, Deserialize)]
struct ReducedHeader {
    /// [`SCHEMA_VERSION`] of the writer.
    schema: u32,
    /// Version of the regatta that reduced it.
    tool: String,
    /// CRC-32 and length of the run's file.
    sum_of_run: String,
    /// The header of the run.
    run: RunHeader,
    /// Batches of extra invocations of open cases, in their order.
    open: Vec<OpenCases>,
    /// Present where a time limit ended it early.
    limited: Option<Limited>,
    /// Present when it was measured to its end.
    end: Option<RunEnd>,
}

/// Removes the reduced cases of a run to which lines are added.
pub(super) fn remove(run_file: &Path) {
    let _ = fs::remove_file(run_file.with_file_name(CASES_FILE));
}

/// Reduces a run's file, and writes its cases beside it. A run with damaged lines is skipped, since
/// the damage is reported from the file itself.
///
/// # Errors
/// When the run cannot be read, its cases cannot be written, or would not read back the same.
pub(super) fn write(run_file: &Path) -> Result<(), RecordError> {
    // Taken before reading, so that a later change of the file does not match.
    let sum_of_run = super::sum_of(&[run_file])?;
    let (run, side) = Side::reduced(run_file, "")?;
    if !side.damage.is_empty() {
        return Ok(());
    }
    let path = run_file.with_file_name(CASES_FILE);
    let io = |error| RecordError::io(&path, error);
    let mut draft = Draft::create(&path)?;
    let mut file = BufWriter::new(draft.file());
    let head = ReducedHeader {
        schema: SCHEMA_VERSION,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        sum_of_run,
        run: run.header,
        open: run.open,
        limited: run.limited,
        end: run.end,
    };
    let text = line::write(&ReducedLine::Cases(&head))?;
    file.write_all(text.as_bytes()).map_err(io)?;
    for (case, record) in side.cases {
        let case = CaseLine { case, record };
        let text = line::write(&ReducedLine::Case(&case))?;
        // A value may not survive JSON, which has no infinity.
        if line::read(text.trim_end()).as_ref() != Ok(&case) {
            let problem = format!("{} is not the same in it", case.case);
            return Err(RecordError::invalid(&path, 0, problem));
        }
        file.write_all(text.as_bytes()).map_err(io)?;
    }
    file.flush().map_err(io)?;
    drop(file);
    Ok(draft.keep()?)
}

/// The run without its entries, with its reduced cases; `None` if the file is absent or damaged, or
/// if the run's file has changed since.
pub(super) fn read(run_file: &Path, label: &str) -> Option<(Run, Side)> {
    let path = run_file.with_file_name(CASES_FILE);
    let mut file = Lines::open(&path, input::RUN, input::RUN).ok()?;
    let head: ReducedHeader = file.first("cases").ok()?;
    let fits = head.tool == env!("CARGO_PKG_VERSION")
        && super::sum_of(&[run_file]).ok()? == head.sum_of_run
        && head.run.objection().is_none();
    let run = Run {
        open: head.open,
        limited: head.limited,
        end: head.end,
        ..Run::begun(head.run)
    };
    let side = fits.then(|| baseline::cases(&mut file, run.header.clone(), label.to_owned()));
    let side = side?.ok()?;
    side.damage.is_empty().then_some((run, side))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::run_file::{Opening, RUN_FILE, RunWriter};
    use crate::record::testing::header;
    use crate::record::{Entry, Measurement, Outcome};
    use regatta_worker::case::CaseId;
    use regatta_worker::protocol::Measured;
    use regatta_worker::units::quantities;

    /// A run of three cases that has ended, whose times begin with `ns`.
    fn ended(folder: &Path, ns: f64) {
        let mut header = header();
        header.plan = [64, 128, 256]
            .map(|seq| CaseId(format!("cpu/a:s{seq},d64").into()))
            .to_vec();
        let (mut writer, _) = RunWriter::open(folder, &header, &Opening::default()).unwrap();
        for (place, case) in (0..).zip(header.plan.iter().cycle().take(15)) {
            let entry = Entry {
                case: case.clone(),
                invocation: place / 3,
                outcome: Outcome::Measured(Measurement {
                    samples: Measured {
                        device_ns: quantities([ns + f64::from(place), ns / 3.0]),
                        ..Measured::default()
                    },
                    first_call_ns: quantities([1e6])[0],
                    ..Measurement::default()
                }),
                start: None,
            };
            writer.append(&entry).unwrap();
        }
        writer.close().unwrap();
    }

    fn reduced_again(run_file: &Path) -> (Run, Side) {
        Side::reduced(run_file, "run").unwrap()
    }

    #[test]
    fn the_reduced_cases_of_an_ended_run_are_those_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        ended(folder.path(), 1000.0);
        let path = folder.path().join(RUN_FILE);
        let read = read(&path, "run").unwrap();
        assert_eq!(read, reduced_again(&path));
        assert!(read.0.end.is_some());
        assert_eq!(Side::read(&path, "run").unwrap(), read);
    }

    #[test]
    fn another_content_of_the_run_is_judged_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RUN_FILE);
        ended(folder.path(), 1000.0);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let (body, _) = lines[2].rsplit_once(",\"sum\"").unwrap();
        // The edited line has the same length and a valid checksum.
        let body = format!("{}}}", body.replace("1001.0", "9001.0"));
        let sum = crc32fast::hash(body.as_bytes());
        let slower = format!("{},\"sum\":\"{sum:08x}\"}}", &body[..body.len() - 1]);
        let changed = text.replace(lines[2], &slower);
        assert!(changed.len() == text.len() && changed != text);
        let other = tempfile::tempdir().unwrap();
        ended(other.path(), 2000.0);
        let foreign = fs::read_to_string(other.path().join(RUN_FILE)).unwrap();
        let torn = text[..text.len() - 40].to_owned();
        for content in [changed, foreign, torn, format!("{text}\n"), lines[0].into()] {
            fs::write(&path, &content).unwrap();
            assert_eq!(read(&path, "run"), None);
            assert_eq!(Side::read(&path, "run").unwrap(), reduced_again(&path));
        }
        fs::write(&path, &text).unwrap();
        assert!(read(&path, "run").is_some());
    }

    #[test]
    fn reduced_cases_that_are_damaged_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RUN_FILE);
        ended(folder.path(), 1000.0);
        let cases = folder.path().join(CASES_FILE);
        let text = fs::read_to_string(&cases).unwrap();
        let shorter = text.lines().take(3).map(|line| format!("{line}\n"));
        let last = text.lines().last().unwrap();
        for damaged in [
            String::new(),
            shorter.collect(),
            text[..text.len() - 9].to_owned(),
            text.replace("1000", "1009"),
            format!("{text}{last}\n"),
            text.replacen("\"cases\"", "\"baseline\"", 1),
        ] {
            fs::write(&cases, damaged).unwrap();
            assert_eq!(read(&path, "run"), None);
            assert_eq!(Side::read(&path, "run").unwrap(), reduced_again(&path));
        }
    }

    #[test]
    fn a_run_ends_where_its_reduced_cases_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RUN_FILE);
        fs::create_dir(folder.path().join(CASES_FILE)).unwrap();
        ended(folder.path(), 1000.0);
        assert_eq!(Side::read(&path, "run").unwrap(), reduced_again(&path));
        let left = fs::read_dir(folder.path()).unwrap();
        assert_eq!(left.count(), 3, "the run, its lock, and what is in the way");
    }

    #[test]
    fn a_run_that_begins_removes_the_reduced_cases_of_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        ended(folder.path(), 1000.0);
        assert!(folder.path().join(CASES_FILE).exists());
        fs::remove_file(folder.path().join(".lock")).unwrap();
        let opened = RunWriter::open(folder.path(), &header(), &Opening::default());
        opened.unwrap();
        assert!(!folder.path().join(CASES_FILE).exists());
    }
}
