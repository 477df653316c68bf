//! Python environments of a suite: where they lie, and making them from pinned
//! requirements.
//!
//! An environment lies in the cache, under a name that holds a checksum of all that it is
//! made from, so that a changed requirement is another environment. Its lock, what is
//! really installed in it, is written last: without one it is not finished.

use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use crate::worker::program::{Leaves, Program, Started, Streams, why};
use regatta_core::cache;
use regatta_core::input;
use regatta_core::output;
use regatta_core::record::built::Built;
use regatta_core::suite::environment::Environment;
use regatta_worker::attention::{NAME_RULE, is_name};

/// How pip is asked.
const PIP: &[&str] = &["-m", "pip", "--disable-pip-version-check"];

/// Name of the file of what is installed, a line each.
const LOCK: &str = "regatta.lock";
/// Name of the file of what installing took, where something was built.
const BUILT: &str = "regatta.built.json";
/// Name of the file of all that pip says while it installs.
const LOG: &str = "pip.log";
/// The most that is read of that.
const LOG_SIZE: u64 = 256 << 20;
/// Name of the file that pip installs from.
const REQUIREMENTS: &str = "requirements.txt";

/// Why an environment cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// It has requirements and was not made.
    #[error("environment `{0}` is not made yet: run `regatta env make {0}`")]
    NotMade(String),
    /// A program that makes it could not be started.
    #[error(
        "environment `{name}`: cannot start {program}: {why}; name a Python in its `interpreter`"
    )]
    Start {
        /// The environment.
        name: String,
        /// The program.
        program: String,
        /// The reason.
        why: String,
    },
    /// A step of making it failed; what it printed stands on standard error.
    #[error("environment `{name}`: {step} failed ({status}); its words are above")]
    Step {
        /// The environment.
        name: String,
        /// What was tried.
        step: &'static str,
        /// How it ended.
        status: String,
    },
    /// Its name is part of a folder's.
    #[error("environment `{}`: a name is {rule}", .0.escape_debug(), rule = NAME_RULE)]
    Name(String),
    /// A file of it.
    #[error("environment `{name}`: {path}: {error}")]
    File {
        /// The environment.
        name: String,
        /// The file.
        path: String,
        /// The system's words.
        error: io::Error,
    },
}

/// An environment that is made from requirements, or may be.
pub struct Made<'a> {
    name: &'a str,
    environment: &'a Environment,
    folder: PathBuf,
}

impl<'a> Made<'a> {
    /// Where this environment lies once it is made; `None` where it uses an interpreter as
    /// that is.
    ///
    /// # Errors
    /// When there is no folder for it, or its name would lead out of that.
    pub fn of(
        name: &'a str,
        environment: &'a Environment,
    ) -> Result<Option<Made<'a>>, EnvironmentError> {
        if !is_name(name) {
            return Err(EnvironmentError::Name(name.to_owned()));
        }
        if environment.requirements.is_empty() {
            return Ok(None);
        }
        let cache = cache::folder().map_err(|error| EnvironmentError::File {
            name: name.to_owned(),
            path: "the cache".to_owned(),
            error,
        })?;
        Ok(Some(Made::within(&cache, name, environment)))
    }

    fn within(cache: &Path, name: &'a str, environment: &'a Environment) -> Made<'a> {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(interpreter_of(environment).as_bytes());
        hasher.update(&[u8::from(environment.system_packages)]);
        if environment.alone {
            hasher.update(b"alone");
        }
        for line in &environment.requirements {
            hasher.update(b"\n");
            hasher.update(line.as_bytes());
        }
        for line in environment.wheels.as_deref().map_or_else(Vec::new, listing) {
            hasher.update(b"\n");
            hasher.update(line.as_bytes());
        }
        let folder = format!("{name}-{:08x}", hasher.finalize());
        Made {
            name,
            environment,
            folder: cache.join("environments").join(folder),
        }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is installed in it, `name==version` a line; `None` where it is not made.
    pub fn lock(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(LOCK)).ok()
    }

    /// Why pip could not install it, by its last error, where it was tried.
    pub fn complaint(&self) -> Option<String> {
        let log = input::bytes(&self.folder.join(LOG), LOG_SIZE).ok()?;
        let text = String::from_utf8_lossy(&log);
        let said = text
            .lines()
            .filter_map(|line| Some(line.split_once(" ERROR: ")?.1));
        let said = said.map(str::trim).rfind(|words| !words.is_empty());
        said.map(str::to_owned)
    }

    /// What installing it took, where something of it was built; `None` where pip had wheels of
    /// all of it, or it is not known.
    pub fn built(&self) -> Option<Built> {
        self.lock()?;
        let text = input::text(&self.folder.join(BUILT), input::WRITTEN_BY_HAND).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Its Python.
    ///
    /// # Errors
    /// When it is not made.
    pub fn interpreter(&self) -> Result<PathBuf, EnvironmentError> {
        match self.lock() {
            Some(_) => Ok(self.python()),
            None => Err(EnvironmentError::NotMade(self.name.to_owned())),
        }
    }

    fn python(&self) -> PathBuf {
        self.folder.join("bin").join("python")
    }

    /// Makes it, from nothing, and gives its lock. What pip prints goes to standard error.
    ///
    /// # Errors
    /// When a step fails; then it is not made.
    pub fn make(&self) -> Result<String, EnvironmentError> {
        if self.folder.exists() {
            // First: what is removed in part must not pass for an environment.
            let lock = self.folder.join(LOCK);
            match fs::remove_file(&lock) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.file(&lock, error));
                }
                _ => {}
            }
            fs::remove_dir_all(&self.folder).map_err(|error| self.file(&self.folder, error))?;
        }
        let folder = self.folder.display().to_string();
        let mut create = vec!["-m", "venv"];
        if self.environment.system_packages {
            create.push("--system-site-packages");
        }
        create.push(&folder);
        let interpreter = PathBuf::from(interpreter_of(self.environment));
        self.step("making the environment", &interpreter, &create)?;
        let requirements = self.folder.join(REQUIREMENTS);
        let text = self.environment.requirements.join("\n") + "\n";
        fs::write(&requirements, text).map_err(|error| self.file(&requirements, error))?;
        let mut install = [PIP, &["install", "--no-input"]].concat();
        if let Some(wheels) = &self.environment.wheels {
            install.extend(["--no-index", "--find-links", wheels]);
        }
        if self.environment.alone {
            install.push("--no-deps");
        }
        let listed = requirements.display().to_string();
        install.extend(["-r", &listed]);
        let log = self.folder.join(LOG);
        let written = log.display().to_string();
        install.extend(["--log", &written]);
        let began = Instant::now();
        self.step("installing its requirements", &self.python(), &install)?;
        let wall_ns = began.elapsed().into();
        if builds(&input::bytes(&log, LOG_SIZE).unwrap_or_default()) {
            let built = Built { wall_ns };
            let path = self.folder.join(BUILT);
            let text = serde_json::to_vec(&built).map_err(io::Error::from);
            let kept = text.and_then(|text| Ok(output::write(&path, &text)?));
            kept.map_err(|error| self.file(&path, error))?;
        }
        let lock = self.listing()?;
        let path = self.folder.join(LOCK);
        fs::write(&path, &lock).map_err(|error| self.file(&path, error))?;
        Ok(lock)
    }

    /// What is installed, as pip tells it.
    fn listing(&self) -> Result<String, EnvironmentError> {
        let python = self.python();
        let arguments = [PIP, &["freeze", "--all"]].concat();
        let start = |error| self.start(&python, error);
        let mut freeze = self.started(&python, &arguments, Stdio::piped())?;
        let mut text = Vec::new();
        if let Some(mut printed) = freeze.stdout() {
            printed.read_to_end(&mut text).map_err(start)?;
        }
        let status = freeze.wait().map_err(start)?;
        match status.success() {
            true => Ok(String::from_utf8_lossy(&text).into_owned()),
            false => Err(self.failed("listing what is installed", status)),
        }
    }

    /// Runs a step; standard output is the caller's own, for results.
    fn step(
        &self,
        step: &'static str,
        program: &Path,
        arguments: &[&str],
    ) -> Result<(), EnvironmentError> {
        let words = io::stderr().as_fd().try_clone_to_owned();
        let words = words.map_or_else(|_| Stdio::null(), Stdio::from);
        let mut started = self.started(program, arguments, words)?;
        let status = started.wait().map_err(|error| self.start(program, error))?;
        match status.success() {
            true => Ok(()),
            false => Err(self.failed(step, status)),
        }
    }

    /// Starts a program that ends with this one, with what it starts: installers build.
    fn started(
        &self,
        program: &Path,
        arguments: &[&str],
        stdout: Stdio,
    ) -> Result<Started, EnvironmentError> {
        let streams = Streams {
            stdin: Stdio::null(),
            stdout,
            stderr: Stdio::inherit(),
        };
        let started = Program {
            program: program.to_owned(),
            args: arguments.iter().map(|&word| word.to_owned()).collect(),
            env: Vec::new(),
            directory: None,
            leaves: Leaves::Nothing,
        }
        .start(streams, Vec::new());
        started.map_err(|error| EnvironmentError::Start {
            name: self.name.to_owned(),
            program: program.display().to_string(),
            why: why(program, &error),
        })
    }

    fn failed(&self, step: &'static str, status: std::process::ExitStatus) -> EnvironmentError {
        EnvironmentError::Step {
            name: self.name.to_owned(),
            step,
            status: status.to_string(),
        }
    }

    fn start(&self, program: &Path, error: io::Error) -> EnvironmentError {
        EnvironmentError::Start {
            name: self.name.to_owned(),
            program: program.display().to_string(),
            why: error.to_string(),
        }
    }

    fn file(&self, path: &Path, error: io::Error) -> EnvironmentError {
        EnvironmentError::File {
            name: self.name.to_owned(),
            path: path.display().to_string(),
            error,
        }
    }
}

/// True where pip says that it has built a wheel: `Created wheel for sloop: filename=…`.
fn builds(log: &[u8]) -> bool {
    String::from_utf8_lossy(log).contains(" Created wheel for ")
}

/// A folder's path, and the name and size of each file in it, in the order of names. One
/// that cannot be read is its path alone: pip says what is wrong with it.
fn listing(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<String> = entries
        .filter_map(|entry| {
            let bytes = entry.metadata().ok()?.len();
            Some(format!("{} {bytes}", entry.file_name().to_string_lossy()))
        })
        .collect();
    files.sort();
    files.insert(0, folder.to_owned());
    files
}

/// The Python that an environment names, is made with, or is left with.
pub fn interpreter_of(environment: &Environment) -> String {
    let chosen = || std::env::var("REGATTA_PYTHON").ok();
    environment
        .interpreter
        .clone()
        .or_else(|| chosen().filter(|path| !path.is_empty()))
        .unwrap_or_else(|| "python3".to_owned())
}

#[cfg(test)]
mod tests;
