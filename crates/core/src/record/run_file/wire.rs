//! The lines of a run's file, as they are written.

use serde::{Deserialize, Serialize};

use crate::record::types::{Entry, Owed, Part, RunEnd, RunHeader};

/// A line.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Line {
    Run(Box<First>),
    Entry(Box<Entry>),
    Owed(Owed),
    End(RunEnd),
}

/// The first line: the header, and what the run was measured in.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(super) struct First {
    #[serde(flatten)]
    pub(super) header: RunHeader,
    /// The parts that it was measured in, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<Part>,
}
