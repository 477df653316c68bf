//! Where the runs of parts lie.

use std::fs;
use std::path::{Path, PathBuf};

use crate::record::run_file::RUN_FILE;

/// The folder of the parts, in that of the whole.
pub const SHARDS: &str = "shards";

/// The files of a part: one run, or the two of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The run; of a comparison the head's.
    pub head: PathBuf,
    /// The base's.
    pub base: Option<PathBuf>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Parts, in the order of their paths.
    Parts(Vec<Files>),
    /// Nothing that holds a run.
    Nothing,
}

/// Finds the parts at a path: a run's file, the folder of a part, a folder of such folders, or
/// the folder of the whole that holds it.
pub fn find(path: &Path) -> Found {
    if path.is_file() {
        return Found::Parts(vec![Files {
            head: path.to_owned(),
            base: None,
        }]);
    }
    // That of a whole may hold the run that was made of its parts.
    let shards = path.join(SHARDS);
    let parts = match shards.is_dir() {
        true => within(&shards),
        false => match files(path) {
            Some(files) => vec![files],
            None => within(path),
        },
    };
    match parts.is_empty() {
        true => Found::Nothing,
        false => Found::Parts(parts),
    }
}

/// The parts in the folders of a folder.
fn within(folder: &Path) -> Vec<Files> {
    let mut folders: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    folders.sort();
    folders.iter().filter_map(|folder| files(folder)).collect()
}

/// The part of a folder. Of a comparison one side may not have been begun.
fn files(folder: &Path) -> Option<Files> {
    let run = folder.join(RUN_FILE);
    if run.is_file() {
        return Some(Files {
            head: run,
            base: None,
        });
    }
    let [base, head] = ["base", "head"].map(|side| folder.join(side).join(RUN_FILE));
    (base.is_file() && head.is_file()).then_some(Files {
        head,
        base: Some(base),
    })
}
