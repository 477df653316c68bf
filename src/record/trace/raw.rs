//! Reads the raw recording of a program: a folder with one file a process, JSON objects a
//! line, written by the injected library as its buffers complete (docs/FORMAT.md).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::input;
use crate::machine::{
    Calls, Device, Launch, Moments, Operation, Process, Recorded, Recording, Work,
};
use crate::record::RecordError;
use crate::record::types::Damage;

/// Environment variable that names the folder to the injected library.
pub const VARIABLE: &str = "REGATTA_TRACE";

/// Damaged lines that are kept with what is wrong with them; the others are counted.
const DAMAGE_KEPT: usize = 20;

/// Longest line that is read: a kernel's name may be long, but not this long.
const LONGEST_LINE: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Process(Process),
    Device(Device),
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
    Kernel(RawKernel),
    Copy {
        /// `HtoD`, `DtoH`, `DtoD`, `PtoP` or `HtoH`.
        direction: String,
        /// How much.
        bytes: u64,
        #[serde(flatten)]
        at: Place,
    },
    Set {
        /// How much.
        bytes: u64,
        #[serde(flatten)]
        at: Place,
    },
    Calls(Calls),
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
    /// A later library's line.
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct RawKernel {
    #[serde(flatten)]
    at: Place,
    #[serde(flatten)]
    kernel: Launch<u32>,
}

/// When and where something ran.
#[derive(Deserialize)]
struct Place {
    /// When it started on the device, in nanoseconds of CUPTI's clock.
    start: u64,
    /// When it ended there.
    end: u64,
    /// Number of its stream.
    stream: u32,
    /// The device's ordinal in its process.
    device: u32,
    /// When the host began to launch it, in nanoseconds of the same clock, where known.
    #[serde(default)]
    launched: Option<u64>,
    /// How long launching it took the host, where known.
    #[serde(default)]
    launch_ns: Option<u64>,
    /// The number of the operator that launched it, where the program tells.
    #[serde(default)]
    operator: Option<u32>,
}

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
        let read = reader.file(path);
        read.map_err(|error| RecordError::io(path, error))?;
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
    fn file(&mut self, path: &Path) -> io::Result<()> {
        let mut input = BufReader::new(input::open(path, input::TRACE)?);
        let label = path.file_name().unwrap_or_default();
        let mut file = Lines {
            label: label.to_string_lossy().into_owned(),
            process: self.recording.processes.len() as u32,
            ids: HashMap::new(),
            operators: HashMap::new(),
            number: 0,
            bad: 0,
        };
        self.recording.processes.push(Process {
            pid: pid(&file.label),
            ..Process::default()
        });
        let mut line = Vec::new();
        loop {
            let found = input::line(&mut input, LONGEST_LINE, &mut line)?;
            if found == input::Line::None {
                break;
            }
            file.number += 1;
            let whole = found == input::Line::Whole;
            let text = String::from_utf8_lossy(&line);
            if !text.trim().is_empty()
                && let Err(problem) = self.line(text.trim(), whole, &mut file)
            {
                self.damaged(&mut file, problem);
            }
            if self.recording.operations.len() >= 2 * self.limit {
                self.recording.settle(self.limit);
            }
        }
        if let Some(more) = file.bad.checked_sub(DAMAGE_KEPT).filter(|more| *more > 0) {
            let damage = Damage {
                line: file.number,
                problem: format!("and {more} more lines of the file could not be used"),
            };
            self.recording.damage.push((file.label, damage));
        }
        Ok(())
    }

    fn damaged(&mut self, file: &mut Lines, problem: String) {
        file.bad += 1;
        if file.bad <= DAMAGE_KEPT {
            let line = file.number;
            let damage = Damage { line, problem };
            self.recording.damage.push((file.label.clone(), damage));
        }
    }

    fn line(&mut self, text: &str, whole: bool, file: &mut Lines) -> Result<(), String> {
        let line: Line = serde_json::from_str(text).map_err(|error| match whole {
            true => format!("it cannot be understood: {error}"),
            false => "it is cut off: the process ended while it was written".to_owned(),
        })?;
        let process = &mut self.recording.processes[file.process as usize];
        match line {
            Line::Process(told) if file.number == 1 => {
                let pid = process.pid;
                *process = told;
                // The file's name is the process's own word, before anything was read.
                if process.pid == 0 {
                    process.pid = pid;
                }
            }
            Line::Process(_) => return Err("a second first line".to_owned()),
            Line::Device(device) => {
                process.devices.retain(|old| old.ordinal != device.ordinal);
                process.devices.push(device);
            }
            Line::Name { id, name } => {
                let index = self.name(name);
                file.ids.insert(id, index);
            }
            Line::Operator { id, name } => {
                let operator = interned(&mut self.operators, name);
                file.operators.insert(id, operator);
            }
            Line::Kernel(RawKernel { at, mut kernel }) => {
                kernel.name = match file.ids.get(&kernel.name) {
                    Some(index) => *index,
                    None => self.name(format!("(kernel {} without a name)", kernel.name)),
                };
                self.operation(file, at, Work::Kernel(kernel))?;
            }
            Line::Copy {
                direction,
                bytes,
                at,
            } => {
                let bytes = Some(bytes);
                self.operation(file, at, Work::Copy { direction, bytes })?;
            }
            Line::Set { bytes, at } => {
                let bytes = Some(bytes);
                self.operation(file, at, Work::Set { bytes })?;
            }
            Line::Calls(calls) => process.calls.push(calls),
            Line::Moments { of } => process.moments.get_or_insert_default().add(of),
            Line::Dropped { records } => process.dropped = process.dropped.saturating_add(records),
            Line::Problem { text } => process.problems.push(text),
            Line::End { .. } => process.ended = true,
            Line::Unknown => return Err("it is of a kind that this regatta does not know".into()),
        }
        Ok(())
    }

    fn operation(
        &mut self,
        file: &Lines,
        at: Place,
        work: Work<Launch<u32>>,
    ) -> Result<(), String> {
        let launched = at.launched.filter(|launched| *launched > 0);
        let operation: Recorded = Operation {
            process: file.process,
            device: at.device,
            stream: Some(at.stream),
            // What no clock shows is objected to below.
            launched_ns: launched.map(|at| i64::try_from(at).unwrap_or(i64::MAX)),
            launch_ns: at.launch_ns,
            operator: at.operator.and_then(|id| file.operators.get(&id).cloned()),
            ..Operation::new(work, at.start, at.end)
        };
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
        let names = &mut self.recording.names;
        *self.names.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            names.len() as u32 - 1
        })
    }
}

/// A file being read.
struct Lines {
    label: String,
    process: u32,
    /// Index of a name by the id that this process gave it.
    ids: HashMap<u32, u32>,
    /// Operators by the id that this process gave them.
    operators: HashMap<u32, Arc<str>>,
    /// Of the current line, from 1.
    number: usize,
    bad: usize,
}

/// The one copy of a text.
fn interned(known: &mut HashSet<Arc<str>>, text: String) -> Arc<str> {
    if let Some(there) = known.get(text.as_str()) {
        return Arc::clone(there);
    }
    let new: Arc<str> = text.into();
    known.insert(Arc::clone(&new));
    new
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
