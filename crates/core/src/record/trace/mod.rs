//! Traces: the operations of a program on its GPUs.
//!
//! [`raw`] reads the folder that the injected library wrote, with one file for each process;
//! [`mod@file`] stores it as one `.trace` file and reads that back; [`kineto`] reads traces of
//! PyTorch's profiler.

pub mod file;
pub mod kineto;
pub mod raw;
mod reader;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::machine::Recording;
use crate::record::{Damage, Fingerprint, Git};
use regatta_worker::units::Nanoseconds;

/// The first line of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// [`crate::record::SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// [`crate::record::METHOD_VERSION`] of the writer.
    pub method: u32,
    /// Version of regatta.
    pub tool: String,
    /// regatta's command line.
    pub argv: Vec<String>,
    /// The program's command line.
    pub command: Vec<String>,
    /// When it was started.
    pub started: Timestamp,
    /// The end of the program: `exit code 0`, `killed by SIGINT`.
    pub ended: String,
    /// The checkout it was started in, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// The machine.
    pub machine: Fingerprint,
    /// The recorder, if it was not regatta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorder: Option<String>,
    /// The times of runs of the same program that were made before the one that is recorded
    /// here, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<RunTimes>,
}

/// The figures of an earlier run, of which no recording is kept. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunTimes {
    /// Operations that were recorded.
    pub operations: usize,
    /// The whole run, from the start of the first operation to the end of the last.
    pub whole: Spent,
    /// One repetition of the repeating part, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetition: Option<Repeated>,
}

/// The part of a run that repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// Operations of the busiest stream in one repetition.
    pub operations: usize,
    /// The number of repetitions.
    pub repeats: usize,
    /// The mean of one repetition.
    #[serde(flatten)]
    pub spent: Spent,
}

/// The elapsed time, and the part of it in which a device was busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// The elapsed time.
    pub elapsed_ns: Nanoseconds,
    /// With at least one operation on a device.
    pub busy_ns: Nanoseconds,
}

impl Spent {
    /// True for plausible times; a file may contain any number.
    pub fn is_usable(&self) -> bool {
        let plausible = |time: Nanoseconds| (1.0..1e18).contains(&time.0);
        plausible(self.elapsed_ns) && plausible(self.busy_ns)
    }
}

/// The record of a program and its children.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The first line of the file.
    pub header: TraceHeader,
    /// The recording.
    pub recording: Recording,
}

impl TraceHeader {
    /// The title of the trace: its program, with the script it runs.
    pub fn title(&self) -> String {
        let name = |word: &String| {
            let name = Path::new(word).file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let script = self.command.iter().skip(1).find(|word| is_script(word));
        let words = self.command.first().into_iter().chain(script);
        words.map(name).collect::<Vec<_>>().join(" ")
    }
}

/// True for an argument that names a script, which says more than its interpreter.
pub fn is_script(word: &str) -> bool {
    let extension = Path::new(word).extension();
    extension.is_some_and(|extension| ["py", "sh", "pl", "jl"].iter().any(|e| extension == *e))
}

/// The number of a name among those that are known.
fn numbered(name: String, numbers: &mut HashMap<String, u32>, known: &mut Vec<String>) -> u32 {
    *numbers.entry(name).or_insert_with_key(|name| {
        known.push(name.clone());
        known.len() as u32 - 1
    })
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

/// The damage of a file: its first places, and the number of others.
#[derive(Default)]
struct FileDamage {
    kept: Vec<Damage>,
    others: usize,
}

impl FileDamage {
    fn add(&mut self, line: usize, problem: String) {
        /// The largest number of places that are listed.
        const MAX_KEPT: usize = 20;
        if self.kept.len() < MAX_KEPT {
            self.kept.push(Damage { line, problem })
        } else {
            self.others += 1
        }
    }

    /// Adds it to a recording, of a file whose last place this is.
    fn report(self, label: &str, last: usize, recording: &mut Recording) {
        let others = (self.others > 0).then(|| Damage {
            line: last,
            problem: format!("and {} more could not be used", self.others),
        });
        let all = self.kept.into_iter().chain(others);
        recording
            .damage
            .extend(all.map(|damage| (label.to_owned(), damage)));
    }
}
