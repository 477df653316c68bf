//! The interpreter of a worker: an existing one, or one that `regatta env make` creates from pinned
//! requirements.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

use super::file::OneOrMore;
use crate::input;

/// The interpreter of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Environment {
    /// The Python interpreter, by default that of the environment `default`, or `python3`. With
    /// `requirements`, the one that the environment is made with.
    pub python: Option<String>,
    /// The requirements that are installed into an environment of its own, by `regatta env make NAME`:
    /// `xformers==0.0.34`, or pip's long options, a line each; or the path of a file that has
    /// the lines. None: the interpreter is used as it is.
    #[serde(deserialize_with = "requirements")]
    #[cfg_attr(feature = "schemas", schemars(with = "OneOrMore<String>"))]
    pub requirements: Vec<String>,
    /// Environment variables set for the process.
    #[serde(deserialize_with = "variables")]
    pub env: BTreeMap<String, String>,
    /// Folders put in front of Python's import path.
    pub paths: Vec<String>,
    /// True when the interpreter's own packages can be imported as well.
    pub system_packages: bool,
    /// True when only the requirements are installed, without their dependencies. No suite sets it;
    /// it serves to vary packages one by one.
    #[serde(skip)]
    pub alone: bool,
    /// The suite that has the requirements, as the command line named it; `None`: regatta.toml.
    #[serde(skip)]
    pub suite: Option<String>,
    /// The folder of a revision to which its paths are relative; empty for the folder in which
    /// regatta is started.
    #[serde(skip)]
    pub checkout: PathBuf,
}

impl Environment {
    /// Fills in values that this environment does not set from `other`: the Python as a whole, and
    /// each variable.
    pub fn complete(&mut self, other: &Environment) {
        self.complete_python(other);
        self.complete_variables(other);
        if self.paths.is_empty() {
            self.paths.clone_from(&other.paths);
        }
    }

    /// The lines among the requirements that say where packages come from.
    pub fn pip_options(&self) -> impl Iterator<Item = &str> {
        let lines = self.requirements.iter().map(String::as_str);
        lines.filter(|line| line.starts_with('-'))
    }

    /// Folders of wheels, where packages come from some.
    pub fn wheels(&self) -> impl Iterator<Item = &str> {
        let folders = self.pip_options();
        let folders = folders.filter_map(|line| line.strip_prefix("--find-links"));
        folders.map(|folder| folder.trim_start_matches(['=', ' ']))
    }

    /// Takes the interpreter of `other` with its packages, if this environment names none.
    pub fn complete_python(&mut self, other: &Environment) {
        if self.python.is_none() && self.requirements.is_empty() {
            self.python.clone_from(&other.python);
            self.requirements.clone_from(&other.requirements);
            self.system_packages = other.system_packages;
            self.suite.clone_from(&other.suite);
            self.checkout.clone_from(&other.checkout);
        }
    }

    /// Reads the file of its requirements, if they are in one, from this checkout.
    ///
    /// # Errors
    /// As [`pinned_file`].
    pub(super) fn read_requirements(&mut self, checkout: &Path) -> Result<(), String> {
        checkout.clone_into(&mut self.checkout);
        if let [line] = &self.requirements[..]
            && let Some(path) = line.strip_prefix(IN_FILE)
        {
            self.requirements = pinned_file(&checkout.join(path))?;
        }
        Ok(())
    }

    /// Takes variables from `other` that this environment does not set.
    pub fn complete_variables(&mut self, other: &Environment) {
        for (name, value) in &other.env {
            let own = self.env.entry(name.clone());
            own.or_insert_with(|| value.clone());
        }
    }
}

fn variables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let variables = BTreeMap::<String, String>::deserialize(deserializer)?;
    let impossible = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
    match variables.keys().find(impossible) {
        None => Ok(variables),
        Some(name) => Err(D::Error::custom(format!(
            "no environment variable can have the name {name:?}"
        ))),
    }
}

/// The prefix of the single requirement that stands for a file until it is read. A list never has
/// such a line.
const IN_FILE: &str = "-r ";

/// A list of requirements, or the path of a file that has them.
fn requirements<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One::<String>(path) => Ok(vec![format!("{IN_FILE}{path}")]),
        OneOrMore::More(lines) => match lines.iter().find_map(|line: &String| objection(line)) {
            Some(objection) => Err(D::Error::custom(objection)),
            None => Ok(lines),
        },
    }
}

/// The lines of a file of requirements, each of which must always create the same environment.
///
/// # Errors
/// When it cannot be read, or a line is not pinned, as a sentence.
pub fn pinned_file(path: &Path) -> Result<Vec<String>, String> {
    let text = input::text(path, input::WRITTEN_BY_HAND);
    let shown = path.display();
    let text =
        text.map_err(|error| format!("requirements file {shown} cannot be read: {error}"))?;
    let lines = text.lines().map(|line| {
        // A comment begins at the line or after a space: URLs hold `#` too.
        let code = line.split(" #").next().unwrap_or_default().trim();
        if code.starts_with('#') { "" } else { code }
    });
    let lines: Vec<String> = lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    match lines.iter().find_map(|line| objection(line)) {
        Some(objection) => Err(format!("{shown}: {objection}")),
        None => Ok(lines),
    }
}

/// Options of pip that install what another file or folder says.
const NESTED: &str = "-r -c -e --requirement --constraint --editable";

/// The reason why a line would not always create the same environment; `None` if it would.
///
/// Allowed are `name==version`, `name @ URL`, the path of a wheel, and pip's long options.
fn objection(line: &str) -> Option<String> {
    let option = line.split([' ', '=']).next().unwrap_or_default();
    let is_long = option.starts_with("--");
    // A short option's value may follow without a space: `-rbase.txt`.
    let is_nested = |name: &str| option == name || !is_long && option.starts_with(name);
    if NESTED.split(' ').any(is_nested) {
        return Some(format!(
            "`{line}`: put its lines here: another file is not part of the environment's name, \
             so that a change of it would go unseen"
        ));
    }
    // The short ones say where packages come from.
    if is_long || ["-i", "-f"].contains(&option) {
        return None;
    }
    // The text after `;` chooses machines, and pins nothing.
    let wanted = line.split(';').next().unwrap_or_default().trim();
    let file = wanted.ends_with(".whl") || wanted.ends_with(".tar.gz");
    let pinned = wanted.contains("==") && !wanted.contains('*');
    if file || pinned || wanted.contains(" @ ") {
        return None;
    }
    let package = wanted.split(['=', '<', '>', '!', '~', ' ']).next();
    Some(format!(
        "`{line}` is not pinned, so the same suite would measure another version one day; \
         write `{}==VERSION`",
        package.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::objection;

    #[test]
    fn a_requirement_that_names_one_version_may_stand() {
        for line in [
            "torch==2.11.0",
            "torch == 2.11.0 ; python_version >= '3.11'",
            "xformers[dev]==0.0.34 --hash=sha256:00",
            "flash @ https://example.org/flash-2.8.3.whl",
            "wheels/flash_attn-2.8.3-py3-none-any.whl",
            "-i https://example.org/simple",
            "--index-url=https://example.org/simple",
            "--extra-index-url https://example.org/simple",
            "--find-links wheels",
            "--no-binary torch",
        ] {
            assert_eq!(objection(line), None, "{line}");
        }
    }

    #[test]
    fn one_that_may_become_another_is_refused_with_what_to_write() {
        for (line, advice) in [
            ("torch", "write `torch==VERSION`"),
            ("torch>=2; python_version=='3.11'", "write `torch==VERSION`"),
            ("torch==2.*", "write `torch==VERSION`"),
            ("torch~=2.11", "write `torch==VERSION`"),
            ("-r base.txt", "put its lines here"),
            ("-rbase.txt", "put its lines here"),
            ("--requirement base.txt", "put its lines here"),
            ("--constraint=limits.txt", "put its lines here"),
            ("-e .", "put its lines here"),
        ] {
            let words = objection(line).unwrap_or_default();
            assert!(words.contains(advice), "{line}: {words}");
        }
    }
}
