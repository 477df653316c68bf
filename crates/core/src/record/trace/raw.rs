//! Reads the raw recording of a program: a folder with one file a process, JSON objects a
//! line, written by the injected library as its buffers complete (docs/FORMAT.md).

use std::fs;
use std::path::Path;

use super::FileDamage;
use super::reader::{FileBeingRead, Reader};
use crate::input;
use crate::machine::{Process, Recording};
use crate::record::RecordError;
use crate::record::line::Lines;

/// Environment variable that names the folder to the injected library.
pub const VARIABLE: &str = "REGATTA_TRACE";

/// Longest line that is read: a kernel's name may be long, but not this long.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Reads every recording in a folder. If there are more than `limit` operations, the last are kept,
/// since a program begins with its warm-up. At most twice as many are in memory.
///
/// # Errors
/// When the folder or a file in it cannot be read. Lines that cannot be used are reported
/// in [`Recording::damage`].
pub fn read(folder: &Path, limit: usize) -> Result<Recording, RecordError> {
    let io = |error| RecordError::io(folder, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    let mut reader = Reader::default();
    for path in &files {
        read_file(&mut reader, path, limit.max(1))?;
    }
    let mut recording = reader.finish(limit);
    in_order_of_start(&mut recording);
    Ok(recording)
}

fn read_file(reader: &mut Reader, path: &Path, limit: usize) -> Result<(), RecordError> {
    let mut lines = Lines::open(path, input::TRACE, MAX_LINE_BYTES)?;
    let label = path.file_name().unwrap_or_default().to_string_lossy();
    let mut file = FileBeingRead {
        process: Some(reader.recording.processes.len() as u32),
        ..FileBeingRead::default()
    };
    reader.recording.processes.push(Process {
        pid: pid(&label),
        ..Process::default()
    });
    let (mut damage, mut number) = (FileDamage::default(), 0);
    while let Some(text) = lines.next_line()? {
        let taken = match text.trim() {
            "" => Ok(false),
            text => reader.take(text, &mut file),
        };
        number += 1;
        if let Err(problem) = taken {
            damage.add(
                number,
                if lines.whole {
                    problem
                } else {
                    "it is cut off: the process ended while it was written".to_owned()
                },
            );
        }
        if reader.recording.operations.len() >= 2 * limit {
            reader.recording.settle(limit);
        }
    }
    damage.report(&label, number, &mut reader.recording);
    Ok(())
}

/// `1234-99.jsonl` is of process 1234.
fn pid(label: &str) -> u32 {
    let digits = label.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}

/// Numbers processes by their start, not by the text of their ids.
fn in_order_of_start(recording: &mut Recording) {
    let mut order: Vec<usize> = (0..recording.processes.len()).collect();
    order.sort_by_key(|&old| (recording.processes[old].start, recording.processes[old].pid));
    let mut new = vec![0; order.len()];
    for (number, &old) in order.iter().enumerate() {
        new[old] = number as u32;
    }
    for operation in &mut recording.operations {
        operation.process = new[operation.process as usize];
    }
    let processes = &recording.processes;
    recording.processes = order
        .into_iter()
        .map(|old| processes[old].clone())
        .collect();
}

#[cfg(test)]
mod tests;
