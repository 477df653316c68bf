//! A run's file: written line by line while measuring, read back whatever happened.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::types::{Damage, Entry, Run, RunEnd, RunHeader};
use super::{RecordError, SCHEMA_VERSION, line};
use crate::attention::CaseId;

/// Name of a run's file in its report directory.
pub const RUN_FILE: &str = "run.jsonl";

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Run(Box<RunHeader>),
    Entry(Box<Entry>),
    End(RunEnd),
}

/// Appends to a run's file. Each line is in the file when [`append`](Self::append)
/// returns, so a killed harness loses at most the case in flight.
#[derive(Debug)]
pub struct RunWriter {
    path: PathBuf,
    file: File,
    /// What the file held already when it was opened.
    pub done: BTreeSet<(u32, CaseId)>,
}

/// What became of the file that was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// There was none.
    Nothing,
    /// An unfinished run of the same plan: it goes on.
    Resumed {
        /// Entries that need not be measured again.
        entries: usize,
        /// Lines that could not be used; they are measured again.
        damaged: usize,
    },
    /// Another run: it was moved aside, never overwritten.
    Kept(PathBuf),
}

impl RunWriter {
    /// Opens the run file of a report directory, resuming an unfinished run of the
    /// same plan unless `fresh`, and moving any other one to `past/`.
    ///
    /// # Errors
    /// When the directory cannot be written, or another process writes it now.
    pub fn open(
        directory: &Path,
        header: &RunHeader,
        fresh: bool,
    ) -> Result<(RunWriter, Before), RecordError> {
        let path = directory.join(RUN_FILE);
        let io = |error| RecordError::io(&path, error);
        fs::create_dir_all(directory).map_err(io)?;
        let lock = File::create(directory.join(".lock")).map_err(io)?;
        if lock.try_lock().is_err() {
            return Err(RecordError::Busy(directory.to_owned()));
        }
        let mut before = Before::Nothing;
        let mut kept = String::new();
        let mut done = BTreeSet::new();
        if path.exists() {
            match read(&path) {
                Ok(run) if !fresh && run.end.is_none() && resumes(&run.header, header) => {
                    before = Before::Resumed {
                        entries: run.entries.len(),
                        damaged: run.damage.len(),
                    };
                    kept = rewritten(&run)?;
                    done = done_in(&run);
                }
                other => {
                    let started = other.ok().map(|run| run.header.started);
                    before = Before::Kept(move_aside(&path, started)?);
                }
            }
        }
        let text = match kept.is_empty() {
            true => line::write(&Line::Run(Box::new(header.clone())))?,
            false => kept,
        };
        super::write_atomically(&path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path).map_err(io)?;
        // Held until the process ends; the kernel lets go of it even then.
        std::mem::forget(lock);
        Ok((RunWriter { path, file, done }, before))
    }

    /// Adds what came of one case in one invocation.
    ///
    /// # Errors
    /// When it cannot be written: the disk is full, say.
    pub fn append(&mut self, entry: &Entry) -> Result<(), RecordError> {
        self.done.insert((entry.invocation, entry.case.clone()));
        self.write(&Line::Entry(Box::new(entry.clone())))
    }

    /// Marks the run as measured to its end.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&mut self, finished: Timestamp) -> Result<(), RecordError> {
        self.write(&Line::End(RunEnd { finished }))?;
        self.file
            .sync_data()
            .map_err(|error| RecordError::io(&self.path, error))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, line: &Line) -> Result<(), RecordError> {
        let text = line::write(line)?;
        self.file
            .write_all(text.as_bytes())
            .map_err(|error| RecordError::io(&self.path, error))
    }
}

/// Reads a run's file. Lines that cannot be used are reported, not fatal: the good
/// ones are kept.
///
/// # Errors
/// When there is no file, or its first line is not that of a run this version reads.
pub fn read(path: &Path) -> Result<Run, RecordError> {
    let bytes = fs::read(path).map_err(|error| RecordError::io(path, error))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().enumerate();
    let invalid = |problem: String| RecordError::invalid(path, 1, problem);
    let (_, first) = lines
        .next()
        .ok_or_else(|| invalid("the file is empty".to_owned()))?;
    super::check_schema(path, first)?;
    let header = match line::read::<Line>(first).map_err(invalid)? {
        Line::Run(header) => *header,
        _ => return Err(invalid("it is not the first line of a run".to_owned())),
    };
    debug_assert_eq!(header.schema, SCHEMA_VERSION);
    let mut run = Run {
        header,
        entries: Vec::new(),
        end: None,
        damage: Vec::new(),
    };
    let mut seen = BTreeSet::new();
    for (index, text) in lines {
        let mut damage = |problem: String| {
            run.damage.push(Damage {
                line: index + 1,
                problem,
            });
        };
        match line::read::<Line>(text) {
            Ok(Line::Entry(entry)) if seen.insert((entry.invocation, entry.case.clone())) => {
                run.entries.push(*entry);
            }
            Ok(Line::Entry(entry)) => damage(format!(
                "{} of invocation {} stands there twice",
                entry.case, entry.invocation
            )),
            Ok(Line::End(end)) => run.end = Some(end),
            Ok(Line::Run(_)) => damage("a second first line".to_owned()),
            Err(problem) => damage(problem),
        }
    }
    Ok(run)
}

fn done_in(run: &Run) -> BTreeSet<(u32, CaseId)> {
    let entries = run.entries.iter();
    entries.map(|e| (e.invocation, e.case.clone())).collect()
}

/// True when a run under `new` may go on where the one under `old` stopped.
fn resumes(old: &RunHeader, new: &RunHeader) -> bool {
    old.schema == new.schema
        && old.method == new.method
        && old.tool == new.tool
        && old.suite == new.suite
        && old.rules == new.rules
        && old.settings == new.settings
        && old.machine.hard == new.machine.hard
        && old.workers == new.workers
        && old.plan == new.plan
}

/// The text of a run's good lines.
fn rewritten(run: &Run) -> Result<String, RecordError> {
    let mut text = line::write(&Line::Run(Box::new(run.header.clone())))?;
    for entry in &run.entries {
        text += &line::write(&Line::Entry(Box::new(entry.clone())))?;
    }
    Ok(text)
}

/// Moves a run's file to `past/`, named after the time it was started.
fn move_aside(path: &Path, started: Option<Timestamp>) -> Result<PathBuf, RecordError> {
    let past = path.with_file_name("past");
    fs::create_dir_all(&past).map_err(|error| RecordError::io(&past, error))?;
    let stem = match started {
        Some(started) => started.strftime("%Y%m%dT%H%M%SZ").to_string(),
        None => "unreadable".to_owned(),
    };
    let free = (0..)
        .map(|n| match n {
            0 => past.join(format!("{stem}.jsonl")),
            n => past.join(format!("{stem}-{n}.jsonl")),
        })
        .find(|candidate| !candidate.exists());
    let target = free.ok_or_else(|| RecordError::io(&past, io::ErrorKind::AlreadyExists.into()))?;
    fs::rename(path, &target).map_err(|error| RecordError::io(&target, error))?;
    Ok(target)
}
