//! `[workers]`: somebody's code as a worker. `workers.mine` is a Python function
//! (`"bench.py:attention"`), the kernels of a CUDA file (`"attention.cu"`), or a command
//! (`["./serve", "--fast"]`). `[build]` is how the code under test is built, before it is measured.

use std::path::{Component, Path, PathBuf};

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

use super::file::OneOrMore;

/// A worker of a suite's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnWorker {
    /// The command that starts it.
    Command(Vec<String>),
    /// Python functions, which the Python worker calls.
    Python {
        /// Where the functions are.
        code: PythonCode,
        /// The one function; `None`: each public one that begins with `q, k, v` is a variant.
        function: Option<String>,
    },
    /// A CUDA file, whose kernels regatta's own worker launches, as the file beside it that ends in
    /// `.toml` says. Its path is from the folder of the suite that names it.
    Cuda(PathBuf),
}

/// Python code, as somebody names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonCode {
    /// A file; its path is from the folder of the suite that names it.
    File(PathBuf),
    /// A module, which is imported.
    Module(String),
}

impl OwnWorker {
    /// The worker that `[workers]` names; files are from `folder`.
    ///
    /// # Errors
    /// What names no code, or a command that starts nothing, as a sentence.
    pub fn parse(written: &OneOrMore<String>, folder: &Path) -> Result<OwnWorker, String> {
        match written {
            OneOrMore::More(words) if words.first().is_none_or(String::is_empty) => {
                Err("an empty command starts nothing".to_owned())
            }
            OneOrMore::More(words) => Ok(OwnWorker::Command(words.clone())),
            OneOrMore::One(name) if name.ends_with(".cu") => Ok(OwnWorker::Cuda(folder.join(name))),
            OneOrMore::One(name) => python(name, folder),
        }
    }
}

/// The code and the function that `bench.py:attention` or `package.module` name.
fn python(text: &str, folder: &Path) -> Result<OwnWorker, String> {
    let (code, function) = match text.rsplit_once(':') {
        Some((code, function)) => (code, Some(function)),
        None => (text, None),
    };
    if let Some(name) = function.filter(|name| !is_identifier(name)) {
        return Err(format!(
            "`{name}` is no name of a Python function; write `bench.py:attention`"
        ));
    }
    let code = if code.ends_with(".py") {
        PythonCode::File(folder.join(code))
    } else if code.split('.').all(is_identifier) {
        PythonCode::Module(code.to_owned())
    } else {
        return Err(
            "this is neither a file that ends in `.py` or `.cu` nor a module; write \
             `bench.py:attention`, `package.module:attention` or `attention.cu`, or a command \
             as a list: `[\"./serve\"]`"
                .to_owned(),
        );
    };
    let function = function.map(str::to_owned);
    Ok(OwnWorker::Python { code, function })
}

/// True for what Python takes as a name, of those in ASCII.
fn is_identifier(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// How the code under test is built: a command, run in the folder that regatta is started in,
/// or at the root of a revision's worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// The program and its arguments.
    #[serde(deserialize_with = "command")]
    pub command: Vec<String>,
    /// What comes out of it: files or folders below the folder that it runs in. They are
    /// there afterwards, or the build failed. One that is called `regatta` serves `cpu` and
    /// `cuda` of a revision.
    #[serde(default, deserialize_with = "paths_below")]
    pub makes: Vec<PathBuf>,
    /// Where it was asked for: file, line and key.
    #[serde(skip)]
    pub origin: String,
}

impl Build {
    /// The regatta among what is made, which serves `cpu` and `cuda` of a revision.
    pub fn regatta(&self) -> Option<&Path> {
        let mut paths = self.makes.iter().map(PathBuf::as_path);
        paths.find(|path| path.file_name().is_some_and(|name| name == "regatta"))
    }
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    match words.first().is_none_or(String::is_empty) {
        true => Err(D::Error::custom("an empty command builds nothing")),
        false => Ok(words),
    }
}

fn paths_below<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    #[derive(Deserialize)]
    struct Below(#[serde(deserialize_with = "path_below")] PathBuf);
    let paths = Vec::<Below>::deserialize(deserializer)?;
    Ok(paths.into_iter().map(|Below(path)| path).collect())
}

/// A path below the folder that the command runs in. Another would be looked for in the
/// checkout of today, whichever revision is built.
fn path_below<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    let below = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    match !path.as_os_str().is_empty() && path.components().all(below) {
        true => Ok(path),
        false => Err(D::Error::custom(
            "name what is made by its path from the folder that the command runs in, without a \
             leading `/` and without `..`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::document::{DocumentError, TomlText};
    use crate::suite::{Suite, plan};

    #[test]
    fn what_names_no_code_is_refused_with_what_to_write() {
        for (text, words) in [
            ("bench.py:", "no name of a Python function"),
            ("bench.py:a.b", "no name of a Python function"),
            ("bench.py:f/", "no name of a Python function"),
            ("code/bench", "neither a file that ends in `.py`"),
            ("", "neither a file that ends in `.py`"),
            ("./serve", "`[\"./serve\"]`"),
        ] {
            let written = OneOrMore::One(text.to_owned());
            let error = OwnWorker::parse(&written, Path::new("")).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        for words in [vec![], vec![String::new()]] {
            let error = OwnWorker::parse(&OneOrMore::More(words), Path::new("")).unwrap_err();
            assert_eq!(error, "an empty command starts nothing");
        }
    }

    fn suite(more: &str) -> Result<Suite, String> {
        let source = |text: String| TomlText {
            label: "s.toml".to_owned(),
            text,
        };
        let base = |_: &str| -> Result<Suite, DocumentError> {
            let text = "[[sweep]]\nvariants = [\"cpu/flash\"]\nseq = 8\nhead_dim = 8\n\
                        [build]\ncommand = [\"make\"]\nmakes = [\"old\"]\n";
            plan::read("base", &source(text.to_owned()), &|name| {
                crate::suite::load(name)
            })
        };
        let text = format!("description = \"d\"\nextends = \"base\"\n{more}");
        plan::read("s", &source(text), &base).map_err(|error| error.to_string())
    }

    #[test]
    fn what_builds_nothing_is_refused_with_its_line() {
        for (text, words) in [
            ("makes = [\"a\"]", "s.toml:3: build: `command` is missing"),
            ("command = []", "s.toml:4: build.command: an empty command"),
            ("command = [\"\"]", "an empty command builds nothing"),
            ("command = \"make\"", "expected a list, found string"),
            (
                "command = [\"make\"]\nmakes = [\"a\", \"/usr/b\"]",
                "s.toml:5: build.makes[1] = \"/usr/b\": name what is made",
            ),
            ("command = [\"make\"]\nmakes = [\"../b\"]", "without `..`"),
            ("command = [\"make\"]\nmakes = [\"\"]", "name what is made"),
            (
                "command = [\"make\"]\nmaeks = [\"a\"]",
                "s.toml:5: build.maeks: unknown key; did you mean `makes`?",
            ),
        ] {
            let error = suite(&format!("[build]\n{text}\n")).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn the_regatta_among_what_is_made_is_the_one_of_that_name() {
        let makes = |paths: &str| {
            let build = format!("[build]\ncommand = [\"make\"]\nmakes = [{paths}]\n");
            let build = suite(&build).unwrap().build.unwrap();
            build.regatta().map(|path| path.display().to_string())
        };
        assert_eq!(
            makes("\"a\", \"target/release/regatta\"").as_deref(),
            Some("target/release/regatta")
        );
        assert_eq!(makes("\"a\""), None);
    }
}
