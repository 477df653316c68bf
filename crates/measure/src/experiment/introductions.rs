//! Asks every known worker to introduce itself, for `list` and `doctor`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rayon::prelude::*;

use super::ExperimentError;
use crate::command::LIBRARIES;
use crate::interrupt;
use crate::preflight;
use crate::worker::{Launcher, WorkerError, WorkerFailure};
use crate::workers::{self, OWN, Processes};
use regatta_core::last_words;
use regatta_core::suite::Suite;
use regatta_core::suite::workers::OwnWorker;
use regatta_core::temporary;
use regatta_core::text::one_line;
use regatta_worker::protocol::Hello;

/// The advice to name a Python that has the library.
const ANOTHER_PYTHON: &str =
    "name a Python that has it in [environments.default] of regatta.toml, or in REGATTA_PYTHON";

/// The requirements of CUDA kernels, for regatta's own and the user's.
const A_GPU: &str = "an NVIDIA GPU with its driver, and CUDA's compiler (nvrtc or nvcc)";

/// A worker's introduction, or the reason for its absence.
pub struct Introduction {
    /// The name of the worker.
    pub worker: String,
    /// The hello, or the reason for its absence.
    pub found: Result<Hello, Absence>,
}

/// The reason for which a worker is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The whole message.
    pub reason: String,
    /// The missing requirement in a line, the same for all workers that lack it.
    pub lacks: String,
    /// The fix.
    pub fix: String,
    /// True if the worker did not answer in time, and may be available.
    pub slow: bool,
}

/// Asks every known worker, as many at the same time as there are cores. A worker that cannot be
/// started does not affect the others. `limit` replaces the usual time limit of each.
///
/// # Errors
/// A declaration that concerns all workers is wrong: exit code 2.
pub fn introductions(
    config: &Suite,
    environment: Option<&str>,
    limit: Option<Duration>,
) -> Result<Vec<Introduction>, ExperimentError> {
    let names = OWN.into_iter().chain(LIBRARIES.iter().copied());
    let names = names
        .map(str::to_owned)
        .chain(config.workers.keys().cloned());
    introduced(names.collect(), config, environment, limit)
}

/// Asks the workers of a suite, and checks its cases against those that are available, as a run
/// does.
///
/// # Errors
/// A worker is not declared, or a run would refuse a case: exit code 2.
pub fn checked(
    suite: &Suite,
    environment: Option<&str>,
    limit: Option<Duration>,
) -> Result<Vec<Introduction>, ExperimentError> {
    let plain = || suite.cases.iter().filter(|case| !case.problem.is_call());
    let names: BTreeSet<String> = plain().map(|case| case.variant.worker_name()).collect();
    for variant in suite.cases.iter().map(|case| &case.variant) {
        if !workers::is_known(&variant.worker, suite) {
            let error = workers::unknown(&variant.worker, suite);
            return Err(preflight::at(suite.origins.get(variant), error).into());
        }
    }
    let introduced = introduced(names.into_iter().collect(), suite, environment, limit)?;
    for Introduction { worker, found } in &introduced {
        let Ok(hello) = found else { continue };
        let own = suite.cases.iter();
        for case in own.filter(|case| case.variant.worker_name() == *worker) {
            preflight::possible(suite, case, hello)?;
        }
    }
    Ok(introduced)
}

fn introduced(
    names: Vec<String>,
    config: &Suite,
    environment: Option<&str>,
    limit: Option<Duration>,
) -> Result<Vec<Introduction>, ExperimentError> {
    workers::check_declared(config, environment)?;
    let logs = temporary::folder("logs").map_err(ExperimentError::usage)?;
    interrupt::leaves(logs.path().to_owned());
    let introduced = names.into_par_iter().map(|worker| Introduction {
        found: introduction(&worker, config, environment, limit, logs.path()),
        worker,
    });
    Ok(introduced.collect())
}

fn introduction(
    name: &String,
    config: &Suite,
    environment: Option<&str>,
    limit: Option<Duration>,
    logs: &Path,
) -> Result<Hello, Absence> {
    let fix = || remedy(name, config);
    let processes = Processes::find(std::iter::once(name), config, environment, logs.to_owned());
    let processes = processes.map_err(|error| Absence::plain(&error.to_string(), fix()))?;
    let mut processes = processes.introducing(limit);
    let started = processes
        .start(name)
        .map_err(|error| failed(error, fix()))?;
    let hello = started.hello();
    if let Some(reason) = &hello.absent {
        return Err(missing(reason).unwrap_or_else(|| Absence::plain(reason, fix())));
    }
    preflight::nameable(name, hello).map_err(|error| Absence::plain(&error.to_string(), fix()))?;
    Ok(hello.clone())
}

impl Absence {
    fn plain(reason: &str, fix: String) -> Absence {
        Absence {
            reason: reason.to_owned(),
            lacks: one_line(reason),
            fix,
            slow: false,
        }
    }
}

/// The fix for a worker that does not start.
fn remedy(worker: &str, config: &Suite) -> String {
    let declared = format!("see `{worker}` in [workers] of regatta.toml");
    match config.workers.get(worker) {
        Some(OwnWorker::Command(_)) => return declared,
        Some(OwnWorker::Python { .. } | OwnWorker::Script(_)) => {
            return format!("{declared}; or {ANOTHER_PYTHON}");
        }
        Some(OwnWorker::Cuda(_)) => return format!("{declared}; it takes {A_GPU}"),
        None => {}
    }
    match worker {
        "cpu" => "it is part of regatta: please report this".to_owned(),
        regatta_cuda::NAME => {
            format!("it takes {A_GPU}; suites without cuda/ variants need none of them")
        }
        _ => ANOTHER_PYTHON.to_owned(),
    }
}

/// The absence of a worker that gave no answer. Its name is left out, since others may fail in the
/// same way.
fn failed(error: WorkerError, fix: String) -> Absence {
    let whole = if error.log.is_empty() {
        error.to_string()
    } else {
        format!("{error}\n{}", error.log)
    };
    let mut absence = Absence::plain(&whole, fix);
    let lacks = match &error.failure {
        WorkerFailure::Refused(reason) => return Absence::plain(reason, absence.fix),
        WorkerFailure::NotStarted { program, why, .. } => format!("cannot start {program}: {why}"),
        WorkerFailure::TimedOut { limit, .. } => {
            let fix = "try again: once its files are in memory it loads faster; `regatta list` \
                       waits longer";
            (absence.fix, absence.slow) = (fix.to_owned(), true);
            format!("slow to start: not answered within {limit:?}")
        }
        _ => {
            let fault = last_words::fault(&error.log);
            let fault = fault.map_or(String::new(), |line| format!(": {line}"));
            format!("{error}{fault}")
        }
    };
    absence.lacks = one_line(&lacks);
    absence
}

/// Parses the Python worker's message about a missing library, which ends in the command that would
/// install it. `None` for other messages.
fn missing(reason: &str) -> Option<Absence> {
    let (what, rest) = reason.split_once(". Install it there with `")?;
    let (command, _) = rest.split_once('`')?;
    let package = command.rsplit(' ').next()?;
    let error = what.split_once("): ").map_or(what, |(_, error)| error);
    let lacks = if error.starts_with("ModuleNotFoundError") {
        format!("`{package}` is not installed")
    } else {
        format!("`{package}` cannot be loaded: {error}")
    };
    Some(Absence {
        lacks: one_line(&lacks),
        ..Absence::plain(
            reason,
            format!("{}, or {ANOTHER_PYTHON}", one_line(command)),
        )
    })
}

/// Groups absences of the same kind with the workers that share each, in the order of the first
/// worker.
pub fn grouped(found: &[Introduction]) -> Vec<(&Absence, Vec<&str>)> {
    let mut groups: Vec<(&Absence, Vec<&str>)> = Vec::new();
    for one in found {
        let Err(absence) = &one.found else { continue };
        let same = |(other, _): &&mut (&Absence, Vec<&str>)| {
            (&other.lacks, &other.fix) == (&absence.lacks, &absence.fix)
        };
        match groups.iter_mut().find(same) {
            Some((_, workers)) => workers.push(&one.worker),
            None => groups.push((absence, vec![&one.worker])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_python_lacks_is_told_from_what_is_broken_there() {
        for (error, lacks) in [
            (
                "ModuleNotFoundError: No module named 'torch'",
                "`torch` is not installed",
            ),
            (
                "ImportError: libcudart.so.12",
                "`torch` cannot be loaded: ImportError: libcudart.so.12",
            ),
        ] {
            let reason = format!(
                "the Python module `torch`, which library `xformers` needs, cannot be loaded by \
                 /usr/bin/python3 (Python 3.12.0): {error}. Install it there with \
                 `/usr/bin/python3 -m pip install torch`, or name an interpreter that has it"
            );
            let absence = missing(&reason).unwrap();
            assert_eq!(absence.lacks, lacks);
            let fix = "/usr/bin/python3 -m pip install torch, or name";
            assert!(absence.fix.starts_with(fix), "{}", absence.fix);
        }
        assert!(missing("no GPU here").is_none());
    }
}
