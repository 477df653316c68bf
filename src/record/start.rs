//! How the processes of workers came to be.

use serde::{Deserialize, Serialize};

/// How the process of an invocation came to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Start {
    /// By which of the ways that there are.
    pub how: How,
    /// Why it was started where it was to be forked; told once for a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// The ways in which a worker's process comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It was started by itself.
    Exec,
    /// It was forked from a process that had imported its library.
    Forked,
}
