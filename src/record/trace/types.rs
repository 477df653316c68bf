//! A trace in memory: what was recorded, and of what program.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::machine::Recording;
use crate::record::types::{Fingerprint, Git};

/// The first line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
    /// How it ended: `exit code 0`, `killed by SIGINT`.
    pub ended: String,
    /// The checkout it was started in, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// Where.
    pub machine: Fingerprint,
}

/// What a program and its children did.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its first line.
    pub header: TraceHeader,
    /// What was recorded.
    pub recording: Recording,
}

impl TraceHeader {
    /// What the trace is called: its program, with the script it runs.
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

/// True for an argument that names a script: it tells more than its interpreter.
pub fn is_script(word: &str) -> bool {
    let extension = Path::new(word).extension();
    extension.is_some_and(|extension| ["py", "sh", "pl", "jl"].iter().any(|e| extension == *e))
}
