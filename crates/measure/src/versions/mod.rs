//! Versions: their names on the command line, the list of releases, and the search between them.
//!
//! [`search`] is a pure function of the comparisons so far. [`bisect`] makes one comparison after
//! the other with experiments. [`releases`] come from the environment's pip. Git searches commits.

pub mod bisect;
pub mod releases;
pub mod search;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use regatta_core::secrets;
use regatta_worker::case::{NAME_RULE, ParseError, VariantId, is_name};

/// The version of one side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// The suite with the current code of this checkout.
    Here,
    /// `env:NAME`: an environment that the suite or `regatta.toml` declares.
    Environment(String),
    /// `pypi:NAME==VERSION,...`: releases of packages, in an environment made for them.
    Release(Vec<Pin>),
    /// `lock:FILE`: exactly the packages in a lock (`pip freeze`), whatever they depend on, in an
    /// environment made for it.
    Lock(String),
    /// `git:REVISION`: a revision of this checkout, built by the suite's `[build]`.
    Revision(String),
    /// `worker:NAME=COMMAND ARGUMENT...`: a worker that is started with another command.
    Worker {
        /// The worker.
        name: String,
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// `VARIANT.PARAMETER=VALUE`, as `--set` takes it.
    Parameter(String),
    /// `WORKER/NAME`: a variant.
    Variant(VariantId),
    /// `run:PATH`: a stored run, or a baseline.
    Run(String),
}

impl Spec {
    /// True if it determines the environment of Python workers.
    pub fn is_environment(&self) -> bool {
        matches!(
            self,
            Spec::Environment(_) | Spec::Release(_) | Spec::Lock(_)
        )
    }
}

/// A package at a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// The name in the package index.
    pub package: String,
    /// The version.
    pub version: String,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=={}", self.package, self.version)
    }
}

/// The forms of a version, for messages.
pub const FORMS: &str = "pypi:NAME==VERSION, git:REVISION, env:NAME, lock:FILE, \
                         worker:NAME=COMMAND, VARIANT, VARIANT.PARAMETER=VALUE, run:PATH, or here";

impl FromStr for Spec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Spec, ParseError> {
        let shown = secrets::command_line(&[text.to_owned()]).concat();
        let wrong = |what: String| ParseError::new(format!("`{}`: {what}", shown.escape_debug()));
        if text == "here" {
            return Ok(Spec::Here);
        }
        match text.split_once(':') {
            Some(("env", name)) if is_name(name) => Ok(Spec::Environment(name.to_owned())),
            Some(("env", _)) => Err(wrong(format!("the name of an environment is {NAME_RULE}"))),
            Some(("pypi", pins)) => {
                let pins = pins.split(',').map(|pin| pin.trim().parse());
                let pins: Result<Vec<Pin>, ParseError> = pins.collect();
                pins.map(Spec::Release)
                    .map_err(|error| wrong(error.to_string()))
            }
            // Git would take a revision that begins with `-` for an option.
            Some(("git", revision)) if !revision.is_empty() && !revision.starts_with('-') => {
                Ok(Spec::Revision(revision.to_owned()))
            }
            Some(("git", _)) => Err(wrong("name a revision: git:HEAD~1".to_owned())),
            Some(("worker", rest)) => worker(rest)
                .ok_or_else(|| wrong("write worker:NAME=COMMAND ARGUMENT...".to_owned())),
            Some(("lock", "")) => Err(wrong("name a file: lock:old.txt".to_owned())),
            Some(("lock", path)) => Ok(Spec::Lock(path.to_owned())),
            Some(("run", "")) => Err(wrong("name a run: run:reports/quick".to_owned())),
            Some(("run", path)) => Ok(Spec::Run(path.to_owned())),
            _ => unprefixed(text).ok_or_else(|| wrong(hint(text))),
        }
    }
}

/// A parameter or a variant, which have no prefix.
fn unprefixed(text: &str) -> Option<Spec> {
    if let Some((target, value)) = text.split_once('=') {
        let (variant, parameter) = target.rsplit_once('.')?;
        let whole = variant.parse::<VariantId>().is_ok() && !parameter.is_empty();
        // `jax==0.5.0` lacks its `pypi:`.
        return (whole && !value.is_empty() && !value.starts_with('='))
            .then(|| Spec::Parameter(text.to_owned()));
    }
    if Path::new(text).exists() {
        None
    } else {
        text.parse().ok().map(Spec::Variant)
    }
}

/// A hint at the form that was probably meant.
fn hint(text: &str) -> String {
    if text.contains("==") {
        return format!("did you mean `pypi:{text}`?");
    }
    if Path::new(text).exists() {
        format!("did you mean `run:{text}`?")
    } else if is_name(text) {
        format!("did you mean `env:{text}` or `git:{text}`?")
    } else {
        format!("a version is {FORMS}")
    }
}

/// Parses `NAME=COMMAND ARGUMENT...`, with words separated by spaces.
fn worker(text: &str) -> Option<Spec> {
    let (name, command) = text.split_once('=')?;
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    (is_name(name) && !command.is_empty()).then(|| Spec::Worker {
        name: name.to_owned(),
        command,
    })
}

impl FromStr for Pin {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Pin, ParseError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+!".contains(c);
        let pinned = text.split_once("==").filter(|(package, version)| {
            let whole = |part: &str| {
                part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(plain)
            };
            whole(package) && whole(version)
        });
        let (package, version) = pinned.ok_or_else(|| {
            ParseError::new(format!(
                "`{}` names no one release; write NAME==VERSION",
                text.escape_debug()
            ))
        })?;
        Ok(Pin {
            package: package.to_owned(),
            version: version.to_owned(),
        })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Here => f.write_str("here"),
            Spec::Environment(name) => write!(f, "env:{name}"),
            Spec::Release(pins) => {
                let pins: Vec<String> = pins.iter().map(Pin::to_string).collect();
                write!(f, "pypi:{}", pins.join(","))
            }
            Spec::Lock(path) => write!(f, "lock:{path}"),
            Spec::Revision(revision) => write!(f, "git:{revision}"),
            Spec::Worker { name, command } => write!(
                f,
                "worker:{name}={}",
                secrets::command_line(command).join(" ")
            ),
            Spec::Parameter(text) => f.write_str(text),
            Spec::Variant(variant) => variant.fmt(f),
            Spec::Run(path) => write!(f, "run:{path}"),
        }
    }
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A version in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// As given to `regatta compare`: `pypi:jax==0.5.1`.
    pub spec: Spec,
    /// The name in messages: `jax 0.5.1`.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written_as_it_was() {
        for text in [
            "here",
            "env:old-1.0",
            "pypi:jax==0.5.0",
            "pypi:jax==0.5.0,jaxlib==0.5.1",
            "pypi:torch==2.11.0+cpu",
            "lock:locks/jaxlib.txt",
            "git:HEAD~3",
            "git:v1.2/rc",
            "worker:mine=python3 worker.py --fast",
            "cpu/split-key.num_splits_key=1",
            "torch/sdpa@old.backend=flash",
            "cuda/flash-mma",
            "run:reports/quick",
        ] {
            let spec: Spec = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn what_is_none_is_refused_with_what_was_meant() {
        for (text, words) in [
            ("jax==0.5.0", "did you mean `pypi:jax==0.5.0`?"),
            ("old", "did you mean `env:old` or `git:old`?"),
            ("src", "did you mean `run:src`?"),
            ("src/versions", "did you mean `run:src/versions`?"),
            ("", "a version is pypi:NAME==VERSION"),
            ("pypi:jax", "`jax` names no one release"),
            ("pypi:jax>=1", "`jax>=1` names no one release"),
            ("pypi:jax==0.5.*", "`jax==0.5.*` names no one release"),
            ("pypi:--index==1", "names no one release"),
            ("git:", "name a revision"),
            ("git:--all", "name a revision"),
            ("env:a b", "the name of an environment is"),
            ("worker:mine", "write worker:NAME=COMMAND"),
            ("worker:mine=  ", "write worker:NAME=COMMAND"),
            ("lock:", "name a file"),
            ("run:", "name a run"),
            ("cpu/flash.threads=", "a version is"),
            ("\u{1b}[2J", "a version is"),
        ] {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains('\u{1b}'), "{error}");
        }
    }
}
