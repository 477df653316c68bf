//! A run's file: written line by line while measuring, and readable after any interruption.

mod read;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

pub use read::{each, entries, header_of, read, started};

use super::{
    BaseId, Entry, Git, Limited, OpenCases, RecordError, Run, RunEnd, RunHeader, line, reduced,
    short_revision,
};
use crate::checksum::{self, Contents};
use regatta_worker::case::CaseId;

/// Name of a run's file in its report directory.
pub const RUN_FILE: &str = "run.jsonl";

/// A line of a run's file.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
enum RunLine {
    Run(Box<RunHeader>),
    Entry(Box<Entry>),
    Open(OpenCases),
    Limited(Limited),
    End(RunEnd),
}

/// The JSON Schema of a line of a run's file, without its checksum.
#[cfg(feature = "schemas")]
pub fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<RunLine>()
}

/// Appends to a run's file. Each line is in the file when [`append`](Self::append)
/// returns, so a killed harness loses at most the case in flight.
#[derive(Debug)]
pub struct RunWriter {
    path: PathBuf,
    file: File,
    /// The checksum of the lines that were written: code under test runs as the same user, and
    /// could change its times in the file.
    written: Contents,
    /// The entries that the file had when it was opened.
    pub done: BTreeSet<(u32, CaseId)>,
    /// Open cases whose further invocations were decided on before it was stopped.
    pub open: Vec<OpenCases>,
    /// The lock of the folder, which the kernel releases if the process is killed.
    _lock: File,
}

/// The treatment of an existing file by [`RunWriter::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// The file is new.
    Nothing,
    /// An unfinished run of the same plan and the same code: it is resumed.
    Resumed {
        /// Entries that need not be measured again.
        entries: usize,
        /// Lines that could not be used; they are measured again.
        damaged: usize,
    },
    /// Another run: it was moved aside, never overwritten.
    Kept {
        /// The path of the old file now.
        path: PathBuf,
        /// The suite that it is of, as its command named it.
        suite: Option<String>,
        /// The reasons why it was not resumed, if it was unfinished; empty if it was finished.
        because: Vec<String>,
    },
}

impl RunWriter {
    /// Opens the run file of a report directory, resuming an unfinished run of the
    /// same plan on the same code unless `fresh`, and moving any other one to `past/`.
    ///
    /// # Errors
    /// When the directory cannot be written, or another process writes it now.
    pub fn open(
        directory: &Path,
        header: &RunHeader,
        opening: &Opening,
    ) -> Result<(RunWriter, Before), RecordError> {
        let path = directory.join(RUN_FILE);
        let io = |error| RecordError::io(&path, error);
        fs::create_dir_all(directory).map_err(|error| RecordError::io(directory, error))?;
        let lock = lock(directory)?;
        let mut before = Before::Nothing;
        let mut kept = None;
        if path.exists() {
            let there = read(&path);
            let because = match &there {
                Ok(run) => obstacles(run, header, opening),
                Err(error) => vec![error.to_string()],
            };
            match there {
                Ok(mut run) if because.is_empty() && run.end.is_none() => {
                    if let Some(only) = &opening.only {
                        run.entries
                            .retain(|entry| only.contains(&(entry.invocation, entry.case.clone())));
                    }
                    before = Before::Resumed {
                        entries: run.entries.len(),
                        damaged: run.damage.len(),
                    };
                    kept = Some(run);
                }
                other => {
                    let run = other.as_ref().ok();
                    let finished = run.is_some_and(|run| run.end.is_some());
                    before = Before::Kept {
                        path: move_aside(&path, run.map(|run| run.header.started))?,
                        suite: run.and_then(|run| run.header.suite.arguments.first().cloned()),
                        because: if finished { Vec::new() } else { because },
                    };
                }
            }
        }
        let mut run = kept.unwrap_or_else(|| Run::begun(header.clone()));
        // A shard may be resumed on another host.
        if let Some(host) = header.machine.soft.get("host")
            && let Some(hosts) = run.header.machine.soft.get_mut("host")
            && hosts.rsplit(", then ").next() != Some(host)
        {
            *hosts += &format!(", then {host}");
        }
        let text = rewritten(&run)?;
        super::write_atomically(&path, text.as_bytes())?;
        reduced::remove(&path);
        let file = OpenOptions::new().append(true).open(&path).map_err(io)?;
        let mut written = Contents::default();
        written.add(text.as_bytes());
        let writer = RunWriter {
            path,
            file,
            written,
            done: run.done(),
            open: run.open,
            _lock: lock,
        };
        Ok((writer, before))
    }

    /// Adds the outcome of one case in one invocation.
    ///
    /// # Errors
    /// When it cannot be written, for example on a full disk.
    pub fn append(&mut self, entry: &Entry) -> Result<(), RecordError> {
        self.write(&RunLine::Entry(Box::new(entry.clone())))?;
        self.done.insert((entry.invocation, entry.case.clone()));
        Ok(())
    }

    /// Records a batch of extra invocations before the first of them is measured. A gate that is
    /// stopped then resumes the whole batch, and no part of it is judged alone.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_open(&mut self, open: OpenCases) -> Result<(), RecordError> {
        self.write(&RunLine::Open(open.clone()))?;
        self.open.push(open);
        Ok(())
    }

    /// Records that the time limit ended the measurement after `invocations` of the planned
    /// invocations.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn limit(&mut self, invocations: u32) -> Result<(), RecordError> {
        self.write(&RunLine::Limited(Limited { invocations }))
    }

    /// Ends the file: the run is measured, judged and reported. Its reduced cases are written
    /// beside it if possible; without them, the run itself is read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&mut self, end: RunEnd) -> Result<(), RecordError> {
        self.check_unchanged()?;
        self.write(&RunLine::End(end))?;
        self.file
            .sync_data()
            .map_err(|error| RecordError::io(&self.path, error))?;
        let _ = reduced::write(&self.path);
        Ok(())
    }

    /// Ends the file of a run without a judgement.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn close(&mut self) -> Result<(), RecordError> {
        self.finish(RunEnd {
            finished: super::now(),
            judged: None,
        })
    }

    /// Checks that the file still has the contents that were written.
    ///
    /// # Errors
    /// When another process changed it, or it cannot be read.
    pub fn check_unchanged(&self) -> Result<(), RecordError> {
        let sum = checksum::of_file(&self.path);
        if sum.map_err(|error| RecordError::io(&self.path, error))? == self.written.text() {
            return Ok(());
        }
        Err(RecordError::Refused(format!(
            "{}: another process changed it while it was written, so its times are not those that \
             were measured; measure again with --no-resume, and leave the file alone until then",
            self.path.display()
        )))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, line: &RunLine) -> Result<(), RecordError> {
        let text = line::write(line)?;
        self.written.add(text.as_bytes());
        self.file
            .write_all(text.as_bytes())
            .map_err(|error| RecordError::io(&self.path, error))
    }
}

/// The unfinished run of a report directory that would be resumed under `header`, if there is one.
pub fn going_on(directory: &Path, header: &RunHeader, opening: &Opening) -> Option<Run> {
    let path = directory.join(RUN_FILE);
    let run = path.exists().then(|| read(&path).ok())??;
    (run.end.is_none() && obstacles(&run, header, opening).is_empty()).then_some(run)
}

/// Takes the lock of a report directory.
fn lock(directory: &Path) -> Result<File, RecordError> {
    let path = directory.join(".lock");
    let file = File::create(&path).map_err(|error| RecordError::io(&path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(RecordError::Busy(directory.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(RecordError::io(&path, error)),
    }
}

/// The text of a run's good lines.
fn rewritten(run: &Run) -> Result<String, RecordError> {
    let mut text = line::write(&RunLine::Run(Box::new(run.header.clone())))?;
    for open in &run.open {
        text += &line::write(&RunLine::Open(open.clone()))?;
    }
    for entry in &run.entries {
        text += &line::write(&RunLine::Entry(Box::new(entry.clone())))?;
    }
    Ok(text)
}

/// Moves a run's file to `past/` beside it, under the time of its start.
fn move_aside(path: &Path, started: Option<Timestamp>) -> Result<PathBuf, RecordError> {
    let past = path.with_file_name("past");
    fs::create_dir_all(&past).map_err(|error| RecordError::io(&past, error))?;
    let stem = started.map_or("unreadable".to_owned(), stamp);
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

/// A time as part of a file name in `past/`: `20261123T160400Z`.
fn stamp(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// The reason for a new run with `--no-resume`.
pub const NO_RESUME: &str = "--no-resume was given";

/// The options for opening a run.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// The reason to start a new run in any case; `None` resumes an unfinished one.
    pub restart: Option<&'static str>,
    /// The base that the run will be compared with.
    pub base: Option<BaseId>,
    /// The entries that a resumed run may keep; `None` for all. Of two runs that are measured in
    /// pairs, an invocation that only one of them has is measured again in both.
    pub only: Option<BTreeSet<(u32, CaseId)>>,
}

/// The reasons why a run cannot be resumed under `now`, as sentences; empty if it can.
///
/// A run is one code on one machine under one suite, because the entries before and after the stop
/// are judged together.
fn obstacles(run: &Run, now: &RunHeader, opening: &Opening) -> Vec<String> {
    let then = &run.header;
    let mut reasons = Vec::new();
    reasons.extend(opening.restart.map(str::to_owned));
    reasons.extend(differences(then, now));
    if then.plan != now.plan {
        reasons.push("its cases changed".to_owned());
    }
    if then.shard != now.shard {
        let reason = "it was of another shard";
        reasons.push(reason.to_owned());
    }
    match (run.open.first(), &opening.base) {
        (Some(open), None) => reasons.push(format!(
            "more invocations were planned against `{}`: repeat the command that began it to resume it",
            open.base.name
        )),
        (Some(open), Some(base)) if open.base != *base => reasons.push(format!(
            "more of it was asked for against `{}` as that was then",
            open.base.name
        )),
        _ => {}
    }
    reasons
}

/// The reasons why entries under two headers cannot be judged as one run, as sentences; empty if
/// they can. The planned cases may differ.
pub fn differences(then: &RunHeader, now: &RunHeader) -> Vec<String> {
    let changes = [
        (then.schema != now.schema, "the file's schema changed"),
        (then.method != now.method, "the way times are taken changed"),
        (then.tool != now.tool, "the version of regatta changed"),
        (then.suite != now.suite, "it was of another suite or --set"),
        (then.rules != now.rules, "what the suite demands changed"),
        (
            then.operators != now.operators,
            "the suite's operators changed",
        ),
        (then.settings != now.settings, "how it measures changed"),
        (
            then.machine.hard != now.machine.hard,
            "the machine is another one",
        ),
        (
            then.workers != now.workers,
            "the versions, packages or devices of its workers changed",
        ),
    ];
    let changes = changes.into_iter().filter(|(differs, _)| *differs);
    let mut differences: Vec<String> = changes.map(|(_, what)| what.to_owned()).collect();
    differences.extend(pairing(then, now));
    differences.extend(git(then.git.as_ref(), now.git.as_ref()));
    match (&then.identity, &now.identity) {
        // A stopped shard may be resumed on another host of its cluster.
        (Some(then), Some(now_is)) if now.shard.is_some() => {
            differences.extend(then.placeless().differences(&now_is.placeless()));
        }
        (Some(then), Some(now)) => differences.extend(then.differences(now)),
        (None, Some(_)) => differences.push("it does not say which code it is of".to_owned()),
        (_, None) => {}
    }
    differences
}

/// The difference between the pairings, which must agree except for the pair's id.
fn pairing(then: &RunHeader, now: &RunHeader) -> Option<String> {
    let sides = |header: &RunHeader| {
        let pairing = header.pairing.as_ref()?;
        Some((
            pairing.side,
            pairing.version.clone(),
            pairing.counterparts.clone(),
        ))
    };
    (sides(then) != sides(now)).then(|| "it was measured beside something else".to_owned())
}

fn git(then: Option<&Git>, now: Option<&Git>) -> Option<String> {
    let revision = |git: Option<&Git>| match git {
        Some(git) => short_revision(&git.revision),
        None => "no checkout".to_owned(),
    };
    let (was, is) = (revision(then), revision(now));
    if was != is {
        return Some(format!("the revision was {was}, is {is}"));
    }
    let changes = |git: Option<&Git>| git.and_then(|git| git.changes.clone());
    (changes(then) != changes(now))
        .then(|| "the uncommitted changes of the checkout are others".to_owned())
}
