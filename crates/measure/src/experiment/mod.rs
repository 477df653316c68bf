//! From what was asked for to runs that can be judged: what runs, decides and resumes.
//!
//! Nothing here reads a command line or prints. What is said goes to a [`Listener`], and why
//! nothing comes of it is an [`ExperimentError`].

mod base_code;
pub mod baseline;
pub mod comparer;
pub mod comparison;
pub mod deciding;
pub mod estimate;
pub mod gate;
mod in_turn;
pub mod introductions;
pub mod ready;
pub mod request;
pub mod stored;
mod version;

use std::error::Error;
use std::ops::Range;

use crate::schedule::Block;
use crate::session::Observer;

pub use ready::{Measured, Ready};
pub use request::Request;

/// Why an experiment ends without a result; what it says is the whole chain of causes.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// What was asked for, or a file it names, is wrong; nothing was measured.
    #[error("{0}")]
    Usage(String),
    /// It cannot be judged.
    #[error("{0}")]
    NotJudged(String),
}

impl ExperimentError {
    /// A usage or configuration error.
    pub fn usage(error: impl Error) -> ExperimentError {
        ExperimentError::Usage(chain(&error))
    }

    /// The same, with what it was about before it.
    fn usage_of(about: &str, error: impl Error) -> ExperimentError {
        ExperimentError::Usage(format!("{about}: {}", chain(&error)))
    }

    /// Something that keeps a verdict from being reached.
    pub fn not_judged(error: impl Error) -> ExperimentError {
        ExperimentError::NotJudged(chain(&error))
    }

    /// The same, with what comes of it before it.
    fn not_judged_as(comes: &str, error: impl Error) -> ExperimentError {
        ExperimentError::NotJudged(format!("{comes}: {}", chain(&error)))
    }
}

/// An error with its causes, each after a colon.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Shows somebody what an experiment does.
pub trait Listener {
    /// Says something about the work.
    fn note(&self, text: &str);

    /// Begins to show where a schedule is, whose invocations are in `range`.
    fn progress(&self, blocks: &[Block], range: Range<u32>, quiet: bool) -> Box<dyn Observer>;
}
