//! Which command starts a worker, and what of it travels inside this executable: the GPU clock as
//! a shared library, and the Python worker.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::environments::{PythonEnvironment, interpreter_of};
use super::workers::{OWN, environment_of, unknown};
use crate::SetupError;
use crate::session::REFERENCE_PREFIX;
use crate::worker::{Forking, WorkerSpec};
use regatta_core::cache;
use regatta_core::suite::Suite;
use regatta_core::suite::environment::Environment;
use regatta_core::suite::operators::BUILT_IN_REFERENCE;
use regatta_core::suite::script::Script;
use regatta_core::suite::workers::{OwnWorker, PythonCode};

/// Folders that Python searches for modules before all others.
const PYTHONPATH: &str = "PYTHONPATH";

/// A variable by which all processes have the words of a set in one order: a script that runs over one
/// calls its timers in that order.
const HASH_SEED: &str = "PYTHONHASHSEED";

/// A variable that says whether the processes of Python workers are forked from one that has
/// imported the library: `no`, or `always`, which fails where that is not sound.
const FORK: &str = "REGATTA_FORK";

/// The command of `worker` or `worker@environment`.
pub(super) fn worker_spec(
    name: &str,
    suite: &Suite,
    default: Option<&str>,
) -> Result<WorkerSpec, SetupError> {
    if let Some(operator) = name.strip_prefix(REFERENCE_PREFIX) {
        return reference_spec(name, operator, suite, default);
    }
    let worker = name.split_once('@').map_or(name, |(worker, _)| worker);
    let (environment_name, environment) = environment_of(name, suite, default)?;
    let env: Vec<(String, String)> = environment.env.clone().into_iter().collect();
    match suite.workers.get(worker) {
        Some(OwnWorker::Command(command)) => {
            let (program, args) = command
                .split_first()
                .ok_or_else(|| SetupError(format!("worker `{worker}` has an empty command")))?;
            let clock = clock_variable(&environment.env)?;
            return Ok(WorkerSpec {
                env: env.into_iter().chain(clock).collect(),
                fix: format!("see `{worker}` in [workers]"),
                ..WorkerSpec::new(name, program, args.to_vec())
            });
        }
        Some(OwnWorker::Python { code, function }) => {
            let forking = forking(worker, &environment)?;
            let code = functions(worker, code, function.as_ref());
            return python_spec(name, code, environment_name, &environment, forking);
        }
        Some(OwnWorker::Script(own)) => {
            let code = script(worker, own);
            let forking = Forking::Never;
            let mut spec = python_spec(name, code, environment_name, &environment, forking)?;
            let set_here = std::env::var_os(HASH_SEED).is_some();
            if !set_here && !environment.env.contains_key(HASH_SEED) {
                spec.env.push((HASH_SEED.to_owned(), "0".to_owned()));
            }
            return Ok(spec);
        }
        Some(OwnWorker::Cuda(file)) => return own_spec(name, kernels(worker, file), env),
        None => {}
    }
    if OWN.contains(&worker) {
        return own_spec(name, vec![worker.to_owned()], env);
    }
    if LIBRARIES.contains(&worker) {
        let forking = forking(worker, &environment)?;
        let code = vec!["--library".to_owned(), worker.to_owned()];
        return python_spec(name, code, environment_name, &environment, forking);
    }
    Err(unknown(worker, suite))
}

/// The process of an operator's reference.
fn reference_spec(
    name: &str,
    operator: &str,
    suite: &Suite,
    default: Option<&str>,
) -> Result<WorkerSpec, SetupError> {
    let reference = suite.operators.get(operator);
    let reference = reference.and_then(|operator| operator.reference.as_ref());
    let (file, function) = reference
        .and_then(|reference| reference.rsplit_once(':'))
        .ok_or_else(|| SetupError(format!("operator `{operator}` has no reference")))?;
    let (environment_name, environment) = environment_of(name, suite, default)?;
    let file = if BUILT_IN_REFERENCE.strip_suffix(':') == Some(file) {
        install_python_worker()?.join("callables/operators/formulas.py")
    } else {
        from_here(Path::new(file))
    };
    let file = file.display().to_string();
    let code = ["--reference", &file, "--function", function];
    let code = code.map(str::to_owned).to_vec();
    python_spec(name, code, environment_name, &environment, Forking::Never)
}

/// A worker that is this executable.
fn own_spec(
    name: &str,
    words: Vec<String>,
    env: Vec<(String, String)>,
) -> Result<WorkerSpec, SetupError> {
    let program = std::env::current_exe()
        .map_err(|error| SetupError(format!("cannot find regatta's own executable: {error}")))?;
    let serve = ["worker", "serve"].map(str::to_owned);
    Ok(WorkerSpec {
        env,
        fix: "is the executable still there?".to_owned(),
        ..WorkerSpec::new(name, program, [serve.to_vec(), words].concat())
    })
}

/// The arguments that name a user's kernels for regatta's own worker: both files as words of their own, by
/// which the code that is measured is known (`identity`).
fn kernels(worker: &str, file: &Path) -> Vec<String> {
    let path = |path: &Path| from_here(path).display().to_string();
    vec![
        "cuda".to_owned(),
        "--name".to_owned(),
        worker.to_owned(),
        "--file".to_owned(),
        path(file),
        "--contract".to_owned(),
        path(&file.with_extension("toml")),
    ]
}

/// The way that processes of a Python worker are made. One of several ranks imports nothing
/// that takes time, and starts a process a rank.
fn forking(worker: &str, environment: &Environment) -> Result<Forking, SetupError> {
    let own = environment.env.get(FORK).cloned();
    match own.or_else(|| std::env::var(FORK).ok()).as_deref() {
        None if worker == "sequence_parallel" => Ok(Forking::Never),
        None => Ok(Forking::WhereSound),
        Some("no") => Ok(Forking::Never),
        Some("always") => Ok(Forking::Always),
        Some(word) => Err(SetupError(format!(
            "{FORK} is `{word}`; set it to `no` or `always`, or leave it out"
        ))),
    }
}

/// The arguments that name a user's functions for the Python worker: a file and a module as words of their
/// own, by which the code that is measured is known (`identity`).
fn functions(worker: &str, code: &PythonCode, function: Option<&String>) -> Vec<String> {
    let mut words = match code {
        PythonCode::File(path) => vec!["--file".to_owned(), from_here(path).display().to_string()],
        PythonCode::Module(module) => vec!["-m".to_owned(), module.clone()],
    };
    words.extend(["--name".to_owned(), worker.to_owned()]);
    if let Some(function) = function {
        words.extend(["--function".to_owned(), function.clone()]);
    }
    words
}

/// The arguments that name a script for the Python worker: its file and its arguments as words of their own, by
/// which the code that is measured is known (`identity`).
fn script(worker: &str, script: &Script) -> Vec<String> {
    let file = from_here(&script.file).display().to_string();
    let words = ["--script", &file, "--name", worker, "--"].map(str::to_owned);
    [words.to_vec(), script.arguments.clone()].concat()
}

/// A path below the folder that regatta was started in, from there: the worker of another version
/// is started in the folder that stands for it, and has its own file there.
pub(super) fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).to_owned()
}

fn python_spec(
    name: &str,
    code: Vec<String>,
    environment_name: &str,
    environment: &Environment,
    forking: Forking,
) -> Result<WorkerSpec, SetupError> {
    let worker = install_python_worker()?;
    let made = PythonEnvironment::locate(environment_name, environment)?;
    let is_of_revision = !environment.checkout.as_os_str().is_empty();
    if let Some(made) = made.as_ref().filter(|_| is_of_revision) {
        made.make(false)?;
    }
    let made = made.map(|made| made.interpreter()).transpose()?;
    let (interpreter, in_use) = match made {
        Some((interpreter, lock)) => (interpreter, Some(Arc::new(lock))),
        None => (interpreter_of(environment).into(), None),
    };
    let mut env: Vec<(String, String)> = environment.env.clone().into_iter().collect();
    if !environment.paths.is_empty() {
        let mut paths = environment.paths.clone();
        // The environment's own stands in place of what this process was started with.
        let own = environment.env.get(PYTHONPATH).cloned();
        let path = own.or_else(|| std::env::var(PYTHONPATH).ok());
        paths.extend(path.filter(|path| !path.is_empty()));
        env.retain(|(name, _)| name != PYTHONPATH);
        env.push((PYTHONPATH.to_owned(), paths.join(":")));
    }
    env.extend(clock_variable(&environment.env)?);
    // A worker is read-only to the user's checkout and talks on its own channel.
    env.push(("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()));
    env.push(("PYTHONUNBUFFERED".to_owned(), "1".to_owned()));
    let args = [vec![worker.display().to_string()], code].concat();
    Ok(WorkerSpec {
        env,
        is_interpreter: true,
        fix: "name the interpreter in [environments.default] of regatta.toml or in \
              REGATTA_PYTHON"
            .to_owned(),
        forking,
        environment: in_use,
        ..WorkerSpec::new(name, interpreter, args)
    })
}

/// The library of the GPU clock, unless the environment or the user sets it.
fn clock_variable(
    environment: &BTreeMap<String, String>,
) -> Result<Option<(String, String)>, SetupError> {
    let variable = PROBE_VARIABLE;
    if environment.contains_key(variable) || std::env::var_os(variable).is_some() {
        return Ok(None);
    }
    let library = install_probe().map_err(|error| {
        SetupError(format!(
            "cannot write the GPU clock into the cache: {error}"
        ))
    })?;
    Ok(library.map(|path| (variable.to_owned(), path.display().to_string())))
}

/// Environment variable that names the GPU clock's library for a worker. Set by the user it is
/// left alone: another path is another build, an empty value switches the clock off.
pub const PROBE_VARIABLE: &str = "REGATTA_PROBE";

/// The GPU clock (`crates/probe/`) as build.rs compiled it; empty where it could not.
const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libregatta_probe.so"));

/// Writes the GPU clock into the user's cache and gives its path; `None` when this regatta was
/// built without.
///
/// # Errors
/// When the cache cannot be written.
pub fn install_probe() -> io::Result<Option<PathBuf>> {
    if PROBE.is_empty() {
        return Ok(None);
    }
    const NAME: &str = "libregatta_probe.so";
    let folder = cache::install("probe", &[(NAME, PROBE)])?;
    Ok(Some(folder.join(NAME)))
}

// `FILES`, name and text of each, and `LIBRARIES`: build.rs finds them in python.
include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// The package, in a folder that holds nothing else: Python imports from that folder, and
/// whatever lay in it would shadow a library's module of the same name.
pub(super) const PACKAGE: &str = "regatta_worker";

/// Writes the Python worker into the user's cache and gives the folder of its package, which
/// Python runs as it runs a script.
///
/// # Errors
/// When the cache cannot be written.
fn install_python_worker() -> Result<PathBuf, SetupError> {
    let files: Vec<(String, &[u8])> = FILES
        .iter()
        .map(|(name, text)| (format!("{PACKAGE}/{name}"), text.as_bytes()))
        .collect();
    let folder = cache::install("python", &files).map_err(|error| {
        SetupError(format!(
            "cannot write the Python worker into the cache: {error}"
        ))
    })?;
    Ok(folder.join(PACKAGE))
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::fs;

    use super::*;

    /// A suite with these environments; the first has the interpreter.
    fn suite(environments: [(&str, Environment); 2]) -> Suite {
        let mut environments =
            environments.map(|(name, environment)| (name.to_owned(), environment));
        environments[0].1.python = Some("/opt/python".to_owned());
        Suite {
            environments: environments.into(),
            ..Suite::default()
        }
    }

    #[test]
    fn an_environment_has_the_default_interpreter_and_its_own_variables_and_paths() {
        let variables =
            |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let default = Environment {
            env: variables("NCCL_NVLS_ENABLE", "0"),
            ..Environment::default()
        };
        let ranks = Environment {
            env: variables("PYTHONPATH", "/own:/other"),
            paths: vec!["first".to_owned(), "second".to_owned()],
            ..Environment::default()
        };
        let suite = suite([("default", default), ("sequence_parallel", ranks)]);
        let own = |worker: &str, name: &str| {
            let spec = worker_spec(worker, &suite, None).unwrap();
            assert_eq!(spec.program, PathBuf::from("/opt/python"));
            let mut env = spec.env.into_iter().filter(|(known, _)| known == name);
            env.next().map(|(_, value)| value)
        };
        assert_eq!(
            own("sequence_parallel", "NCCL_NVLS_ENABLE").as_deref(),
            Some("0")
        );
        // One that is asked for by name has no other's variables.
        assert_eq!(own("torch@sequence_parallel", "NCCL_NVLS_ENABLE"), None);
        let paths = own("torch@sequence_parallel", "PYTHONPATH");
        assert_eq!(paths.as_deref(), Some("first:second:/own:/other"));
    }

    #[test]
    fn workers_in_other_languages_are_given_the_gpu_clock_unless_someone_chose() {
        let mut suite = suite([
            ("default", Environment::default()),
            ("off", Environment::default()),
        ]);
        let command = OwnWorker::Command(vec!["./worker".to_owned()]);
        suite.workers.insert("mine".to_owned(), command);
        let off = &mut suite.environments.get_mut("off").unwrap().env;
        off.insert(PROBE_VARIABLE.to_owned(), String::new());
        for worker in ["mine", "torch"] {
            let clock = |name: &str| {
                let env = worker_spec(name, &suite, None).unwrap().env.into_iter();
                let mut own = env.filter(|(name, _)| name == PROBE_VARIABLE);
                own.next().unwrap().1
            };
            let library = fs::metadata(clock(worker));
            assert!(library.is_ok_and(|library| library.len() > 0));
            assert_eq!(clock(&format!("{worker}@off")), "");
        }
    }

    unsafe extern "C" {
        fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    }

    #[test]
    fn the_library_in_the_binary_is_the_clock_of_this_version() {
        let path = install_probe().unwrap().expect("built with the clock");
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library without constructors, and a function of the signature that
        // crates/probe/src/capi.rs gives it.
        let version = unsafe {
            let library = dlopen(path.as_ptr(), 2);
            assert!(!library.is_null(), "{path:?} cannot be loaded");
            let version = dlsym(library, c"regatta_probe_version".as_ptr());
            assert!(!version.is_null());
            let version: extern "C" fn() -> *const c_char = std::mem::transmute(version);
            CStr::from_ptr(version())
        };
        assert_eq!(version.to_str(), Ok(regatta_probe::VERSION));
    }
}
