//! Reads a run's file, line by line: what is not kept of a line is gone with it.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

use super::quick::{Beside, Known, Quick};
use super::wire::{First, Line};
use crate::attention::CaseId;
use crate::input;
use crate::record::types::{Damage, Entry, Run, RunHeader, Stretch};
use crate::record::{RecordError, SCHEMA_VERSION, check_schema, line};

/// Reads a run's file. Lines that cannot be used are reported, not fatal: the good
/// ones are kept.
///
/// # Errors
/// When there is no file, or its first line is not that of a run this version reads.
pub fn read(path: &Path) -> Result<Run, RecordError> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut run = lines(path, &mut entries)?;
    run.entries = entries;
    Ok(run)
}

/// When the run of a file began; `None` where it is none.
pub fn started(path: &Path) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Began {
        started: Timestamp,
    }
    let mut file = Lines::of(path).ok()?;
    let first = file.next().ok()??;
    let first: Began = line::read(first).ok()?;
    Some(first.started)
}

/// The first line of a run's file.
///
/// # Errors
/// As [`read`].
pub fn header_of(path: &Path) -> Result<RunHeader, RecordError> {
    let mut file = Lines::of(path)?;
    match file.next()? {
        Some(first) => Ok(header(path, first)?.header),
        None => Err(RecordError::invalid(path, 1, "the file is empty")),
    }
}

/// What looks at the entries of a run's file.
pub trait Looks {
    /// Before the first: the run, in which nothing was measured yet.
    fn begin(&mut self, _run: &Run) {}

    /// True where entries are to say what they took.
    fn asks_what_was_spent(&self) -> bool {
        false
    }

    /// True where entries of this case are looked at.
    fn wants(&self, _case: &str) -> bool {
        true
    }

    /// At an entry of the case at this place of the plan. What the entry took may not be in
    /// it, and what one call does stands beside it, as a side keeps it.
    fn look(&mut self, place: usize, entry: &Entry, beside: &Beside);
}

/// Shows every entry of a run's file that can be used, in the file's order; the run comes back
/// without any.
///
/// # Errors
/// As [`read`].
pub fn each(path: &Path, known: &mut Known, to: &mut impl Looks) -> Result<Run, RecordError> {
    let quick = Quick::new(known, to.asks_what_was_spent());
    lines(path, &mut Shown { quick, to })
}

/// What takes the entries of a file.
trait Takes {
    /// The run, in which nothing was measured yet.
    fn begin(&mut self, _run: &Run) {}

    /// True for a line that need not be read.
    fn passes(&self, _body: &str) -> bool {
        false
    }

    /// Reads a line without its checksum in a way of its own; `None` where it has none for it.
    fn read(&mut self, _body: &str) -> Option<&Entry> {
        None
    }

    /// Takes what it read.
    fn take_read(&mut self, _place: usize) {}

    /// Takes an entry of the case at this place of the plan.
    fn take(&mut self, place: usize, entry: Entry);
}

impl Takes for Vec<Entry> {
    fn take(&mut self, _: usize, entry: Entry) {
        self.push(entry);
    }
}

struct Shown<'k, L> {
    quick: Quick<'k>,
    to: &'k mut L,
}

impl<L: Looks> Takes for Shown<'_, L> {
    fn begin(&mut self, run: &Run) {
        self.to.begin(run);
    }

    fn passes(&self, body: &str) -> bool {
        case_of(body).is_some_and(|case| !self.to.wants(case))
    }

    fn read(&mut self, body: &str) -> Option<&Entry> {
        self.quick.read(body)?;
        Some(&self.quick.entry)
    }

    fn take_read(&mut self, place: usize) {
        let quick = &self.quick;
        self.to.look(place, &quick.entry, &quick.beside);
    }

    fn take(&mut self, place: usize, entry: Entry) {
        self.to.look(place, &entry, &Beside::of(&entry));
    }
}

/// The case of an entry, where its line says so first and plainly.
fn case_of(body: &str) -> Option<&str> {
    let rest = body.strip_prefix("{\"kind\":\"entry\",\"case\":\"")?;
    let (case, _) = rest.split_once('"')?;
    (!case.contains('\\')).then_some(case)
}

fn lines(path: &Path, takes: &mut impl Takes) -> Result<Run, RecordError> {
    let mut file = Lines::of(path)?;
    let invalid = |problem: String| RecordError::invalid(path, 1, problem);
    let mut run = match file.next()? {
        Some(first) => header(path, first)?,
        None => return Err(invalid("the file is empty".to_owned())),
    };
    takes.begin(&run);
    let ids = run.header.plan.clone();
    let plan = Plan::of(&ids);
    let mut seen = Seen::of(ids.len());
    let mut number = 1;
    while let Some(text) = file.next()? {
        number += 1;
        let body = line::body(text);
        if body.as_ref().is_ok_and(|body| takes.passes(body)) {
            continue;
        }
        let quick = body.as_ref().ok().and_then(|body| takes.read(body));
        let taken = match quick {
            Some(entry) => seen
                .usable(entry, &plan)
                .map(|place| takes.take_read(place)),
            None => body
                .and_then(|_| line::read::<Line>(text))
                .and_then(|read| {
                    match read {
                        Line::Entry(entry) => {
                            let place = seen.usable(&entry, &plan)?;
                            takes.take(place, *entry);
                        }
                        Line::Owed(owed) => match owed.objection(&plan.cases()) {
                            Some(objection) => return Err(objection),
                            None => run.owed.push(owed),
                        },
                        Line::End(end) => match end.spent.iter().find_map(Stretch::objection) {
                            Some(objection) => return Err(objection),
                            None => run.end = Some(end),
                        },
                        Line::Run(_) => return Err("a second first line".to_owned()),
                    }
                    Ok(())
                }),
        };
        if let Err(problem) = taken {
            run.damage.push(Damage {
                line: number,
                problem,
            });
        }
    }
    Ok(run)
}

/// The run that a first line begins.
fn header(path: &Path, first: &str) -> Result<Run, RecordError> {
    let invalid = |problem: String| RecordError::invalid(path, 1, problem);
    check_schema(path, first)?;
    let First { header, parts } = match line::read::<Line>(first).map_err(invalid)? {
        Line::Run(first) => *first,
        _ => return Err(invalid("it is not the first line of a run".to_owned())),
    };
    debug_assert_eq!(header.schema, SCHEMA_VERSION);
    if let Some(objection) = header.objection() {
        return Err(invalid(objection));
    }
    let mut before = parts.iter().map(|part| &part.spent);
    if let Some(objection) = before.find_map(Stretch::objection) {
        return Err(invalid(objection));
    }
    Ok(Run {
        parts,
        ..Run::begun(header)
    })
}

/// The lines of a file of a run's size, one at a time.
struct Lines<'p> {
    path: &'p Path,
    file: BufReader<std::io::Take<std::fs::File>>,
    bytes: Vec<u8>,
    text: String,
}

impl<'p> Lines<'p> {
    fn of(path: &'p Path) -> Result<Lines<'p>, RecordError> {
        let file = input::open(path, input::RUN).map_err(|error| RecordError::io(path, error))?;
        Ok(Lines {
            path,
            // A file under /proc says that it is empty, and another may grow meanwhile.
            file: BufReader::with_capacity(1 << 18, file.take(input::RUN + 1)),
            bytes: Vec::new(),
            text: String::new(),
        })
    }

    /// The next line without what ends it. What is no text in it is replaced.
    fn next(&mut self) -> Result<Option<&str>, RecordError> {
        self.bytes.clear();
        let read = self.file.read_until(b'\n', &mut self.bytes);
        let read = read.map_err(|error| RecordError::io(self.path, error))?;
        if self.file.get_ref().limit() == 0 && self.file.buffer().is_empty() {
            return Err(RecordError::io(self.path, input::too_large(input::RUN)));
        }
        if read == 0 {
            return Ok(None);
        }
        let ended = self.bytes.strip_suffix(b"\n");
        let line = ended.map_or(&self.bytes[..], |line| {
            line.strip_suffix(b"\r").unwrap_or(line)
        });
        self.text.clear();
        match str::from_utf8(line) {
            Ok(text) => self.text.push_str(text),
            Err(_) => self.text.push_str(&String::from_utf8_lossy(line)),
        }
        Ok(Some(&self.text))
    }
}

/// The cases of a run by their ids.
struct Plan<'r>(HashMap<&'r CaseId, usize>);

impl<'r> Plan<'r> {
    fn of(cases: &'r [CaseId]) -> Plan<'r> {
        let places = cases.iter().enumerate();
        Plan(places.map(|(place, case)| (case, place)).collect())
    }

    fn cases(&self) -> BTreeSet<&'r CaseId> {
        self.0.keys().copied().collect()
    }
}

/// Which invocations of which cases were there.
struct Seen {
    /// A bit for each of the first invocations of a case.
    first: Vec<u64>,
    others: BTreeSet<(usize, u32)>,
}

impl Seen {
    fn of(cases: usize) -> Seen {
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

    /// Holds an entry to its plan, to what can be, and to those before it; its case's place.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    fn usable(&mut self, entry: &Entry, plan: &Plan) -> Result<usize, String> {
        let (case, invocation) = (&entry.case, entry.invocation);
        let Some(&place) = plan.0.get(case) else {
            return Err(format!("{:?} is no case of its plan", case.0));
        };
        if let Some(objection) = entry.objection() {
            return Err(objection);
        }
        match self.insert(place, invocation) {
            true => Ok(place),
            false => Err(format!(
                "{case} of invocation {invocation} stands there twice"
            )),
        }
    }
}
