//! Where the entries of a run are: in memory, or in its file, from which they are shown one by
//! one and not kept.

use std::collections::HashSet;
use std::path::PathBuf;

use super::RecordError;
use super::run_file::{Looks, each};
use super::types::{Entry, Run};

/// The entries of a run.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a> {
    /// Those that a run holds.
    Held(&'a Run),
    /// Those of the run in a file, or of its shards in several.
    Stored(&'a [PathBuf]),
    /// None: of a baseline only medians are kept.
    None,
}

impl Entries<'_> {
    /// Shows each of them, in the order measured.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn each(&self, look: impl FnMut(&Entry)) -> Result<(), RecordError> {
        self.shown(look, None)
    }

    /// The same of these cases alone; of a file's other lines hardly anything is read.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn each_of(
        &self,
        cases: &HashSet<&str>,
        look: impl FnMut(&Entry),
    ) -> Result<(), RecordError> {
        self.shown(look, Some(cases))
    }

    fn shown(
        &self,
        look: impl FnMut(&Entry),
        cases: Option<&HashSet<&str>>,
    ) -> Result<(), RecordError> {
        let mut looking = Looking { look, cases };
        match self {
            Entries::Held(run) => {
                for entry in &run.entries {
                    if looking.wants(&entry.case.0) {
                        (looking.look)(entry);
                    }
                }
            }
            Entries::Stored(paths) => {
                for path in *paths {
                    each(path, &mut looking)?;
                }
            }
            Entries::None => {}
        }
        Ok(())
    }
}

struct Looking<'c, F> {
    look: F,
    /// The cases that are asked for; `None`: all.
    cases: Option<&'c HashSet<&'c str>>,
}

impl<F: FnMut(&Entry)> Looks for Looking<'_, F> {
    fn wants(&self, case: &str) -> bool {
        self.cases.is_none_or(|cases| cases.contains(case))
    }

    fn look(&mut self, _: usize, entry: Entry) {
        (self.look)(&entry);
    }
}
