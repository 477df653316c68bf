//! A history's file: appended a line at a time, read back whatever happened.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::wire::{self, Brief, First, Kind, New, RunLine};
use super::{Came, History, HistoryError, Kept, Reduced, SCHEMA};
use crate::attention::CaseId;
use crate::input::{self, Damage};
use crate::record::{RecordError, line};
use crate::suite::names_a_file;

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

/// What came of adding a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the history now.
    New {
        /// The history's file.
        path: PathBuf,
        /// Runs in it now.
        runs: usize,
        /// Cases that it did not have before.
        new: usize,
        /// What was wrong with the file, as sentences; what was cut off is removed from it.
        damage: Vec<String>,
    },
    /// It was there already.
    Already {
        /// The history's file.
        path: PathBuf,
    },
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

    /// Adds a run, unless it is there. Only what is needed of the lines before is read.
    ///
    /// # Errors
    /// When its suite or machine cannot name a file, another process adds to the history now,
    /// or the file is of another schema or history, or cannot be written: it is as it was then.
    pub fn add(&self, run: &Reduced) -> Result<Added, HistoryError> {
        if !names_a_file(&run.suite) {
            return Err(HistoryError::Suite(run.suite.clone()));
        }
        if !names_a_file(&run.machine) {
            return Err(RecordError::Machine(run.machine.clone()).into());
        }
        let folder = self.root.join(&run.suite);
        fs::create_dir_all(&folder).map_err(|error| RecordError::io(&folder, error))?;
        let path = folder.join(format!("{}.jsonl", run.machine));
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(&path);
        let file = file.map_err(|error| RecordError::io(&path, error))?;
        match file.try_lock() {
            Ok(()) => Appending { path, file }.add(run),
            Err(fs::TryLockError::WouldBlock) => Err(HistoryError::Busy(path)),
            Err(fs::TryLockError::Error(error)) => Err(RecordError::io(&path, error).into()),
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// What is in a file already, as far as adding to it asks.
#[derive(Default)]
struct There {
    runs: Vec<String>,
    numbers: HashMap<CaseId, u32>,
    /// Above every number that is used.
    beyond: u32,
    damage: Vec<String>,
    /// Where the last whole line ends.
    end: u64,
    /// True where the last line is whole but for its line feed.
    unended: bool,
}

/// A file that is being added to, and that nobody else adds to meanwhile.
struct Appending {
    path: PathBuf,
    file: File,
}

impl Appending {
    fn io(&self, error: std::io::Error) -> HistoryError {
        RecordError::io(&self.path, error).into()
    }

    fn add(mut self, run: &Reduced) -> Result<Added, HistoryError> {
        let there = self.there(run)?;
        if there.runs.contains(&run.about.id) {
            return Ok(Added::Already { path: self.path });
        }
        let mut new = New {
            from: there.beyond,
            ids: Vec::new(),
        };
        let mut results: Vec<(u32, Came)> = Vec::with_capacity(run.cases.len());
        for (case, came) in &run.cases {
            let number = there.numbers.get(case).copied().unwrap_or_else(|| {
                new.ids.push(case.clone());
                new.from + new.ids.len() as u32 - 1
            });
            results.push((number, came.clone()));
        }
        results.sort_by_key(|(number, _)| *number);
        let named = new.ids.len();
        let new = (named > 0).then_some(new);
        let mut text = String::new();
        if there.unended {
            text.push('\n');
        }
        if there.end == 0 {
            let first = First {
                kind: Kind::History,
                schema: SCHEMA,
                suite: run.suite.clone(),
                machine: run.machine.clone(),
            };
            text += &line::write(&first).map_err(RecordError::from)?;
        }
        let of_run = RunLine::of(run.about.clone(), new, &results);
        text += &line::write(&of_run).map_err(RecordError::from)?;
        self.append(there.end, text.as_bytes())?;
        Ok(Added::New {
            path: self.path,
            runs: there.runs.len() + 1,
            new: named,
            damage: there.damage,
        })
    }

    /// Reads as much of the file as is needed.
    fn there(&mut self, run: &Reduced) -> Result<There, HistoryError> {
        let mut there = There::default();
        self.file
            .seek(SeekFrom::Start(0))
            .map_err(|error| self.io(error))?;
        let mut lines = BufReader::with_capacity(1 << 16, &self.file);
        let mut bytes = Vec::new();
        for number in 1.. {
            let read = input::line(&mut lines, input::LINE, &mut bytes);
            let read = read.map_err(|error| self.io(error))?;
            if read == input::Line::None {
                break;
            }
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_end_matches('\n');
            let cut = read == input::Line::Cut && (bytes.len() as u64) < input::LINE;
            let sound = line::body(text).map(|_| ());
            if cut && sound.is_err() {
                // What was being added when it was stopped, or the disk was full: the line
                // feed comes last.
                there.damage.push(format!(
                    "{}:{number}: the last line is cut off{}; it is removed, so add that run again",
                    self.path.display(),
                    of_which(text),
                ));
                break;
            }
            there.unended = cut;
            let length = bytes.len() as u64;
            if number == 1 {
                head(&self.path, text, Some((&run.suite, &run.machine)))?;
            } else if let Err(problem) = sound.and_then(|()| there.take(text)) {
                there.damage.push(format!(
                    "{}:{number}: {problem}; the line is left as it is",
                    self.path.display()
                ));
            }
            there.end += length;
        }
        Ok(there)
    }

    /// Adds behind the last whole line. What was written of it is taken back where not all of
    /// it could be.
    fn append(&mut self, end: u64, text: &[u8]) -> Result<(), HistoryError> {
        self.file.set_len(end).map_err(|error| self.io(error))?;
        let written = self.file.write_all(text);
        let written = written.and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            // The next one to add finds it cut off, and says so, where even that fails.
            let _ = self.file.set_len(end);
            self.io(error)
        })
    }
}

/// Which run a line that was cut off is of, where that can be seen.
fn of_which(text: &str) -> String {
    let after = text.split_once("\"label\":\"").map(|(_, rest)| rest);
    match after.and_then(|rest| rest.split_once('"')) {
        Some((label, _)) => format!(" ({label})"),
        None => String::new(),
    }
}

impl There {
    fn take(&mut self, text: &str) -> Result<(), String> {
        let brief: Brief = line::read(text)?;
        if brief.kind != Kind::Run {
            return Err("a second first line".to_owned());
        }
        self.beyond = self
            .beyond
            .max(wire::beyond(&brief.timed, brief.new.as_ref()));
        if let Some(new) = brief.new {
            for (place, id) in new.ids.into_iter().enumerate() {
                self.numbers.insert(id, new.from + place as u32);
            }
        }
        self.runs.push(brief.run.id);
        Ok(())
    }
}

/// Checks the first line, and what it is of where that is known.
fn head(path: &Path, text: &str, of: Option<(&str, &str)>) -> Result<First, HistoryError> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u32,
    }
    if let Ok(Versioned { schema }) = serde_json::from_str(text)
        && schema != SCHEMA
    {
        return Err(HistoryError::Schema {
            path: path.to_owned(),
            found: schema,
        });
    }
    let invalid = |problem: String| HistoryError::from(RecordError::invalid(path, 1, problem));
    let first: First = line::read(text).map_err(invalid)?;
    let here = (first.suite.as_str(), first.machine.as_str());
    match of {
        _ if first.kind != Kind::History => Err(invalid("its first line is missing".to_owned())),
        Some(of) if of != here => Err(invalid(format!(
            "it is the history of {} on {}, not of {} on {}; move it to its place",
            here.0, here.1, of.0, of.1
        ))),
        _ => Ok(first),
    }
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
