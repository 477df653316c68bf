//! Parts of one suite, each a run of its own: whether they make a whole, what of it is left to
//! measure, and the run that they make together.

mod check;
mod found;
mod join;
mod problem;
mod sweeps;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::RecordError;
use super::shard::Shard;
use super::side::Side;
use super::types::Run;
use crate::suite::shard::Place;

pub use check::{Kind, kinds};
pub use found::{Files, Found, SHARDS, find};
pub use join::{draft, joined_header, joined_side, owed_of};
pub use problem::{Lack, Problem, Problems};
pub use sweeps::day;

/// A part that was read.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its file.
    pub path: PathBuf,
    /// Its run, without the entries.
    pub run: Run,
    /// What it found.
    pub side: Side,
    /// Entries of regular invocations in its file.
    regular: usize,
    /// Entries of fresh ones that it owes.
    owes: usize,
    /// Those of them that are there.
    fresh: usize,
    /// What keeps others from writing there, where anybody can.
    _held: Option<Arc<File>>,
}

impl Part {
    /// Reads the run of a part that nobody else measures until it is dropped: what is judged is
    /// what is written and ended.
    ///
    /// # Errors
    /// When somebody measures it now; and as [`read`](Part::read).
    pub fn hold(path: PathBuf) -> Result<Part, PartError> {
        let held = super::run_file::hold(path.parent().unwrap_or(Path::new(".")))?;
        Ok(Part {
            _held: held.map(Arc::new),
            ..Part::read(path)?
        })
    }

    /// Reads the run of a part.
    ///
    /// # Errors
    /// When it cannot be read, or is the run of a whole suite.
    pub fn read(path: PathBuf) -> Result<Part, PartError> {
        let label = path.display().to_string();
        let (mut regular, mut fresh) = (0, BTreeSet::new());
        let first = super::run_file::header_of(&path)?.settings.invocations;
        let (run, side) =
            Side::read_and_show(&path, &label, &mut |entry| match entry.invocation < first {
                true => regular += 1,
                false => drop(fresh.insert((entry.case.clone(), entry.invocation))),
            })?;
        let mut owed = BTreeSet::new();
        for batch in &run.owed {
            for case in &batch.cases {
                owed.extend((first..first + batch.fresh).map(|at| (case.clone(), at)));
            }
        }
        let fresh = owed.intersection(&fresh).count();
        match run.header.shard {
            Some(_) => Ok(Part {
                path,
                run,
                side,
                regular,
                owes: owed.len(),
                fresh,
                _held: None,
            }),
            None => Err(PartError::Whole(path)),
        }
    }

    /// What its header says of it.
    pub fn shard(&self) -> &Shard {
        let shard = self.run.header.shard.as_ref();
        shard.unwrap_or_else(|| unreachable!("no other is read"))
    }

    /// Which part it is.
    pub fn place(&self) -> Place {
        self.shard().place
    }

    /// Entries that a run of it to its end has, of regular invocations.
    fn planned(&self) -> usize {
        self.run.header.plan.len() * self.run.header.settings.invocations as usize
    }
}

/// Why a file is no part.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// It cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// It is of a whole suite.
    #[error(
        "{0}: it is the run of a whole suite, and no shard of one (`--shard I/N` measures one)"
    )]
    Whole(PathBuf),
}
