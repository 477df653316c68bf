//! What keeps parts from making a whole.

use crate::suite::shard::Place;

/// What a part lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There is no file of it.
    Lost,
    /// It was stopped, has lines that cannot be used, or is of the sweep before: the same command
    /// goes on, or begins anew.
    Unfinished,
    /// It owes fresh invocations: the same command takes them.
    Owes,
    /// It cannot stand beside the others.
    Foreign,
    /// Whether it is of one sweep with the others is not known.
    Unclear,
}

/// Why parts make no whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The part.
    pub place: Place,
    /// What it lacks.
    pub lack: Lack,
    /// A sentence.
    pub said: String,
    /// The command that measures it, where one does; its words.
    pub again: Vec<String>,
}

/// Everything that keeps parts from making a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// True where measuring what is left is all that it takes.
    pub fn is_left_alone(&self) -> bool {
        let by_measuring = [Lack::Lost, Lack::Unfinished, Lack::Owes];
        self.0
            .iter()
            .all(|problem| by_measuring.contains(&problem.lack))
    }
}
