//! Where suites come from: the binary itself, or a file.

use std::fs;
use std::path::Path;

use super::document::{DocumentError, TomlText, name_hint};
use super::{Suite, plan};
use crate::input;

/// Suites that extend each other, each the next.
const DEEPEST: usize = 32;

// `BUILTIN`, name and text of each: build.rs finds them in suites/.
include!(concat!(env!("OUT_DIR"), "/suites.rs"));

/// The suite of this name or at this path.
///
/// A name without `/` or `.toml` is a built-in suite; what it `extends` is looked
/// for beside it first when it is a file.
///
/// # Errors
/// When there is none, or when it cannot be read.
pub fn load(name_or_path: &str) -> Result<Suite, DocumentError> {
    let mut suite = load_below(name_or_path, &[])?;
    for environment in suite.environments.values_mut() {
        let made = !environment.requirements.is_empty();
        environment.suite = made.then(|| name_or_path.to_owned());
    }
    Ok(suite)
}

/// Loads a suite that those of `above` extend, each the next.
fn load_below(name_or_path: &str, above: &[String]) -> Result<Suite, DocumentError> {
    let failed = |message: String| DocumentError::new(name_or_path, &message);
    let path = Path::new(name_or_path);
    let built_in = BUILTIN.iter().find(|(name, _)| *name == name_or_path);
    let identity = match built_in {
        Some((name, _)) => format!("built-in suite {name}"),
        None => fs::canonicalize(path)
            .unwrap_or(path.to_owned())
            .display()
            .to_string(),
    };
    if above.contains(&identity) {
        let chain = [above, &[identity]].concat().join(" → ");
        return Err(failed(format!(
            "suites extend each other in a circle: {chain}"
        )));
    }
    if above.len() == DEEPEST {
        return Err(failed(format!(
            "suites extend each other {DEEPEST} deep, which is the most; put some of them together"
        )));
    }
    let above = [above, std::slice::from_ref(&identity)].concat();
    if let Some((name, text)) = built_in {
        let source = TomlText {
            label: identity,
            text: (*text).to_owned(),
        };
        return plan::read(name, &source, &|base| load_below(base, &above));
    }
    if !name_or_path.contains('/') && path.extension().is_none_or(|e| e != "toml") {
        return Err(failed(unknown(name_or_path)));
    }
    let text = input::text(path, input::WRITTEN_BY_HAND)
        .map_err(|error| failed(format!("cannot be read: {error}")))?;
    let name = path
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    if !names_a_file(&name) {
        return Err(failed(format!(
            "`{name}` names the suite's reports and baselines; call the file something of at \
             most {LONGEST_NAME} {FILE_NAME_RULE}"
        )));
    }
    let source = TomlText {
        label: name_or_path.to_owned(),
        text,
    };
    plan::read(&name, &source, &|base| {
        // Beside the suite first; a built-in one of the same name as the suite is
        // not the suite itself.
        let file = match base.ends_with(".toml") {
            true => path.with_file_name(base),
            false => path.with_file_name(format!("{base}.toml")),
        };
        match file != path && file.is_file() || base.ends_with(".toml") {
            true => load_below(&file.to_string_lossy(), &above),
            false => load_below(base, &above),
        }
    })
}

/// Longest name of a suite, a baseline or a machine: file systems take 255 bytes, ending
/// included.
const LONGEST_NAME: usize = 200;

/// What [`names_a_file`] takes, in words.
pub const FILE_NAME_RULE: &str =
    "letters, digits, `-`, `_`, `.` and `+`, of which `-` and `.` do not come first";

/// True for a name that can be a file's or a folder's under `reports/` and `baselines/`, in
/// that folder and no other.
pub fn names_a_file(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    (1..=LONGEST_NAME).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.chars().all(plain)
}

fn unknown(name: &str) -> String {
    let names = BUILTIN.iter().map(|(name, _)| *name);
    let hint = name_hint(name, names);
    format!("no built-in suite of this name; {hint} (a file is given by its path: ./{name}.toml)")
}

/// Adds the environments and workers of a `regatta.toml`, where there is one; the
/// suite's own go first.
///
/// # Errors
/// When the file cannot be read or holds something that cannot stand.
pub fn configure(suite: &mut Suite, path: &Path) -> Result<(), DocumentError> {
    let label = path.display().to_string();
    let text = match input::text(path, input::WRITTEN_BY_HAND) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let problem = format!("cannot be read: {error}");
            return Err(DocumentError::new(&label, &problem));
        }
    };
    let found = plan::read_config(&TomlText { label, text })?;
    for (name, environment) in found.environments {
        // A built-in suite sets variables; the interpreter is the user's.
        let own = suite.environments.entry(name).or_default();
        own.complete(&environment);
    }
    for (name, worker) in found.workers {
        suite.workers.entry(name).or_insert(worker);
    }
    for (name, place) in found.origins_of_workers {
        suite.origins_of_workers.entry(name).or_insert(place);
    }
    Ok(())
}
