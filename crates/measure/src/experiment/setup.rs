//! From what a command line calls a version to what is measured: the suite, an environment
//! that is made, a revision that is built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::request::{MeasureOptions, parse_override};
use super::{ExperimentError, chain};
use crate::SetupError;
use crate::building;
use crate::environments::{PythonEnvironment, locked, released};
use crate::git::{self, Place, RevisionBuild, Worktree};
use crate::versions::{Pin, Spec};
use crate::workers::{OWN, find_environment};
use regatta_core::record::header::Built;
use regatta_core::secrets;
use regatta_core::suite::document::nearest;
use regatta_core::suite::environment::pinned_file;
use regatta_core::suite::rules::Origin;
use regatta_core::suite::workers::Build;
use regatta_core::suite::workers::OwnWorker;
use regatta_core::suite::{Override, Suite};
use regatta_core::text::plain_name;
use regatta_worker::attention::VariantId;

/// What one side measures: a suite, and the code that its workers are of.
#[derive(Debug)]
pub struct Setup {
    /// As it was asked for.
    pub asked: Vec<String>,
    /// The suite as it is measured there.
    pub suite: Suite,
    /// Environment of workers that name none.
    pub environment: Option<String>,
    /// The revision that workers are of, where that is not this checkout.
    pub revision: Option<Worktree>,
    /// The variant, where one is compared with another.
    pub variant: Option<VariantId>,
}

impl Setup {
    /// The suite as it stands, in this checkout.
    ///
    /// # Errors
    /// Whatever is wrong with the suite or the command line: exit code 2.
    pub fn here(request: &MeasureOptions) -> Result<Setup, ExperimentError> {
        Ok(Setup {
            asked: vec![Spec::Here.to_string()],
            suite: request.load()?,
            environment: request.environment.clone(),
            revision: None,
            variant: None,
        })
    }

    /// The folder of its checkout.
    pub(super) fn directory(&self) -> PathBuf {
        let revision = self.revision.as_ref();
        revision.map_or(".".into(), |worktree| worktree.directory.clone())
    }

    /// Applies version specs to the suite of a request. What has to be made is made:
    /// environments, worktrees and what is built in them.
    ///
    /// # Errors
    /// Whatever cannot be had, or changes nothing: exit code 2.
    pub fn make(specs: &[Spec], args: &MeasureOptions) -> Result<Setup, ExperimentError> {
        let mut version = Setup {
            asked: specs.iter().map(Spec::to_string).collect(),
            ..Setup::here(args)?
        };
        let mut environments = specs.iter().filter(|spec| spec.is_environment());
        if let (Some(_), Some(second)) = (environments.next(), environments.next()) {
            return Err(ExperimentError::Usage(format!(
                "{second}: a side runs in one environment; write several releases as one: \
                 pypi:jax==0.5.0,jaxlib==0.5.0"
            )));
        }
        for spec in specs {
            version.add(spec, args)?;
        }
        if let Some(name) = &version.environment {
            make_environment(&version.suite, name, args)?;
        }
        Ok(version)
    }

    fn add(&mut self, spec: &Spec, args: &MeasureOptions) -> Result<(), ExperimentError> {
        match spec {
            Spec::Here => {}
            Spec::Environment(name) => {
                find_environment(name, &self.suite)?;
                self.environment = Some(name.clone());
            }
            Spec::Release(pins) => self.release(pins)?,
            Spec::Lock(path) => self.lock(path)?,
            Spec::Revision(revision) => self.revise(revision, args)?,
            Spec::Worker { name, command } => self.replace(name, command)?,
            Spec::Parameter(text) => {
                let change = parse_override(text, &self.suite)?;
                let origin = Origin(text.clone());
                self.suite.overrides.push(Override { origin, ..change });
            }
            Spec::Variant(variant) => {
                if let Some(other) = self.variant.replace(variant.clone()) {
                    return Err(ExperimentError::Usage(format!(
                        "{other} and {variant}: one variant is a side, not two"
                    )));
                }
            }
            Spec::Run(path) => {
                return Err(ExperimentError::Usage(format!(
                    "run:{path} is stored: name it as --base, alone, and what is to be measured \
                     as --head; two stored runs are judged by `regatta diff`"
                )));
            }
        }
        Ok(())
    }

    fn release(&mut self, pins: &[Pin]) -> Result<(), ExperimentError> {
        let requirements: Vec<String> = pins.iter().map(Pin::to_string).collect();
        let default = self.environment.as_deref();
        let (name, environment) = released(&self.suite, default, &requirements)?;
        self.suite.environments.insert(name.clone(), environment);
        self.environment = Some(name);
        Ok(())
    }

    fn lock(&mut self, path: &str) -> Result<(), ExperimentError> {
        let file = Path::new(path);
        let asked = format!("lock:{path}");
        let lines =
            lock_file(file).map_err(|why| ExperimentError::Usage(format!("{asked}: {why}")))?;
        let default = self.environment.as_deref();
        let environment = locked(&self.suite, default, &asked, &lines)?;
        let stem = file
            .file_stem()
            .map(|stem| plain_name(&stem.to_string_lossy()));
        let stem = stem.unwrap_or_default();
        let name = format!("lock-{stem}");
        self.suite.environments.insert(name.clone(), environment);
        self.environment = Some(name);
        Ok(())
    }

    fn replace(&mut self, name: &str, command: &[String]) -> Result<(), ExperimentError> {
        let workers = self
            .suite
            .cases
            .iter()
            .map(|case| case.variant.worker.as_str());
        if !workers.clone().any(|worker| worker == name) {
            let hint = nearest(name, workers).map(|near| format!("; did you mean `{near}`?"));
            return Err(ExperimentError::Usage(format!(
                "worker:{name}: suite {} has no variant of this worker{}",
                self.suite.name,
                hint.unwrap_or_default()
            )));
        }
        let command = OwnWorker::Command(command.to_vec());
        self.suite.workers.insert(name.to_owned(), command);
        Ok(())
    }

    fn revise(&mut self, revision: &str, args: &MeasureOptions) -> Result<(), ExperimentError> {
        if let Some(other) = &self.revision {
            return Err(ExperimentError::Usage(format!(
                "git:{revision}: the side is of {} already",
                other.commit
            )));
        }
        let build = self.suite.build.as_ref();
        let mut workers = self
            .suite
            .cases
            .iter()
            .map(|case| case.variant.worker.as_str());
        let unmoved = build.and_then(Build::regatta).is_none()
            && workers.all(|name| OWN.contains(&name) && !self.suite.workers.contains_key(name));
        if unmoved {
            return Err(ExperimentError::Usage(format!(
                "git:{revision} changes nothing: `cpu` and `cuda` are served by this regatta; say \
                 in [build] of the suite which one a revision's build makes: \
                 makes = [\"target/release/regatta\"]"
            )));
        }
        let how = SuiteBuild {
            build,
            revision,
            args,
        };
        let worktree = Worktree::check_out(Path::new("."), revision, &how);
        let mut worktree =
            worktree.map_err(|error| SetupError(format!("{error}{}", near(revision))))?;
        let own = build.and_then(Build::regatta);
        worktree.own = own.map(|path| worktree.directory.join(path));
        self.revision = Some(worktree);
        Ok(())
    }
}

/// `; did you mean `main`?`, where a branch or a tag has nearly this name.
fn near(revision: &str) -> String {
    let heads = ["for-each-ref", "--format=%(refname:short)"];
    let names = git::ask(Path::new("."), &heads).unwrap_or_default();
    match nearest(revision, names.lines().filter(|name| *name != revision)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    }
}

/// The requirements of a lock: those of a suite's environment, each pinned.
fn lock_file(path: &Path) -> Result<Vec<String>, String> {
    let lines = pinned_file(path).map_err(|error| error.to_string())?;
    match lines.is_empty() {
        true => Err("it lists nothing; write what `pip freeze --all` prints".to_owned()),
        false => Ok(lines),
    }
}

/// The build of a revision by a suite; without a `[build]` it is as it was checked out.
struct SuiteBuild<'a> {
    build: Option<&'a Build>,
    revision: &'a str,
    args: &'a MeasureOptions,
}

impl RevisionBuild for SuiteBuild<'_> {
    fn built(&self, place: &Place) -> Option<(Option<Built>, BTreeMap<PathBuf, String>)> {
        let Some(build) = self.build else {
            // Another suite may have built it; what that changed is not undone for this one.
            return Some((None, building::noted_changes(&place.note)));
        };
        let built = building::noted(&place.note, build, &place.directory)?;
        Some((Some(built), building::noted_changes(&place.note)))
    }

    fn build(
        &self,
        place: &Place,
        changes: &dyn Fn() -> BTreeMap<PathBuf, String>,
    ) -> Result<(), SetupError> {
        let (Some(build), note, folder) = (self.build, &place.note, &place.directory) else {
            return Ok(());
        };
        self.args.listener.note(&format!(
            "building git:{} ({})",
            self.revision,
            secrets::command_line(&build.command).join(" ")
        ));
        let failed = |error: &dyn std::error::Error| {
            SetupError(format!("{}: {}", build.origin, chain(error)))
        };
        // Beside the worktree: the error quotes it, and names where the rest is.
        let log = note.with_extension("build.log");
        let built = building::build(build, folder, Some(&log)).map_err(|error| failed(&error))?;
        building::note(note, build, folder, Some(built), changes()).map_err(|error| failed(&error))
    }
}

/// Makes an environment that is not there yet.
fn make_environment(
    suite: &Suite,
    name: &str,
    args: &MeasureOptions,
) -> Result<(), ExperimentError> {
    let environment = find_environment(name, suite)?;
    let made = PythonEnvironment::locate(name, environment)?;
    let Some(made) = made.filter(|made| made.lock().is_none()) else {
        return Ok(());
    };
    if !args.quiet {
        args.listener.note(&format!("making environment {name}"));
    }
    made.make(false)
        .map(drop)
        .map_err(|error| match made.last_error() {
            Some(words) => {
                ExperimentError::Usage(format!("environment `{name}`: pip says: {words}"))
            }
            None => ExperimentError::usage(error),
        })
}
