//! Reads the lines of recordings and of traces. A recording has them in the order in which a
//! process wrote them, each name before its first use. A trace has all facts about a process in one
//! line, with checksums.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{TraceHeader, interned, numbered};
use crate::machine::{Launch, Moments, Operation, Process, Recording, TracedGpu, Work};
use crate::record::{Damage, line};
use crate::secrets;

/// A line that is not of an operation: those have kinds of their own.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum TraceLine {
    Trace(Box<TraceHeader>),
    Process(Process),
    Device(TracedGpu),
    Name {
        /// The number; absent if it is the place among the names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u32>,
        /// The name, demangled.
        name: String,
    },
    Operator {
        /// The number; absent if it is the place among the operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u32>,
        /// The ranges that the host was in, outermost first, joined by `/`.
        #[serde(alias = "name")]
        operator: String,
    },
    /// API calls since the process began.
    Calls {
        /// By name.
        counts: BTreeMap<String, u64>,
    },
    /// The times of the host's calls that are recorded one by one.
    Moments {
        /// In nanoseconds of CUPTI's clock, by kind.
        of: BTreeMap<String, Vec<u64>>,
    },
    Dropped {
        /// The number of records.
        records: u64,
    },
    /// The problem that kept the library from recording, or from recording all of it.
    Problem {
        /// The problem, as a sentence.
        text: String,
    },
    Damage {
        /// The file of the raw recording.
        file: String,
        #[serde(flatten)]
        damage: Damage,
    },
    End {
        /// Operations in the trace.
        #[serde(default)]
        operations: usize,
        /// Operations left out by a limit: the earliest ones.
        #[serde(default)]
        left_out: u64,
    },
}

/// An operation, with the numbers of its kernel's name and of its operator.
pub(super) type Numbered = Operation<Launch<u32>, u32>;

/// The members that decide how to read the rest of a line.
#[derive(Deserialize)]
struct LineKind {
    kind: String,
}

/// Collects a recording from the lines of files.
#[derive(Default)]
pub(super) struct Reader {
    pub recording: Recording,
    /// Index of each name.
    names: HashMap<String, u32>,
    /// Operators, each once.
    operators: HashSet<Arc<str>>,
}

/// A file being read.
#[derive(Default)]
pub(super) struct FileBeingRead {
    /// The process of the file; absent for a trace, where each operation names its process.
    pub process: Option<u32>,
    /// True after the line that introduces the process.
    pub introduced: bool,
    /// Index of a name by its number in the file.
    pub names: HashMap<u32, u32>,
    /// Operators by their numbers in the file.
    pub operators: HashMap<u32, Arc<str>>,
}

impl Reader {
    /// Adds a line; returns true if it is the last.
    pub fn take(&mut self, text: &str, file: &mut FileBeingRead) -> Result<bool, String> {
        let LineKind { kind } = line::parse(text)?;
        if matches!(kind.as_str(), "kernel" | "copy" | "set") {
            self.operation(line::parse(text)?, file)?;
            return Ok(false);
        }
        let process = self.recording.processes.last_mut();
        match (line::parse(text)?, process) {
            (TraceLine::Process(header), Some(process)) if file.process.is_some() => {
                if std::mem::replace(&mut file.introduced, true) {
                    return Err("a second first line".to_owned());
                }
                // Before its header is read, the process id comes from the file's name.
                let pid = if header.pid == 0 {
                    process.pid
                } else {
                    header.pid
                };
                *process = Process {
                    pid,
                    argv: secrets::command_line(&header.argv),
                    ..header
                };
            }
            (TraceLine::Process(process), _) => self.recording.processes.push(process),
            (TraceLine::Trace(_), _) => return Err("a second first line".to_owned()),
            (TraceLine::Name { id, name }, _) => {
                let id = id.unwrap_or(file.names.len() as u32);
                file.names.insert(id, self.name(name));
            }
            (TraceLine::Operator { id, operator }, _) => {
                let id = id.unwrap_or(file.operators.len() as u32);
                let operator = interned(&mut self.operators, operator);
                file.operators.insert(id, operator);
            }
            (TraceLine::Damage { file, damage }, _) => self.recording.damage.push((file, damage)),
            (TraceLine::End { left_out, .. }, process) => {
                self.recording.left_out += left_out;
                if let (Some(process), Some(_)) = (process, file.process) {
                    process.ended = true;
                }
                return Ok(true);
            }
            (_, None) => return Err("it stands before any process".to_owned()),
            (TraceLine::Device(device), Some(process)) => {
                process.devices.retain(|old| old.ordinal != device.ordinal);
                process.devices.push(device);
            }
            (TraceLine::Calls { counts }, Some(process)) => process.calls = counts,
            (TraceLine::Moments { of }, Some(process)) => {
                process.moments.get_or_insert_default().add(of);
            }
            (TraceLine::Dropped { records }, Some(process)) => {
                process.dropped = process.dropped.saturating_add(records);
            }
            (TraceLine::Problem { text }, Some(process)) => process.problems.push(text),
        }
        Ok(false)
    }

    fn operation(&mut self, numbered: Numbered, file: &FileBeingRead) -> Result<(), String> {
        let mut operation = numbered.with_operator(|id| file.operators.get(&id).cloned());
        operation.process = file.process.unwrap_or(operation.process);
        operation.launched_ns = operation.launched_ns.filter(|at| *at > 0);
        if let Work::Kernel(kernel) = &mut operation.work {
            kernel.name = match file.names.get(&kernel.name) {
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

    /// The recording, with the last `limit` operations by start.
    pub fn finish(mut self, limit: usize) -> Recording {
        self.recording.settle(limit);
        let processes = self.recording.processes.iter_mut();
        let moments = processes.filter_map(|process| process.moments.as_mut());
        moments.for_each(Moments::settle);
        self.recording
    }
}
