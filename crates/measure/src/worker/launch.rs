//! Starts the processes of one worker, or has them forked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::forks::Forks;
use super::host::{Conversation, HostError, Process};

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

/// Starts workers.
pub trait Launcher {
    /// Starts the worker of this name and has it introduce itself.
    ///
    /// # Errors
    /// When it does not come up.
    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, HostError>;
}

/// How the processes of a worker come to be, decided when the first one is wanted.
#[derive(Debug, Default)]
pub enum Launch {
    /// Not decided.
    #[default]
    Inconclusive,
    /// By forks.
    Forked(Box<ForkServer>),
    /// By being started, for this reason, where forks were wanted.
    Started(Option<String>),
}

/// A process that forks workers.
#[derive(Debug)]
pub struct ForkServer(Forks);

impl Launch {
    /// One more process of the worker, that has introduced itself.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn next(&mut self, spec: &Spec, log: &Path, limit: Duration) -> Result<Process, HostError> {
        if matches!(self, Launch::Inconclusive) {
            *self = match spec.forking {
                Forking::Never => Launch::Started(None),
                Forking::WhereSound | Forking::Always => match Forks::start(spec, log, limit) {
                    Ok(forks) => Launch::Forked(Box::new(ForkServer(forks))),
                    Err(reason) => Launch::Started(Some(reason)),
                },
            };
        }
        if let Launch::Forked(server) = self {
            match Process::fork(&mut server.0, spec, log, limit) {
                Err(error) if server.0.is_gone() || matches!(error, HostError::Forked { .. }) => {
                    *self = Launch::Started(Some(error.to_string()));
                }
                answer => return answer,
            }
        }
        match self {
            Launch::Started(Some(reason)) if spec.forking == Forking::Always => {
                let name = spec.name.clone();
                let worker = name.split('@').next().unwrap_or(&name).to_owned();
                Err(HostError::CannotFork {
                    worker,
                    name,
                    reason: reason.clone(),
                })
            }
            Launch::Started(Some(reason)) => {
                Process::start_instead(spec, log, limit, reason.clone())
            }
            _ => Process::start(spec, log, limit),
        }
    }
}
