//! Where a worker runs: an interpreter that is there, or one that `regatta env make` makes
//! from pinned requirements.

use std::collections::BTreeMap;
use std::fs;

use super::document::{DocumentError, Table, Value};

/// Where a worker runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The Python interpreter; `None`: `python3`. With `requirements`, the one that the
    /// environment is made with.
    pub interpreter: Option<String>,
    /// Environment variables set for the process.
    pub env: BTreeMap<String, String>,
    /// Folders put in front of Python's import path.
    pub import_paths: Vec<String>,
    /// What is installed into an environment of its own: `xformers==0.0.34`, a line each.
    /// None: the interpreter is used as it is.
    pub requirements: Vec<String>,
    /// A folder of wheels to install from, and from nowhere else.
    pub wheels: Option<String>,
    /// True when the interpreter's own packages are seen too.
    pub system_packages: bool,
    /// Workers that run in it where a variant names no environment.
    pub workers: Vec<String>,
}

/// Reads a table of `[environments]`.
///
/// # Errors
/// An unknown key, a value of another type, or a requirement that is not pinned.
pub(super) fn read(table: &Table<'_>) -> Result<Environment, DocumentError> {
    let mut environment = Environment::default();
    let string = |name| table.get(name).map(|value| value.string()).transpose();
    environment.interpreter = string("interpreter")?;
    environment.wheels = string("wheels")?;
    if let Some(value) = table.get("env") {
        for (name, value) in value.table()?.entries() {
            environment.env.insert(name, value.string()?);
        }
    }
    if let Some(value) = table.get("import_paths") {
        environment.import_paths = strings(&value)?;
    }
    if let Some(value) = table.get("workers") {
        environment.workers = strings(&value)?;
    }
    if let Some(value) = table.get("system_packages") {
        environment.system_packages = value.truth()?;
    }
    if let Some(value) = table.get("requirements") {
        environment.requirements = requirements(&value)?;
    }
    if environment.requirements.is_empty()
        && let Some(value) = table.get("wheels")
    {
        return Err(value.error(
            "`wheels` is where `requirements` are installed from, and there are none".to_owned(),
        ));
    }
    table.finish()?;
    Ok(environment)
}

fn strings(value: &Value<'_>) -> Result<Vec<String>, DocumentError> {
    value.list()?.iter().map(Value::string).collect()
}

/// A list of requirements, or the path of a file that has them.
fn requirements(value: &Value<'_>) -> Result<Vec<String>, DocumentError> {
    let Ok(path) = value.string() else {
        let lines = strings(value)?;
        return match lines.iter().find(|line| !pinned(line)) {
            Some(line) => Err(value.error(unpinned(line))),
            None => Ok(lines),
        };
    };
    let text = fs::read_to_string(&path).map_err(|error| {
        value.error(format!("requirements file {path} cannot be read: {error}"))
    })?;
    let lines = text.lines().map(|line| {
        // A comment begins at the line or after a space: URLs hold `#` too.
        let code = line.split(" #").next().unwrap_or_default().trim();
        if code.starts_with('#') { "" } else { code }
    });
    let lines: Vec<String> = lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    match lines.iter().find(|line| !pinned(line)) {
        Some(line) => Err(value.error(format!("{path}: {}", unpinned(line)))),
        None => Ok(lines),
    }
}

/// True for `name==version`, `name @ URL`, the path of a wheel, and pip's options.
fn pinned(line: &str) -> bool {
    let wheel = line.ends_with(".whl") || line.ends_with(".tar.gz");
    line.contains("==") || line.contains(" @ ") || wheel || line.starts_with("--")
}

fn unpinned(line: &str) -> String {
    format!(
        "`{line}` is not pinned, so the same suite would measure another version one day; \
         write `{line}==VERSION`"
    )
}
