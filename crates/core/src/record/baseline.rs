//! Baselines: runs that a user saved under a name, for one machine.
//!
//! `baselines/NAME/MACHINE.jsonl` has a header line, then one line for each case, sorted, so that a
//! change of a baseline can be reviewed as a diff.

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::line::{self, Lines};
use super::{CaseRecord, Outcome, RecordError, RunHeader, Side};
use crate::input;
use crate::suite::document::name_hint;
use regatta_worker::case::CaseId;

/// The folder of baselines.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// A baseline's file, without its cases.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The name of the baseline.
    pub name: String,
    /// The path of its file.
    pub path: PathBuf,
    /// The time at which it was saved.
    pub saved: Timestamp,
    /// The header of the run that was saved.
    pub header: RunHeader,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
enum BaselineLine {
    Baseline(Box<BaselineHeader>),
    Case(Box<CaseLine>),
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct BaselineHeader {
    /// [`super::SCHEMA_VERSION`] of the writer.
    schema: u32,
    /// The name of the baseline.
    name: String,
    /// The time at which it was saved.
    saved: Timestamp,
    /// The header of the run that was saved.
    run: RunHeader,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(super) struct CaseLine {
    /// The case.
    pub(super) case: CaseId,
    /// The record of the case.
    pub(super) record: CaseRecord,
}

/// The JSON Schema of a line of a baseline's file, without its checksum.
#[cfg(feature = "schemas")]
pub fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<BaselineLine>()
}

impl Store {
    /// A store of baselines in a folder, which need not exist yet.
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
    /// When the name is not valid for a folder, a baseline exists and `replace` is not set, or it
    /// cannot be written.
    pub fn save(
        &self,
        name: &str,
        side: &Side,
        saved: Timestamp,
        replace: bool,
    ) -> Result<PathBuf, RecordError> {
        let folder = self.folder(name)?;
        let path = super::machine_file(&folder, &side.header.machine.name)?;
        if path.exists() && !replace {
            return Err(RecordError::Refused(format!(
                "{} is there already; --replace replaces it",
                path.display()
            )));
        }
        let mut text = line::write(&BaselineLine::Baseline(Box::new(BaselineHeader {
            schema: super::SCHEMA_VERSION,
            name: name.to_owned(),
            saved,
            run: side.header.clone(),
        })))?;
        for (case, record) in &side.cases {
            text += &line::write(&BaselineLine::Case(Box::new(CaseLine {
                case: case.clone(),
                record: record.clone(),
            })))?;
        }
        fs::create_dir_all(&folder).map_err(|error| RecordError::io(&folder, error))?;
        super::write_atomically(&path, text.as_bytes())?;
        Ok(path)
    }

    /// Every readable baseline file, sorted, and the errors of the others.
    pub fn list(&self) -> (Vec<Stored>, Vec<RecordError>) {
        let (mut stored, mut broken) = (Vec::new(), Vec::new());
        for path in self.all_files() {
            match header(&path) {
                Ok(one) => stored.push(one),
                Err(error) => broken.push(error),
            }
        }
        (stored, broken)
    }

    /// The files of every baseline, sorted.
    pub fn all_files(&self) -> Vec<PathBuf> {
        let folders = folders(&self.root).into_iter();
        folders.flat_map(|folder| machine_files(&folder)).collect()
    }

    /// The files of one baseline, one for each machine; empty for an unknown name.
    ///
    /// # Errors
    /// When the name cannot be a baseline's.
    pub fn files(&self, name: &str) -> Result<Vec<PathBuf>, RecordError> {
        Ok(machine_files(&self.folder(name)?))
    }

    /// The error for a name that no baseline has.
    pub fn absent(&self, name: &str) -> RecordError {
        let names: BTreeSet<String> = self.list().0.into_iter().map(|one| one.name).collect();
        let (root, hint) = (
            self.root.display(),
            name_hint(name, names.iter().map(String::as_str)),
        );
        RecordError::Refused(format!("{root} has no baseline `{name}`; {hint}"))
    }

    /// Removes a baseline, on every machine or on one.
    ///
    /// # Errors
    /// When it is missing, or cannot be removed.
    pub fn remove(&self, name: &str, machine: Option<&str>) -> Result<Vec<PathBuf>, RecordError> {
        let folder = self.folder(name)?;
        let mut files = machine_files(&folder);
        if let Some(machine) = machine {
            files.retain(|path| is_of(path, machine));
        }
        if files.is_empty() {
            return Err(self.absent(name));
        }
        for path in &files {
            fs::remove_file(path).map_err(|error| RecordError::io(path, error))?;
        }
        // This fails if files of other machines remain, as it should.
        let _ = fs::remove_dir(&folder);
        Ok(files)
    }

    fn folder(&self, name: &str) -> Result<PathBuf, RecordError> {
        super::check_name(name)?;
        Ok(self.root.join(name))
    }
}

/// Reads a baseline's file.
///
/// # Errors
/// When it is absent, or its first line is not that of a baseline this version reads.
pub fn read(path: &Path) -> Result<Side, RecordError> {
    super::check_kind(path, &["baseline"])?;
    let mut file = opened(path)?;
    let stored = head(path, &mut file)?;
    cases(&mut file, stored.header, stored.name)
}

/// Reads the lines of cases after the first line of a file.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn cases(
    file: &mut Lines,
    header: RunHeader,
    label: String,
) -> Result<Side, RecordError> {
    // Building the map at the end is fast, because the lines are already sorted.
    let mut cases: Vec<(CaseId, CaseRecord)> = Vec::with_capacity(header.plan.len());
    let mut damage = Vec::new();
    // For each case of the plan, its index among the cases that were read.
    let plan = &header.plan;
    let mut places: Vec<Option<usize>> = vec![None; plan.len()];
    // The lines have the order of the plan, unless the file was edited.
    let index = LazyCell::new(|| HashMap::<&CaseId, usize>::from_iter(plan.iter().zip(0..)));
    while let Some(read) = file.read::<CaseLine>()? {
        let next = cases.len();
        let place = read.map(|line| {
            let is_next = plan.get(next) == Some(&line.case);
            let place = if is_next {
                Some(next)
            } else {
                index.get(&line.case).copied()
            };
            (place.map(|place| (&plan[place], &mut places[place])), line)
        });
        let problem = match place {
            Ok((None, line)) => format!("{:?} is not a case of its plan", line.case.0),
            // Merging two baselines can leave two lines for one case. Neither can be trusted.
            Ok((Some((_, Some(place))), line)) => {
                let problem = format!("{} stands there twice", line.case);
                let reason = format!("line {}: {problem}", file.number);
                cases[*place].1 = CaseRecord::empty(Outcome::Missing { reason });
                problem
            }
            Ok((Some((case, place)), CaseLine { mut record, .. })) => {
                *place = Some(next);
                let objection = record.objection();
                let objection = objection.map(|objection| format!("{case}: {objection}"));
                record.invocations.shrink_to_fit();
                cases.push((case.clone(), record));
                match objection {
                    Some(objection) => objection,
                    None => continue,
                }
            }
            Err(problem) => problem,
        };
        damage.push(format!("line {}: {problem}", file.number));
    }
    for (case, place) in plan.iter().zip(places) {
        if place.is_none() {
            let reason = "its line is missing or damaged".to_owned();
            damage.push(format!("{case}: {reason}"));
            cases.push((case.clone(), CaseRecord::empty(Outcome::Missing { reason })));
        }
    }
    Ok(Side {
        label,
        cases: cases.into_iter().collect(),
        header,
        damage,
    })
}

/// Reads the first line of a baseline's file.
///
/// # Errors
/// As [`read`].
pub fn header(path: &Path) -> Result<Stored, RecordError> {
    head(path, &mut opened(path)?)
}

fn opened(path: &Path) -> Result<Lines<'_>, RecordError> {
    Lines::open(path, input::RUN, input::RUN)
}

fn head(path: &Path, file: &mut Lines) -> Result<Stored, RecordError> {
    let head: BaselineHeader = file.first("baseline")?;
    if let Some(objection) = head.run.objection() {
        return Err(file.invalid(objection));
    }
    Ok(Stored {
        name: head.name,
        path: path.to_owned(),
        saved: head.saved,
        header: head.run,
    })
}

/// Folders in a folder, sorted.
pub(super) fn folders(root: &Path) -> Vec<PathBuf> {
    input::paths_in(root, Path::is_dir)
}

/// Files of machines in a folder, sorted.
pub(super) fn machine_files(folder: &Path) -> Vec<PathBuf> {
    let is_jsonl = |path: &Path| path.extension().is_some_and(|ending| ending == "jsonl");
    input::paths_in(folder, is_jsonl)
}

fn is_of(path: &Path, machine: &str) -> bool {
    path.file_stem().is_some_and(|stem| stem == machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::{around, side};
    use tempfile::TempDir;

    #[test]
    fn a_machines_name_stays_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("baselines"));
        let mut run = side("run", vec![("cpu/flash:s64,d64", around(1.0))]);
        let long = "x".repeat(400);
        for name in ["", "/tmp/elsewhere", "../elsewhere", ".hidden", "-f", &long] {
            run.header.machine.name = name.to_owned();
            let error = store.save("s", &run, Timestamp::now(), false).unwrap_err();
            assert!(error.to_string().contains("cannot name a file"), "{error}");
        }
        assert!(
            !folder.path().join("baselines").exists(),
            "nothing was written"
        );
        run.header.machine.name = "h200-132sm+xeon-2c".to_owned();
        let path = store.save("s", &run, Timestamp::now(), false).unwrap();
        assert_eq!(read(&path).unwrap().cases, run.cases);
    }

    /// A baseline of one case in a folder.
    fn saved(folder: &TempDir, record: CaseRecord) -> PathBuf {
        let run = side("run", vec![("cpu/flash:s64,d64", record)]);
        let store = Store::new(folder.path());
        let path = store.save("s", &run, Timestamp::now(), false).unwrap();
        assert_eq!(read(&path).unwrap().cases, run.cases);
        path
    }

    #[test]
    fn two_lines_of_one_case_are_neither() {
        let folder = tempfile::tempdir().unwrap();
        let path = saved(&folder, around(1.0));
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().last().unwrap();
        fs::write(&path, format!("{text}{line}\n")).unwrap();
        let read = read(&path).unwrap();
        let twice = "line 3: cpu/flash:s64,d64 stands there twice";
        assert_eq!(read.damage, [twice]);
        let record = read.cases.values().next().unwrap();
        assert!(matches!(record.status, Outcome::Missing { .. }));
    }

    /// A line whose circumstances lie beside the values: they are not passed over.
    #[test]
    fn an_invocation_with_an_unknown_member_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = around(1.0);
        record.invocations[0].threads = Some(2);
        let path = saved(&folder, record);
        let text = fs::read_to_string(&path).unwrap();
        let (header, line) = text.split_once('\n').unwrap();
        let (body, _) = line.rsplit_once(",\"sum\"").unwrap();
        let flat = body.replace("\"circumstances\":{\"threads\":2}", "\"threads\":2");
        let sum = crc32fast::hash(format!("{flat}}}").as_bytes());
        let flat = format!("{header}\n{flat},\"sum\":\"{sum:08x}\"}}\n");
        fs::write(&path, flat).unwrap();
        let damage = &read(&path).unwrap().damage[0];
        assert!(damage.contains("unknown field `threads`"), "{damage}");
    }
}
