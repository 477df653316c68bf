//! Which command starts a worker, and in which environment.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::environments::{Made, interpreter_of};
use super::identity::identity;
use super::launcher::Launcher;
use crate::attention::VariantId;
use crate::record::identity::Identity;
use crate::suite::Suite;
use crate::suite::document::nearest;
use crate::suite::environment::Environment;
use crate::worker::host::{Conversation, HostError, Process, Spec};
use crate::worker::{gpu_clock, python};

/// Where Python looks for modules before anywhere else.
const PYTHONPATH: &str = "PYTHONPATH";

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
    limit: Duration,
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
        Ok(Processes {
            specs,
            logs,
            // A library is loaded over the first request, whose limit is that of any other.
            limit: Duration::from_secs(suite.settings.timeout_s.into()),
        })
    }

    /// The same, with another limit for a worker to introduce itself.
    pub fn within(self, limit: Duration) -> Processes {
        Processes { limit, ..self }
    }

    /// Begins logs anew: what other runs printed is no part of this one's.
    pub fn begin_logs(&self) {
        for worker in self.specs.keys() {
            // Where one cannot be removed, starting the worker says why.
            let _ = fs::remove_file(self.log(worker));
        }
    }

    /// A worker's log, whatever it is called.
    fn log(&self, worker: &str) -> PathBuf {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        let name = worker.replace(|c| !plain(c), "_");
        self.logs.join(format!("{name}.log"))
    }
}

/// Holds declared environments to the workers that there are, and `default`, the environment
/// of workers that name none, to those that are declared.
///
/// # Errors
/// A name that nobody has or that regatta has itself, or requirements for a worker that no
/// interpreter runs.
pub fn declared(suite: &Suite, default: Option<&str>) -> Result<(), NoCommand> {
    let mut declared = suite.origins_of_workers.iter();
    if let Some((name, place)) = declared.find(|(name, _)| is_own(name)) {
        return Err(NoCommand(format!(
            "{place}: `{name}` is a worker of regatta's own, and another in its place would be \
             measured under its name; call this one something else"
        )));
    }
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

/// True for a worker that comes with regatta.
fn is_own(worker: &str) -> bool {
    OWN.contains(&worker) || python::LIBRARIES.contains(&worker)
}

fn is_known(worker: &str, suite: &Suite) -> bool {
    is_own(worker) || suite.workers.contains_key(worker)
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

impl Processes {
    /// What is measured by these workers: their commands, files and variables.
    pub fn identity(&self) -> Identity {
        identity(self.specs.values())
    }
}

impl Launcher for Processes {
    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, HostError> {
        let Some(spec) = self.specs.get(worker) else {
            return Err(HostError::Refused {
                name: worker.to_owned(),
                reason: "nobody declared this worker".to_owned(),
            });
        };
        fs::create_dir_all(&self.logs).map_err(|error| HostError::Log {
            name: worker.to_owned(),
            path: self.logs.display().to_string(),
            error,
        })?;
        let log = self.log(worker);
        Ok(Box::new(Process::start(spec, &log, self.limit)?))
    }
}

fn spec(name: &str, suite: &Suite, default: Option<&str>) -> Result<Spec, NoCommand> {
    let worker = name.split_once('@').map_or(name, |(worker, _)| worker);
    let (environment_name, environment) = environment_of(name, suite, default)?;
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

/// The environment of `worker` or `worker@environment`: the one named; for one that names
/// none the caller's `default`, the one declared for the worker, or `environments.default`.
fn environment_of<'a>(
    name: &'a str,
    suite: &'a Suite,
    default: Option<&'a str>,
) -> Result<(&'a str, Environment), NoCommand> {
    let (worker, named) = match name.split_once('@') {
        Some((worker, named)) => (worker, Some(named)),
        None => (name, None),
    };
    let fallback = suite.environments.get("default");
    let declared = || {
        let mut all = suite.environments.iter();
        all.find(|(_, environment)| environment.workers.iter().any(|name| name == worker))
    };
    let (found, mut environment) = if let Some(wanted) = named.or(default) {
        let environment = find_environment(wanted, suite)?;
        if named.is_some() && is_known(worker, suite) {
            serves(wanted, &environment, worker, suite)?;
        }
        (wanted, environment)
    } else if let Some((own, environment)) = declared() {
        let mut environment = environment.clone();
        if let Some(fallback) = fallback {
            environment.complete_variables(fallback);
        }
        (own.as_str(), environment)
    } else {
        ("default", fallback.cloned().unwrap_or_default())
    };
    // An environment of variables or folders alone runs in the default interpreter.
    if let Some(fallback) = fallback.filter(|fallback| fallback.requirements.is_empty()) {
        environment.complete_python(fallback);
    }
    Ok((found, environment))
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
            worker.display().to_string(),
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
    fn import_paths_stand_before_an_environments_own() {
        let environment = Environment {
            interpreter: Some("/opt/python".to_owned()),
            env: BTreeMap::from([("PYTHONPATH".to_owned(), "/own:/other".to_owned())]),
            import_paths: vec!["first".to_owned(), "second".to_owned()],
            ..Environment::default()
        };
        let suite = Suite {
            environments: BTreeMap::from([("default".to_owned(), environment)]),
            ..Suite::default()
        };
        let env = spec("torch", &suite, None).unwrap().env;
        let paths: Vec<&str> = env
            .iter()
            .filter(|(name, _)| name == "PYTHONPATH")
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(paths, ["first:second:/own:/other"]);
    }

    #[test]
    fn a_log_lies_in_its_folder_whatever_the_worker_is_called() {
        let processes = Processes {
            specs: BTreeMap::new(),
            logs: PathBuf::from("logs"),
            limit: Duration::ZERO,
        };
        let log = |name| processes.log(name).display().to_string();
        assert_eq!(log("torch@old-1.0"), "logs/torch@old-1.0.log");
        assert_eq!(log("../../x\u{1b}"), "logs/.._.._x_.log");
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
