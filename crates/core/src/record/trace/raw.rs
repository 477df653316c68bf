//! Reads the raw recording of a program: a folder with one file a process, JSON objects a
//! line, written by the injected library as its buffers complete (docs/FORMAT.md).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::{FileDamage, interned, numbered};
use crate::input;
use crate::machine::{Launch, Moments, Operation, Process, Recording, TracedGpu, Work};
use crate::record::RecordError;
use crate::record::line::Lines;
use crate::secrets;

/// Environment variable that names the folder to the injected library.
pub const VARIABLE: &str = "REGATTA_TRACE";

/// Longest line that is read: a kernel's name may be long, but not this long.
const LONGEST_LINE: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum RawLine {
    Process(Process),
    Device(TracedGpu),
    Name {
        /// Its number.
        id: u32,
        /// The name, demangled.
        name: String,
    },
    Operator {
        /// Its number.
        id: u32,
        /// The ranges that the host was in, outermost first, joined by `/`.
        name: String,
    },
    /// API calls since the process began.
    Calls {
        /// By name.
        counts: BTreeMap<String, u64>,
    },
    /// When the host made calls that are told one by one.
    Moments {
        /// In nanoseconds of CUPTI's clock, by kind.
        of: BTreeMap<String, Vec<u64>>,
    },
    Dropped {
        /// How many.
        records: u64,
    },
    /// What kept the library from recording, or from recording all of it.
    Problem {
        /// What it was, as a sentence.
        text: String,
    },
    End {
        /// When, in nanoseconds of CUPTI's clock.
        #[serde(default)]
        #[expect(dead_code, reason = "told, and of no use yet")]
        at: Option<u64>,
    },
    /// An operation, which has a kind of its own.
    #[serde(other)]
    Other,
}

/// An operation, with the numbers of its kernel's name and of its operator.
type Numbered = Operation<Launch<u32>, u32>;

/// Reads every recording in a folder. Of more than `limit` operations the last are kept:
/// a program's beginning is its warm-up. Never holds more than twice as many.
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
    let mut reader = Reader {
        recording: Recording::default(),
        names: HashMap::new(),
        operators: HashSet::new(),
        limit: limit.max(1),
    };
    for path in &files {
        reader.file(path)?;
    }
    let mut recording = reader.recording;
    recording.settle(limit);
    let told = recording.processes.iter_mut();
    told.filter_map(|process| process.moments.as_mut())
        .for_each(Moments::settle);
    in_order_of_start(&mut recording);
    Ok(recording)
}

struct Reader {
    recording: Recording,
    /// Index of each name.
    names: HashMap<String, u32>,
    /// Operators, each once.
    operators: HashSet<Arc<str>>,
    limit: usize,
}

impl Reader {
    fn file(&mut self, path: &Path) -> Result<(), RecordError> {
        let mut lines = Lines::open(path, input::TRACE, LONGEST_LINE)?;
        let label = path.file_name().unwrap_or_default();
        let mut file = RecordingProcess {
            label: label.to_string_lossy().into_owned(),
            process: self.recording.processes.len() as u32,
            ids: HashMap::new(),
            operators: HashMap::new(),
            number: 0,
        };
        let mut damage = FileDamage::default();
        self.recording.processes.push(Process {
            pid: pid(&file.label),
            ..Process::default()
        });
        while let Some(text) = lines.next_line()? {
            let text = text.into_owned();
            let whole = lines.whole;
            file.number += 1;
            if !text.trim().is_empty()
                && let Err(problem) = self.line(text.trim(), whole, &mut file)
            {
                damage.add(file.number, problem);
            }
            if self.recording.operations.len() >= 2 * self.limit {
                self.recording.settle(self.limit);
            }
        }
        damage.report(&file.label, file.number, &mut self.recording);
        Ok(())
    }

    fn line(&mut self, text: &str, whole: bool, file: &mut RecordingProcess) -> Result<(), String> {
        let line: RawLine = serde_json::from_str(text).map_err(|error| match whole {
            true => format!("it cannot be understood: {error}"),
            false => "it is cut off: the process ended while it was written".to_owned(),
        })?;
        let process = &mut self.recording.processes[file.process as usize];
        match line {
            RawLine::Process(told) if file.number == 1 => {
                let pid = process.pid;
                *process = told;
                process.argv = secrets::command_line(&process.argv);
                // The file's name is the process's own word, before anything was read.
                if process.pid == 0 {
                    process.pid = pid;
                }
            }
            RawLine::Process(_) => return Err("a second first line".to_owned()),
            RawLine::Device(device) => {
                process.devices.retain(|old| old.ordinal != device.ordinal);
                process.devices.push(device);
            }
            RawLine::Name { id, name } => {
                let index = self.name(name);
                file.ids.insert(id, index);
            }
            RawLine::Operator { id, name } => {
                let operator = interned(&mut self.operators, name);
                file.operators.insert(id, operator);
            }
            RawLine::Calls { counts } => process.calls = counts,
            RawLine::Moments { of } => process.moments.get_or_insert_default().add(of),
            RawLine::Dropped { records } => {
                process.dropped = process.dropped.saturating_add(records)
            }
            RawLine::Problem { text } => process.problems.push(text),
            RawLine::End { .. } => process.ended = true,
            RawLine::Other => {
                let told = serde_json::from_str(text)
                    .map_err(|error| format!("it cannot be understood: {error}"))?;
                self.operation(file, told)?;
            }
        }
        Ok(())
    }

    fn operation(&mut self, file: &RecordingProcess, told: Numbered) -> Result<(), String> {
        let mut operation = told.with_operator(|id| file.operators.get(&id).cloned());
        operation.process = file.process;
        operation.launched_ns = operation.launched_ns.filter(|at| *at > 0);
        if let Work::Kernel(kernel) = &mut operation.work {
            kernel.name = match file.ids.get(&kernel.name) {
                Some(index) => *index,
                None => self.name(format!("(kernel {} without a name)", kernel.name)),
            };
        }
        // CUPTI writes 0 where it could not take the time.
        if operation.start_ns == 0 {
            return Err("its times make no sense: it has no start".to_owned());
        }
        if let Some(objection) = operation.objection() {
            return Err(format!("its times make no sense: {objection}"));
        }
        self.recording.operations.push(operation);
        Ok(())
    }

    fn name(&mut self, name: String) -> u32 {
        numbered(name, &mut self.names, &mut self.recording.names)
    }
}

/// A file being read.
struct RecordingProcess {
    label: String,
    process: u32,
    /// Index of a name by the id that this process gave it.
    ids: HashMap<u32, u32>,
    /// Operators by the id that this process gave them.
    operators: HashMap<u32, Arc<str>>,
    /// Of the current line, from 1.
    number: usize,
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
