//! What a bisect has tried, on disk.
//!
//! The search is a function of it ([`super::bisect`]), so a bisect that was stopped resumes, and
//! one that has ended gives its answer again without measuring.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::bisect::Tried;
use super::search::Towards;
use regatta_core::input;
use regatta_core::record::run_file::{Before, NO_RESUME, lock, move_aside};
use regatta_core::record::{RecordError, SCHEMA_VERSION, write_atomically};
use regatta_core::text::one_line;

/// Name of the file in the report directory.
pub const JOURNAL_FILE: &str = "bisect.json";

/// What is asked. Another question is another bisect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BisectQuestion {
    /// The suite's name.
    pub suite: String,
    /// A checksum of what it measures and how: cases, settings and rules.
    pub plan: String,
    /// The good end, as it was given.
    pub good: String,
    /// The bad end.
    pub bad: String,
    /// Which change is looked for.
    pub towards: Towards,
    /// Every version between the ends, both included: an index may have moved on.
    pub row: Vec<String>,
    /// True where versions are told apart by their processor time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processor: bool,
    /// The version of regatta that measures.
    pub tool: String,
}

/// The file, written anew after each comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BisectFile {
    /// [`SCHEMA_VERSION`] of the writer.
    schema: u32,
    /// When it was begun.
    started: Timestamp,
    /// What was asked.
    #[serde(flatten)]
    pub question: BisectQuestion,
    /// What was compared, in order.
    pub tried: Vec<Tried>,
}

/// The file of a bisect, being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: BisectFile,
    lock: File,
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing alone would leave it to a process that is just being started with a copy.
        let _ = self.lock.unlock();
    }
}

impl Journal {
    /// Opens the journal of a directory, to go on with it where it is of the same question,
    /// unless `fresh`; another one is moved to `past/`.
    ///
    /// # Errors
    /// When the directory cannot be written, or another process writes it now.
    pub fn open(
        directory: &Path,
        question: &BisectQuestion,
        now: Timestamp,
        fresh: bool,
    ) -> Result<(Journal, Before), RecordError> {
        fs::create_dir_all(directory).map_err(|error| RecordError::io(directory, error))?;
        let lock = lock(directory)?;
        let path = directory.join(JOURNAL_FILE);
        let mut file = BisectFile {
            schema: SCHEMA_VERSION,
            started: now,
            question: question.clone(),
            tried: Vec::new(),
        };
        let mut before = Before::Nothing;
        if path.exists() {
            let there = read(&path);
            let because = match &there {
                _ if fresh => Some(NO_RESUME.to_owned()),
                Ok(there) if there.question == *question => None,
                Ok(_) => Some("it asked something else".to_owned()),
                Err(error) => Some(error.clone()),
            };
            match (there, because) {
                (Ok(there), None) => {
                    let entries = there.tried.len();
                    let damaged = 0;
                    before = Before::Resumed { entries, damaged };
                    file = there;
                }
                (there, because) => {
                    before = Before::Kept {
                        path: move_aside(&path, there.ok().map(|there| there.started))?,
                        because: because.into_iter().collect(),
                    };
                }
            }
        }
        let journal = Journal { path, file, lock };
        journal.write()?;
        Ok((journal, before))
    }

    /// What it has tried, in order.
    pub fn tried(&self) -> &[Tried] {
        &self.file.tried
    }

    /// Adds a comparison.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&mut self, tried: &Tried) -> Result<(), RecordError> {
        self.file.tried.push(tried.clone());
        self.write()
    }

    fn write(&self) -> Result<(), RecordError> {
        let text = serde_json::to_vec_pretty(&self.file)
            .map_err(|error| RecordError::io(&self.path, error.into()))?;
        write_atomically(&self.path, &text)
    }
}

/// Reads the file of a bisect.
///
/// # Errors
/// Why it cannot be read, or is of another schema.
pub fn read(path: &Path) -> Result<BisectFile, String> {
    let text = input::bytes(path, input::RUN).map_err(|error| error.to_string())?;
    // The parser repeats what it cannot read.
    let parsed = serde_json::from_slice(&text);
    let file: BisectFile =
        parsed.map_err(|error: serde_json::Error| one_line(&error.to_string()))?;
    match file.schema == SCHEMA_VERSION {
        true => Ok(file),
        false => Err(format!(
            "its schema is {}, not {SCHEMA_VERSION}",
            file.schema
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::bisect::TriedOutcome;
    use regatta_core::record::header::TurnSide;

    fn question() -> BisectQuestion {
        BisectQuestion {
            suite: "s".to_owned(),
            plan: "00000000".to_owned(),
            good: "pypi:a==1".to_owned(),
            bad: "pypi:a==3".to_owned(),
            towards: Towards::Bad,
            row: ["pypi:a==1", "pypi:a==2", "pypi:a==3"]
                .map(str::to_owned)
                .into(),
            processor: false,
            tool: "0.1.0".to_owned(),
        }
    }

    fn tried(head: &str) -> Tried {
        Tried {
            base: "pypi:a==1".to_owned(),
            head: head.to_owned(),
            outcome: TriedOutcome::Unusable {
                side: TurnSide::Head,
                reason: "it does not build".to_owned(),
            },
        }
    }

    fn open(directory: &Path, question: &BisectQuestion, fresh: bool) -> (Journal, Before) {
        Journal::open(directory, question, Timestamp::UNIX_EPOCH, fresh).unwrap()
    }

    #[test]
    fn a_bisect_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, before) = open(folder.path(), &question(), false);
        assert_eq!(before, Before::Nothing);
        for head in ["pypi:a==3", "pypi:a==2"] {
            journal.keep(&tried(head)).unwrap();
        }
        let error = Journal::open(folder.path(), &question(), Timestamp::now(), false);
        assert!(matches!(error, Err(RecordError::Busy(_))), "two at once");
        drop(journal);
        let (journal, before) = open(folder.path(), &question(), false);
        assert_eq!(
            before,
            Before::Resumed {
                entries: 2,
                damaged: 0
            }
        );
        assert_eq!(journal.tried(), ["pypi:a==3", "pypi:a==2"].map(tried));
    }

    #[test]
    fn another_question_begins_anew_and_the_old_one_is_kept() {
        let other = BisectQuestion {
            towards: Towards::Fixed,
            ..question()
        };
        for (words, other) in [("something else", other), ("--no-resume", question())] {
            let folder = tempfile::tempdir().unwrap();
            let (mut journal, _) = open(folder.path(), &question(), false);
            journal.keep(&tried("pypi:a==3")).unwrap();
            drop(journal);
            let (journal, before) = open(folder.path(), &other, words == "--no-resume");
            let Before::Kept { path, because } = before else {
                panic!("{before:?}");
            };
            assert!(because[0].contains(words), "{because:?}");
            assert!(path.starts_with(folder.path().join("past")) && path.exists());
            assert!(journal.tried().is_empty());
        }
    }

    #[test]
    fn a_file_of_something_else_is_kept_too() {
        for text in ["", "{}", "\u{0}", "{\"schema\":99}"] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(JOURNAL_FILE), text).unwrap();
            let (_, before) = open(folder.path(), &question(), false);
            assert!(matches!(before, Before::Kept { .. }), "{text}: {before:?}");
        }
    }
}
