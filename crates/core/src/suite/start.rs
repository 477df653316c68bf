//! How the processes of a worker come to be, as a suite says it.

use std::fmt;

/// How the processes of a worker come to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Forked where that is sound, and else started.
    #[default]
    Auto,
    /// Each is started by itself.
    Exec,
    /// Forked from a process that has imported the library, or not used.
    Fork,
}

impl Start {
    /// All of them.
    pub const ALL: [Start; 3] = [Start::Auto, Start::Exec, Start::Fork];
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Start::Auto => "auto",
            Start::Exec => "exec",
            Start::Fork => "fork",
        })
    }
}

/// What is said of how a worker's processes come to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starting {
    /// How.
    pub start: Start,
    /// Where that is said: file, line and key.
    pub place: String,
}
