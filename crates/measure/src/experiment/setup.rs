//! Turns the version specs of a command line into a setup that can be measured: a suite, an
//! environment, a revision that is built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::arm::with_build;
use super::request::{self, MeasureOptions, parse_override};
use super::{ExperimentError, chain};
use crate::SetupError;
use crate::building;
use crate::command::from_here;
use crate::environments::{PythonEnvironment, locked, released};
use crate::git::{self, Place, RevisionBuild, Worktree};
use crate::listing::{self, ListedWorkers, Started};
use crate::renamed::Renamed;
use crate::versions::{Pin, Spec};
use crate::workers::{OWN, Processes, find_environment};
use regatta_core::locked::removed;
use regatta_core::record::Built;
use regatta_core::secrets;
use regatta_core::suite::document::or_near;
use regatta_core::suite::environment::pinned_file;
use regatta_core::suite::script::Script;
use regatta_core::suite::workers::Build;
use regatta_core::suite::workers::OwnWorker;
use regatta_core::suite::{Origin, Override, Settings, Suite};
use regatta_core::text::{one_line, plain_name};
use regatta_worker::case::{Case, CaseId, VariantId};
use regatta_worker::operator::{Operator, Operators};

/// One side of a measurement: a suite, and the code of its workers.
#[derive(Debug, Default)]
pub struct Setup {
    /// The specs that were requested.
    pub asked: Vec<String>,
    /// The suite as the command names it.
    argument: String,
    /// The suite, as measured on this side.
    pub suite: Suite,
    /// The environment of workers that name none.
    pub environment: Option<String>,
    /// The revision of the workers' code, if it is not this checkout.
    pub revision: Option<Worktree>,
    /// The variant, if two variants are compared.
    pub variant: Option<VariantId>,
    /// True if the suite is read from the revision.
    own_suite: bool,
    /// True in a gate, where cases count as new if only the head has their suite.
    gates: bool,
    /// The settings in the revision's own suite, and the error if it cannot be read. Both are
    /// `None` if the checkout's suite is used.
    pub declared: (Option<Settings>, Option<String>),
    /// True if the revision's suite has no `[build]` and the checkout's was used.
    pub built_by_head: bool,
    /// The operators in the revision's own suite, if it has one.
    pub operators: Option<Operators>,
    /// Cases that only the revision's suite has.
    pub left_out: Vec<CaseId>,
    /// Cases that the revision does not have yet, each with the reason.
    pub lacking: BTreeMap<CaseId, String>,
    /// Results of listing the calls of the suite's scripts.
    pub listed: ListedWorkers,
    /// The reason for which a revision has none of the scripts.
    scripts_absent: Option<String>,
    /// The reason for which a revision has none of the scripts if it makes none of the head's
    /// calls: its script has another name and little in common with the head's.
    perhaps_absent: Option<String>,
}

impl Setup {
    /// The suite in this checkout, with its current code.
    ///
    /// # Errors
    /// The suite or the command line is wrong: exit code 2.
    pub fn here(request: &MeasureOptions) -> Result<Setup, ExperimentError> {
        Ok(Setup {
            asked: vec![Spec::Here.to_string()],
            argument: request.suite.clone(),
            suite: request.load()?,
            environment: request.environment.clone(),
            ..Setup::default()
        })
    }

    /// Starts the scripts of the suite, each up to its first call.
    ///
    /// # Errors
    /// A script does not run: exit code 2.
    pub(super) fn start_scripts(&self) -> Result<Option<Started>, ExperimentError> {
        if self.scripts_absent.is_some() {
            return Ok(None);
        }
        let environment = self.environment.as_deref();
        match listing::start(&self.suite, environment, |path| self.in_checkout(path)) {
            Err(_) if self.perhaps_absent.is_some() => Ok(None),
            started => started,
        }
    }

    /// Runs the started scripts to their ends, and adds their calls that match `filter` as cases.
    ///
    /// # Errors
    /// A script ends with an exception, or the filter leaves no case: exit code 2.
    pub(super) fn list(
        &mut self,
        started: Option<Started>,
        filter: &[String],
    ) -> Result<(), ExperimentError> {
        let Some(started) = started else {
            return Ok(());
        };
        self.listed = match started.list(&mut self.suite) {
            Err(_) if self.perhaps_absent.is_some() => return Ok(()),
            listed => listed.map_err(|error| match self.revision {
                None => with_build(&self.suite, &self.argument, error),
                Some(_) => error,
            })?,
        };
        let ids: Vec<String> = self.suite.cases.iter().map(ToString::to_string).collect();
        self.suite.keep(filter);
        if self.suite.cases.is_empty() && self.perhaps_absent.is_none() {
            let name = &self.suite.name;
            let error = request::no_case_left(filter, name, &ids);
            return Err(ExperimentError::Usage(error));
        }
        Ok(())
    }

    /// Starts the scripts and lists their calls, for a single side.
    ///
    /// # Errors
    /// As [`start_scripts`](Setup::start_scripts) and [`list`](Setup::list).
    pub(super) fn list_alone(&mut self, filter: &[String]) -> Result<(), ExperimentError> {
        let started = self.start_scripts()?;
        self.list(started, filter)
    }

    /// Sets workers up to start in this side's checkout.
    pub(super) fn in_checkout(&self, processes: Processes) -> Result<Processes, ExperimentError> {
        let Some(worktree) = &self.revision else {
            return Ok(processes);
        };
        let started = processes.started_in(&worktree.directory, worktree.own.as_deref());
        started.map_err(|(variable, code)| {
            ExperimentError::NotJudged(format!(
                "{} would read {} of another checkout, which {variable} names and this \
                 revision does not have (nothing was measured); unset {variable}, or give \
                 the suite a [build] that makes it",
                self.asked.join(" "),
                code.display()
            ))
        })
    }

    /// Keeps in the base of a comparison of scripts only the calls that both sides make. Calls that
    /// only the head makes are new; those that only the base makes are left out.
    ///
    /// # Errors
    /// Both sides make the same calls in different order: exit code 2.
    pub(super) fn share_calls(&mut self, head: &Suite) -> Result<(), ExperimentError> {
        if head.scripts.is_empty() {
            return Ok(());
        }
        if let Some(words) = listing::crossed(&self.suite, head) {
            return Err(ExperimentError::Usage(words));
        }
        let heads: BTreeSet<CaseId> = head.cases.iter().map(Case::id).collect();
        let shares = self.suite.listed.keys().any(|id| heads.contains(id));
        if let Some(reason) = self.perhaps_absent.take().filter(|_| !shares) {
            self.suite.listed.clear();
            self.left_out.clear();
            self.scripts_absent = Some(reason);
        }
        let own = self.suite.listed.keys();
        let own = own.filter(|id| !head.listed.contains_key(id));
        self.left_out.extend(own.cloned());
        // A base with its own suite may have added the same ones.
        self.left_out.sort();
        self.left_out.dedup();
        let absent = self.scripts_absent.as_deref();
        let reason = absent.unwrap_or("its script makes no such call");
        let new = heads
            .iter()
            .filter(|id| !self.suite.listed.contains_key(id));
        let new = new.filter(|id| head.listed.contains_key(id));
        self.lacking
            .extend(new.map(|id| (id.clone(), reason.to_owned())));
        self.suite.cases.clone_from(&head.cases);
        Ok(())
    }

    /// The folder of its checkout.
    pub(super) fn directory(&self) -> PathBuf {
        let revision = self.revision.as_ref();
        revision.map_or(".".into(), |worktree| worktree.directory.clone())
    }

    /// Applies version specs to the suite of a request. Makes environments and worktrees, and
    /// builds revisions, as needed.
    ///
    /// # Errors
    /// A version is not available, or changes nothing: exit code 2.
    pub fn make(specs: &[Spec], args: &MeasureOptions) -> Result<Setup, ExperimentError> {
        Setup::here(args)?.with(specs, args)
    }

    /// The base of a comparison. A revision also uses its own suite. In a gate (`gates`), cases are
    /// new if the revision does not have their suite yet.
    ///
    /// # Errors
    /// As [`make`](Setup::make).
    pub fn make_base(
        specs: &[Spec],
        args: &MeasureOptions,
        gates: bool,
    ) -> Result<Setup, ExperimentError> {
        let base = Setup {
            own_suite: true,
            gates,
            ..Setup::here(args)?
        };
        base.with(specs, args)
    }

    fn with(mut self, specs: &[Spec], args: &MeasureOptions) -> Result<Setup, ExperimentError> {
        self.asked = specs.iter().map(Spec::to_string).collect();
        let mut environments = specs.iter().filter(|spec| spec.is_environment());
        if let (Some(_), Some(second)) = (environments.next(), environments.next()) {
            return Err(ExperimentError::Usage(format!(
                "{second}: a side runs in one environment; write several releases as one: \
                 pypi:jax==0.5.0,jaxlib==0.5.0"
            )));
        }
        // Revisions come first, because their suite replaces the checkout's before other specs
        // change it.
        let is_revision = |spec: &&Spec| matches!(spec, Spec::Revision(_));
        let (revisions, others): (Vec<_>, Vec<_>) = specs.iter().partition(is_revision);
        for spec in revisions.into_iter().chain(others) {
            self.add(spec, args)?;
        }
        if let Some(name) = &self.environment {
            make_environment(&self.suite, name, args)?;
        }
        Ok(self)
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
                    "run:{path} is stored: name it as --base, alone, and the side to measure \
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
            let (suite, hint) = (&self.suite.name, or_near(name, workers));
            return Err(ExperimentError::Usage(format!(
                "worker:{name}: suite {suite} has no variant of this worker{hint}"
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
        let how = RevisionSuiteBuild {
            side: self,
            revision,
            args,
        };
        let mut worktree = Worktree::check_out(Path::new("."), revision, &how)?;
        match self.suite_of(&worktree.directory, args) {
            RevisionSuite::Checkout => {}
            RevisionSuite::Own {
                suite,
                built_by_head,
                perhaps_absent,
            } => {
                self.perhaps_absent = perhaps_absent;
                self.declared.0 = Some(suite.settings.clone());
                self.built_by_head = built_by_head;
                self.suite = *suite;
            }
            RevisionSuite::Unread(reason) => self.declared.1 = Some(reason),
            RevisionSuite::Outside(old) => {
                return Err(ExperimentError::NotJudged(format!(
                    "git:{revision} has this file as {old}, outside of the folder that regatta \
                     runs in, and nothing was compared: start regatta in a folder above both"
                )));
            }
            RevisionSuite::NoScript(file) => {
                let tracked = if self.gates {
                    format!(", or `git add {file}`, and a gate calls its cases new")
                } else {
                    String::new()
                };
                return Err(ExperimentError::Usage(format!(
                    "git:{revision} has no file {file}: commit it to both versions{tracked}"
                )));
            }
            RevisionSuite::New(reason) => {
                let cases = self.suite.cases.iter();
                self.lacking = cases.map(|case| (case.id(), reason.clone())).collect();
                self.scripts_absent = (!self.suite.scripts.is_empty()).then_some(reason);
            }
        }
        if !self.lacking.is_empty() || self.scripts_absent.is_some() {
            self.revision = Some(worktree);
            return Ok(());
        }
        let build = self.suite.build.as_ref();
        let mut workers = self
            .suite
            .cases
            .iter()
            .map(|case| case.variant.worker.as_str());
        let unmoved = build.and_then(Build::regatta).is_none()
            && self.suite.scripts.is_empty()
            && workers.all(|name| OWN.contains(&name) && !self.suite.workers.contains_key(name));
        if unmoved {
            return Err(ExperimentError::Usage(format!(
                "git:{revision} changes nothing: `cpu` and `cuda` are served by this regatta; say \
                 in [build] of the suite which one a revision's build makes: \
                 makes = [\"target/release/regatta\"]"
            )));
        }
        let own = build.and_then(Build::regatta);
        worktree.own = own.map(|path| worktree.directory.join(path));
        self.revision = Some(worktree);
        Ok(())
    }

    /// The suite with which a revision is built and measured, read in its worktree.
    fn suite_of(&self, worktree: &Path, args: &MeasureOptions) -> RevisionSuite {
        if !self.own_suite {
            return RevisionSuite::Checkout;
        }
        let own = args.file_in(Path::new("")).unwrap_or_default();
        let own = own.to_string_lossy();
        let lacking = args.file_in(worktree).filter(|file| !file.exists());
        let script = Script::parse(&args.suite).and_then(Result::ok);
        let renamed = lacking.as_ref().and_then(|_| Renamed::find(worktree, &own));
        // A renamed script shows by its calls whether it is the right one; a suite does not.
        let renamed = renamed.filter(|renamed| script.is_some() || renamed.is_sure());
        let (mut old, mut absent) = (None, None);
        if let Some(file) = &lacking {
            let file = file.strip_prefix(worktree).unwrap_or(file);
            let reason = format!("it has no file {}", file.display());
            let tracked = || {
                let words = ["ls-files", "--error-unmatch", "--", &own];
                git::ask(Path::new("."), &words).is_ok()
            };
            match renamed {
                Some(renamed) if !renamed.path.starts_with("..") => {
                    absent = (!renamed.is_sure()).then_some(reason);
                    let path = renamed.path.to_string_lossy();
                    old = Some(MeasureOptions {
                        suite: match &script {
                            Some(script) => script.at(&path),
                            None => format!("./{path}"),
                        },
                        ..args.clone()
                    });
                }
                Some(renamed) if self.gates && renamed.is_sure() => {
                    return RevisionSuite::Outside(renamed.path.display().to_string());
                }
                _ if self.gates && tracked() => return RevisionSuite::New(reason),
                _ if script.is_some() => return RevisionSuite::NoScript(own.into_owned()),
                _ => return RevisionSuite::Checkout,
            }
        }
        match old.as_ref().unwrap_or(args).load_in(worktree) {
            Ok(mut suite) => {
                suite.name.clone_from(&self.suite.name);
                // The calls of a renamed script belong to the script's new name.
                if script.is_some()
                    && let Some(is) = self.suite.scripts.first()
                    && let Some(was) = suite.scripts.pop_first()
                {
                    let worker = suite.workers.remove(&was);
                    suite
                        .workers
                        .extend(worker.map(|worker| (is.clone(), worker)));
                    suite.scripts.insert(is.clone());
                }
                let built_by_head = suite.build.is_none() && self.suite.build.is_some();
                suite.build = suite.build.or_else(|| self.suite.build.clone());
                // A revision may be older than its `regatta.toml`, but listing its scripts needs
                // environments.
                for (name, environment) in &self.suite.environments {
                    let own = suite.environments.entry(name.clone());
                    own.or_insert_with(|| environment.clone());
                }
                RevisionSuite::Own {
                    suite: Box::new(suite),
                    built_by_head,
                    perhaps_absent: absent,
                }
            }
            Err(error) => {
                let folder = worktree.join("").display().to_string();
                RevisionSuite::Unread(one_line(&error.to_string()).replace(&folder, ""))
            }
        }
    }

    /// Has a base with its own suite measured in the same way as the head: the head's cases and
    /// settings, with the base's workers and parameters.
    pub(super) fn measure_as(&mut self, head: &Suite) {
        if self.declared.0.is_none() {
            return;
        }
        let kept: BTreeSet<CaseId> = head.cases.iter().map(Case::id).collect();
        let own = self.suite.cases.iter().map(Case::id);
        self.left_out = own.filter(|case| !kept.contains(case)).collect();
        let suite = &mut self.suite;
        suite.cases.clone_from(&head.cases);
        suite.settings.clone_from(&head.settings);
        suite.counts.clone_from(&head.counts);
        // Both sides have the same inputs, but each has its own reference.
        let mut own = suite.operators.clone();
        for operator in own.values_mut() {
            let folder = self
                .revision
                .as_ref()
                .map(|worktree| worktree.directory.join(""));
            let folder = folder.map(|folder| folder.display().to_string());
            if let (Some(reference), Some(folder)) = (&mut operator.reference, folder) {
                *reference = reference.replace(&folder, "");
            }
        }
        self.operators = Some(own);
        for (name, operator) in &head.operators {
            // A reference without gradients cannot check them.
            let own = suite.operators.get(name);
            let own = own.filter(|own| own.gradients == operator.gradients);
            let operator = Operator {
                reference: own.and_then(|own| own.reference.clone()),
                ..operator.clone()
            };
            suite.operators.insert(name.clone(), operator);
        }
        for (name, worker) in &head.workers {
            let own = suite.workers.entry(name.clone());
            own.or_insert_with(|| worker.clone());
        }
        for (variant, origin) in &head.origins {
            let own = suite.origins.entry(variant.clone());
            own.or_insert_with(|| origin.clone());
        }
    }
}

impl Setup {
    /// Removes references whose file the revision does not have. The base's results are then not
    /// checked; the head's are still checked with its own reference.
    pub(super) fn keep_references(&mut self) {
        let Some(worktree) = &self.revision else {
            return;
        };
        for operator in self.suite.operators.values_mut() {
            let file = operator.reference.as_deref();
            let file = file
                .and_then(|text| text.rsplit_once(':'))
                .map(|(file, _)| file);
            let here = |file: &str| worktree.directory.join(from_here(Path::new(file)));
            if file.is_some_and(|file| !here(file).is_file()) {
                operator.reference = None;
            }
        }
    }
}

/// The pinned requirements in a lock file.
fn lock_file(path: &Path) -> Result<Vec<String>, String> {
    let lines = pinned_file(path).map_err(|error| error.to_string())?;
    if lines.is_empty() {
        Err("it lists nothing; write what `pip freeze --all` prints".to_owned())
    } else {
        Ok(lines)
    }
}

/// The suite with which a revision is built and measured.
enum RevisionSuite {
    /// The checkout's suite.
    Checkout,
    /// The revision's suite, with the checkout's `[build]` if it has none.
    Own {
        suite: Box<Suite>,
        built_by_head: bool,
        perhaps_absent: Option<String>,
    },
    /// The revision does not have this script.
    NoScript(String),
    /// The revision has the suite at this path, outside of the folder in which regatta runs.
    Outside(String),
    /// The checkout's suite, because the revision's cannot be read; with the reason.
    Unread(String),
    /// In a gate, the revision does not have this suite yet, although git tracks it in the
    /// checkout. Its cases are new; with the reason.
    New(String),
}

/// Builds a revision with its suite's `[build]`. Without one, the checkout is used as it is.
struct RevisionSuiteBuild<'a> {
    side: &'a Setup,
    revision: &'a str,
    args: &'a MeasureOptions,
}

impl RevisionSuiteBuild<'_> {
    fn build_in(&self, place: &Place) -> Option<Build> {
        match self.side.suite_of(&place.directory, self.args) {
            RevisionSuite::Own { suite, .. } => suite.build,
            RevisionSuite::New(_) | RevisionSuite::NoScript(_) | RevisionSuite::Outside(_) => None,
            RevisionSuite::Checkout | RevisionSuite::Unread(_) => self.side.suite.build.clone(),
        }
    }
}

impl RevisionBuild for RevisionSuiteBuild<'_> {
    fn built(&self, place: &Place) -> Option<(Option<Built>, BTreeMap<PathBuf, String>)> {
        let Some(build) = &self.build_in(place) else {
            // Another suite may have built it; its changes are not undone for this one.
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
        let (Some(build), note, folder) = (&self.build_in(place), &place.note, &place.directory)
        else {
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
        // The note marks the worktree as built, so it is removed first and written last.
        removed(note).map_err(|error| failed(&error))?;
        // The log is beside the worktree: the error quotes it and names its file.
        let log = place.log();
        let built = building::build(build, folder, Some(&log)).map_err(|error| failed(&error))?;
        building::note(note, build, folder, Some(built), changes()).map_err(|error| failed(&error))
    }
}

/// Makes an environment if it does not exist yet.
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
