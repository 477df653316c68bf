//! Baselines: runs promoted under a name, by an explicit act, for one machine.
//!
//! `baselines/NAME/MACHINE.jsonl`: a header line, then one line a case, sorted, so
//! that a change of a baseline can be reviewed as a diff.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::side::{CaseRecord, Side, Status};
use super::types::RunHeader;
use super::{RecordError, line};
use crate::attention::CaseId;

/// The folder of baselines.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// A baseline's file, without its cases.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// When it was saved.
    pub saved: Timestamp,
    /// The header of the run it was made of.
    pub header: RunHeader,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Baseline(Box<Head>),
    Case(Box<Case>),
}

#[derive(Serialize, Deserialize)]
struct Head {
    schema: u32,
    name: String,
    saved: Timestamp,
    run: RunHeader,
}

#[derive(Serialize, Deserialize)]
struct Case {
    case: CaseId,
    #[serde(flatten)]
    record: CaseRecord,
}

impl Store {
    /// The baselines under a folder, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Store {
        Store { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Saves a run under a name, for its machine.
    ///
    /// # Errors
    /// When the name cannot be a folder's, a baseline is there already and
    /// `replace` is not set, or it cannot be written.
    pub fn save(
        &self,
        name: &str,
        side: &Side,
        saved: Timestamp,
        replace: bool,
    ) -> Result<PathBuf, RecordError> {
        let folder = self.folder(name)?;
        let path = folder.join(format!("{}.jsonl", side.header.machine.name));
        if path.exists() && !replace {
            return Err(RecordError::Exists(path));
        }
        let mut text = line::write(&Line::Baseline(Box::new(Head {
            schema: super::SCHEMA_VERSION,
            name: name.to_owned(),
            saved,
            run: side.header.clone(),
        })))?;
        for (case, record) in &side.cases {
            text += &line::write(&Line::Case(Box::new(Case {
                case: case.clone(),
                record: record.clone(),
            })))?;
        }
        fs::create_dir_all(&folder).map_err(|error| RecordError::io(&folder, error))?;
        super::write_atomically(&path, text.as_bytes())?;
        Ok(path)
    }

    /// Every baseline's file that can be read, sorted, and what is wrong with the
    /// others.
    pub fn list(&self) -> (Vec<Stored>, Vec<RecordError>) {
        let (mut found, mut broken) = (Vec::new(), Vec::new());
        for folder in folders(&self.root) {
            for path in machine_files(&folder) {
                match header(&path) {
                    Ok(stored) => found.push(stored),
                    Err(error) => broken.push(error),
                }
            }
        }
        (found, broken)
    }

    /// The files of one baseline, a machine each; empty when there is none.
    ///
    /// # Errors
    /// When the name cannot be a baseline's.
    pub fn files(&self, name: &str) -> Result<Vec<PathBuf>, RecordError> {
        Ok(machine_files(&self.folder(name)?))
    }

    /// Removes a baseline, on every machine or on one.
    ///
    /// # Errors
    /// When there is none, or it cannot be removed.
    pub fn remove(&self, name: &str, machine: Option<&str>) -> Result<Vec<PathBuf>, RecordError> {
        let folder = self.folder(name)?;
        let mut files = machine_files(&folder);
        if let Some(machine) = machine {
            files.retain(|path| path.file_stem().is_some_and(|stem| stem == machine));
        }
        if files.is_empty() {
            return Err(RecordError::Absent {
                name: name.to_owned(),
                root: self.root.clone(),
            });
        }
        for path in &files {
            fs::remove_file(path).map_err(|error| RecordError::io(path, error))?;
        }
        // Fails, rightly, when other machines' files are left.
        let _ = fs::remove_dir(&folder);
        Ok(files)
    }

    fn folder(&self, name: &str) -> Result<PathBuf, RecordError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(RecordError::Name(name.to_owned()));
        }
        Ok(self.root.join(name))
    }
}

/// Reads a baseline's file.
///
/// # Errors
/// When it is absent, or its first line is not that of a baseline this version reads.
pub fn read(path: &Path) -> Result<Side, RecordError> {
    let stored = header(path)?;
    let text = fs::read_to_string(path).map_err(|error| RecordError::io(path, error))?;
    let mut cases = BTreeMap::new();
    let mut damage = Vec::new();
    for (index, text) in text.lines().enumerate().skip(1) {
        match line::read::<Line>(text) {
            Ok(Line::Case(case)) => {
                cases.insert(case.case, case.record);
            }
            Ok(Line::Baseline(_)) => damage.push(format!("line {}: a second header", index + 1)),
            Err(problem) => damage.push(format!("line {}: {problem}", index + 1)),
        }
    }
    for case in &stored.header.plan {
        if !cases.contains_key(case) {
            let reason = "its line is missing or damaged".to_owned();
            damage.push(format!("{case}: {reason}"));
            cases.insert(case.clone(), CaseRecord::empty(Status::Missing { reason }));
        }
    }
    Ok(Side {
        label: stored.name,
        header: stored.header,
        cases,
        damage,
    })
}

/// Reads the first line of a baseline's file.
///
/// # Errors
/// As [`read`].
pub fn header(path: &Path) -> Result<Stored, RecordError> {
    let text = fs::read_to_string(path).map_err(|error| RecordError::io(path, error))?;
    let first = text.lines().next().unwrap_or_default();
    super::check_schema(path, first)?;
    match line::read::<Line>(first) {
        Ok(Line::Baseline(head)) => Ok(Stored {
            name: head.name,
            path: path.to_owned(),
            saved: head.saved,
            header: head.run,
        }),
        Ok(Line::Case(_)) => Err(RecordError::invalid(path, 1, "its header is missing")),
        Err(problem) => Err(RecordError::invalid(path, 1, problem)),
    }
}

fn folders(root: &Path) -> Vec<PathBuf> {
    sorted(root, |path| path.is_dir())
}

fn machine_files(folder: &Path) -> Vec<PathBuf> {
    sorted(folder, |path| {
        path.extension().is_some_and(|e| e == "jsonl")
    })
}

fn sorted(folder: &Path, keep: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| keep(path))
        .collect();
    paths.sort();
    paths
}
