//! A ledger of kernels as a file: a line that says what made it, then one an entry point, sorted, so
//! that a change can be reviewed as a diff.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::kernels::ledger::{Ledger, LedgerRow};
use regatta_core::input;
use regatta_core::record::line::{self, Lines};
use regatta_core::record::{RecordError, SCHEMA_VERSION, write_atomically};

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum LedgerLine {
    Ledger {
        /// [`SCHEMA_VERSION`] of the writer.
        schema: u32,
        /// The compiler and its version.
        compiler: String,
        /// Lines that follow.
        entries: usize,
    },
    Entry(Box<LedgerRow>),
}

/// Writes a ledger, whole or not at all, over what is there.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, ledger: &Ledger) -> Result<(), RecordError> {
    let mut text = line::write(&LedgerLine::Ledger {
        schema: SCHEMA_VERSION,
        compiler: ledger.compiler.clone(),
        entries: ledger.rows.len(),
    })?;
    for row in ledger.rows.values() {
        text += &line::write(&LedgerLine::Entry(Box::new(row.clone())))?;
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs::create_dir_all(folder).map_err(|error| RecordError::io(folder, error))?;
    }
    write_atomically(path, text.as_bytes())
}

/// Reads a ledger back.
///
/// # Errors
/// When it is absent, of another schema, or any line is damaged: a ledger with holes would
/// pass what it should hold.
pub fn read(path: &Path) -> Result<Ledger, RecordError> {
    let mut file = Lines::open(path, input::LEDGER, input::LEDGER)?;
    let (compiler, entries) = match file.first()? {
        LedgerLine::Ledger {
            compiler, entries, ..
        } => (compiler, entries),
        LedgerLine::Entry(_) => return Err(file.invalid("its header is missing")),
    };
    let mut rows = Vec::new();
    while let Some(read) = file.read()? {
        match read {
            Ok(LedgerLine::Entry(row)) if !row.is_possible() => {
                let problem = "its figures are beyond any device's; save the ledger again";
                return Err(file.invalid(problem));
            }
            Ok(LedgerLine::Entry(row)) => rows.push(*row),
            Ok(LedgerLine::Ledger { .. }) => return Err(file.invalid("a second header")),
            Err(problem) => return Err(file.invalid(problem)),
        }
    }
    let ledger = Ledger::new(&compiler, rows);
    if ledger.rows.len() != entries {
        let problem = format!(
            "its header names {entries} entry points, {} are there; save it again",
            ledger.rows.len()
        );
        return Err(RecordError::invalid(path, 1, problem));
    }
    Ok(ledger)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::arch::Arch;
    use crate::kernels::resources::Resources;

    fn ledger() -> Ledger {
        let row = |name: &str, registers| {
            let resources = Resources {
                name: name.to_owned(),
                registers,
                ..Resources::default()
            };
            LedgerRow::new("flash_mma", Arch::SM_90A, &resources)
        };
        let rows = [row("own", 40), row("flash_mma_forward_bf16_d128", 168)];
        Ledger::new("nvcc 13.0.88", rows)
    }

    #[test]
    fn ledgers_read_back_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/ledger.jsonl");
        write(&path, &ledger()).unwrap();
        assert_eq!(read(&path).unwrap(), ledger());
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
        write(&path, &ledger()).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let said = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path).unwrap_err().to_string()
        };
        let edited = said(&whole.replace("\"registers\":168", "\"registers\":255"));
        assert!(edited.contains("ledger.jsonl:2: it was edited"), "{edited}");
        let last = whole.trim_end().rfind('\n').unwrap();
        let short = said(&whole[..=last]);
        assert!(
            short.contains("names 2 entry points, 1 are there"),
            "{short}"
        );
        let headless = said(whole.split_once('\n').unwrap().1);
        assert!(headless.contains(":1: its header is missing"), "{headless}");
        let other = said(&whole.replace("\"schema\":3", "\"schema\":9"));
        assert!(other.contains("its schema is 9"), "{other}");
        assert!(said("").contains(":1: "), "an empty file");
    }
}
