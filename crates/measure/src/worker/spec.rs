//! How a worker's process is started.

use std::path::PathBuf;

/// How to start a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What to call it: `cpu`, `torch@old`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables set for it.
    pub env: Vec<(String, String)>,
    /// The folder it is started in; `None`: the one regatta was started in.
    pub directory: Option<PathBuf>,
    /// What to do when the program is missing.
    pub fix: String,
    /// Whether the program forks workers when it is told to: those of regatta's own do.
    pub forking: Forking,
}

/// Whether workers are forked from a process that has imported their library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forking {
    /// Each is started by itself.
    #[default]
    Never,
    /// They are forked where that is known to change nothing: on a GPU, by a process that has
    /// no device open and no thread running.
    WhereSound,
    /// They are forked, or not used.
    Always,
}
