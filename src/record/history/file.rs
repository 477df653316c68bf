//! The files of histories: where they are, and what is in them, read back whatever happened.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use super::head::head;
use super::wire::{Kind, RunLine};
use super::{History, HistoryError, Kept};
use crate::attention::CaseId;
use crate::input::{self, Damage};
use crate::record::{RecordError, line};

/// A folder of histories, which need not exist yet.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// A history's file by its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// The suite.
    pub suite: String,
    /// Short name of the machine.
    pub machine: String,
    /// The file.
    pub path: PathBuf,
}

impl Store {
    /// The histories under a folder.
    pub fn new(root: impl Into<PathBuf>) -> Store {
        Store { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All histories, sorted.
    pub fn list(&self) -> Vec<Stored> {
        let mut found = Vec::new();
        for folder in entries(&self.root) {
            for path in entries(&folder) {
                let name = |path: &Path| Some(path.file_stem()?.to_str()?.to_owned());
                let is_ours = path.extension().is_some_and(|ending| ending == "jsonl");
                let suite = folder.file_name().and_then(|name| name.to_str());
                if let (true, Some(suite), Some(machine)) = (is_ours, suite, name(&path)) {
                    found.push(Stored {
                        suite: suite.to_owned(),
                        machine,
                        path,
                    });
                }
            }
        }
        found.sort();
        found
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

impl History {
    /// Reads a history. Lines that cannot be used are reported, not fatal: the good ones are
    /// kept.
    ///
    /// # Errors
    /// When there is none, or its first line is not that of a history this version reads.
    pub fn read(path: &Path) -> Result<History, HistoryError> {
        read(path)
    }
}

fn read(path: &Path) -> Result<History, HistoryError> {
    let io = |error| HistoryError::from(RecordError::io(path, error));
    let file = input::open(path, input::HISTORY).map_err(io)?;
    let mut lines = BufReader::with_capacity(1 << 16, file);
    let mut bytes = Vec::new();
    let mut first = None;
    let mut names: BTreeMap<u32, CaseId> = BTreeMap::new();
    let mut runs: Vec<Kept> = Vec::new();
    let mut damage = Vec::new();
    for number in 1.. {
        if input::line(&mut lines, input::LINE, &mut bytes).map_err(io)? == input::Line::None {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches('\n');
        if number == 1 {
            first = Some(head(path, text, None)?);
            continue;
        }
        match run(text, &mut names, &runs) {
            Ok((kept, 0)) => runs.push(kept),
            Ok((kept, lost)) => {
                runs.push(kept);
                damage.push(Damage {
                    line: number,
                    problem: format!("{lost} of its cases were named in a line that is damaged"),
                });
            }
            Err(problem) => damage.push(Damage {
                line: number,
                problem,
            }),
        }
    }
    let invalid = || RecordError::invalid(path, 1, "the file is empty");
    let first = first.ok_or_else(invalid)?;
    runs.sort_by_key(|kept| kept.about.at);
    let cases = dense(&names, &mut runs);
    Ok(History {
        suite: first.suite,
        machine: first.machine,
        runs,
        cases,
        damage,
    })
}

/// The run of a line, and how many of its results are of cases that nobody named.
fn run(
    text: &str,
    names: &mut BTreeMap<u32, CaseId>,
    before: &[Kept],
) -> Result<(Kept, usize), String> {
    let line: RunLine = line::read(text)?;
    if line.kind != Kind::Run {
        return Err("a second first line".to_owned());
    }
    if let Some(objection) = line.objection() {
        return Err(objection);
    }
    if before.iter().any(|kept| kept.about.id == line.run.id) {
        return Err("its run is in the history already".to_owned());
    }
    if let Some(new) = &line.new {
        for (place, id) in new.ids.iter().enumerate() {
            let number = new.from.saturating_add(place as u32);
            names.entry(number).or_insert_with(|| id.clone());
        }
    }
    let (results, lost) = line.results(|number| names.contains_key(&number));
    let about = line.run;
    Ok((Kept { about, results }, lost))
}

/// Numbers the cases anew without gaps, sorted by their ids, in all runs.
fn dense(names: &BTreeMap<u32, CaseId>, runs: &mut [Kept]) -> Vec<CaseId> {
    let mut cases: Vec<CaseId> = names.values().cloned().collect();
    cases.sort();
    cases.dedup();
    let places: HashMap<u32, u32> = names
        .iter()
        .filter_map(|(number, id)| Some((*number, cases.binary_search(id).ok()? as u32)))
        .collect();
    for kept in runs {
        for (number, _) in &mut kept.results {
            *number = places.get(number).copied().unwrap_or_default();
        }
        kept.results.sort_by_key(|(number, _)| *number);
        kept.results.dedup_by_key(|(number, _)| *number);
    }
    cases
}
