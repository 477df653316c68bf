//! Where the entries of a run are: in memory, or in its file, from which they are shown one by
//! one and not kept.

use std::path::Path;

use super::RecordError;
use super::run_file::{Beside, Known, Looks, each};
use super::types::{Entry, Run};

/// The entries of a run.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a> {
    /// Those that a run holds.
    Held(&'a Run),
    /// Those of the run in a file.
    Stored(&'a Path),
    /// None: of a baseline only medians are kept.
    None,
}

impl Entries<'_> {
    /// Shows each of them, in the order measured. What an entry's call does and what it took
    /// may not be in it: that is not read from a file again.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn each(&self, look: impl FnMut(&Entry)) -> Result<(), RecordError> {
        self.shown(look, false)
    }

    /// The same with what each took.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn each_with_spent(&self, look: impl FnMut(&Entry)) -> Result<(), RecordError> {
        self.shown(look, true)
    }

    fn shown(&self, look: impl FnMut(&Entry), spent: bool) -> Result<(), RecordError> {
        let mut looking = Looking { look, spent };
        match self {
            Entries::Held(run) => run.entries.iter().for_each(looking.look),
            Entries::Stored(path) => {
                each(path, &mut Known::default(), &mut looking)?;
            }
            Entries::None => {}
        }
        Ok(())
    }
}

struct Looking<F> {
    look: F,
    spent: bool,
}

impl<F: FnMut(&Entry)> Looks for Looking<F> {
    fn asks_what_was_spent(&self) -> bool {
        self.spent
    }

    fn look(&mut self, _: usize, entry: &Entry, _: &Beside) {
        (self.look)(entry);
    }
}
