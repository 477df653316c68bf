//! Documents, held to their schemas by a validator that is not ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::root;
use crate::common::Place;

/// Documents, each with the name of its schema.
pub struct Documents<'a> {
    pub place: &'a Place,
    pub all: Vec<(String, PathBuf)>,
}

impl<'a> Documents<'a> {
    /// None yet, of this place.
    pub fn of(place: &'a Place) -> Documents<'a> {
        Documents {
            place,
            all: Vec::new(),
        }
    }

    /// What a command prints for `--json`, which ends with this exit code.
    pub fn answer(&mut self, schema: &str, code: i32, args: &[&str]) {
        let (stdout, _) = exits!(self.place, code, [args, &["--json"]].concat());
        self.printed(schema, &stdout);
    }

    /// What was printed: a document, or one in each line.
    pub fn printed(&mut self, schema: &str, stdout: &str) {
        let whole = serde_json::from_str::<Value>(stdout).is_ok();
        let ending = if whole { "json" } else { "jsonl" };
        let name = format!("answer-{}.{ending}", self.all.len());
        self.place.write(&name, stdout);
        self.file(schema, &name);
    }

    /// A file in the place.
    pub fn file(&mut self, schema: &str, name: &str) {
        let path = self.place.path().join(name);
        assert!(path.exists(), "{name}");
        self.all.push((schema.to_owned(), path));
    }
}

/// Holds documents to the schemas; gives what does not fit. `None` where no interpreter has the
/// validator.
pub fn faults(place: &Place, all: &[(String, PathBuf)]) -> Option<String> {
    let python = std::env::var("REGATTA_TEST_PYTHON").unwrap_or("python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", "import jsonschema"])
        .output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("not run: REGATTA_TEST_PYTHON names no interpreter with jsonschema");
        return None;
    }
    let schemas = place.path().join("schemas");
    if !schemas.exists() {
        exits!(place, 0, ["schema", "--all", "schemas"]);
    }
    let pairs = all
        .iter()
        .map(|(name, path)| format!("{name}={}", path.display()));
    let output = Command::new(python)
        .arg(root().join("tests/formats/validate.py"))
        .arg(schemas)
        .args(pairs)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => Some(String::new()),
        Some(1) => Some(text),
        _ => panic!("{text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

pub fn fit(place: &Place, all: &[(String, PathBuf)]) {
    if let Some(faults) = faults(place, all) {
        assert!(faults.is_empty(), "{faults}");
    }
}

/// The files of this name below a folder.
pub fn found(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(self::found(&path, name)),
            path if path.ends_with(name) => found.push(path),
            _ => {}
        }
    }
    found
}

/// The files below a folder whose names end so.
pub fn below(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => below(&path, ending, found),
            path if path.to_string_lossy().ends_with(ending) => found.push(path),
            _ => {}
        }
    }
}
