//! Starts the processes of one worker, or has them forked.

use std::path::Path;
use std::time::Duration;

use super::forks::Forks;
use super::host::{HostError, Process};
use super::spec::{Forking, Spec};

/// How the processes of a worker come to be, decided when the first one is wanted.
#[derive(Debug, Default)]
pub enum Launch {
    /// Not decided.
    #[default]
    Undecided,
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
        if matches!(self, Launch::Undecided) {
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
