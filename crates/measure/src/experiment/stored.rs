//! Finds the run that a command line names: a file, a folder, or a baseline's name.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::ExperimentError;
use super::rejudge::head_of_comparison;
use crate::files::checksum;
use regatta_core::checksum::Checksum;
use regatta_core::input;
use regatta_core::record::baseline::{self, Store};
use regatta_core::record::run_file::RUN_FILE;
use regatta_core::record::shards::{self, ShardError};
use regatta_core::record::{BaseId, RecordError, Run, RunHeader, Side, check_kind};

/// The base that a run is compared with.
pub struct StoredBase {
    /// The id that run files have for it.
    pub id: BaseId,
    /// The results of the base.
    pub side: Side,
}

/// A stored run or baseline.
pub struct StoredRun {
    /// The results of the run.
    pub side: Side,
    /// The run without its entries, which stay in the file.
    pub run: Run,
    /// True for a baseline.
    pub is_baseline: bool,
    /// The path by which it was found; for a run in shards, the folder of the shards.
    pub path: PathBuf,
    /// The file of the run, or those of its shards.
    pub files: Vec<PathBuf>,
}

impl StoredRun {
    /// The files with entries. Empty for a baseline, which keeps medians only.
    pub fn entries(&self) -> &[PathBuf] {
        if self.is_baseline { &[] } else { &self.files }
    }

    /// The checksum of its files.
    pub fn checksum(&self) -> String {
        let sums: Vec<String> = self.files.iter().map(|file| checksum(file)).collect();
        match sums.as_slice() {
            [one] => one.clone(),
            several => Checksum::new(several).text(),
        }
    }

    /// True if `other` is the same run, even by another path.
    pub fn is(&self, other: &StoredRun) -> bool {
        let real = |file: &PathBuf| fs::canonicalize(file).ok();
        self.files.iter().map(real).eq(other.files.iter().map(real))
    }
}

/// Finds and reads runs. A name is the file of a run or baseline, a report folder, a folder that
/// contains the shards' folders, or a baseline's name; if a baseline has several machines, the one
/// of `machine` is read. All shards together are one run.
///
/// # Errors
/// A run is missing or cannot be read: exit code 2. Shards are missing or do not belong together:
/// 3.
pub fn find_all(
    names: &[String],
    store: &Store,
    machine: Option<&str>,
) -> Result<Vec<StoredRun>, ExperimentError> {
    let (mut found, mut of_all) = (Vec::new(), Vec::new());
    for name in names {
        match shards(name)? {
            none if none.is_empty() => found.push(find_alone(name, store, machine)?),
            shards => of_all.extend(shards),
        }
    }
    if !of_all.is_empty() {
        found.push(together(of_all)?);
    }
    Ok(found)
}

/// Finds and reads a single run, which may have several names if it is in shards.
///
/// # Errors
/// The names are several runs: exit code 2. Also those of [`find_all`].
pub fn find(
    names: &[String],
    store: &Store,
    machine: Option<&str>,
) -> Result<StoredRun, ExperimentError> {
    let mut runs = find_all(names, store, machine)?;
    match (runs.pop(), runs.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(ExperimentError::Usage(format!(
            "{} are several runs, and one is asked for; only the shards of a run are one together",
            names.join(", ")
        ))),
    }
}

/// The run files of the shards that a name refers to; empty if it refers to something else.
fn shards(what: &str) -> Result<Vec<PathBuf>, ExperimentError> {
    let path = Path::new(what);
    let (own, within) = if path.is_dir() {
        (path.join(RUN_FILE), shards::within(path))
    } else {
        (path.to_owned(), Vec::new())
    };
    match (own.is_file(), within.first()) {
        (false, _) => Ok(within),
        (true, None) => Ok(Some(own)
            .filter(|own| shards::is_shard(own))
            .into_iter()
            .collect()),
        (true, Some(shard)) => Err(ExperimentError::Usage(format!(
            "{what} holds a run of its own and shards of another ({}); name {}, or the folders of \
             the shards, or move one of the two away",
            shard.display(),
            own.display()
        ))),
    }
}

/// Reads shards as one run.
fn together(files: Vec<PathBuf>) -> Result<StoredRun, ExperimentError> {
    let folder = files[0].parent().and_then(Path::parent);
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    let path = folder.unwrap_or(Path::new(".")).to_owned();
    let (run, side) =
        shards::read(&files, &path.display().to_string()).map_err(|error| match error {
            ShardError::Record(_) => ExperimentError::usage(error),
            ShardError::Apart(_) => ExperimentError::not_judged(error),
        })?;
    Ok(StoredRun {
        side,
        run,
        is_baseline: false,
        path,
        files,
    })
}

/// The folders inside `folder` that have a run, in order.
pub fn runs_within(folder: &Path) -> Vec<String> {
    let with_run = input::paths_in(folder, |folder| folder.join(RUN_FILE).is_file());
    let names = with_run.iter().map(|path| path.display().to_string());
    names.collect()
}

/// Finds and reads a run that is not in shards.
fn find_alone(
    what: &str,
    store: &Store,
    machine: Option<&str>,
) -> Result<StoredRun, ExperimentError> {
    let path = Path::new(what);
    if path.is_dir() {
        if head_of_comparison(what).is_some() {
            return Err(ExperimentError::Usage(format!(
                "{what} is the folder of a comparison, not of a run; `regatta report {what}` shows \
                 it, and its runs are {0} and {1}",
                path.join("base").display(),
                path.join("head").display()
            )));
        }
        let file = path.join(RUN_FILE);
        if !file.exists() {
            let runs = runs_within(path);
            let fix = runs.first().map_or_else(
                || "measure a suite: regatta run SUITE".to_owned(),
                |_| format!("name a run in it: {}", runs.join(", ")),
            );
            return Err(ExperimentError::Usage(format!(
                "folder {what} has no {RUN_FILE}; {fix}"
            )));
        }
        return read(&file, what);
    }
    if path.is_file() {
        return read(path, what);
    }
    // An invalid name cannot be a baseline.
    let files = store.files(what).unwrap_or_default();
    let own = |path: &&PathBuf| machine.is_some() && path.file_stem() == machine.map(OsStr::new);
    match (files.iter().find(own), files.as_slice()) {
        (Some(path), _) | (None, [path]) => read(path, what),
        (None, []) => Err(ExperimentError::Usage(format!(
            "{what} is neither a file nor a folder with a {RUN_FILE}, and {}",
            store.absent(what)
        ))),
        (None, several) => {
            let names: Vec<String> = several.iter().map(|p| p.display().to_string()).collect();
            Err(ExperimentError::Usage(format!(
                "baseline {what} is there for several machines; name its file: {}",
                names.join(", ")
            )))
        }
    }
}

/// The checksums of all baselines in a store.
pub fn checksums(store: &Store) -> BTreeMap<PathBuf, String> {
    let files = store.all_files().into_iter();
    files.map(|file| (file.clone(), checksum(&file))).collect()
}

/// The part of a baseline to compare with a run that has this header: the part of its machine, or
/// else another one, so that the differences can be reported. `None` if the baseline has no parts.
///
/// # Errors
/// The baseline or a part of it cannot be read: exit code 2.
pub fn baseline_of(
    store: &Store,
    name: &str,
    header: &RunHeader,
) -> Result<Option<StoredBase>, ExperimentError> {
    let files = store.files(name).map_err(ExperimentError::usage)?;
    let machine = Some(OsStr::new(&header.machine.name));
    let own = files.iter().find(|path| path.file_stem() == machine);
    let Some(path) = own.or(files.first()) else {
        return Ok(None);
    };
    let mut side = baseline::read(path).map_err(ExperimentError::usage)?;
    if !side.damage.is_empty() {
        return Err(ExperimentError::Usage(format!(
            "{} is corrupt; a partial baseline cannot be used:\n  {}\n\
             restore it from version control, or save it again with --replace",
            path.display(),
            side.damage.join("\n  ")
        )));
    }
    side.keep(&header.suite.filter);
    let id = BaseId {
        name: name.to_owned(),
        sum: checksum(path),
    };
    Ok(Some(StoredBase { id, side }))
}

/// Reads the file of a run or a baseline.
///
/// # Errors
/// It does not exist, or its first line cannot be read: exit code 2.
pub fn read(path: &Path, label: &str) -> Result<StoredRun, ExperimentError> {
    check_kind(path, &["run", "baseline"]).map_err(ExperimentError::usage)?;
    let stored = |run, side, is_baseline| StoredRun {
        side,
        run,
        is_baseline,
        path: path.to_owned(),
        files: vec![path.to_owned()],
    };
    match Side::read(path, label) {
        Ok((run, side)) => Ok(stored(run, side, false)),
        Err(error @ (RecordError::Io { .. } | RecordError::Schema { .. })) => {
            Err(ExperimentError::usage(error))
        }
        Err(not_a_run) => match baseline::read(path) {
            Ok(side) => Ok(stored(Run::begun(side.header.clone()), side, true)),
            Err(_) => Err(ExperimentError::usage(not_a_run)),
        },
    }
}
