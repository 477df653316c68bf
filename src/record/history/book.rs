//! Adding to a history: a line at a time, behind what is there.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Seek, SeekFrom, Write};
use std::path::PathBuf;

use super::file::Store;
use super::head::head;
use super::wire::{self, Brief, First, Kind, New, RunLine};
use super::{Came, HistoryError, Reduced, SCHEMA};
use crate::attention::CaseId;
use crate::input;
use crate::record::{RecordError, line};
use crate::suite::names_a_file;

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
    /// Opens the history of a suite on a machine to add to it; nobody else can meanwhile. Only
    /// what is needed of the lines before is read.
    ///
    /// # Errors
    /// When suite or machine cannot name a file, another process adds to the history now, or
    /// the file is of another schema or history.
    pub fn open(&self, suite: &str, machine: &str) -> Result<Book, HistoryError> {
        if !names_a_file(suite) {
            return Err(HistoryError::Suite(suite.to_owned()));
        }
        if !names_a_file(machine) {
            return Err(RecordError::Machine(machine.to_owned()).into());
        }
        let folder = self.root().join(suite);
        fs::create_dir_all(&folder).map_err(|error| RecordError::io(&folder, error))?;
        let path = folder.join(format!("{machine}.jsonl"));
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(&path);
        let file = file.map_err(|error| RecordError::io(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(HistoryError::Busy(path)),
            Err(fs::TryLockError::Error(error)) => {
                return Err(RecordError::io(&path, error).into());
            }
        }
        let mut book = Book {
            of: (suite.to_owned(), machine.to_owned()),
            path,
            file,
            there: There::default(),
        };
        book.there = book.there()?;
        Ok(book)
    }

    /// Adds one run to the history that it is of.
    ///
    /// # Errors
    /// As [`open`](Store::open) and [`Book::add`].
    pub fn add(&self, run: &Reduced) -> Result<Added, HistoryError> {
        self.open(&run.suite, &run.machine)?.add(run)
    }
}

/// What is in a file already, as far as adding to it asks.
#[derive(Debug, Default)]
struct There {
    runs: HashSet<String>,
    numbers: HashMap<CaseId, u32>,
    /// Above every number that is used.
    beyond: u32,
    damage: Vec<String>,
    /// Where the last whole line ends.
    end: u64,
    /// True where the last line is whole but for its line feed.
    unended: bool,
}

/// A history that is being added to, and that nobody else adds to meanwhile.
#[derive(Debug)]
pub struct Book {
    /// Suite and machine.
    of: (String, String),
    path: PathBuf,
    file: File,
    there: There,
}

impl Book {
    fn io(&self, error: std::io::Error) -> HistoryError {
        RecordError::io(&self.path, error).into()
    }

    /// True where a run belongs into it.
    pub fn is_of(&self, run: &Reduced) -> bool {
        (&self.of.0, &self.of.1) == (&run.suite, &run.machine)
    }

    /// Adds a run of its suite and machine, unless it is there.
    ///
    /// # Errors
    /// When it cannot be written: the history is as it was then.
    pub fn add(&mut self, run: &Reduced) -> Result<Added, HistoryError> {
        let there = &self.there;
        if there.runs.contains(&run.about.id) {
            let path = self.path.clone();
            return Ok(Added::Already { path });
        }
        if u32::MAX - there.beyond < run.cases.len() as u32 {
            let problem = "its numbers of cases are used up: one of its lines was edited";
            return Err(RecordError::invalid(&self.path, 1, problem).into());
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
        let mut text = String::new();
        if there.unended {
            text.push('\n');
        }
        if there.end == 0 {
            let first = First {
                kind: Kind::History,
                schema: SCHEMA,
                suite: self.of.0.clone(),
                machine: self.of.1.clone(),
            };
            text += &line::write(&first).map_err(RecordError::from)?;
        }
        let named = new.ids.len();
        let (from, ids) = (new.from, new.ids.clone());
        let of_run = RunLine::of(run.about.clone(), (named > 0).then_some(new), &results);
        text += &line::write(&of_run).map_err(RecordError::from)?;
        self.append(text.as_bytes())?;
        let there = &mut self.there;
        there.end += text.len() as u64;
        there.unended = false;
        there.beyond += named as u32;
        let numbered = ids.into_iter().zip(from..);
        there.numbers.extend(numbered);
        there.runs.insert(run.about.id.clone());
        Ok(Added::New {
            path: self.path.clone(),
            runs: there.runs.len(),
            new: named,
            damage: std::mem::take(&mut there.damage),
        })
    }

    /// Reads as much of the file as is needed.
    fn there(&mut self) -> Result<There, HistoryError> {
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
            if number == 1 {
                head(&self.path, text, Some((&self.of.0, &self.of.1)))?;
            } else if let Err(problem) = sound.and_then(|()| there.take(text)) {
                there.damage.push(format!(
                    "{}:{number}: {problem}; the line is left as it is",
                    self.path.display()
                ));
            }
            there.end = lines.stream_position().map_err(|error| self.io(error))?;
        }
        Ok(there)
    }

    /// Adds behind the last whole line. What was written of it is taken back where not all of
    /// it could be.
    fn append(&mut self, text: &[u8]) -> Result<(), HistoryError> {
        let end = self.there.end;
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
                self.numbers
                    .insert(id, new.from.saturating_add(place as u32));
            }
        }
        self.runs.insert(brief.run.id);
        Ok(())
    }
}
