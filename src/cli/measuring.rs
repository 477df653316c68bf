//! What `run` and `gate` share: from a suite's name to a run on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use jiff::Timestamp;

use super::measure_args::{MeasureArgs, load};
use super::progress::Progress;
use super::{Stop, interrupt, note};
use regatta::attention::{Case, CaseId};
use regatta::measure::builds;
use regatta::measure::checkout::checkout;
use regatta::measure::counters::Machine;
use regatta::measure::held::{Held, Waiting};
use regatta::measure::known::Known;
use regatta::measure::laps::{Clock, Monotonic};
use regatta::measure::machine::{fingerprint, worker_record};
use regatta::measure::preflight;
use regatta::measure::schedule::blocks;
use regatta::measure::session::Session;
use regatta::measure::workers::Processes;
use regatta::record::run_file::{Before, Opening, RunWriter};
use regatta::record::spent::{Phase, Spent};
use regatta::record::types::{BaseId, Owed, RunHeader, Stretch, SuiteRecord};
use regatta::record::{METHOD_VERSION, SCHEMA_VERSION};
use regatta::report::files::check_writable;
use regatta::report::text::clean;
use regatta::suite::Suite;
use regatta::worker::protocol::Hello;

/// A suite whose workers came up, ready to be measured.
pub struct Ready {
    /// The suite, filtered and overridden.
    pub suite: Suite,
    /// The first line of the run.
    pub header: RunHeader,
    /// The report directory.
    pub directory: PathBuf,
    /// True where nothing is to be said on standard error but what went wrong.
    pub quiet: bool,
    /// How far the run is.
    pub clock: Monotonic,
    /// When this command began.
    pub began: Instant,
    /// What judging took so far.
    pub judging: Vec<Stretch>,
    before: Spent,
    processes: Processes,
    hellos: BTreeMap<String, Hello>,
    /// The first invocation's, from when the workers introduced themselves.
    waiting: Option<Waiting>,
    known: Known,
    fresh: bool,
}

/// Where the reports of a suite are, unless `--out` says otherwise.
pub fn reports(suite: &str) -> PathBuf {
    Path::new("reports").join(suite)
}

impl Ready {
    /// Reads the suite, looks at the report directory, and has the workers
    /// introduce themselves. Nothing is measured or written over.
    ///
    /// # Errors
    /// Whatever is wrong with the suite, the command line, the directory or a
    /// worker: exit code 2.
    pub fn prepare(args: &MeasureArgs) -> Result<Ready, Stop> {
        interrupt::watch();
        let clock = Monotonic::begin();
        let began = Instant::now();
        let mut before = Spent::default();
        let suite = load(args)?;
        let directory = match (&args.out, args.structure_only) {
            (Some(directory), _) => directory.clone(),
            (None, false) => reports(&suite.name),
            // A run that has times is worth more, and stays where it is.
            (None, true) => Path::new("reports").join(format!("{}-structure", suite.name)),
        };
        check_writable(&directory.join("index.html")).map_err(Stop::usage)?;
        let workers: Vec<String> = suite
            .cases
            .iter()
            .map(|case| case.variant.worker_name())
            .collect();
        let environment = args.environment.as_deref();
        let logs = directory.join("logs");
        let mut processes =
            Processes::find(workers.iter(), &suite, environment, logs).map_err(Stop::usage)?;
        before.add(Phase::SettingUp, clock.now());
        let regular = blocks(
            &suite.cases,
            0..suite.settings.invocations,
            suite.settings.seed,
            &BTreeSet::new(),
        );
        let first = regular.first().map_or("", |block| &block.worker);
        let checked = preflight::check_keeping(&suite, &mut processes, first);
        let (hellos, waiting) = checked.map_err(|error| {
            let log = match &error {
                preflight::Preflight::Worker(error) => error.log().to_owned(),
                preflight::Preflight::Plan(_) => String::new(),
            };
            Stop::Usage(with_log(error, &log))
        })?;
        before.add(Phase::Preflight, clock.now() - before.sum());
        let header = RunHeader {
            schema: SCHEMA_VERSION,
            method: METHOD_VERSION,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            argv: argv(),
            started: Timestamp::now(),
            git: checkout(&directory),
            suite: SuiteRecord {
                name: suite.name.clone(),
                description: suite.description.clone(),
                arguments: args.choosing(),
                filter: args.filter.clone(),
                overrides: suite.overrides.clone(),
                counts: suite.counts.clone(),
            },
            rules: suite.rules.clone(),
            settings: suite.settings.clone(),
            machine: fingerprint(&hellos),
            // One that is absent takes no times, so its stand-in for a device is no fact.
            workers: hellos
                .iter()
                .filter(|(_, hello)| hello.absent.is_none())
                .map(|(name, hello)| worker_record(name, hello))
                .collect(),
            plan: suite.cases.iter().map(|case| case.id()).collect(),
            identity: Some(processes.identity()),
            built: builds::of_run(&suite, &workers, environment, &reports(&suite.name)),
            imported: None,
        };
        Ok(Ready {
            suite,
            header,
            directory,
            quiet: args.quiet,
            clock,
            began,
            judging: Vec::new(),
            before,
            processes,
            hellos,
            waiting,
            known: Known::default(),
            fresh: args.fresh,
        })
    }

    /// Measures every invocation, or what is left of them. `base` is what the run is to be
    /// held against.
    ///
    /// # Errors
    /// When the run cannot be written: exit code 3.
    pub fn measure(&mut self, base: Option<BaseId>) -> Result<RunWriter, Stop> {
        let since = self.clock.now() - self.before.sum();
        self.before.add(Phase::SettingUp, since);
        let opening = Opening {
            fresh: self.fresh,
            base,
            spent: self.before.clone(),
        };
        let (mut writer, before) =
            RunWriter::open(&self.directory, &self.header, &opening).map_err(Stop::not_judged)?;
        self.clock = self.clock.going_on(writer.from_ns);
        if !matches!(before, Before::Resumed { .. }) {
            self.processes.begin_logs();
        }
        self.tell(before);
        let all = self.suite.cases.clone();
        self.invocations(&mut writer, &all, 0..self.suite.settings.invocations)?;
        Ok(writer)
    }

    /// Says what became of the run that was there before.
    fn tell(&self, before: Before) {
        match before {
            Before::Nothing => {}
            Before::Resumed { entries, damaged } => {
                self.say(format!(
                    "resuming: {entries} entries of an unfinished run are kept"
                ));
                if damaged > 0 {
                    self.say(format!(
                        "{damaged} lines could not be used and are measured again"
                    ));
                }
            }
            Before::Kept { path, because } => {
                if !because.is_empty() {
                    self.say(format!(
                        "an unfinished run does not go on, and is begun anew: {}",
                        because.join("; ")
                    ));
                }
                self.say(format!("the run before is kept as {}", path.display()));
            }
        }
    }

    /// True where nothing is to be said about the work.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Says something about the work, unless nothing is to be said.
    pub fn say(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            note(text);
        }
    }

    /// Takes a batch of fresh invocations, or what is left of it: those after the regular
    /// ones, and after those of the batches before.
    ///
    /// # Errors
    /// As [`measure`](Ready::measure).
    pub fn take(&mut self, writer: &mut RunWriter, batch: &Owed) -> Result<(), Stop> {
        let wanted: BTreeSet<&CaseId> = batch.cases.iter().collect();
        let mut cases = self.suite.cases.clone();
        cases.retain(|case| wanted.contains(&case.id()));
        let first = self.suite.settings.invocations;
        // What earlier batches took of these is in the file, and is not taken again.
        self.invocations(writer, &cases, first..first + batch.fresh)
    }

    fn invocations(
        &mut self,
        writer: &mut RunWriter,
        cases: &[Case],
        range: std::ops::Range<u32>,
    ) -> Result<(), Stop> {
        let seed = self.suite.settings.seed;
        let blocks = blocks(cases, range.clone(), seed, &writer.done);
        let mut progress = Progress::new(&blocks, range, self.quiet);
        let waiting = self.waiting.take();
        let mut launcher = Held::new(&mut self.processes, &self.hellos).with(waiting);
        let mut session = Session::new(&self.suite, &mut launcher, &self.clock, &mut self.known);
        if self.suite.settings.wants_quiet() {
            session = session.watched_by(Box::new(Machine::here()));
        }
        session
            .run(&blocks, &mut progress, &mut |entry| {
                interrupt::hold_if_stopping();
                writer.append(entry)
            })
            .map_err(|error| {
                Stop::NotJudged(anyhow::Error::new(error).context(
                    "the run stops here; what was measured is kept, and the same command goes on",
                ))
            })?;
        if let Some(said) = progress.of_the_machine() {
            self.say(said);
        }
        Ok(())
    }
}

/// The command line. Where the executable lies is nobody's business: runs and
/// baselines are shared.
pub(super) fn argv() -> Vec<String> {
    let words = std::env::args_os();
    let mut argv: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if let Some(program) = argv.first_mut() {
        let name = Path::new(program.as_str()).file_name();
        *program = name.map_or("regatta".into(), |name| name.to_string_lossy().into_owned());
    }
    argv
}

/// An error with the last lines its worker printed.
pub(super) fn with_log(error: impl Into<anyhow::Error>, log: &str) -> anyhow::Error {
    let error = error.into();
    match log.is_empty() {
        true => error,
        false => {
            let log = clean(log);
            let lines: Vec<String> = log.lines().map(|line| format!("  | {line}")).collect();
            anyhow!("{error:#}\nIts last words:\n{}", lines.join("\n"))
        }
    }
}
