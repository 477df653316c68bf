//! Measurement: schedule, invocations, checks, machine.

pub mod building;
pub mod command;
pub mod conformance;
pub mod environments;
pub mod experiment;
mod files;
pub mod git;
mod identity;
pub mod interference;
pub mod interrupt;
pub mod laps;
pub mod listing;
mod loaded;
pub mod machine;
pub mod made;
pub mod preflight;
mod renamed;
pub mod ruler;
pub mod schedule;
pub mod sensitivity;
pub mod session;
#[cfg(test)]
mod testing;
pub mod tracing;
pub mod verify;
pub mod versions;
pub mod worker;
pub mod workers;

/// The reason for which something cannot be measured, as a sentence with the fix: a name is not
/// declared, an environment cannot be made, git does not know a revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);

impl From<worker::WorkerError> for SetupError {
    fn from(error: worker::WorkerError) -> SetupError {
        SetupError(experiment::arm::with_log(&error, &error.log))
    }
}

impl From<std::io::Error> for SetupError {
    fn from(error: std::io::Error) -> SetupError {
        SetupError(error.to_string())
    }
}
