//! Python environments of a suite: their folders, and their installation from pinned requirements.
//!
//! An environment is a folder in the cache. Its name has a checksum of everything that it is made
//! from, including the contents of local wheels and folders, so a changed requirement or a rebuilt
//! wheel gives another environment. Its lock, which lists the packages that are really installed,
//! is written last: without a lock it is not finished.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::files::{checksum, checksum_below};
use super::workers::{environment_of, is_python};
use crate::SetupError;
use crate::worker::program::{self, Program, to_stderr, why};
use regatta_core::cache;
use regatta_core::checksum::{self, Checksum};
use regatta_core::input;
use regatta_core::locked::LockedFolder;
use regatta_core::output;
use regatta_core::record::Built;
use regatta_core::secrets;
use regatta_core::suite::Suite;
use regatta_core::suite::environment::Environment;
use regatta_core::text::{plain_name, shell_command};
use regatta_worker::case::{NAME_RULE, is_name};

/// The command line of pip.
const PIP: &[&str] = &["-m", "pip", "--disable-pip-version-check"];

/// The file that lists installed packages, one a line.
const LOCK: &str = "regatta.lock";
/// The file with the cost of the installation, if a package was built.
const BUILT: &str = "regatta.built.json";
/// The file with pip's whole output during installation.
const LOG: &str = "pip.log";
/// The number of bytes of the log that are read, at most.
const LOG_SIZE: u64 = 256 << 20;
/// The file that pip installs from.
const REQUIREMENTS: &str = "requirements.txt";

/// An environment that is made from requirements, whether or not it exists yet.
pub struct PythonEnvironment<'a> {
    name: &'a str,
    environment: &'a Environment,
    folder: PathBuf,
    /// The folder that local requirements are relative to: a revision's if they exist there.
    origin: &'a Path,
}

impl<'a> PythonEnvironment<'a> {
    /// Returns the environment with its folder; `None` if it only uses an existing interpreter.
    ///
    /// # Errors
    /// The cache has no folder for it, or its name would lead out of the cache.
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
        let mut sum = Checksum::default();
        let interpreter = interpreter_of(environment);
        sum.add(&interpreter);
        // An upgrade may replace `python3` by another version, which has other packages.
        let real =
            program::found(Path::new(&interpreter)).and_then(|path| fs::canonicalize(path).ok());
        sum.add(real.unwrap_or_default().as_os_str().as_encoded_bytes());
        sum.add([
            u8::from(environment.system_packages),
            u8::from(environment.alone),
        ]);
        let checkout = environment.checkout.as_path();
        let lines = &environment.requirements;
        let is_there = lines
            .iter()
            .any(|line| !contents(checkout, line).is_empty());
        let origin = if is_there { checkout } else { Path::new("") };
        for line in lines {
            sum.add(line);
            for (path, contents) in contents(origin, line) {
                // The relative path is the same in each checkout.
                let path = path.strip_prefix(origin).unwrap_or(&path);
                sum.add(path.as_os_str().as_encoded_bytes());
                sum.add(contents);
            }
        }
        let folder = format!("{name}-{}", sum.name());
        PythonEnvironment {
            name,
            environment,
            folder: cache.join("environments").join(folder),
            origin,
        }
    }

    /// The folder of the environment.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The installed packages, one `name==version` a line; `None` if it is not made yet.
    pub fn lock(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(LOCK)).ok()
    }

    /// Pip's last error, if installing failed.
    pub fn last_error(&self) -> Option<String> {
        let log = input::bytes(&self.folder.join(LOG), LOG_SIZE).ok()?;
        let text = String::from_utf8_lossy(&log);
        let errors = text
            .lines()
            .filter_map(|line| Some(line.split_once(" ERROR: ")?.1));
        let errors = errors.map(str::trim).rfind(|words| !words.is_empty());
        errors.map(secrets::message)
    }

    /// The cost of the installation if packages were built. `None` if pip had wheels of all
    /// packages, or if it is unknown.
    pub fn built(&self) -> Option<Built> {
        self.lock()?;
        let text = input::text(&self.folder.join(BUILT), input::WRITTEN_BY_HAND).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The Python in it, and a lock that keeps others from making it again while it is used.
    /// Waits for a process that is making it.
    ///
    /// # Errors
    /// It is not made yet.
    pub fn interpreter(&self) -> Result<(PathBuf, LockedFolder), SetupError> {
        let in_use = LockedFolder::shared(&self.folder);
        let in_use = in_use.map_err(|error| self.error(format!(": {error}")))?;
        match self.lock() {
            Some(_) => Ok((self.python(), in_use)),
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

    /// Makes the environment unless it exists, or in any case if `again`, and returns the list of
    /// installed packages. Pip's output goes to standard error. Waits for processes that make or
    /// use it.
    ///
    /// # Errors
    /// A step failed; the environment is then not made.
    pub fn make(&self, again: bool) -> Result<String, SetupError> {
        if again {
            let _alone = LockedFolder::alone(&self.folder)?;
            self.build()?;
        }
        let is_made = || self.lock().is_some();
        let _in_use = LockedFolder::made(&self.folder, is_made, || self.build().map(drop))?;
        let not_made = || self.error(": it was removed as soon as it was made".to_owned());
        self.lock().ok_or_else(not_made)
    }

    /// Makes it from scratch. The caller has locked it.
    fn build(&self) -> Result<String, SetupError> {
        if self.folder.exists() {
            // The lock is removed first, so that a partly removed folder is not taken for an
            // environment.
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
        let named = PathBuf::from(interpreter_of(self.environment));
        // Resolved from the current folder, whatever folder the requirements are in.
        let interpreter = program::found(&named).and_then(|path| std::path::absolute(path).ok());
        let interpreter = interpreter.unwrap_or(named);
        self.run("making the environment", &interpreter, &create, None)?;
        // The file lists what was asked for. An index URL may contain a password, which only pip
        // gets.
        let asked = &self.environment.requirements;
        let kept: Vec<String> = asked
            .iter()
            .map(|line| secrets::description(line))
            .collect();
        let requirements = self.folder.join(REQUIREMENTS);
        let written = fs::write(&requirements, kept.join("\n") + "\n");
        written.map_err(|error| self.file(&requirements, error))?;
        let input = (kept != *asked).then(|| unnamed_file(&(asked.join("\n") + "\n")));
        let input = input.transpose();
        let input = input.map_err(|error| self.error(format!(": a temporary file: {error}")))?;
        let mut install = [PIP, &["install", "--no-input"]].concat();
        if self.environment.alone {
            install.push("--no-deps");
        }
        let listed = match input {
            Some(_) => "/dev/stdin".to_owned(),
            None => requirements.display().to_string(),
        };
        install.extend(["-r", &listed]);
        let log = self.folder.join(LOG);
        let written = log.display().to_string();
        install.extend(["--log", &written]);
        let began = Instant::now();
        let python = self.python();
        self.run("installing its requirements", &python, &install, input)?;
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

    /// Runs a program that is ended with this process, together with its children: installers run
    /// builds.
    fn run(
        &self,
        step: &str,
        program: &Path,
        args: &[&str],
        input: Option<File>,
    ) -> Result<(), SetupError> {
        let args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
        let mut started = Program::new(program, args);
        started.directory = Some(self.origin.to_owned()).filter(|folder| folder.is_dir());
        let mut streams = to_stderr();
        if let Some(input) = input {
            streams[0] = input.into();
        }
        let started = started.start(streams, Vec::new());
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
        if status.success() {
            Ok(())
        } else {
            Err(self.error(format!(": {step} failed ({status}); its output is above")))
        }
    }

    fn file(&self, path: &Path, problem: io::Error) -> SetupError {
        self.error(format!(": {}: {problem}", path.display()))
    }

    fn error(&self, what: String) -> SetupError {
        error(self.name, what)
    }
}

/// An unnamed file with this text. It disappears with the processes that have it open.
fn unnamed_file(text: &str) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// An error about an environment; `what` follows its name.
fn error(name: impl std::fmt::Display, what: String) -> SetupError {
    SetupError(format!("environment `{name}`{what}"))
}

/// True if pip reports that it built a wheel: `Created wheel for sloop: filename=…`.
fn builds(log: &[u8]) -> bool {
    String::from_utf8_lossy(log).contains(" Created wheel for ")
}

/// The requirements from which the environment in `folder` was made.
pub(crate) fn requirements_of(folder: &Path) -> Vec<String> {
    let text = input::text(&folder.join(REQUIREMENTS), input::WRITTEN_BY_HAND);
    text.unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The local files and folders that a requirement names relative to `checkout`, with checksums of
/// their contents, sorted by name: a wheel, a folder of wheels, a folder of sources. Missing ones
/// are left out, because pip reports them.
fn contents(checkout: &Path, line: &str) -> Vec<(PathBuf, String)> {
    let found_in = |option: &str| line.strip_prefix(option);
    if let Some(folder) = found_in("--find-links").or_else(|| found_in("-f")) {
        let folder = checkout.join(folder.trim_start_matches(['=', ' ']));
        let files = input::paths_in(&folder, Path::is_file).into_iter();
        return files.map(|path| (path.clone(), wheel(&path))).collect();
    }
    let place = match line.split_once(" @ ") {
        Some((_, url)) => url.strip_prefix("file://").unwrap_or_default(),
        None => line,
    };
    let place = place.split([' ', ';', '#']).next().unwrap_or_default();
    let path = checkout.join(place);
    if !place.is_empty() && path.is_dir() {
        let settings = ["pyproject.toml", "setup.cfg", "MANIFEST.in"].map(|name| path.join(name));
        let settings = settings.into_iter().filter(|path| path.is_file());
        let all = settings.map(|path| (path.clone(), checksum(&path)));
        return all
            .chain([(path.clone(), checksum_below(&path, &[]).unwrap_or_default())])
            .collect();
    }
    if path.is_file() {
        vec![(path.clone(), wheel(&path))]
    } else {
        Vec::new()
    }
}

/// The checksum of a wheel, cached: wheels can have gigabytes, and a command asks several times.
fn wheel(path: &Path) -> String {
    /// Identifies a file's contents by device, inode, size and change time.
    type Key = [u64; 5];
    static SUMS: Mutex<BTreeMap<Key, String>> = Mutex::new(BTreeMap::new());
    let Ok(facts) = fs::metadata(path) else {
        return String::new();
    };
    let [seconds, nanos] = [facts.ctime(), facts.ctime_nsec()].map(i64::cast_unsigned);
    let key = [facts.dev(), facts.ino(), facts.len(), seconds, nanos];
    let mut sums = SUMS.lock().unwrap_or_else(PoisonError::into_inner);
    let sum = sums.entry(key);
    sum.or_insert_with(|| checksum::of_file(path).unwrap_or_default())
        .clone()
}

/// The Python that an environment uses or is made with: its own, `REGATTA_PYTHON`, or `python3`.
pub fn interpreter_of(environment: &Environment) -> String {
    let chosen = || std::env::var("REGATTA_PYTHON").ok();
    environment
        .python
        .clone()
        .or_else(|| chosen().filter(|path| !path.is_empty()))
        .unwrap_or_else(|| "python3".to_owned())
}

/// The environment of the suite's Python workers that name none, with `requirements` (such as
/// `jax==0.5.0`) in place of its own for the same packages; and a name for it.
///
/// # Errors
/// No worker of the suite would run in it.
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

/// Like [`released`], with exactly these requirements: nothing else is installed, whatever they
/// depend on. `spec` is the version that was asked for, in messages.
///
/// # Errors
/// No worker of the suite would run in it.
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

/// The environment that a version would replace.
fn replaced(suite: &Suite, default: Option<&str>, spec: &str) -> Result<Environment, SetupError> {
    let mut variants = suite.cases.iter().map(|case| &case.variant);
    let python =
        variants.find(|variant| variant.environment.is_none() && is_python(&variant.worker, suite));
    let Some(variant) = python else {
        return Err(SetupError(format!(
            "{spec} changes nothing: suite {} has no variant of a Python worker without \
             an environment of its own",
            suite.name
        )));
    };
    let (_, declared) = environment_of(&variant.worker, suite, default)?;
    Ok(declared)
}

/// An environment with `requirements` first, and without its own requirements for the same
/// packages.
fn with(declared: &Environment, requirements: &[String]) -> Environment {
    let named: Vec<String> = requirements.iter().map(|line| package(line)).collect();
    let kept = declared.requirements.iter();
    let kept = kept.filter(|line| !named.contains(&package(line)));
    Environment {
        requirements: requirements.iter().chain(kept).cloned().collect(),
        ..declared.clone()
    }
}

/// The package that a requirement names, normalised as indexes compare names (PEP 503).
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
