//! Which command starts a worker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::declared::{NoCommand, OWN, environment_of, unknown};
use super::environments::{Made, interpreter_of};
use crate::worker::host::Spec;
use crate::worker::launch::Forking;
use crate::worker::{gpu_clock, python};
use regatta_core::suite::Suite;
use regatta_core::suite::callable::{Callable, CudaFile, Functions, PythonCode};
use regatta_core::suite::environment::Environment;
use regatta_core::suite::start::Start;

/// Where Python looks for modules before anywhere else.
const PYTHONPATH: &str = "PYTHONPATH";

/// The command of `worker` or `worker@environment`.
pub(super) fn spec(name: &str, suite: &Suite, default: Option<&str>) -> Result<Spec, NoCommand> {
    let worker = name.split_once('@').map_or(name, |(worker, _)| worker);
    let (environment_name, environment) = environment_of(name, suite, default)?;
    let env: Vec<(String, String)> = environment.env.clone().into_iter().collect();
    if let Some(command) = suite.workers.get(worker) {
        let (program, args) = command
            .0
            .split_first()
            .ok_or_else(|| NoCommand(format!("worker `{worker}` has an empty command")))?;
        return Ok(Spec {
            name: name.to_owned(),
            program: PathBuf::from(program),
            args: args.to_vec(),
            env: env
                .into_iter()
                .chain(clock_variable(&environment.env)?)
                .collect(),
            directory: None,
            fix: format!("see `command` of [workers.{worker}]"),
            forking: Forking::Never,
        });
    }
    match suite.callables.get(worker) {
        Some(Callable::Python(callable)) => {
            let forking = forking(worker, suite);
            let code = functions(worker, callable);
            return python_spec(name, code, environment_name, &environment, forking);
        }
        Some(Callable::Cuda(file)) => return own_spec(name, kernels(worker, file), env),
        None => {}
    }
    if OWN.contains(&worker) {
        return own_spec(name, vec![worker.to_owned()], env);
    }
    if python::LIBRARIES.contains(&worker) {
        let forking = forking(worker, suite);
        let code = vec!["--library".to_owned(), worker.to_owned()];
        return python_spec(name, code, environment_name, &environment, forking);
    }
    Err(unknown(worker, suite))
}

/// A worker that is this executable.
fn own_spec(name: &str, words: Vec<String>, env: Vec<(String, String)>) -> Result<Spec, NoCommand> {
    let program = std::env::current_exe()
        .map_err(|error| NoCommand(format!("cannot find regatta's own executable: {error}")))?;
    let serve = ["worker", "serve"].map(str::to_owned);
    Ok(Spec {
        name: name.to_owned(),
        program,
        args: [serve.to_vec(), words].concat(),
        env,
        directory: None,
        fix: "is the executable still there?".to_owned(),
        forking: Forking::Never,
    })
}

/// How regatta's own worker is told of somebody's kernels: both files as words of their own, by
/// which the code that is measured is known (`identity`).
fn kernels(worker: &str, file: &CudaFile) -> Vec<String> {
    let path = |path: &Path| from_here(path).display().to_string();
    vec![
        "cuda".to_owned(),
        "--name".to_owned(),
        worker.to_owned(),
        "--file".to_owned(),
        path(&file.code),
        "--contract".to_owned(),
        path(&file.contract),
    ]
}

/// Whether the processes of a Python worker are forked. One of several ranks imports nothing
/// that takes time, and starts a process a rank.
fn forking(worker: &str, suite: &Suite) -> Forking {
    let said = suite.starts.get(worker).map(|starting| starting.start);
    match said.unwrap_or_default() {
        Start::Auto if worker == "sequence_parallel" => Forking::Never,
        Start::Auto => Forking::WhereSound,
        Start::Exec => Forking::Never,
        Start::Fork => Forking::Always,
    }
}

/// How the Python worker is told of somebody's functions: a file and a module as words of their
/// own, by which the code that is measured is known (`identity`).
fn functions(worker: &str, callable: &Functions) -> Vec<String> {
    let mut words = match &callable.code {
        PythonCode::File(path) => vec!["--file".to_owned(), from_here(path).display().to_string()],
        PythonCode::Module(module) => vec!["-m".to_owned(), module.clone()],
    };
    words.extend(["--name".to_owned(), worker.to_owned()]);
    if let Some(function) = &callable.function {
        words.extend(["--function".to_owned(), function.clone()]);
    }
    if let Some(framework) = &callable.framework {
        words.extend(["--framework".to_owned(), framework.to_string()]);
    }
    words
}

/// A path below the folder that regatta was started in, from there: the worker of another version
/// is started in the folder that stands for it, and has its own file there.
fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).to_owned()
}

fn python_spec(
    name: &str,
    code: Vec<String>,
    environment_name: &str,
    environment: &Environment,
    forking: Forking,
) -> Result<Spec, NoCommand> {
    let worker = python::install().map_err(|error| {
        NoCommand(format!(
            "cannot write the Python worker into the cache: {error}"
        ))
    })?;
    let made = Made::of(environment_name, environment)
        .and_then(|made| made.map(|made| made.interpreter()).transpose())
        .map_err(|error| NoCommand(error.to_string()))?;
    let interpreter = made.unwrap_or_else(|| interpreter_of(environment).into());
    let mut env: Vec<(String, String)> = environment.env.clone().into_iter().collect();
    if !environment.import_paths.is_empty() {
        let mut paths = environment.import_paths.clone();
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
    Ok(Spec {
        name: name.to_owned(),
        program: interpreter,
        args: [vec![worker.display().to_string()], code].concat(),
        env,
        directory: None,
        fix: "name the interpreter in [environments.default] of regatta.toml or in \
              REGATTA_PYTHON"
            .to_owned(),
        forking,
    })
}

/// Where the GPU clock is, unless the environment or the user says it.
fn clock_variable(
    environment: &BTreeMap<String, String>,
) -> Result<Option<(String, String)>, NoCommand> {
    let variable = gpu_clock::VARIABLE;
    if environment.contains_key(variable) || std::env::var_os(variable).is_some() {
        return Ok(None);
    }
    let library = gpu_clock::install().map_err(|error| {
        NoCommand(format!(
            "cannot write the GPU clock into the cache: {error}"
        ))
    })?;
    Ok(library.map(|path| (variable.to_owned(), path.display().to_string())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use regatta_core::suite::WorkerCommand;

    /// A suite with these environments; the first has the interpreter.
    fn suite(environments: [(&str, Environment); 2]) -> Suite {
        let mut environments = environments.map(|(name, of)| (name.to_owned(), of));
        environments[0].1.interpreter = Some("/opt/python".to_owned());
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
            import_paths: vec!["first".to_owned(), "second".to_owned()],
            workers: vec!["sequence_parallel".to_owned()],
            ..Environment::default()
        };
        let suite = suite([("default", default), ("ranks", ranks)]);
        let own = |worker: &str, name: &str| {
            let spec = spec(worker, &suite, None).unwrap();
            assert_eq!(spec.program, PathBuf::from("/opt/python"));
            let mut env = spec.env.into_iter().filter(|(known, _)| known == name);
            env.next().map(|(_, value)| value)
        };
        assert_eq!(
            own("sequence_parallel", "NCCL_NVLS_ENABLE").as_deref(),
            Some("0")
        );
        // One that is asked for by name has no other's variables.
        assert_eq!(own("torch@ranks", "NCCL_NVLS_ENABLE"), None);
        let paths = own("torch@ranks", "PYTHONPATH");
        assert_eq!(paths.as_deref(), Some("first:second:/own:/other"));
    }

    #[test]
    fn workers_in_other_languages_are_given_the_gpu_clock_unless_someone_chose() {
        let mut suite = suite([
            ("default", Environment::default()),
            ("off", Environment::default()),
        ]);
        let command = WorkerCommand(vec!["./worker".to_owned()]);
        suite.workers.insert("mine".to_owned(), command);
        let off = &mut suite.environments.get_mut("off").unwrap().env;
        off.insert(gpu_clock::VARIABLE.to_owned(), String::new());
        for worker in ["mine", "torch"] {
            let clock = |name: &str| {
                let env = spec(name, &suite, None).unwrap().env.into_iter();
                let mut own = env.filter(|(name, _)| name == gpu_clock::VARIABLE);
                own.next().unwrap().1
            };
            let library = fs::metadata(clock(worker));
            assert!(library.is_ok_and(|library| library.len() > 0));
            assert_eq!(clock(&format!("{worker}@off")), "");
        }
    }
}
