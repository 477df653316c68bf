//! The files of histories: their place, their lines, reading damaged ones, and adding a run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{About, CaseTimes, History, HistoryRun, Reduced};
use crate::input;
use crate::record::baseline::{folders, machine_files};
use crate::record::line::{self, Lines};
use crate::record::{
    Outcome, RecordError, SCHEMA_VERSION, check_kind, check_name, is_time, machine_file,
};
use regatta_worker::case::CaseId;
use regatta_worker::units::Nanoseconds;

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum HistoryLine {
    History(HistoryHeader),
    Run {
        /// The header of the run.
        run: Box<About>,
        /// The outcomes of its cases.
        cases: BTreeMap<CaseId, Outcome<CaseTimes>>,
    },
}

#[derive(Serialize, Deserialize)]
struct HistoryHeader {
    /// [`SCHEMA_VERSION`] of the writer.
    schema: u32,
    /// The suite.
    suite: String,
    /// The machine.
    machine: String,
}

/// A folder of histories, which need not exist yet.
#[derive(Clone, Debug)]
pub struct HistoryStore {
    root: PathBuf,
}

/// A history's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryFile {
    /// The suite.
    pub suite: String,
    /// Short name of the machine.
    pub machine: String,
    /// The file.
    pub path: PathBuf,
}

impl HistoryStore {
    /// The histories under a folder.
    pub fn new(root: impl Into<PathBuf>) -> HistoryStore {
        HistoryStore { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All histories, sorted.
    pub fn list(&self) -> Vec<HistoryFile> {
        let files = folders(&self.root)
            .into_iter()
            .flat_map(|folder| machine_files(&folder));
        let file = |path: PathBuf| {
            let suite = path.parent()?.file_name()?.to_str()?.to_owned();
            let machine = path.file_stem()?.to_str()?.to_owned();
            Some(HistoryFile {
                suite,
                machine,
                path,
            })
        };
        files.filter_map(file).collect()
    }

    /// Adds runs of one suite on one machine to their history, unless they are in it already. A
    /// lock keeps other processes out meanwhile.
    ///
    /// # Errors
    /// When suite or machine cannot name a file, another process is adding to the history, the file
    /// has another schema or belongs to another history, or it cannot be written. The file is then
    /// unchanged.
    pub fn add(&self, runs: &[Reduced]) -> Result<Vec<Added>, RecordError> {
        let Some(Reduced { suite, machine, .. }) = runs.first() else {
            return Ok(Vec::new());
        };
        check_name(suite)?;
        let folder = self.root.join(suite);
        let path = machine_file(&folder, machine)?;
        fs::create_dir_all(&folder).map_err(|error| RecordError::io(&folder, error))?;
        let io = |error| RecordError::io(&path, error);
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(&path);
        let mut file = file.map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(RecordError::Busy(path)),
            Err(fs::TryLockError::Error(error)) => return Err(io(error)),
        }
        let mut text = String::new();
        let mut length = file.metadata().map_err(io)?.len();
        let mut there = History::new(suite.clone(), machine.clone());
        if length > 0 {
            let ends;
            (there, ends) = read(&path)?;
            match ends {
                LastLine::Whole => {}
                LastLine::Unended => text.push('\n'),
                LastLine::Cut(bytes) => length = length.saturating_sub(bytes),
            }
        }
        if (&there.suite, &there.machine) != (suite, machine) {
            let problem = format!(
                "it is the history of {} on {}, not of {suite} on {machine}; move it to its place",
                there.suite, there.machine
            );
            return Err(RecordError::invalid(&path, 1, problem));
        }
        if length == 0 {
            text += &line::write(&HistoryLine::History(HistoryHeader {
                schema: SCHEMA_VERSION,
                suite: suite.clone(),
                machine: machine.clone(),
            }))?;
        }
        let mut known: HashSet<String> = there.runs.into_iter().map(|run| run.about.id).collect();
        let mut cases: HashSet<CaseId> = there.cases.into_iter().collect();
        let damage = there.damage.into_iter();
        let mut damage: Vec<String> = damage
            .map(|damage| format!("{}:{}: {}", path.display(), damage.line, damage.problem))
            .collect();
        let mut added = Vec::new();
        for run in runs {
            let path = path.clone();
            if !known.insert(run.about.id.clone()) {
                added.push(Added::Already { path });
                continue;
            }
            text += &line::write(&HistoryLine::Run {
                run: Box::new(run.about.clone()),
                cases: run.cases.iter().cloned().collect(),
            })?;
            let before = cases.len();
            cases.extend(run.cases.iter().map(|(id, _)| id.clone()));
            added.push(Added::New {
                path,
                runs: known.len(),
                new: cases.len() - before,
                damage: std::mem::take(&mut damage),
            });
        }
        // Appends after the last whole line. If not everything could be written, the file is
        // truncated again.
        let written = file
            .set_len(length)
            .and_then(|()| file.write_all(text.as_bytes()));
        let written = written.and_then(|()| file.sync_data());
        written.map_err(|error| {
            // If even that fails, the next process that adds a run reports the incomplete line.
            let _ = file.set_len(length);
            io(error)
        })?;
        Ok(added)
    }
}

/// The result of adding a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// The run was added to the history.
    New {
        /// The history's file.
        path: PathBuf,
        /// The number of runs in the history now.
        runs: usize,
        /// The number of cases that it did not have before.
        new: usize,
        /// The faults of the file, as sentences. Damaged lines were removed.
        damage: Vec<String>,
    },
    /// The run was in the history already.
    Already {
        /// The history's file.
        path: PathBuf,
    },
}

/// The end of a file's last line.
#[derive(Debug)]
enum LastLine {
    /// It ends with a line feed.
    Whole,
    /// It has no line feed, but its checksum is right.
    Unended,
    /// It is incomplete, because adding was interrupted: the number of its bytes.
    Cut(u64),
}

impl History {
    fn new(suite: String, machine: String) -> History {
        History {
            suite,
            machine,
            ..History::default()
        }
    }

    /// Reads a history. Lines that cannot be used are reported, not fatal: the good ones are
    /// kept.
    ///
    /// # Errors
    /// When it is missing, or its first line is not that of a history this version reads.
    pub fn read(path: &Path) -> Result<History, RecordError> {
        Ok(read(path)?.0)
    }
}

fn read(path: &Path) -> Result<(History, LastLine), RecordError> {
    // A history has run lines as well, and its first line may be missing.
    check_kind(path, &["history", "run"])?;
    let mut file = Lines::open(path, input::HISTORY, input::LINE)?;
    let first: HistoryHeader = file.first("history")?;
    let mut history = History::new(first.suite, first.machine);
    let mut ends = if file.whole {
        LastLine::Whole
    } else {
        LastLine::Unended
    };
    let mut numbers: HashMap<CaseId, u32> = HashMap::new();
    let mut known: HashSet<String> = HashSet::new();
    while let Some(line) = file.read()? {
        let cut = !file.whole && file.bytes() < input::LINE;
        ends = match (cut, line.is_err()) {
            (true, true) => LastLine::Cut(file.bytes()),
            (true, false) => LastLine::Unended,
            (false, _) => LastLine::Whole,
        };
        let run = line.and_then(|line| match line {
            HistoryLine::History(_) => Err("a second first line".to_owned()),
            HistoryLine::Run { run, .. } if known.contains(&run.id) => {
                Err("its run is in the history already".to_owned())
            }
            HistoryLine::Run { run, cases } => match cases.values().find_map(objection) {
                Some(objection) => Err(objection),
                None => Ok((run, cases)),
            },
        });
        match run {
            Ok((about, cases)) => {
                known.insert(about.id.clone());
                let results = cases.into_iter().map(|(id, outcome)| {
                    let next = numbers.len() as u32;
                    (*numbers.entry(id).or_insert(next), outcome)
                });
                let results = results.collect();
                let about = *about;
                history.runs.push(HistoryRun { about, results });
            }
            Err(problem) if cut => history.damage.push(file.damage(format!(
                "the last line is cut off ({problem}); adding a run removes it, so add that run \
                 again"
            ))),
            Err(problem) => history.damage.push(file.damage(problem)),
        }
    }
    history.runs.sort_by_key(|kept| kept.about.at);
    // Numbered by their ids.
    let mut cases: Vec<(CaseId, u32)> = numbers.into_iter().collect();
    cases.sort();
    let mut places = vec![0; cases.len()];
    for (place, (id, number)) in cases.into_iter().enumerate() {
        places[number as usize] = place as u32;
        history.cases.push(id);
    }
    for kept in &mut history.runs {
        for (number, _) in &mut kept.results {
            *number = places[*number as usize];
        }
    }
    Ok((history, ends))
}

/// The impossible time of a case, as a sentence.
fn objection(outcome: &Outcome<CaseTimes>) -> Option<String> {
    let figures = outcome.measured()?;
    let times = [Some(figures.device_ns), figures.host_ns, figures.cpu_ns];
    let mut times = times.into_iter().flatten();
    let odd = times.find(|time| !is_time(*time) && *time != Nanoseconds::ZERO);
    let mut single = figures.invocations_ns.iter().copied();
    let odd = odd.or_else(|| single.find(|time| !is_time(*time)));
    odd.map(|time| format!("it has a time of {} ns, which no clock shows", time.0))
}
