//! The command that starts a worker, and the files for it inside this executable: the GPU clock as
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

/// Environment variable with the folders that Python searches first for modules.
const PYTHONPATH: &str = "PYTHONPATH";

/// Environment variable that fixes the order of sets of strings in all processes: a script that
/// iterates over a set calls its timers in that order.
const HASH_SEED: &str = "PYTHONHASHSEED";

/// Environment variable that decides whether processes of Python workers are forked from a process
/// that has imported the library: `no`, or `always`, which fails where forking is not safe.
const FORK: &str = "REGATTA_FORK";

/// The command of a worker, named `worker` or `worker@environment`.
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

/// The command of an operator's reference.
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

/// The command of a worker that is this executable.
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

/// The arguments that give a user's kernels to regatta's own worker. Both files are arguments of
/// their own, so that the measured code is identified by them (`identity`).
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

/// The way in which processes of a Python worker are made. A worker of several ranks is not forked:
/// it imports nothing that takes time, and starts a process for each rank.
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

/// The arguments that give a user's functions to the Python worker. The file or module is an
/// argument of its own, so that the measured code is identified by it (`identity`).
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

/// The arguments that give a script to the Python worker. Its file and its arguments are arguments
/// of their own, so that the measured code is identified by them (`identity`).
fn script(worker: &str, script: &Script) -> Vec<String> {
    let file = from_here(&script.file).display().to_string();
    let words = ["--script", &file, "--name", worker, "--"].map(str::to_owned);
    [words.to_vec(), script.arguments.clone()].concat()
}

/// Makes a path below the current folder relative. The worker of another version is started in that
/// version's folder, and finds its own file there.
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
        // The environment's own value replaces the one of this process.
        let own = environment.env.get(PYTHONPATH).cloned();
        let path = own.or_else(|| std::env::var(PYTHONPATH).ok());
        paths.extend(path.filter(|path| !path.is_empty()));
        env.retain(|(name, _)| name != PYTHONPATH);
        env.push((PYTHONPATH.to_owned(), paths.join(":")));
    }
    env.extend(clock_variable(&environment.env)?);
    // A worker must not write into the user's checkout, and replies on its own channel.
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

/// The variable with the GPU clock's library, unless the environment or the user sets it.
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

/// Environment variable with the path of the GPU clock's library for a worker. A value set by the
/// user stays: another path is another build, and an empty value switches the clock off.
pub const PROBE_VARIABLE: &str = "REGATTA_PROBE";

/// The GPU clock (`crates/probe/`) as build.rs compiled it; empty if that failed.
const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libregatta_probe.so"));

/// Writes the GPU clock into the user's cache and returns its path. Returns `None` if this regatta
/// was built without it.
///
/// # Errors
/// The cache cannot be written.
pub fn install_probe() -> io::Result<Option<PathBuf>> {
    if PROBE.is_empty() {
        return Ok(None);
    }
    const NAME: &str = "libregatta_probe.so";
    let folder = cache::install("probe", &[(NAME, PROBE)])?;
    Ok(Some(folder.join(NAME)))
}

// `FILES` (name and text of each) and `LIBRARIES`, which build.rs finds in `python/`.
include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// The package's folder, which contains nothing else: Python imports from its parent, so other
/// files there would shadow modules of libraries.
pub(super) const PACKAGE: &str = "regatta_worker";

/// Writes the Python worker into the user's cache, and returns its package's folder, which Python
/// runs like a script.
///
/// # Errors
/// The cache cannot be written.
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

    /// A suite with these environments. The first one names the interpreter.
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
        // An environment that is asked for by name has no variables of another.
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
        // SAFETY: the library has no constructors, and crates/probe/src/capi.rs defines the
        // function with this signature.
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
