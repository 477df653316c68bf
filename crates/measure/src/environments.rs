//! Python environments of a suite: where they lie, and making them from pinned
//! requirements.
//!
//! An environment lies in the cache, under a name that holds a checksum of all that it is
//! made from, so that a changed requirement is another environment. Its lock, what is
//! really installed in it, is written last: without one it is not finished.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use super::workers::{environment_of, is_python};
use crate::SetupError;
use crate::worker::program::{Program, to_stderr, why};
use regatta_core::cache;
use regatta_core::input;
use regatta_core::output;
use regatta_core::record::header::Built;
use regatta_core::suite::Suite;
use regatta_core::suite::environment::Environment;
use regatta_core::text::{plain_name, shell_command};
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

/// An environment that is made from requirements, or may be.
pub struct PythonEnvironment<'a> {
    name: &'a str,
    environment: &'a Environment,
    folder: PathBuf,
}

impl<'a> PythonEnvironment<'a> {
    /// Where this environment lies once it is made; `None` where it uses an interpreter as
    /// that is.
    ///
    /// # Errors
    /// When there is no folder for it, or its name would lead out of that.
    pub fn locate(
        name: &'a str,
        environment: &'a Environment,
    ) -> Result<Option<PythonEnvironment<'a>>, SetupError> {
        if !is_name(name) {
            return Err(error(
                name.escape_debug(),
                format!(": a name is {NAME_RULE}"),
            ));
        }
        if environment.requirements.is_empty() {
            return Ok(None);
        }
        let cache =
            cache::folder().map_err(|problem| error(name, format!(": the cache: {problem}")))?;
        Ok(Some(PythonEnvironment::within(&cache, name, environment)))
    }

    fn within(cache: &Path, name: &'a str, environment: &'a Environment) -> PythonEnvironment<'a> {
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
        for line in environment.wheels().flat_map(listing) {
            hasher.update(b"\n");
            hasher.update(line.as_bytes());
        }
        let folder = format!("{name}-{:08x}", hasher.finalize());
        PythonEnvironment {
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
    pub fn last_error(&self) -> Option<String> {
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
    pub fn interpreter(&self) -> Result<PathBuf, SetupError> {
        match self.lock() {
            Some(_) => Ok(self.python()),
            None => Err(self.error(format!(" is not made yet: run `{}`", self.command()))),
        }
    }

    /// The command that makes it.
    pub fn command(&self) -> String {
        let suite = self.environment.suite.iter();
        let suite = suite.flat_map(|suite| ["--suite", suite]);
        let words = ["regatta", "env"].into_iter().chain(suite);
        let words = words.chain(["make", self.name]).map(str::to_owned);
        shell_command(&words.collect::<Vec<_>>())
    }

    fn python(&self) -> PathBuf {
        self.folder.join("bin").join("python")
    }

    /// Makes it, from nothing, and gives its lock. What pip prints goes to standard error.
    ///
    /// # Errors
    /// When a step fails; then it is not made.
    pub fn make(&self) -> Result<String, SetupError> {
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
        self.run("making the environment", &interpreter, &create)?;
        let requirements = self.folder.join(REQUIREMENTS);
        let text = self.environment.requirements.join("\n") + "\n";
        fs::write(&requirements, text).map_err(|error| self.file(&requirements, error))?;
        let mut install = [PIP, &["install", "--no-input"]].concat();
        if self.environment.alone {
            install.push("--no-deps");
        }
        let listed = requirements.display().to_string();
        install.extend(["-r", &listed]);
        let log = self.folder.join(LOG);
        let written = log.display().to_string();
        install.extend(["--log", &written]);
        let began = Instant::now();
        let python = self.python();
        self.run("installing its requirements", &python, &install)?;
        let wall_ns = began.elapsed().into();
        if builds(&input::bytes(&log, LOG_SIZE).unwrap_or_default()) {
            let built = Built { wall_ns };
            let path = self.folder.join(BUILT);
            let text = serde_json::to_vec(&built).map_err(io::Error::from);
            let kept = text.and_then(|text| Ok(output::write(&path, &text)?));
            kept.map_err(|error| self.file(&path, error))?;
        }
        let mut freeze = Command::new(&python);
        freeze
            .args(PIP)
            .args(["freeze", "--all"])
            .stdin(Stdio::null());
        let (status, lock) = match freeze.stderr(Stdio::inherit()).output() {
            Ok(output) => (Ok(output.status), output.stdout),
            Err(error) => (Err(error), Vec::new()),
        };
        self.check("listing what is installed", &python, status)?;
        let lock = String::from_utf8_lossy(&lock).into_owned();
        let path = self.folder.join(LOCK);
        fs::write(&path, &lock).map_err(|error| self.file(&path, error))?;
        Ok(lock)
    }

    /// Runs a program that ends with this one, with what it starts: installers build.
    fn run(&self, step: &str, program: &Path, args: &[&str]) -> Result<(), SetupError> {
        let args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
        let started = Program::new(program, args).start(to_stderr(), Vec::new());
        self.check(
            step,
            program,
            started.and_then(|mut started| started.wait()),
        )
    }

    fn check(
        &self,
        step: &str,
        program: &Path,
        status: io::Result<ExitStatus>,
    ) -> Result<(), SetupError> {
        let status = status.map_err(|error| {
            self.error(format!(
                ": cannot start {}: {}; name a Python as its `python`",
                program.display(),
                why(program, &error)
            ))
        })?;
        match status.success() {
            true => Ok(()),
            false => Err(self.error(format!(": {step} failed ({status}); its words are above"))),
        }
    }

    fn file(&self, path: &Path, problem: io::Error) -> SetupError {
        self.error(format!(": {}: {problem}", path.display()))
    }

    fn error(&self, what: String) -> SetupError {
        error(self.name, what)
    }
}

/// Why an environment cannot be had; what is wrong stands behind its name.
fn error(name: impl std::fmt::Display, what: String) -> SetupError {
    SetupError(format!("environment `{name}`{what}"))
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
        .python
        .clone()
        .or_else(|| chosen().filter(|path| !path.is_empty()))
        .unwrap_or_else(|| "python3".to_owned())
}

/// The environment in which the suite's Python workers run that name none, with these
/// requirements (`jax==0.5.0`) in place of its own of the same packages, and its name.
///
/// # Errors
/// When no worker of the suite would run in it.
pub fn released(
    suite: &Suite,
    default: Option<&str>,
    requirements: &[String],
) -> Result<(String, Environment), SetupError> {
    let asked = requirements.join(",");
    let declared = replaced(suite, default, &format!("pypi:{asked}"))?;
    let name = plain_name(&asked).replace("--", "-");
    Ok((name, with(&declared, requirements)))
}

/// The same of exactly these requirements, which are all that is installed in it, whatever they
/// say that they depend on. `spec` is what asked for it, and `name` what it is called.
///
/// # Errors
/// When no worker of the suite would run in it.
pub fn locked(
    suite: &Suite,
    default: Option<&str>,
    spec: &str,
    requirements: &[String],
) -> Result<Environment, SetupError> {
    let replaced = replaced(suite, default, spec)?;
    let lines = replaced.pip_options().map(str::to_owned);
    Ok(Environment {
        requirements: lines.chain(requirements.iter().cloned()).collect(),
        alone: true,
        ..replaced
    })
}

/// The environment that another would take the place of.
fn replaced(suite: &Suite, default: Option<&str>, spec: &str) -> Result<Environment, SetupError> {
    let mut variants = suite.cases.iter().map(|case| &case.variant);
    let python =
        variants.find(|variant| variant.environment.is_none() && is_python(&variant.worker, suite));
    let Some(variant) = python else {
        return Err(SetupError(format!(
            "{spec} changes nothing: no variant of suite {} is of a Python worker that \
             leaves its environment open",
            suite.name
        )));
    };
    let (_, declared) = environment_of(&variant.worker, suite, default)?;
    Ok(declared)
}

/// An environment with these requirements before its own, of which those of the same packages
/// go.
fn with(declared: &Environment, requirements: &[String]) -> Environment {
    let named: Vec<String> = requirements.iter().map(|line| package(line)).collect();
    let kept = declared.requirements.iter();
    let kept = kept.filter(|line| !named.contains(&package(line)));
    Environment {
        requirements: requirements.iter().chain(kept).cloned().collect(),
        ..declared.clone()
    }
}

/// The package of a requirement, as indexes compare names (PEP 503).
fn package(line: &str) -> String {
    let name = line
        .split(['=', '<', '>', '!', '~', ' ', '[', ';', '@'])
        .next();
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let parts: Vec<&str> = name
        .split(['-', '_', '.'])
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("-")
}

#[cfg(test)]
mod tests;
