//! Reads a run's file line by line, without holding all of it in memory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rayon::prelude::*;

use super::RunLine;
use crate::input::{self, Damage};
use crate::record::line::{self, Lines};
use crate::record::{Entry, RecordError, Run, RunHeader};
use regatta_worker::case::CaseId;

/// The number of lines that are parsed in parallel.
const BATCH: usize = 512;

/// Parses a line by its kind, because serde would first copy each value of a tagged type.
fn read_line(text: &str) -> Result<RunLine, String> {
    match line::kind(text) {
        Some("entry") => line::read(text).map(RunLine::Entry),
        Some("open") => line::read(text).map(RunLine::Open),
        Some("limited") => line::read(text).map(RunLine::Limited),
        Some("end") => line::read(text).map(RunLine::End),
        Some("run") => line::read(text).map(RunLine::Run),
        _ => Err("it says no kind that a run has".to_owned()),
    }
}

/// Reads a run's file. Lines that cannot be used are reported, not fatal: the good
/// ones are kept.
///
/// # Errors
/// When the file is missing, or its first line is not that of a run this version reads.
pub fn read(path: &Path) -> Result<Run, RecordError> {
    let mut entries: Vec<Entry> = Vec::new();
    let run = each(path, |_| true, |_, _, entry| entries.push(entry))?;
    Ok(Run { entries, ..run })
}

/// The time at which a file's run was started; `None` if it is not a run.
pub fn started(path: &Path) -> Option<Timestamp> {
    Some(header_of(path).ok()?.started)
}

/// The first line of a run's file.
///
/// # Errors
/// As [`read`].
pub fn header_of(path: &Path) -> Result<RunHeader, RecordError> {
    Ok(header(&mut opened(path)?)?.header)
}

/// Reads the entries of the runs in `files` one by one, in the order of measurement. If `cases` is
/// given, only their entries are read, and the other lines are hardly parsed.
///
/// # Errors
/// As [`read`].
pub fn entries(
    files: &[PathBuf],
    cases: Option<&HashSet<&str>>,
    mut look: impl FnMut(&Entry),
) -> Result<(), RecordError> {
    let wanted = |case: &str| cases.is_none_or(|cases| cases.contains(case));
    for path in files {
        each(path, wanted, |_, _, entry| look(&entry))?;
    }
    Ok(())
}

/// The case of an entry's line, if it is its first member and has no escapes.
fn case_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("{\"kind\":\"entry\",\"case\":\"")?;
    let (case, _) = rest.split_once('"')?;
    (!case.contains('\\')).then_some(case)
}

fn opened(path: &Path) -> Result<Lines<'_>, RecordError> {
    Lines::open(path, input::RUN, input::RUN)
}

/// Calls `look` for every usable entry of the wanted cases, in the file's order, with the index of
/// its case in the plan. The returned run has no entries.
///
/// # Errors
/// As [`read`].
pub fn each(
    path: &Path,
    wanted: impl Fn(&str) -> bool,
    mut look: impl FnMut(&Run, usize, Entry),
) -> Result<Run, RecordError> {
    let mut file = opened(path)?;
    let mut run = header(&mut file)?;
    let ids = run.header.plan.clone();
    let plan: HashMap<&CaseId, usize> = ids.iter().zip(0..).collect();
    let mut seen = Seen::new(ids.len());
    let mut ended = false;
    // The lines of a batch with their numbers; their memory is reused.
    let mut batch = vec![(0, String::new()); BATCH];
    while !ended {
        let mut filled = 0;
        while filled < BATCH && !ended {
            match file.next_line()? {
                Some(text) if case_of(&text).is_some_and(|case| !wanted(case)) => {}
                Some(text) => {
                    batch[filled].1.clear();
                    batch[filled].1.push_str(&text);
                    drop(text);
                    batch[filled].0 = file.number;
                    filled += 1;
                }
                None => ended = true,
            }
        }
        let read = batch[..filled].par_iter().map(|(_, text)| read_line(text));
        let read: Vec<_> = read.collect();
        for ((number, _), read) in batch.iter().zip(read) {
            let taken = read.and_then(|read| {
                match read {
                    RunLine::Entry(entry) => {
                        let place = seen.usable(&entry, &plan)?;
                        look(&run, place, *entry);
                    }
                    RunLine::Open(open) => {
                        let objection = open.objection(|case| plan.contains_key(case));
                        objection.map_or(Ok(()), Err)?;
                        run.open.push(open);
                    }
                    RunLine::Limited(limited) => run.limited = Some(limited),
                    RunLine::End(end) => run.end = Some(end),
                    RunLine::Run(_) => return Err("a second first line".to_owned()),
                }
                Ok(())
            });
            if let Err(problem) = taken {
                let line = *number;
                run.damage.push(Damage { line, problem });
            }
        }
    }
    Ok(run)
}

/// Reads the first line of a file as a run without entries.
fn header(file: &mut Lines) -> Result<Run, RecordError> {
    let header: RunHeader = file.first("run")?;
    if let Some(objection) = header.objection() {
        return Err(file.invalid(objection));
    }
    Ok(Run::begun(header))
}

/// The invocations of each case that were read.
struct Seen {
    /// A bit for each of the first invocations of a case.
    first: Vec<u64>,
    others: BTreeSet<(usize, u32)>,
}

impl Seen {
    fn new(cases: usize) -> Seen {
        Seen {
            first: vec![0; cases],
            others: BTreeSet::new(),
        }
    }

    fn insert(&mut self, place: usize, invocation: u32) -> bool {
        if invocation >= u64::BITS {
            return self.others.insert((place, invocation));
        }
        let bit = 1 << invocation;
        let new = self.first[place] & bit == 0;
        self.first[place] |= bit;
        new
    }

    /// Checks that an entry is planned, possible and not a duplicate; returns the index of its
    /// case.
    ///
    /// # Errors
    /// The fault in it, as a sentence.
    fn usable(&mut self, entry: &Entry, plan: &HashMap<&CaseId, usize>) -> Result<usize, String> {
        let (case, invocation) = (&entry.case, entry.invocation);
        let Some(&place) = plan.get(case) else {
            return Err(format!("{:?} is not a case of its plan", case.0));
        };
        if let Some(objection) = entry.objection() {
            return Err(objection);
        }
        if self.insert(place, invocation) {
            Ok(place)
        } else {
            Err(format!(
                "{case} of invocation {invocation} stands there twice"
            ))
        }
    }
}
