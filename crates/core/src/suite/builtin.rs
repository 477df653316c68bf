//! Loads suites, from the binary or from a file.

use std::fs;
use std::path::Path;

use super::document::{DocumentError, TomlText, name_hint, nearest};
use super::script::Script;
use super::{Suite, plan};
use crate::input;

/// The longest chain of suites that extend each other.
const DEEPEST: usize = 32;

// Defines `BUILTIN`, the name and text of each suite that build.rs finds in suites/.
include!(concat!(env!("OUT_DIR"), "/suites.rs"));

/// The suite of this name or at this path.
///
/// A name without `/` or `.toml` is a built-in suite. The suite that a file `extends` is first
/// searched for beside that file.
///
/// # Errors
/// When it is unknown, or cannot be read.
pub fn load(name_or_path: &str) -> Result<Suite, DocumentError> {
    load_in(name_or_path, Path::new(""))
}

/// Loads the suite of a checkout, to whose folder the paths of its environments are relative.
///
/// # Errors
/// As [`load`].
pub fn load_in(name_or_path: &str, checkout: &Path) -> Result<Suite, DocumentError> {
    if let Some(script) = Script::parse(name_or_path) {
        let suite = script.and_then(Script::suite);
        return suite.map_err(|error| DocumentError::new(name_or_path, &error));
    }
    if let Some((suite, _)) = name_or_path.split_once(" -- ") {
        let error = "arguments after `--` are those of a script: script:bench.py -- --quick";
        return Err(DocumentError::new(suite, error));
    }
    let mut suite = load_below(name_or_path, checkout, &[])?;
    for environment in suite.environments.values_mut() {
        let made = !environment.requirements.is_empty();
        environment.suite = made.then(|| name_or_path.to_owned());
    }
    Ok(suite)
}

/// Loads a suite; `above` is the chain of suites that extend it.
fn load_below(
    name_or_path: &str,
    checkout: &Path,
    above: &[String],
) -> Result<Suite, DocumentError> {
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
        return plan::read(name, &source, checkout, &|base| {
            load_below(base, checkout, &above)
        });
    }
    let extension = path.extension().unwrap_or_default();
    // A function is named as workers name it: `bench.py:attention`.
    let function_of = name_or_path.rsplit_once(':').filter(|_| !path.is_file());
    let file = function_of.map_or(name_or_path, |(file, _)| file);
    if file.ends_with(".py") && Path::new(file).is_file() {
        return Err(failed(format!(
            "this is code, not a suite: `script:{file}` measures what it times, as with \
             triton.testing.do_bench or timeit; a suite names its functions: workers.mine = \
             \"{name_or_path}\" (`regatta init` writes one)"
        )));
    }
    if path.is_file() && extension == "cu" {
        return Err(failed(format!(
            "this is code, not a suite; a suite names it: workers.mine = \"{name_or_path}\"; `regatta init` \
             writes one"
        )));
    }
    if path.is_dir() && extension != "toml" {
        let inside = suites_in(path).first().cloned();
        let name = inside.unwrap_or_else(|| format!("{name_or_path}/speed.toml"));
        return Err(failed(format!(
            "this is a folder; name a suite file in it: {name}"
        )));
    }
    if !name_or_path.contains('/') && extension != "toml" {
        return Err(failed(unknown(name_or_path)));
    }
    let text = input::text(path, input::WRITTEN_BY_HAND).map_err(|error| {
        let folder = path.parent().unwrap_or(Path::new("."));
        let there = suites_in(folder);
        let near = nearest(name_or_path, there.iter().map(String::as_str));
        let near = near.filter(|_| error.kind() == std::io::ErrorKind::NotFound);
        let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
        failed(format!("cannot be read: {error}{hint}"))
    })?;
    let name = path
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    if !names_a_file(&name) {
        return Err(failed(format!(
            "`{name}` names the suite's reports and baselines; call the file something of at \
             most {MAX_NAME_BYTES} {FILE_NAME_RULE}"
        )));
    }
    let source = TomlText {
        label: name_or_path.to_owned(),
        text,
    };
    plan::read(&name, &source, checkout, &|base| {
        // The suite's folder is searched first. A built-in suite with the suite's own name is not
        // the suite itself.
        let file = if base.ends_with(".toml") {
            path.with_file_name(base)
        } else {
            path.with_file_name(format!("{base}.toml"))
        };
        if file != path && file.is_file() || base.ends_with(".toml") {
            load_below(&file.to_string_lossy(), checkout, &above)
        } else {
            load_below(base, checkout, &above)
        }
    })
}

/// The longest name of a suite, a baseline or a machine: file systems allow 255 bytes, including
/// the ending.
const MAX_NAME_BYTES: usize = 200;

/// The rule of [`names_a_file`], in words.
pub const FILE_NAME_RULE: &str =
    "letters, digits, `-`, `_`, `.` and `+`, of which `-` and `.` do not come first";

/// True for a name that can be a file's or a folder's under `reports/` and `baselines/`, in
/// that folder and no other.
pub fn names_a_file(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.chars().all(plain)
}

/// The suite files of a folder, as a command line names them: files in TOML with a sweep.
fn suites_in(folder: &Path) -> Vec<String> {
    let is_suite = |path: &Path| {
        let text = input::text(path, input::WRITTEN_BY_HAND);
        path.extension().is_some_and(|ending| ending == "toml")
            && text.is_ok_and(|text| text.contains("[[sweep]]"))
    };
    let paths = input::paths_in(folder, is_suite).into_iter();
    let names = paths.map(|path| match path.display().to_string() {
        name if name.contains('/') => name,
        name => format!("./{name}"),
    });
    names.collect()
}

fn unknown(name: &str) -> String {
    let there = suites_in(Path::new("."));
    let file = format!("./{name}.toml");
    if let Some(near) = nearest(&file, there.iter().map(String::as_str)) {
        return format!("no built-in suite of this name; a file is given by its path: {near}");
    }
    let names = BUILTIN.iter().map(|(name, _)| *name);
    let hint = name_hint(name, names);
    format!("no built-in suite of this name; {hint} (a file is given by its path: ./{name}.toml)")
}

/// Adds the environments and workers of a `regatta.toml`, if there is one; the suite's own take
/// precedence.
///
/// # Errors
/// When the file cannot be read or is invalid.
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
    let checkout = path.parent().unwrap_or(Path::new(""));
    let config = plan::read_config(&TomlText { label, text }, checkout)?;
    for (name, environment) in config.environments {
        // A built-in suite sets variables; the interpreter is the user's.
        let own = suite.environments.entry(name).or_default();
        own.complete(&environment);
    }
    for (name, worker) in config.workers {
        suite.workers.entry(name).or_insert(worker);
    }
    for (name, place) in config.origins_of_workers {
        suite.origins_of_workers.entry(name).or_insert(place);
    }
    Ok(())
}
