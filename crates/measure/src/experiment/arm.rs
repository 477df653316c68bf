//! One side of an experiment: a suite, its workers, and the run that is written.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use super::setup::Setup;
use super::{ExperimentError, Listener, MeasureOptions, chain};
use crate::SetupError;
use crate::building;
use crate::git::{Worktree, state_of_checkout};
use crate::interference;
use crate::interrupt;
use crate::laps::TimeSpent;
use crate::listing::in_order;
use crate::loaded::{Roots, outdated_here};
use crate::machine::{fingerprint, worker_record};
use crate::preflight::{self, Introduced};
use crate::schedule::blocks;
use crate::session::{RunningSide, Session, SessionState, reference_worker};
use crate::workers::Processes;
use regatta_core::output::{REPORT_FILES, check_writable};
use regatta_core::record::run_file::{Before, Opening, RunWriter};
use regatta_core::record::{
    Entry, Git, METHOD_VERSION, Outcome, PairSide, Pairing, RecordError, Run, RunHeader,
    SCHEMA_VERSION, SUITE_BUILD, Shard, Side, SuiteRecord, now, plan_checksum,
};
use regatta_core::secrets;
use regatta_core::suite::Suite;
use regatta_core::suite::plan::{Place, deal};
use regatta_core::text::{clean, one_line, shell_command};
use regatta_worker::case::Case;
use regatta_worker::operator::Operators;
use regatta_worker::units::{Nanoseconds, counted};

/// One side of an experiment, whose workers have introduced themselves.
pub struct Arm {
    /// The suite, with filters and overrides applied.
    pub suite: Suite,
    /// The first line of the run.
    pub header: RunHeader,
    /// The folder of the run.
    pub directory: PathBuf,
    /// The start of the command.
    pub began: Instant,
    /// The time that the command has spent on this side.
    pub spent: TimeSpent,
    /// True to report errors only.
    pub quiet: bool,
    pub(super) listener: Rc<dyn Listener>,
    pub(super) fresh: bool,
    processes: Processes,
    pub(super) session: SessionState,
    /// The checkouts of both sides, if they differ.
    roots: Option<Roots>,
    /// The worktree, if this side is a revision. Its lock keeps other processes from replacing it.
    revision: Option<Worktree>,
}

/// The report folder of a suite, unless `--out` names another.
pub fn reports(suite: &str) -> PathBuf {
    Path::new("reports").join(suite)
}

impl Arm {
    /// Reads the suite and has its workers introduce themselves, for the whole suite or a shard.
    /// Measures nothing and overwrites nothing.
    ///
    /// # Errors
    /// The suite, the command line, the folder or a worker is not usable: exit code 2.
    pub fn prepare(request: &MeasureOptions, shard: Option<Place>) -> Result<Arm, ExperimentError> {
        let began = Instant::now();
        let mut setup = Setup::here(request)?;
        setup.list_alone(&request.filter)?;
        let directory = match (&request.out, request.structure_only) {
            (Some(directory), _) => directory.clone(),
            (None, false) => reports(&setup.suite.name),
            // A run with times is worth more, so it is not overwritten.
            (None, true) => reports(&format!("{}-structure", setup.suite.name)),
        };
        let directory = match shard {
            Some(place) => directory.join(place.folder()),
            None => directory,
        };
        let processes = Arm::processes(&setup, request, &directory)?;
        Arm::start(
            setup,
            processes,
            request,
            directory,
            None,
            shard,
            (began, began),
        )
    }

    /// The workers of this side.
    pub(super) fn started(&mut self) -> &mut Processes {
        &mut self.processes
    }

    /// The workers of a setup, not started yet.
    pub(super) fn processes(
        setup: &Setup,
        request: &MeasureOptions,
        directory: &Path,
    ) -> Result<Processes, ExperimentError> {
        let cases = setup.suite.cases.iter();
        let workers = cases.map(|case| case.variant.worker_name());
        let operators = operators_of(&setup.suite).into_values();
        let references = operators.filter(|operator| operator.reference.is_some());
        let references = references.map(|operator| reference_worker(&operator.name));
        let workers: Vec<String> = workers.chain(references).collect();
        let (environment, logs) = (setup.environment.as_deref(), directory.join("logs"));
        let processes = Processes::find(workers.iter(), &setup.suite, environment, logs)?;
        let processes = processes.with_pool(&request.pool);
        setup.in_checkout(processes.with_listed(setup.listed.clone()))
    }

    /// Has the workers of a setup introduce themselves. `pair` is set for a side of a comparison in
    /// pairs, with the roots of both sides if they are different checkouts; `place` for a shard.
    /// `began` is the start of the command, and `since` is the time from which setting up counts
    /// for this side.
    ///
    /// # Errors
    /// As [`prepare`](Arm::prepare).
    pub(super) fn start(
        setup: Setup,
        mut processes: Processes,
        request: &MeasureOptions,
        directory: PathBuf,
        pair: Option<(Pairing, Option<Roots>)>,
        place: Option<Place>,
        (began, since): (Instant, Instant),
    ) -> Result<Arm, ExperimentError> {
        let Setup {
            mut suite,
            environment,
            revision,
            lacking: new,
            operators: own_operators,
            ..
        } = setup;
        for (name, _) in REPORT_FILES {
            check_writable(&directory.join(name)).map_err(ExperimentError::usage)?;
        }
        if revision.is_none() {
            check_built(&suite, &request.suite)?;
        }
        let cases = suite.cases.iter();
        let workers: Vec<String> = cases.map(|case| case.variant.worker_name()).collect();
        let environment = environment.as_deref();
        let setting_up = Nanoseconds::from(since.elapsed());
        // A shard starts every worker of the suite, so that all shards record the same machine and
        // code, whatever their cases.
        let (pairing, roots) = pair.unzip();
        let cases = match place {
            Some(place) => shard_cases(&suite, place)?,
            None => suite.cases.clone(),
        };
        let shard = place.map(|place| Shard {
            place,
            whole: plan_checksum(suite.cases.iter().map(Case::id)),
        });
        // In a paired run, don't reuse the preflight's process: the other side may be measured first.
        let first = match &pairing {
            None => first_worker(&cases, suite.settings.seed),
            Some(_) => String::new(),
        };
        let Introduced {
            hellos,
            waiting,
            peaks,
            unmeasured,
            mut lacking,
        } = {
            let side = pairing.as_ref().map(|pairing| pairing.side);
            let may_lack = side == Some(PairSide::Base) && revision.is_some();
            let checked = preflight::check(&suite, &mut processes, &first, may_lack);
            checked.map_err(|error| match revision {
                None => with_build(&suite, &request.suite, error),
                Some(_) => error,
            })?
        };
        for line in unmeasured.iter().map(|why| one_line(why)) {
            request.listener.note(&line);
        }
        for (worker, peak) in &peaks {
            request.listener.note(&preflight::peak_line(worker, peak));
        }
        let mut spent = TimeSpent {
            workers: Nanoseconds::from(since.elapsed()) - setting_up,
            ..TimeSpent::default()
        };
        lacking.extend(new);
        suite.cases = cases;
        suite.cases.retain(|case| !lacking.contains_key(&case.id()));
        if let (Some(pairing), Some(reason)) = (&pairing, lacking.values().next()) {
            request.listener.note(&format!(
                "new: {} of {}, which {} lacks ({reason})",
                lacking.len(),
                counted(lacking.len() + suite.cases.len(), "case"),
                pairing.version.join(" ")
            ));
        }
        let mut built =
            building::builds_of_run(&suite, &workers, environment, &reports(&suite.name));
        if let Some(worktree) = &revision {
            // The build in this checkout is not the one of the measured revision.
            built.remove(SUITE_BUILD);
            let own = worktree.built.clone();
            built.extend(own.map(|own| (SUITE_BUILD.to_owned(), own)));
        }
        let present = hellos.iter().filter(|(_, hello)| hello.absent.is_none());
        let header = RunHeader {
            schema: SCHEMA_VERSION,
            method: METHOD_VERSION,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            argv: argv(),
            started: now(),
            git: git_of(revision.as_ref(), &directory, shard.is_some()),
            suite: SuiteRecord {
                name: suite.name.clone(),
                description: suite.description.clone(),
                arguments: request.arguments(),
                filter: request.filter.clone(),
                filtered_out: Some(suite.filtered_out),
                overrides: suite.overrides.clone(),
                counts: suite.counts.clone(),
            },
            operators: own_operators.unwrap_or_else(|| suite.operators.clone()),
            rules: suite.rules.clone(),
            settings: suite.settings.clone(),
            machine: fingerprint(&hellos),
            // Absent workers take no times, so the placeholder for their device is not recorded.
            workers: present
                .map(|(name, hello)| worker_record(name, hello, &suite.settings))
                .collect(),
            plan: suite.cases.iter().map(Case::id).collect(),
            identity: Some(processes.identity()),
            built,
            peaks,
            pairing,
            shard,
            hosts: Vec::new(),
        };
        processes.expect(hellos, waiting);
        spent.setting_up = Nanoseconds::from(since.elapsed()) - spent.workers;
        let arm = Arm {
            suite,
            header,
            directory,
            began,
            spent,
            quiet: request.quiet,
            listener: Rc::clone(&request.listener),
            fresh: request.fresh,
            processes,
            session: SessionState::new(interference::watch()),
            roots: roots.flatten(),
            revision,
        };
        arm.check_loaded(false)?;
        Ok(arm)
    }

    /// Refuses a side whose workers loaded code of the other side, or a library that is older than
    /// its source. After an invocation (`measured`), also refuses a revision from which nothing was
    /// loaded.
    pub(super) fn check_loaded(&self, measured: bool) -> Result<(), ExperimentError> {
        let mut loaded = self.processes.loaded();
        loaded.extend(self.session.loaded.iter().cloned());
        let own_expected = measured && self.revision.is_some();
        let objection = self.roots.as_ref();
        let objection = objection.and_then(|roots| roots.objection(&loaded, own_expected));
        let Some(words) = objection.or_else(|| self.outdated(&loaded)) else {
            return Ok(());
        };
        let label = match &self.header.pairing {
            Some(_) => self.label(),
            None => format!("suite {}", self.suite.name),
        };
        Err(ExperimentError::NotJudged(format!("{label} {words}")))
    }

    /// A sentence, to follow this side's name, on why a loaded library may not match its sources.
    /// `None` if a build of the suite is known.
    fn outdated(&self, loaded: &BTreeSet<PathBuf>) -> Option<String> {
        if self.revision.is_some() {
            return None;
        }
        let build = self.suite.build.as_ref();
        let known = |build| building::last_built(build, &reports(&self.suite.name));
        if build.and_then(known).is_some() {
            return None;
        }
        let (library, source) = match &self.roots {
            Some(roots) => roots.outdated(loaded),
            None => outdated_here(loaded),
        }?;
        let fix = match build {
            Some(_) => {
                let suite = self.header.suite.arguments.first();
                let words = ["regatta", "build"].into_iter();
                let words = words.chain(suite.map(String::as_str)).map(str::to_owned);
                format!("with `{}`", shell_command(&words.collect::<Vec<_>>()))
            }
            None => "or give the suite a [build]".to_owned(),
        };
        Some(format!(
            "loaded {}, which is older than {}, so it may not have this change. Build it again, {fix}",
            library.display(),
            source.display()
        ))
    }

    /// The label of the run: the requested versions, or its folder.
    pub fn label(&self) -> String {
        match &self.header.pairing {
            Some(pairing) => pairing.version.join(" "),
            None => self.directory.display().to_string(),
        }
    }

    /// Reports progress, unless this side is quiet.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.listener.note(text.as_ref());
        }
    }

    /// Opens the run file or resumes it, and reports what happened to the run before.
    ///
    /// # Errors
    /// It cannot be written: exit code 3.
    pub(super) fn open(&self, opening: &Opening) -> Result<RunWriter, ExperimentError> {
        let opened = RunWriter::open(&self.directory, &self.header, opening);
        let (file, before) = opened.map_err(ExperimentError::not_judged)?;
        if !matches!(before, Before::Resumed { .. }) {
            self.processes.begin_logs();
        }
        match before {
            Before::Nothing => {}
            Before::Resumed { entries, damaged } => {
                let kept = counted(entries, "measurement");
                let folder = self.directory.display();
                self.say(format!("resuming: kept {kept} in {folder}"));
                if damaged > 0 {
                    let lines = counted(damaged, "line");
                    self.say(format!("{lines} could not be used; measuring again"));
                }
            }
            Before::Kept {
                path,
                suite,
                because,
            } => {
                if !because.is_empty() {
                    let why = because.join("; ");
                    self.say(format!(
                        "cannot resume the unfinished run ({why}); starting a new run"
                    ));
                }
                let path = path.display();
                let other = suite.filter(|suite| self.is_another(suite));
                self.say(match other {
                    None => format!("the run before is kept as {path}"),
                    Some(other) => format!(
                        "the run before is kept as {path}; it is of {other}, whose reports lie in \
                         the same folder: `--out` names another"
                    ),
                });
            }
        }
        Ok(file)
    }

    /// True if `suite` is a name or path of another suite file than this run's.
    fn is_another(&self, suite: &str) -> bool {
        let file = |suite: &str| fs::canonicalize(suite).ok();
        let own = self.header.suite.arguments.first();
        own.is_some_and(|own| own != suite && (file(own) != file(suite) || file(own).is_none()))
    }

    /// This side with the writer of its entries, to run blocks.
    pub(super) fn running<'a>(
        &'a mut self,
        file: &'a mut RunWriter,
    ) -> RunningSide<'a, RecordError> {
        let session = Session {
            suite: &self.suite,
            launcher: &mut self.processes,
            state: &mut self.session,
            spent: &mut self.spent,
        };
        let revision = self.revision.as_ref();
        let keep = move |entry: &Entry| {
            interrupt::hold_if_stopping();
            let (Some(revision), Outcome::Failed { .. }) = (revision, &entry.outcome) else {
                return file.append(entry);
            };
            let mut entry = entry.clone();
            if let Outcome::Failed { reason, .. } = &mut entry.outcome {
                *reason = revision.advised(reason);
            }
            file.append(&entry)
        };
        RunningSide {
            session,
            keep: Box::new(keep),
        }
    }

    /// Reads the run back from its file.
    ///
    /// # Errors
    /// It cannot be read: exit code 3.
    pub(super) fn read(&self, file: &RunWriter) -> Result<(Run, Side), ExperimentError> {
        file.check_unchanged()
            .map_err(ExperimentError::not_judged)?;
        Side::read(file.path(), &self.label()).map_err(ExperimentError::not_judged)
    }

    /// This side without results.
    pub(super) fn unmeasured(&self) -> Side {
        Side {
            label: self.label(),
            header: self.header.clone(),
            cases: BTreeMap::new(),
            damage: Vec::new(),
        }
    }
}

/// The declared operators that a suite's cases use.
fn operators_of(suite: &Suite) -> Operators {
    let problems = suite
        .cases
        .iter()
        .filter_map(|case| case.problem.declared());
    let names: BTreeSet<&String> = problems.map(|problem| &problem.operator).collect();
    let operators = suite.operators.iter();
    let operators = operators.filter(|(name, _)| names.contains(name));
    operators
        .map(|(name, one)| (name.clone(), one.clone()))
        .collect()
}

/// Refuses a suite whose `[build]` is older than its code.
fn check_built(suite: &Suite, argument: &str) -> Result<(), ExperimentError> {
    let stale =
        (suite.build.as_ref()).and_then(|build| building::not_built(build, &reports(&suite.name)));
    let Some(file) = stale else {
        return Ok(());
    };
    Err(ExperimentError::NotJudged(format!(
        "{} changed after [build] of suite {} made what is measured (nothing was measured); build \
         it:\n  {}",
        file.display(),
        suite.name,
        build_command(argument)
    )))
}

/// Adds to an error of the checkout's workers the command that makes a file which they may lack:
/// `[build]` runs automatically for revisions only.
pub(super) fn with_build(suite: &Suite, argument: &str, error: SetupError) -> SetupError {
    let makes = suite.build.iter().flat_map(|build| &build.makes);
    let Some(path) = makes.into_iter().find(|path| !path.exists()) else {
        return error;
    };
    SetupError(format!(
        "{error}\n[build] of suite {} makes {}, which does not exist; build it:\n  {}",
        suite.name,
        path.display(),
        build_command(argument)
    ))
}

fn build_command(argument: &str) -> String {
    shell_command(&["regatta", "build", argument].map(str::to_owned))
}

/// The worker that the first block of these cases starts.
fn first_worker(cases: &[Case], seed: u64) -> String {
    let cases: Vec<_> = cases.iter().map(|case| (None, case.clone())).collect();
    let blocks = blocks(&cases, [&BTreeSet::new(); 2], 0..1, seed);
    let first = blocks.into_iter().next();
    first.map_or_else(String::new, |block| block.lanes[0].worker.clone())
}

/// The revision of the measured code, and whether it was changed.
fn git_of(revision: Option<&Worktree>, directory: &Path, is_shard: bool) -> Option<Git> {
    match revision {
        // Output of other shards does not count as a change.
        None => state_of_checkout(match directory.parent().filter(|_| is_shard) {
            Some(whole) => whole,
            None => directory,
        }),
        Some(worktree) => Some(Git {
            revision: worktree.commit.clone(),
            dirty: false,
            changes: None,
        }),
    }
}

/// The cases of a suite that belong to a shard.
fn shard_cases(suite: &Suite, place: Place) -> Result<Vec<Case>, ExperimentError> {
    let mut shards = deal(&suite.cases, &suite.operators, place.of);
    let mut cases = shards.swap_remove(place.index as usize - 1);
    in_order(suite, &mut cases);
    if cases.is_empty() {
        Err(ExperimentError::Usage(format!(
            "--shard {place}: {} has {}, and a shard needs one",
            suite.name,
            counted(suite.cases.len(), "case")
        )))
    } else {
        Ok(cases)
    }
}

/// The command line without secrets and without the folder of the executable, because runs and
/// baselines are shared.
pub fn argv() -> Vec<String> {
    let words = std::env::args_os();
    let mut argv: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if let Some(program) = argv.first_mut() {
        let name = Path::new(program.as_str()).file_name();
        *program = name.map_or("regatta".into(), |name| name.to_string_lossy().into_owned());
    }
    secrets::command_line(&argv)
}

/// The text of an error, followed by the last lines of its worker's log.
pub fn with_log(error: impl Error, log: &str) -> String {
    let text = chain(&error);
    if log.is_empty() {
        text
    } else {
        let log = clean(log);
        let lines: Vec<String> = log.lines().map(|line| format!("  | {line}")).collect();
        format!("{text}\nIts last words:\n{}", lines.join("\n"))
    }
}
