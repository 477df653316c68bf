//! How the processes that do the work come to be.

use crate::worker::host::{Conversation, HostError};

/// Starts workers.
pub trait Launcher {
    /// Starts the worker of this name and has it introduce itself.
    ///
    /// # Errors
    /// When it does not come up.
    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, HostError>;
}
