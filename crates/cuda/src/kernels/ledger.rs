//! The resources of every entry point on every architecture, and the entry points that use more of
//! them after a change. The figures are exact: the same compiler gives the same ones on any
//! machine. A file has one line for each entry point, so that changes can be reviewed as a diff.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fmt, fs};

use regatta_core::input;
use regatta_core::output::folder_of;
use regatta_core::record::line::{self, Lines};
use regatta_core::record::{RecordError, SCHEMA_VERSION, write_atomically};
use serde::{Deserialize, Serialize};

use super::arch::Arch;
use super::compile::Resources;
use super::occupancy::{self, Demand};
use crate::contract;

/// One entry point on one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// The architecture.
    pub arch: Arch,
    /// The kernel file, without its extension.
    pub file: String,
    /// The resources, as the compiler reports them.
    #[serde(flatten)]
    pub resources: Resources,
    /// The launch, if a launch contract has this entry point.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LedgerLaunch>,
}

/// Figures that follow from an entry point's launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerLaunch {
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub dynamic_shared_bytes: u32,
    /// The number of blocks that a multiprocessor holds at the same time; 0 if it cannot be
    /// launched there.
    pub blocks_per_sm: u32,
    /// The share of a multiprocessor's warps that these blocks fill, in thousandths.
    pub occupancy_permille: u32,
}

/// Identifies a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EntryId {
    /// The kernel file, without its extension.
    pub file: String,
    /// The architecture.
    pub arch: Arch,
    /// The entry point.
    pub name: String,
}

/// Rows from one compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Name and version: `nvcc 13.0.88`.
    pub compiler: String,
    /// The rows by id, sorted.
    pub rows: BTreeMap<EntryId, LedgerRow>,
}

/// A line of a ledger's file: first the header, then one for each entry point, sorted.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum LedgerLine {
    Ledger(LedgerHeader),
    Entry(Box<LedgerRow>),
}

#[derive(Serialize, Deserialize)]
struct LedgerHeader {
    /// [`SCHEMA_VERSION`] of the writer.
    schema: u32,
    /// The compiler and its version.
    compiler: String,
    /// The number of lines that follow.
    entries: usize,
}

/// Kernel files and the architectures they were compiled for.
pub type BuiltFiles = BTreeSet<(String, Arch)>;

/// A figure of an entry point that has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FigureChange {
    /// The entry point.
    #[serde(flatten)]
    pub entry: EntryId,
    /// The name of the figure in a row, or `shared_bytes` for static and dynamic shared memory.
    pub figure: &'static str,
    /// The figure before.
    pub before: u32,
    /// The figure after.
    pub after: u32,
}

/// The changes between two ledgers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LedgerComparison {
    /// Figures that became worse: more registers, stack, spills or shared memory, or less
    /// occupancy.
    pub worse: Vec<FigureChange>,
    /// Entry points that no longer exist.
    pub gone: Vec<EntryId>,
    /// Figures that became better.
    pub better: Vec<FigureChange>,
    /// Entry points that the ledger does not have.
    pub added: Vec<EntryId>,
    /// The number of rows that were compared.
    pub compared: usize,
    /// The number of the ledger's rows whose file and architecture were not built this time.
    pub not_built: usize,
}

impl LedgerRow {
    /// The row of an entry point's resources. Its launch is looked up in the launch contracts by
    /// `file` and name.
    pub fn new(file: &str, arch: Arch, resources: &Resources) -> LedgerRow {
        let block = contract::block(file, &resources.name);
        let launch = block.and_then(|block| {
            let threads = block.threads() as u32;
            let demand = Demand {
                threads,
                registers: resources.registers,
                shared_bytes: resources.static_shared_bytes + block.shared_bytes,
                barriers: resources.barriers,
            };
            let blocks_per_sm = occupancy::resident(arch, demand)?;
            Some(LedgerLaunch {
                threads,
                dynamic_shared_bytes: block.shared_bytes,
                blocks_per_sm,
                occupancy_permille: occupancy::filled_permille(arch, blocks_per_sm, threads)?,
            })
        });
        LedgerRow {
            arch,
            file: file.to_owned(),
            resources: resources.clone(),
            launch,
        }
    }

    /// The id of the row.
    pub fn id(&self) -> EntryId {
        EntryId {
            file: self.file.clone(),
            arch: self.arch,
            name: self.resources.name.clone(),
        }
    }

    /// False for figures that no device has, since a ledger with such figures would let any change
    /// pass.
    pub fn is_possible(&self) -> bool {
        let launch = self.launch.is_none_or(|launch| {
            launch.threads <= 1024
                && launch.blocks_per_sm <= 64
                && launch.occupancy_permille <= 1000
        });
        launch && self.resources.registers <= 255 && self.shared_bytes() <= 1 << 20
    }

    /// Shared memory of a block in bytes, static and dynamic.
    pub fn shared_bytes(&self) -> u32 {
        let dynamic = self.launch.map_or(0, |launch| launch.dynamic_shared_bytes);
        self.resources.static_shared_bytes.saturating_add(dynamic)
    }

    /// The figures, if known, each with true if a larger value is better.
    fn figures(&self) -> [(&'static str, Option<u32>, bool); 6] {
        let (taken, launch) = (&self.resources, self.launch);
        let occupancy = launch.map(|launch| launch.occupancy_permille);
        [
            ("registers", Some(taken.registers), false),
            ("stack_bytes", Some(taken.stack_bytes), false),
            ("spill_stores", Some(taken.spill_stores), false),
            ("spill_loads", Some(taken.spill_loads), false),
            ("shared_bytes", Some(self.shared_bytes()), false),
            (OCCUPANCY, occupancy, true),
        ]
    }
}

impl Ledger {
    /// A ledger of these rows.
    pub fn new(compiler: &str, rows: impl IntoIterator<Item = LedgerRow>) -> Ledger {
        Ledger {
            compiler: compiler.to_owned(),
            rows: rows.into_iter().map(|row| (row.id(), row)).collect(),
        }
    }

    /// Writes a ledger atomically, replacing an existing file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let mut text = line::write(&LedgerLine::Ledger(LedgerHeader {
            schema: SCHEMA_VERSION,
            compiler: self.compiler.clone(),
            entries: self.rows.len(),
        }))?;
        for row in self.rows.values() {
            text += &line::write(&LedgerLine::Entry(Box::new(row.clone())))?;
        }
        let folder = folder_of(path);
        fs::create_dir_all(folder).map_err(|error| RecordError::io(folder, error))?;
        write_atomically(path, text.as_bytes())
    }

    /// Reads a ledger.
    ///
    /// # Errors
    /// It does not exist, has another schema, or has a damaged line: a ledger with missing rows
    /// would let changes pass.
    pub fn read(path: &Path) -> Result<Ledger, RecordError> {
        let mut file = Lines::open(path, input::LEDGER, input::LEDGER)?;
        let header: LedgerHeader = file.first("ledger")?;
        let mut rows = Vec::new();
        while let Some(read) = file.read()? {
            match read {
                Ok(LedgerLine::Entry(row)) if !row.is_possible() => {
                    let problem = "its figures are beyond any device's; save the ledger again";
                    return Err(file.invalid(problem));
                }
                Ok(LedgerLine::Entry(row)) => rows.push(*row),
                Ok(LedgerLine::Ledger(_)) => return Err(file.invalid("a second header")),
                Err(problem) => return Err(file.invalid(problem)),
            }
        }
        let ledger = Ledger::new(&header.compiler, rows);
        if ledger.rows.len() != header.entries {
            let problem = format!(
                "its header names {} entry points, {} are there; save it again",
                header.entries,
                ledger.rows.len()
            );
            return Err(RecordError::invalid(path, 1, problem));
        }
        Ok(ledger)
    }

    /// Compares a new build with this ledger.
    ///
    /// # Errors
    /// The reason for which they cannot be compared: another compiler, or no row in common.
    pub fn compare(&self, head: &Ledger, built: &BuiltFiles) -> Result<LedgerComparison, String> {
        if self.compiler != head.compiler {
            return Err(format!(
                "the ledger was made by {}, this build by {}, whose figures differ for the same \
                 source; use that compiler, or save a ledger of this one",
                self.compiler, head.compiler
            ));
        }
        let mut comparison = LedgerComparison::default();
        for (id, before) in &self.rows {
            if !built.contains(&(id.file.clone(), id.arch)) {
                comparison.not_built += 1;
                continue;
            }
            comparison.compared += 1;
            match head.rows.get(id) {
                Some(after) => comparison.add(id, before, after),
                None => comparison.gone.push(id.clone()),
            }
        }
        if comparison.compared == 0 {
            return Err(
                "the ledger has none of the files and architectures that were built".into(),
            );
        }
        let new = head.rows.keys().filter(|id| !self.rows.contains_key(id));
        comparison.added = new.cloned().collect();
        Ok(comparison)
    }
}

impl LedgerComparison {
    /// True if an entry point uses more than before, or no longer exists.
    pub fn is_worse(&self) -> bool {
        !self.worse.is_empty() || !self.gone.is_empty()
    }

    fn add(&mut self, id: &EntryId, before: &LedgerRow, after: &LedgerRow) {
        let after = after.figures().into_iter();
        for ((figure, before, more_is_better), (_, after, _)) in
            before.figures().into_iter().zip(after)
        {
            // If an entry point has left the launch contracts, its occupancy is unknown and counts
            // as 0.
            let (Some(before), after) = (before, after.unwrap_or(0)) else {
                continue;
            };
            let changes = if (after > before) == more_is_better {
                &mut self.better
            } else {
                &mut self.worse
            };
            if after != before {
                changes.push(FigureChange {
                    entry: id.clone(),
                    figure,
                    before,
                    after,
                });
            }
        }
    }
}

const OCCUPANCY: &str = "occupancy_permille";

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.file, self.arch)
    }
}

impl fmt::Display for FigureChange {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let FigureChange {
            entry,
            figure,
            before,
            after,
        } = self;
        match *figure {
            OCCUPANCY => write!(
                f,
                "{entry}: occupancy {} → {} %",
                f64::from(*before) / 10.0,
                f64::from(*after) / 10.0
            ),
            figure => {
                let figure = figure.replace('_', " ");
                write!(f, "{entry}: {figure} {before} → {after}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, registers: u32) -> LedgerRow {
        let resources = Resources {
            name: name.to_owned(),
            registers,
            ..Resources::default()
        };
        LedgerRow::new("flash_mma", Arch::SM_90A, &resources)
    }

    const ENTRY: &str = "flash_mma_forward_bf16_d128";

    fn built() -> BuiltFiles {
        BuiltFiles::from([("flash_mma".to_owned(), Arch::SM_90A)])
    }

    fn compare(before: Vec<LedgerRow>, after: Vec<LedgerRow>) -> LedgerComparison {
        let base = Ledger::new("nvcc 13.0.88", before);
        let head = Ledger::new("nvcc 13.0.88", after);
        base.compare(&head, &built()).unwrap()
    }

    #[test]
    fn rows_follow_from_the_contract() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../kernels/ledger/nvcc-13.0.88.jsonl"
        );
        let ledger = Ledger::read(Path::new(path)).unwrap();
        for (id, row) in &ledger.rows {
            assert_eq!(LedgerRow::new(&id.file, id.arch, &row.resources), *row);
            assert!(row.launch.is_some(), "{id}");
        }
        let entries: BTreeSet<_> = contract::entries().map(|(entry, _)| entry).collect();
        assert_eq!(entries.len(), 102);
        assert_eq!(row(ENTRY, 168).shared_bytes(), 65_536);
        assert_eq!(row("unknown", 168).launch, None);
        let text = serde_json::to_string(&row("unknown", 168)).unwrap();
        assert!(!text.contains("threads"), "{text}");
        for row in [row(ENTRY, 168), row("unknown", 168)] {
            let text = serde_json::to_string(&row).unwrap();
            assert_eq!(serde_json::from_str::<LedgerRow>(&text).unwrap(), row);
        }
    }

    #[test]
    fn more_of_anything_is_worse_and_named_with_before_and_after() {
        let comparison = compare(vec![row(ENTRY, 168)], vec![row(ENTRY, 240)]);
        let worse: Vec<String> = comparison.worse.iter().map(ToString::to_string).collect();
        assert_eq!(
            worse,
            [
                format!("{ENTRY} (flash_mma, sm_90a): registers 168 → 240"),
                format!("{ENTRY} (flash_mma, sm_90a): occupancy 18.7 → 12.5 %"),
            ]
        );
        let costs: [fn(&mut LedgerRow); 5] = [
            |row| row.resources.stack_bytes += 8,
            |row| row.resources.spill_stores += 4,
            |row| row.resources.spill_loads += 4,
            |row| row.resources.static_shared_bytes += 1,
            |row| row.launch.as_mut().unwrap().dynamic_shared_bytes += 16,
        ];
        for cost in costs {
            let mut more = row(ENTRY, 168);
            cost(&mut more);
            let worse = compare(vec![row(ENTRY, 168)], vec![more.clone()]);
            assert_eq!((worse.worse.len(), worse.better.len()), (1, 0), "{worse:?}");
            let better = compare(vec![more], vec![row(ENTRY, 168)]);
            assert_eq!((better.worse.len(), better.better.len()), (0, 1));
            assert!(!better.is_worse());
        }
    }

    #[test]
    fn gone_added_and_not_built_are_told_apart() {
        let other = LedgerRow {
            arch: Arch::SM_80,
            ..row(ENTRY, 168)
        };
        let comparison = compare(vec![row(ENTRY, 168), other], vec![row("new", 40)]);
        assert_eq!(comparison.gone.len(), 1);
        assert_eq!(comparison.added[0].name, "new");
        assert_eq!((comparison.compared, comparison.not_built), (1, 1));
        assert!(comparison.is_worse());
    }

    fn ledger() -> Ledger {
        Ledger::new("nvcc 13.0.88", [row("own", 40), row(ENTRY, 168)])
    }

    #[test]
    fn ledgers_read_back_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/ledger.jsonl");
        ledger().write(&path).unwrap();
        assert_eq!(Ledger::read(&path).unwrap(), ledger());
        let text = fs::read_to_string(&path).unwrap();
        let names: Vec<usize> = ["flash_mma_forward", "\"own\""]
            .map(|name| text.find(name).unwrap())
            .to_vec();
        assert!(names.is_sorted(), "{text}");
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        ledger().write(&path).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let error = |text: &str| {
            fs::write(&path, text).unwrap();
            Ledger::read(&path).unwrap_err().to_string()
        };
        let edited = error(&whole.replace("\"registers\":168", "\"registers\":255"));
        assert!(edited.contains("ledger.jsonl:2: it was edited"), "{edited}");
        let last = whole.trim_end().rfind('\n').unwrap();
        let short = error(&whole[..=last]);
        let expected = "names 2 entry points, 1 are there";
        assert!(short.contains(expected), "{short}");
        let headless = error(whole.split_once('\n').unwrap().1);
        let expected = ":1: it is not the first line of a ledger";
        assert!(headless.contains(expected), "{headless}");
        let other = error(&whole.replace("\"schema\":4", "\"schema\":9"));
        assert!(other.contains("its schema is 9"), "{other}");
        assert!(error("").contains(":1: "), "an empty file");
    }
}
