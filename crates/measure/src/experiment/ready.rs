//! From a suite's name to a run on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use jiff::Timestamp;

use super::request::is_unwatched;
use super::stored::Base;
use super::{ExperimentError, Listener, Request, chain};
use crate::builds;
use crate::counters::Machine;
use crate::git::checkout;
use crate::held::{Held, Waiting};
use crate::interrupt;
use crate::laps::{Clock, Monotonic, Spent};
use crate::machine::{fingerprint, worker_record};
use crate::preflight::{self, Introduced};
use crate::schedule::blocks;
use crate::session::Session;
use crate::workers::Processes;
use regatta_core::output::check_writable;
use regatta_core::record::built::{self, Built};
use regatta_core::record::header::{Git, RunHeader, SuiteRecord, Turn};
use regatta_core::record::run_file::{Before, Opening, RunWriter};
use regatta_core::record::shard::{self, Shard};
use regatta_core::record::side::Side;
use regatta_core::record::types::{BaseId, Owed};
use regatta_core::record::{METHOD_VERSION, SCHEMA_VERSION};
use regatta_core::suite::Suite;
use regatta_core::suite::shard::{Place, deal};
use regatta_core::text::{clean, one_line};
use regatta_judge::Options;
use regatta_worker::attention::{Case, CaseId};
use regatta_worker::protocol::{Hello, Peak};
use regatta_worker::units::{Digits, counted};

/// A suite whose workers came up, ready to be measured.
pub struct Ready {
    /// The suite, filtered and overridden.
    pub suite: Suite,
    /// The first line of the run.
    pub header: RunHeader,
    /// The report directory.
    pub directory: PathBuf,
    /// Who shows what is done.
    pub listener: Rc<dyn Listener>,
    /// True where nothing is to be said but what went wrong.
    pub quiet: bool,
    /// The time since this command began.
    pub clock: Monotonic,
    /// When this command began.
    pub began: Instant,
    /// What this command took for it so far.
    pub spent: Spent,
    /// The same of the base, where that is measured in turn with it.
    pub spent_on_base: Option<Spent>,
    /// The workers.
    pub processes: Processes,
    /// What each said of itself.
    pub hellos: BTreeMap<String, Hello>,
    /// Cases whose single operations this run has looked at.
    pub detailed: BTreeSet<CaseId>,
    /// The first invocation's, from when the workers introduced themselves.
    waiting: Option<Waiting>,
    /// True where the run begins anew, whatever is there.
    pub fresh: bool,
}

/// What is to be measured, where its workers run, and where it goes.
pub struct Asked {
    /// The suite, filtered and overridden.
    pub suite: Suite,
    /// The report directory.
    pub directory: PathBuf,
    /// Environment of workers that name none.
    pub environment: Option<String>,
    /// The folder that workers are started in, where that is a revision's.
    pub revision: Option<Worktree>,
    /// Present for one of two runs that are measured in turn.
    pub turn: Option<Turn>,
    /// Present where a part of the suite is measured, into a folder in that of the whole.
    pub shard: Option<Place>,
}

/// A revision that is measured, in a folder of its own.
#[derive(Clone, Debug)]
pub struct Worktree {
    /// The folder.
    pub directory: PathBuf,
    /// The commit, in full.
    pub commit: String,
    /// The regatta that was built there, which serves `cpu` and `cuda`.
    pub own: Option<PathBuf>,
    /// What building it cost, where anything was built.
    pub built: Option<Built>,
}

/// Where the reports of a suite are, unless `--out` says otherwise.
pub fn reports(suite: &str) -> PathBuf {
    Path::new("reports").join(suite)
}

/// Where the run of a suite goes, and its reports.
pub fn folder(args: &Request, suite: &str) -> PathBuf {
    match (&args.out, args.structure_only) {
        (Some(directory), _) => directory.clone(),
        (None, false) => reports(suite),
        // A run that has times is worth more, and stays where it is.
        (None, true) => Path::new("reports").join(format!("{suite}-structure")),
    }
}

impl Ready {
    /// Reads the suite, looks at the report directory, and has the workers
    /// introduce themselves, for the whole suite or a shard of it. Nothing is measured or written
    /// over.
    ///
    /// # Errors
    /// Whatever is wrong with the suite, the command line, the directory or a
    /// worker: exit code 2.
    pub fn prepare(args: &Request, shard: Option<Place>) -> Result<Ready, ExperimentError> {
        let clock = Monotonic::begin();
        let suite = args.load()?;
        let directory = folder(args, &suite.name);
        let asked = Asked {
            directory: match shard {
                Some(place) => directory.join(place.folder()),
                None => directory,
            },
            suite,
            environment: args.environment.clone(),
            revision: None,
            turn: None,
            shard,
        };
        Ready::of(asked, args, clock)
    }

    /// Has the workers of what is asked introduce themselves; `clock` began with the command.
    ///
    /// # Errors
    /// As [`prepare`](Ready::prepare).
    pub fn of(asked: Asked, args: &Request, clock: Monotonic) -> Result<Ready, ExperimentError> {
        let Asked {
            mut suite,
            directory,
            environment,
            revision,
            turn,
            shard,
        } = asked;
        let began = Instant::now();
        check_writable(&directory.join("index.html")).map_err(ExperimentError::usage)?;
        let workers: Vec<String> = suite
            .cases
            .iter()
            .map(|case| case.variant.worker_name())
            .collect();
        let environment = environment.as_deref();
        let logs = directory.join("logs");
        let mut processes = Processes::find(workers.iter(), &suite, environment, logs)
            .map_err(ExperimentError::usage)?;
        if let Some(worktree) = &revision {
            processes = processes.started_in(&worktree.directory, worktree.own.as_deref());
        }
        let setting_up = clock.now();
        // Of a shard the workers of the whole introduce themselves: all shards are of one machine
        // and one code, whatever falls to them.
        let cases = match shard {
            Some(place) => dealt(&suite, place)?,
            None => suite.cases.clone(),
        };
        let shard = shard.map(|place| Shard {
            place,
            whole: shard::checksum(suite.cases.iter().map(Case::id)),
        });
        let regular = blocks(
            &cases,
            0..suite.settings.invocations,
            suite.settings.seed,
            &BTreeSet::new(),
        );
        // Beside another run no process is kept up: the other side's may come first.
        let first = match (&turn, regular.first()) {
            (None, Some(block)) => &block.worker,
            _ => "",
        };
        let checked = preflight::check_keeping(&suite, &mut processes, first);
        let Introduced {
            hellos,
            waiting,
            peaks,
            unmeasured,
        } = checked.map_err(|error| {
            let log = match &error {
                preflight::Preflight::Worker(error) => error.log().to_owned(),
                preflight::Preflight::Plan(_) => String::new(),
            };
            ExperimentError::Usage(with_log(error, &log))
        })?;
        unmeasured
            .iter()
            .for_each(|why| args.listener.note(&one_line(why)));
        for (worker, peak) in &peaks {
            args.listener.note(&peak_line(worker, peak));
        }
        suite.cases = cases;
        let spent = Spent {
            workers: clock.now() - setting_up,
            setting_up,
            ..Spent::default()
        };
        let mut built = builds::of_run(&suite, &workers, environment, &reports(&suite.name));
        if let Some(worktree) = &revision {
            // What was built here is not what is measured.
            built.remove(built::SUITE);
            let own = worktree.built.clone();
            built.extend(own.map(|own| (built::SUITE.to_owned(), own)));
        }
        let header = RunHeader {
            schema: SCHEMA_VERSION,
            method: METHOD_VERSION,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            argv: argv(),
            started: Timestamp::now(),
            git: match revision {
                // Nor do the other shards of the whole make it another one.
                None => checkout(match directory.parent().filter(|_| shard.is_some()) {
                    Some(whole) => whole,
                    None => &directory,
                }),
                Some(worktree) => Some(Git {
                    revision: worktree.commit,
                    dirty: false,
                    changes: None,
                }),
            },
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
            built,
            peaks,
            turn,
            shard,
            hosts: Vec::new(),
        };
        Ok(Ready {
            suite,
            header,
            directory,
            listener: Rc::clone(&args.listener),
            quiet: args.quiet,
            clock,
            began,
            spent,
            spent_on_base: None,
            processes,
            hellos,
            waiting,
            detailed: BTreeSet::new(),
            fresh: args.fresh,
        })
    }

    /// Measures every invocation, or what is left of them. `base` is what the run is to be
    /// compared with.
    ///
    /// # Errors
    /// When the run cannot be written: exit code 3.
    pub fn measure(&mut self, base: Option<BaseId>) -> Result<RunWriter, ExperimentError> {
        self.spent.setting_up = self.clock.now() - self.spent.workers;
        let opening = Opening {
            fresh: self.fresh,
            base,
            ..Opening::default()
        };
        let mut writer = self.open(opening)?;
        let all = self.suite.cases.clone();
        self.invocations(&mut writer, &all, 0..self.suite.settings.invocations)?;
        Ok(writer)
    }

    /// Opens the run's file, or goes on with it.
    ///
    /// # Errors
    /// As [`measure`](Ready::measure).
    pub fn open(&mut self, opening: Opening) -> Result<RunWriter, ExperimentError> {
        let (writer, before) = RunWriter::open(&self.directory, &self.header, &opening)
            .map_err(ExperimentError::not_judged)?;
        if !matches!(before, Before::Resumed { .. }) {
            self.processes.begin_logs();
        }
        self.tell(before);
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

    /// What to call this run: the versions that were asked for, or where it lies.
    pub fn label(&self) -> String {
        match &self.header.turn {
            Some(turn) => turn.of.join(" "),
            None => self.directory.display().to_string(),
        }
    }

    /// True where nothing is to be said about the work.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Says something about the work, unless nothing is to be said.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.listener.note(text.as_ref());
        }
    }

    /// Measures what is owed, or what is left of it: invocations after those that every case
    /// has.
    ///
    /// # Errors
    /// As [`measure`](Ready::measure).
    pub fn take(&mut self, writer: &mut RunWriter, batch: &Owed) -> Result<(), ExperimentError> {
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
    ) -> Result<(), ExperimentError> {
        let seed = self.suite.settings.seed;
        let blocks = blocks(cases, range.clone(), seed, &writer.done);
        let mut progress = self.listener.progress(&blocks, range, self.quiet);
        let waiting = self.waiting.take();
        let mut launcher = Held::new(&mut self.processes, &self.hellos).with(waiting);
        let mut session = Session::new(&self.suite, &mut launcher, &self.clock, &mut self.detailed);
        if !is_unwatched() {
            session = session.watched_by(Box::new(Machine::here()));
        }
        session
            .run(&blocks, progress.as_mut(), &mut |entry| {
                interrupt::hold_if_stopping();
                writer.append(entry)
            })
            .map_err(|error| {
                ExperimentError::not_judged_as(
                    "the run stops here; what was measured is kept, and the same command goes on",
                    error,
                )
            })?;
        self.spent += session.spent;
        if let Some(said) = progress.summary() {
            self.say(said);
        }
        Ok(())
    }
}

/// The cases of a suite that fall to a shard.
fn dealt(suite: &Suite, place: Place) -> Result<Vec<Case>, ExperimentError> {
    let cases = deal(&suite.cases, place.of).swap_remove(place.index as usize - 1);
    match cases.is_empty() {
        false => Ok(cases),
        true => Err(ExperimentError::Usage(format!(
            "--shard {place}: {} has {}, and a shard needs one",
            suite.name,
            counted(suite.cases.len(), "case")
        ))),
    }
}

/// The command line. Where the executable lies is nobody's business: runs and
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
    argv
}

/// What an error says, with the last lines its worker printed.
pub fn with_log(error: impl Error, log: &str) -> String {
    let text = chain(&error);
    match log.is_empty() {
        true => text,
        false => {
            let log = clean(log);
            let lines: Vec<String> = log.lines().map(|line| format!("  | {line}")).collect();
            format!("{text}\nIts last words:\n{}", lines.join("\n"))
        }
    }
}

/// What was measured to its end, and how it is to be judged.
pub struct Measured {
    /// What was measured.
    pub ready: Ready,
    /// Its run, to be ended once its reports are there.
    pub writer: RunWriter,
    /// What it is compared with.
    pub base: Option<Base>,
    /// What of it was measured in pairs after that, as it was not shown to be the same.
    pub pairs: Option<Pairs>,
    /// The run of the base, where that was measured in turn with it.
    pub base_writer: Option<RunWriter>,
    /// Where the reports go.
    pub folder: PathBuf,
    /// How it is judged.
    pub options: Options,
}

/// Two sides that were measured in pairs.
pub struct Pairs {
    /// What was.
    pub base: Side,
    /// What is.
    pub head: Side,
    /// What that took.
    pub spent: Spent,
}

/// A line of 80 columns; how it was measured is on the page.
fn peak_line(worker: &str, peak: &Peak) -> String {
    let products = peak.tflops.iter();
    let products: Vec<String> = products
        .map(|(dtype, rate)| format!("{dtype} {rate}"))
        .collect();
    let products =
        (!products.is_empty()).then(|| format!("products {}FLOP/s", products.join(", ")));
    let copies = peak
        .gbps
        .map(|rate| format!("copies {} GB/s", Digits(rate)));
    let figures: Vec<String> = products.into_iter().chain(copies).collect();
    format!("{worker}: {}", figures.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::attention::Dtype;
    use regatta_worker::units::Rate;

    #[test]
    fn figures_are_told_with_their_units() {
        let peak = Peak {
            tflops: BTreeMap::from([(Dtype::F32, Rate(0.1466)), (Dtype::Bf16, Rate(792.3))]),
            gbps: Some(4250.7),
            how: "a product".to_owned(),
        };
        assert_eq!(
            peak_line("torch", &peak),
            "torch: products f32 146.6 G, bf16 792.3 TFLOP/s; copies 4251 GB/s"
        );
    }
}
