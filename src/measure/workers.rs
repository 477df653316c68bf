//! Which command starts a worker, and in which environment.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::environments::{Made, interpreter_of};
use super::session::Launcher;
use crate::attention::VariantId;
use crate::suite::Suite;
use crate::suite::document::nearest;
use crate::suite::environment::Environment;
use crate::worker::host::{Conversation, HostError, Process, Spec};
use crate::worker::{gpu_clock, python};

/// Importing a large library on a cold disk takes its time.
const HELLO_LIMIT: Duration = Duration::from_secs(180);

/// Workers that are this executable.
const OWN: [&str; 2] = ["cpu", "cuda"];

/// Why a worker has no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCommand(String);

/// Starts workers as processes, each with a log of its own.
pub struct Processes {
    specs: BTreeMap<String, Spec>,
    logs: PathBuf,
}

impl Processes {
    /// Finds the command of every worker named. `environment` is the one used
    /// where a variant names none.
    ///
    /// # Errors
    /// A worker or an environment that nobody declared; see also [`declared`].
    pub fn find<'a>(
        workers: impl Iterator<Item = &'a String>,
        suite: &Suite,
        environment: Option<&str>,
        logs: PathBuf,
    ) -> Result<Processes, NoCommand> {
        declared(suite, environment)?;
        let specs = workers
            .map(|name| {
                let spec = spec(name, suite, environment).map_err(|error| {
                    let asks = |variant: &&VariantId| variant.worker_name() == *name;
                    match suite.origins.keys().find(asks) {
                        Some(variant) => NoCommand(format!("{}: {error}", suite.origins[variant])),
                        None => error,
                    }
                })?;
                Ok((name.clone(), spec))
            })
            .collect::<Result<_, NoCommand>>()?;
        Ok(Processes { specs, logs })
    }
}

/// Holds declared environments to the workers that there are, and `default`, the environment
/// of workers that name none, to those that are declared.
///
/// # Errors
/// A name that nobody has, or requirements for a worker that no interpreter runs.
pub fn declared(suite: &Suite, default: Option<&str>) -> Result<(), NoCommand> {
    for (name, environment) in &suite.environments {
        for worker in &environment.workers {
            if !is_known(worker, suite) {
                let error = unknown(worker, suite);
                return Err(NoCommand(format!("[environments.{name}] workers: {error}")));
            }
            serves(name, environment, worker, suite)?;
        }
    }
    default.map_or(Ok(()), |name| find_environment(name, suite).map(|_| ()))
}

/// Requirements are installed for an interpreter, which only Python workers are started with.
fn serves(
    name: &str,
    environment: &Environment,
    worker: &str,
    suite: &Suite,
) -> Result<(), NoCommand> {
    let python = python::LIBRARIES.contains(&worker) && !suite.workers.contains_key(worker);
    if environment.requirements.is_empty() || python {
        return Ok(());
    }
    Err(NoCommand(format!(
        "[environments.{name}] has `requirements`, and worker `{worker}` is started by a command \
         of its own, so that nothing is installed for it; give it an environment without them"
    )))
}

fn is_known(worker: &str, suite: &Suite) -> bool {
    OWN.contains(&worker)
        || python::LIBRARIES.contains(&worker)
        || suite.workers.contains_key(worker)
}

fn unknown(worker: &str, suite: &Suite) -> NoCommand {
    let known = OWN.iter().chain(python::LIBRARIES).copied();
    let known: Vec<&str> = known
        .chain(suite.workers.keys().map(String::as_str))
        .collect();
    let hint = match nearest(worker, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "known: {}; others are declared in [workers.NAME]",
            known.join(", ")
        ),
    };
    NoCommand(format!("no worker is called `{worker}`; {hint}"))
}

impl Launcher for Processes {
    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, HostError> {
        let Some(spec) = self.specs.get(worker) else {
            return Err(HostError::Refused {
                name: worker.to_owned(),
                reason: "nobody declared this worker".to_owned(),
            });
        };
        // Starting fails with a clear message if the folder cannot be made.
        let _ = fs::create_dir_all(&self.logs);
        let log = self.logs.join(format!("{worker}.log"));
        Ok(Box::new(Process::start(spec, &log, HELLO_LIMIT)?))
    }
}

fn spec(name: &str, suite: &Suite, default: Option<&str>) -> Result<Spec, NoCommand> {
    let (worker, environment) = match name.split_once('@') {
        Some((worker, environment)) => (worker, Some(environment)),
        None => (name, default),
    };
    if let Some((_, wanted)) = name.split_once('@')
        && let Some(environment) = suite.environments.get(wanted)
        && is_known(worker, suite)
    {
        serves(wanted, environment, worker, suite)?;
    }
    let (environment_name, mut environment) = match environment {
        Some(wanted) => (wanted, find_environment(wanted, suite)?),
        None => own_environment(worker, suite),
    };
    // An environment of variables or folders alone runs in the default interpreter.
    if let Some(default) = suite.environments.get("default")
        && default.requirements.is_empty()
    {
        environment.complete_python(default);
    }
    let env = environment.env.clone().into_iter().collect();
    if let Some(command) = suite.workers.get(worker) {
        let (program, args) = command
            .0
            .split_first()
            .ok_or_else(|| NoCommand(format!("worker `{worker}` has an empty command")))?;
        return Ok(Spec {
            name: name.to_owned(),
            program: PathBuf::from(program),
            args: args.to_vec(),
            env,
            fix: format!("see `command` of [workers.{worker}]"),
        });
    }
    if OWN.contains(&worker) {
        let program = std::env::current_exe()
            .map_err(|error| NoCommand(format!("cannot find regatta's own executable: {error}")))?;
        return Ok(Spec {
            name: name.to_owned(),
            program,
            args: vec!["worker".to_owned(), "serve".to_owned(), worker.to_owned()],
            env,
            fix: "is the executable still there?".to_owned(),
        });
    }
    if python::LIBRARIES.contains(&worker) {
        return python_spec(name, worker, environment_name, &environment);
    }
    Err(unknown(worker, suite))
}

fn find_environment(wanted: &str, suite: &Suite) -> Result<Environment, NoCommand> {
    if let Some(environment) = suite.environments.get(wanted) {
        return Ok(environment.clone());
    }
    let known = suite.environments.keys().map(String::as_str);
    let hint = match nearest(wanted, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("declare it as [environments.{wanted}] in the suite or in regatta.toml"),
    };
    Err(NoCommand(format!(
        "no environment is called `{wanted}`; {hint}"
    )))
}

/// The environment of a worker whose variant names none: one that is declared for it, or
/// the default one.
fn own_environment<'a>(worker: &str, suite: &'a Suite) -> (&'a str, Environment) {
    let declared = suite.environments.iter();
    let own = declared
        .filter(|(_, environment)| environment.workers.iter().any(|name| name == worker))
        .map(|(name, environment)| (name.as_str(), environment.clone()))
        .next();
    let default = suite.environments.get("default");
    match own {
        Some((name, mut environment)) => {
            if let Some(default) = default {
                environment.complete_variables(default);
            }
            (name, environment)
        }
        None => ("default", default.cloned().unwrap_or_default()),
    }
}

/// Where the GPU clock is, unless the environment or the user (`is_set`) says it.
fn clock_variable(
    environment: &BTreeMap<String, String>,
    is_set: impl Fn(&str) -> bool,
) -> Result<Option<(String, String)>, NoCommand> {
    let variable = gpu_clock::VARIABLE;
    if environment.contains_key(variable) || is_set(variable) {
        return Ok(None);
    }
    let library = gpu_clock::install().map_err(|error| {
        NoCommand(format!(
            "cannot write the GPU clock into the cache: {error}"
        ))
    })?;
    Ok(library.map(|path| (variable.to_owned(), path.display().to_string())))
}

fn python_spec(
    name: &str,
    library: &str,
    environment_name: &str,
    environment: &Environment,
) -> Result<Spec, NoCommand> {
    let main = python::install().map_err(|error| {
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
        paths.extend(
            std::env::var("PYTHONPATH")
                .ok()
                .filter(|path| !path.is_empty()),
        );
        env.push(("PYTHONPATH".to_owned(), paths.join(":")));
    }
    env.extend(clock_variable(&environment.env, |name| {
        std::env::var_os(name).is_some()
    })?);
    // A worker is read-only to the user's checkout and talks on its own channel.
    env.push(("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()));
    env.push(("PYTHONUNBUFFERED".to_owned(), "1".to_owned()));
    Ok(Spec {
        name: name.to_owned(),
        program: interpreter,
        args: vec![
            main.display().to_string(),
            "--library".to_owned(),
            library.to_owned(),
        ],
        env,
        fix: "name the interpreter in [environments.default] of regatta.toml or in \
              REGATTA_PYTHON"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_without_an_interpreter_has_the_default_one() {
        let suite = Suite {
            environments: BTreeMap::from([
                (
                    "default".to_owned(),
                    Environment {
                        interpreter: Some("/opt/python".to_owned()),
                        env: BTreeMap::from([("NCCL_NVLS_ENABLE".to_owned(), "0".to_owned())]),
                        ..Environment::default()
                    },
                ),
                (
                    "ranks".to_owned(),
                    Environment {
                        import_paths: vec!["libraries".to_owned()],
                        workers: vec!["sequence_parallel".to_owned()],
                        ..Environment::default()
                    },
                ),
            ]),
            ..Suite::default()
        };
        let own = spec("sequence_parallel", &suite, None).unwrap();
        assert_eq!(own.program, PathBuf::from("/opt/python"));
        assert!(
            own.env
                .contains(&("NCCL_NVLS_ENABLE".to_owned(), "0".to_owned()))
        );
        // One that is asked for by name has no other's variables.
        let named = spec("torch@ranks", &suite, None).unwrap();
        assert_eq!(named.program, PathBuf::from("/opt/python"));
        assert!(named.env.iter().all(|(name, _)| name != "NCCL_NVLS_ENABLE"));
    }

    #[test]
    fn an_environment_is_for_workers_that_there_are() {
        let found = |worker: &str, requirements: &[&str], asked: &str| {
            let environment = Environment {
                requirements: requirements.iter().map(|&line| line.to_owned()).collect(),
                workers: vec![worker.to_owned()],
                ..Environment::default()
            };
            let suite = Suite {
                environments: BTreeMap::from([("boats".to_owned(), environment)]),
                ..Suite::default()
            };
            let asked = asked.to_owned();
            let found = Processes::find(std::iter::once(&asked), &suite, None, PathBuf::new());
            found.map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(
            found("torhc", &[], "cpu").unwrap_err(),
            "[environments.boats] workers: no worker is called `torhc`; did you mean `torch`?"
        );
        // What is made for torch is no matter of cpu's, until cpu is to run in it.
        let pinned = ["einops==0.8.2"];
        assert_eq!(found("torch", &pinned, "cpu"), Ok(()));
        for (worker, asked) in [("torch", "cpu@boats"), ("cuda", "cpu")] {
            let error = found(worker, &pinned, asked).unwrap_err();
            assert!(
                error.contains("[environments.boats] has `requirements`"),
                "{error}"
            );
        }
        assert_eq!(found("cuda", &[], "cpu@boats"), Ok(()));
    }

    #[test]
    fn python_workers_are_given_the_gpu_clock_unless_someone_chose() {
        let unset = |_: &str| false;
        let (name, path) = clock_variable(&BTreeMap::new(), unset).unwrap().unwrap();
        assert_eq!(name, "REGATTA_PROBE");
        assert!(fs::metadata(path).is_ok_and(|library| library.len() > 0));
        let off = BTreeMap::from([(name, String::new())]);
        assert_eq!(clock_variable(&off, unset).unwrap(), None);
        assert_eq!(clock_variable(&BTreeMap::new(), |_| true).unwrap(), None);
    }
}
