//! Workers as processes, each with its command, its environment and its log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::spec;
use super::declared::OWN;
use super::identity::identity;
use super::worker::launch::Launcher;
use crate::worker::host::{Conversation, HostError, Spec};
use crate::worker::launch::Forking;
use crate::worker::launch::Launch;
use regatta_core::record::identity::Identity;
use regatta_core::suite::Suite;
use regatta_worker::attention::VariantId;

pub use super::declared::{NoCommand, declared};

/// Starts workers as processes, each with a log of its own.
pub struct Processes {
    specs: BTreeMap<String, Spec>,
    launches: BTreeMap<String, Launch>,
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
            launches: BTreeMap::new(),
            logs,
            // A library is loaded over the first request, whose limit is that of any other.
            limit: Duration::from_secs(suite.settings.timeout_s.into()),
        })
    }

    /// The same, with another limit for a worker to introduce itself.
    pub fn within(self, limit: Duration) -> Processes {
        Processes { limit, ..self }
    }

    /// The same with every process started by itself: one alone is not worth a fork.
    pub fn each_started(mut self) -> Processes {
        for spec in self.specs.values_mut() {
            spec.forking = Forking::Never;
        }
        self
    }

    /// The same with every worker started in this folder, where its command's relative paths
    /// are then looked for; `own` serves in place of this executable.
    pub fn started_in(mut self, directory: &Path, own: Option<&Path>) -> Processes {
        for (name, spec) in &mut self.specs {
            let worker = name.split('@').next().unwrap_or(name);
            if let Some(own) = own.filter(|_| OWN.contains(&worker)) {
                spec.program = own.to_owned();
            } else if spec.program.components().count() > 1 {
                spec.program = directory.join(&spec.program);
            }
            spec.directory = Some(directory.to_owned());
        }
        self
    }

    /// Begins logs anew: what other runs printed is no part of this one's.
    pub fn begin_logs(&self) {
        for worker in self.specs.keys() {
            let path = self.log(worker);
            // Cut, since a process that has introduced itself goes on writing there. Where
            // that cannot be done, starting the worker says why.
            let _ = match fs::metadata(&path).is_ok_and(|log| log.is_file()) {
                true => fs::OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .and_then(|log| log.set_len(0)),
                false => fs::remove_file(&path),
            };
        }
    }

    /// A worker's log, whatever it is called.
    fn log(&self, worker: &str) -> PathBuf {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        let name = worker.replace(|c| !plain(c), "_");
        self.logs.join(format!("{name}.log"))
    }
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
        let launch = self.launches.entry(worker.to_owned()).or_default();
        Ok(Box::new(launch.next(spec, &log, self.limit)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::suite::environment::Environment;

    #[test]
    fn a_log_lies_in_its_folder_whatever_the_worker_is_called() {
        let processes = Processes {
            specs: BTreeMap::new(),
            launches: BTreeMap::new(),
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
        // What is made for torch is no matter of cpu's, until cpu is to run in it.
        let pinned = &["einops==0.8.2"][..];
        for (worker, requirements, asked, refused) in [
            (
                "torhc",
                &[][..],
                "cpu",
                "workers: no worker is called `torhc`; did you mean `torch`?",
            ),
            ("torch", pinned, "cpu", ""),
            ("torch", pinned, "cpu@boats", " has `requirements`"),
            ("cuda", pinned, "cpu", " has `requirements`"),
            ("cuda", &[], "cpu@boats", ""),
        ] {
            let error = found(worker, requirements, asked).err().unwrap_or_default();
            assert_eq!(error.is_empty(), refused.is_empty(), "{error}");
            assert!(error.contains(refused), "{error}");
            assert!(
                error.is_empty() || error.starts_with("[environments.boats]"),
                "{error}"
            );
        }
    }
}
