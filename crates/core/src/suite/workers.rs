//! `[workers]`: a user's code as a worker. `workers.mine` is a Python function
//! (`"bench.py:softmax"`), the kernels of a CUDA file (`"kernels.cu"`), or a command
//! (`["./serve", "--fast"]`). `[build]` is the command that builds the code under test before it is
//! measured.

use std::path::{Component, Path, PathBuf};

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

use super::file::OneOrMore;
use super::script::Script;

/// A worker of a suite's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnWorker {
    /// The command that starts it.
    Command(Vec<String>),
    /// Python functions, which the Python worker calls.
    Python {
        /// The place of the functions.
        code: PythonCode,
        /// The function; `None` if each public function whose arguments begin with `q, k, v` is a
        /// variant.
        function: Option<String>,
    },
    /// A CUDA file. Regatta's own worker launches its kernels as described by the file beside it
    /// that ends in `.toml`. Its path is relative to the folder of the suite that names it.
    Cuda(PathBuf),
    /// A script that calls timers; each call is a case.
    Script(Script),
}

/// Python code, as a suite names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonCode {
    /// A file; its path is relative to the folder of the suite that names it.
    File(PathBuf),
    /// A module, which is imported.
    Module(String),
}

impl OwnWorker {
    /// Parses a value of `[workers]`; files are relative to `folder`.
    ///
    /// # Errors
    /// A text that names no code, or a command that starts nothing, as a sentence.
    pub fn parse(written: &OneOrMore<String>, folder: &Path) -> Result<OwnWorker, String> {
        match written {
            OneOrMore::More(words) if words.first().is_none_or(String::is_empty) => {
                Err("an empty command starts nothing".to_owned())
            }
            OneOrMore::More(words) if Script::parse(&words[0]).is_some() => {
                Script::new(words).map(|script| OwnWorker::Script(script.below(folder)))
            }
            OneOrMore::More(words) => Ok(OwnWorker::Command(words.clone())),
            OneOrMore::One(name) if name.ends_with(".cu") => Ok(OwnWorker::Cuda(folder.join(name))),
            OneOrMore::One(name) => match Script::parse(name) {
                Some(script) => script.map(|script| OwnWorker::Script(script.below(folder))),
                None => python(name, folder),
            },
        }
    }
}

/// The code and the function that `bench.py:softmax` or `package.module` name.
fn python(text: &str, folder: &Path) -> Result<OwnWorker, String> {
    let (code, function) = match text.rsplit_once(':') {
        Some((code, function)) => (code, Some(function)),
        None => (text, None),
    };
    if let Some(name) = function.filter(|name| !is_identifier(name)) {
        return Err(format!(
            "`{name}` does not name a Python function; write `bench.py:softmax`"
        ));
    }
    let code = if code.ends_with(".py") {
        PythonCode::File(folder.join(code))
    } else if code.split('.').all(is_identifier) {
        PythonCode::Module(code.to_owned())
    } else {
        return Err(
            "this is neither a file that ends in `.py` or `.cu` nor a module; write \
             `bench.py:softmax`, `package.module:softmax` or `kernels.cu`, or a command \
             as a list: `[\"./serve\"]`"
                .to_owned(),
        );
    };
    let function = function.map(str::to_owned);
    Ok(OwnWorker::Python { code, function })
}

/// True for an ASCII identifier of Python.
pub(super) fn is_identifier(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// The build of the code under test: a command, run in the folder that regatta is started in,
/// or at the root of a revision's worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// The program and its arguments.
    #[serde(deserialize_with = "command")]
    pub command: Vec<String>,
    /// The outputs: files or folders below the folder that it runs in. They are
    /// there afterwards, or the build failed. One that is called `regatta` serves `cpu` and
    /// `cuda` of a revision.
    #[serde(default, deserialize_with = "paths_below")]
    pub makes: Vec<PathBuf>,
    /// The origin in the suite: file, line and key.
    #[serde(skip)]
    pub origin: String,
}

impl Build {
    /// The output named `regatta`, which serves `cpu` and `cuda` of a revision.
    pub fn regatta(&self) -> Option<&Path> {
        let mut paths = self.makes.iter().map(PathBuf::as_path);
        paths.find(|path| path.file_name().is_some_and(|name| name == "regatta"))
    }
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    if words.first().is_none_or(String::is_empty) {
        Err(D::Error::custom("an empty command builds nothing"))
    } else {
        Ok(words)
    }
}

fn paths_below<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    #[derive(Deserialize)]
    struct Below(#[serde(deserialize_with = "path_below")] PathBuf);
    let paths = Vec::<Below>::deserialize(deserializer)?;
    Ok(paths.into_iter().map(|Below(path)| path).collect())
}

/// A path below the folder in which the command runs. Any other path would refer to today's
/// checkout, whichever revision is built.
fn path_below<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    let below = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !path.as_os_str().is_empty() && path.components().all(below) {
        Ok(path)
    } else {
        Err(D::Error::custom(
            "name what is made by its path from the folder that the command runs in, without a \
             leading `/` and without `..`",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_regatta_among_what_is_made_is_the_one_of_that_name() {
        let regatta = |makes: &[&str]| {
            let build = Build {
                command: vec!["make".to_owned()],
                makes: makes.iter().map(PathBuf::from).collect(),
                origin: String::new(),
            };
            build.regatta().map(Path::to_owned)
        };
        let path = "target/release/regatta";
        assert_eq!(regatta(&["a", path]), Some(PathBuf::from(path)));
        assert_eq!(regatta(&["a"]), None);
    }
}
