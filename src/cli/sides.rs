//! Finds what a command line means by a run: a file, a folder, or a baseline's name.

use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::Stop;
use regatta::record::RecordError;
use regatta::record::baseline::{self, Store};
use regatta::record::entries::Entries;
use regatta::record::run_file::{self, RUN_FILE};
use regatta::record::side::Side;
use regatta::record::types::Run;

/// A stored run or baseline.
pub struct Stored {
    /// What is judged.
    pub side: Side,
    /// The run without its entries, which stay in its file.
    pub run: Run,
    /// True for a baseline.
    pub is_baseline: bool,
    /// Where it was found.
    pub path: PathBuf,
}

impl Stored {
    /// The entries of the run.
    pub fn entries(&self) -> Entries<'_> {
        match self.is_baseline {
            true => Entries::None,
            false => Entries::Stored(&self.path),
        }
    }

    /// The run with all of its entries.
    ///
    /// # Errors
    /// When it cannot be read any more: exit code 2.
    pub fn whole(&self) -> Result<Run, Stop> {
        run_file::read(&self.path).map_err(Stop::usage)
    }
}

/// Finds and reads `what`: the file of a run or a baseline, a report folder, or a
/// baseline's name.
///
/// # Errors
/// When there is none, or it cannot be read: exit code 2.
pub fn find(what: &str, store: &Store, machine: Option<&str>) -> Result<Stored, Stop> {
    let path = Path::new(what);
    if path.is_dir() {
        return read(&path.join(RUN_FILE), what);
    }
    if path.is_file() {
        return read(path, what);
    }
    // A name that cannot be a baseline's is no baseline.
    let files = store.files(what).unwrap_or_default();
    let own = |path: &&PathBuf| {
        path.file_stem()
            .is_some_and(|stem| machine.is_some_and(|m| stem == m))
    };
    match (files.iter().find(own), files.as_slice()) {
        (Some(path), _) | (None, [path]) => read(path, what),
        (None, []) => Err(Stop::Usage(anyhow!(
            "{what} is neither a file, a folder with a {RUN_FILE}, nor a baseline in {}{}",
            store.root().display(),
            names(store)
        ))),
        (None, several) => {
            let names: Vec<String> = several.iter().map(|p| p.display().to_string()).collect();
            Err(Stop::Usage(anyhow!(
                "baseline {what} is there for several machines; name its file: {}",
                names.join(", ")
            )))
        }
    }
}

/// Reads a baseline of which nothing is lost.
///
/// # Errors
/// When it cannot be read, or a part of it: exit code 2.
pub fn whole_baseline(path: &Path) -> Result<Side, Stop> {
    let side = baseline::read(path).map_err(Stop::usage)?;
    match side.damage.is_empty() {
        true => Ok(side),
        false => Err(Stop::Usage(anyhow!(
            "{} is damaged, and a part of a baseline is none:\n  {}\n\
             restore it from version control, or save it anew with --replace",
            path.display(),
            side.damage.join("\n  ")
        ))),
    }
}

fn names(store: &Store) -> String {
    let mut names: Vec<String> = store.list().0.into_iter().map(|b| b.name).collect();
    names.dedup();
    match names.is_empty() {
        true => " (there is none)".to_owned(),
        false => format!(" (there are {})", names.join(", ")),
    }
}

/// Reads a file that holds a run or a baseline.
///
/// # Errors
/// When it is absent, or its first line cannot be read: exit code 2.
pub fn read(path: &Path, label: &str) -> Result<Stored, Stop> {
    match Side::read(path, label) {
        Ok((run, side)) => Ok(Stored {
            side,
            run,
            is_baseline: false,
            path: path.to_owned(),
        }),
        Err(error @ (RecordError::Io { .. } | RecordError::Schema { .. })) => {
            Err(Stop::usage(error))
        }
        Err(not_a_run) => match baseline::read(path) {
            Ok(side) => Ok(Stored {
                run: Run::begun(side.header.clone()),
                side,
                is_baseline: true,
                path: path.to_owned(),
            }),
            Err(_) => Err(Stop::usage(not_a_run)),
        },
    }
}
