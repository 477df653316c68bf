//! Where suites come from: the binary itself, or a file.

use std::fs;
use std::path::Path;

use super::document::{DocumentError, Source, nearest};
use super::{Suite, parse};

/// The suites in the binary: name and text.
pub const BUILTIN: [(&str, &str); 4] = [
    ("quick", include_str!("../../suites/quick.toml")),
    (
        "xformers-backward",
        include_str!("../../suites/xformers-backward.toml"),
    ),
    (
        "xformers-0.0.26",
        include_str!("../../suites/xformers-0.0.26.toml"),
    ),
    ("sdpa", include_str!("../../suites/sdpa.toml")),
];

/// The suite of this name or at this path.
///
/// A name without `/` or `.toml` is a built-in suite; what it `extends` is looked
/// for beside it first when it is a file.
///
/// # Errors
/// When there is none, or when it cannot be read.
pub fn load(name_or_path: &str) -> Result<Suite, DocumentError> {
    if let Some((name, text)) = BUILTIN.iter().find(|(name, _)| *name == name_or_path) {
        let source = Source {
            label: format!("built-in suite {name}"),
            text: (*text).to_owned(),
        };
        return parse::suite(name, &source, &|base| load(base));
    }
    let path = Path::new(name_or_path);
    let missing = |message: String| DocumentError {
        label: name_or_path.to_owned(),
        line: 0,
        key: String::new(),
        message,
    };
    if !name_or_path.contains('/') && path.extension().is_none_or(|e| e != "toml") {
        let names = BUILTIN.iter().map(|(name, _)| *name);
        let hint = match nearest(name_or_path, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("built-in suites: {}", names.collect::<Vec<_>>().join(", ")),
        };
        return Err(missing(format!(
            "no built-in suite of this name; {hint} (a file is given by its path: ./{name_or_path}.toml)"
        )));
    }
    let text =
        fs::read_to_string(path).map_err(|error| missing(format!("cannot be read: {error}")))?;
    let name = path
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let source = Source {
        label: name_or_path.to_owned(),
        text,
    };
    parse::suite(&name, &source, &|base| {
        let beside = path.with_file_name(format!("{base}.toml"));
        if beside != path && beside.is_file() {
            load(&beside.to_string_lossy())
        } else if base == name {
            Err(missing("a suite cannot extend itself".to_owned()))
        } else {
            load(base)
        }
    })
}

/// Adds the environments and workers of a `regatta.toml`, where there is one; the
/// suite's own go first.
///
/// # Errors
/// When the file cannot be read or holds something that cannot stand.
pub fn configure(suite: &mut Suite, path: &Path) -> Result<(), DocumentError> {
    let label = path.display().to_string();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let source = Source {
                label,
                text: String::new(),
            };
            return Err(source.error(format!("cannot be read: {error}")));
        }
    };
    let mut found = Suite::default();
    Source { label, text }.read(|root| parse::environments(root, &mut found))?;
    for (name, environment) in found.environments {
        suite.environments.entry(name).or_insert(environment);
    }
    for (name, command) in found.workers {
        suite.workers.entry(name).or_insert(command);
    }
    Ok(())
}
