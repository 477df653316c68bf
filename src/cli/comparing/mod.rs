//! Two versions measured in turn: from their names to a judgement.

mod in_turn;
mod pairs;
mod question;
mod stored;

use std::path::Path;

use super::reporting::Answers;
use super::{Ended, Stop, interrupt};
use regatta_measure::versions::spec::Spec;
use stored::Stored;

pub use in_turn::InTurn;
pub use question::{Question, Refused};

/// A comparison that is ready to be measured.
pub enum Comparison {
    /// Two versions, in turn.
    InTurn(Box<InTurn>),
    /// One, held against a run that is stored.
    Stored(Box<Stored>),
}

impl Comparison {
    /// Makes the versions, and has their workers introduce themselves. Nothing is measured.
    ///
    /// # Errors
    /// Whatever is wrong with a version, the suite or a worker: exit code 2; sides that cannot
    /// be compared: 3.
    pub fn prepare(question: &Question<'_>) -> Result<Comparison, Stop> {
        interrupt::watch();
        match question.base {
            [Spec::Run(path)] => {
                let stored = Stored::of(question, path)?;
                Ok(Comparison::Stored(Box::new(stored)))
            }
            _ => match InTurn::of(question) {
                Ok(in_turn) => Ok(Comparison::InTurn(Box::new(in_turn))),
                Err(refused) => Err(refused.stop),
            },
        }
    }

    /// Where the run of what is judged lies.
    pub fn of_head(&self) -> &Path {
        match self {
            Comparison::InTurn(of) => &of.head.directory,
            Comparison::Stored(of) => &of.head.directory,
        }
    }

    /// Measures until everything is decided that can be, and tells.
    ///
    /// # Errors
    /// When a run cannot be written or read back: exit code 3.
    pub fn conclude(self, answers: &Answers) -> Ended {
        match self {
            Comparison::InTurn(of) => of.conclude(answers),
            Comparison::Stored(of) => of.conclude(answers),
        }
    }
}
