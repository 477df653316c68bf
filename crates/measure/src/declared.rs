//! Which workers and environments there are, and in which environment a worker runs.

use crate::worker::python;
use regatta_core::suite::Suite;
use regatta_core::suite::callable::Callable;
use regatta_core::suite::document::nearest;
use regatta_core::suite::environment::Environment;
use regatta_core::suite::start::{Start, Starting};

/// Workers that are this executable.
pub const OWN: [&str; 2] = ["cpu", "cuda"];

/// Why a worker has no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCommand(pub(super) String);

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
    for (name, starting) in &suite.starts {
        startable(name, starting, suite)?;
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

/// Holds a `start` to the workers that have one: those in Python that come with regatta.
fn startable(name: &str, starting: &Starting, suite: &Suite) -> Result<(), NoCommand> {
    let place = &starting.place;
    let is_cuda = matches!(suite.callables.get(name), Some(Callable::Cuda(_)));
    if suite.workers.contains_key(name) || OWN.contains(&name) || is_cuda {
        return match starting.start {
            Start::Auto | Start::Exec => Ok(()),
            Start::Fork => Err(NoCommand(format!(
                "{place}: only regatta's own workers in Python ({}) and functions (`python = ...`) \
                 can be forked; leave `start` out, and `{name}` is started for each invocation",
                python::LIBRARIES.join(", ")
            ))),
        };
    }
    match is_python(name, suite) {
        true => Ok(()),
        false => Err(NoCommand(format!("{place}: {}", unknown(name, suite)))),
    }
}

/// Requirements are installed for an interpreter, which only Python workers are started with.
fn serves(
    name: &str,
    environment: &Environment,
    worker: &str,
    suite: &Suite,
) -> Result<(), NoCommand> {
    if environment.requirements.is_empty() || is_python(worker, suite) {
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
    is_own(worker) || suite.workers.contains_key(worker) || suite.callables.contains_key(worker)
}

/// True for a worker that the Python worker which comes with regatta serves.
pub(super) fn is_python(worker: &str, suite: &Suite) -> bool {
    !suite.workers.contains_key(worker)
        && match suite.callables.get(worker) {
            Some(callable) => matches!(callable, Callable::Python(_)),
            None => python::LIBRARIES.contains(&worker),
        }
}

pub(super) fn unknown(worker: &str, suite: &Suite) -> NoCommand {
    let known = OWN.iter().chain(python::LIBRARIES).copied();
    let known: Vec<&str> = known
        .chain(suite.workers.keys().map(String::as_str))
        .chain(suite.callables.keys().map(String::as_str))
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

/// The environment of this name.
///
/// # Errors
/// When none is declared, with the one that may have been meant, or those that there are.
pub fn find_environment<'a>(wanted: &str, suite: &'a Suite) -> Result<&'a Environment, NoCommand> {
    if let Some(environment) = suite.environments.get(wanted) {
        return Ok(environment);
    }
    let known = suite.environments.keys().map(String::as_str);
    let hint = match nearest(wanted, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "declare it as [environments.{wanted}] in the suite or in regatta.toml{}",
            match known.clone().next() {
                None => String::new(),
                Some(_) => format!(" (there are {})", known.collect::<Vec<_>>().join(", ")),
            }
        ),
    };
    Err(NoCommand(format!(
        "no environment is called `{wanted}`; {hint}"
    )))
}

/// The environment of `worker` or `worker@environment`: the one named; for one that names
/// none the caller's `default`, the one declared for the worker, or `environments.default`.
pub(super) fn environment_of<'a>(
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
        let environment = find_environment(wanted, suite)?.clone();
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
