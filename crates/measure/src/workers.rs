//! The workers of a suite: their names, the environment of each, and starting them as processes
//! with separate logs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::command::{LIBRARIES, PACKAGE, worker_spec};
use super::identity::identity;
use super::listing::ListedWorkers;
use super::loaded::{existing, for_checkout};
use super::machine::cores;
use crate::SetupError;
use crate::git;
use crate::interrupt;
use crate::worker::host::{StartMode, WorkerProcess};
use crate::worker::pool::Pool;
use crate::worker::{
    Conversation, Forking, Launcher, WorkerError, WorkerFailure, WorkerSpec, at_once,
};
use regatta_core::record::identity::Identity;
use regatta_core::suite::Suite;
use regatta_core::suite::document::name_hint;
use regatta_core::suite::environment::Environment;
use regatta_core::suite::workers::OwnWorker;
use regatta_core::temporary;
use regatta_core::text::listed;
use regatta_worker::case::VariantId;
use regatta_worker::protocol::{DeviceKind, Hello};
use regatta_worker::units::Bytes;

/// Starts workers as processes. Each worker has its own log.
#[derive(Default)]
pub struct Processes {
    specs: BTreeMap<String, WorkerSpec>,
    modes: BTreeMap<String, StartMode>,
    logs: PathBuf,
    limit: Duration,
    /// The introductions of the workers when the run began; later starts must send the same.
    introduced: BTreeMap<String, Hello>,
    /// A worker that has introduced itself and has done nothing else.
    waiting: Option<WaitingWorker>,
    /// Workers of pairs on a GPU that were started ahead and have introduced themselves, by name.
    ahead: BTreeMap<String, Vec<Box<dyn Conversation>>>,
    /// Results of listing the calls of scripts' workers.
    listed: ListedWorkers,
    /// Files that each worker has loaded, as far as known.
    loaded: BTreeMap<String, BTreeSet<PathBuf>>,
    /// The folder of functions that numba compiles for them.
    compiled: Option<TempDir>,
}

/// The variable that names numba's cache. Numba compiles a function again if its own file changed,
/// but not if a function that it calls did. So each command starts with an empty cache.
const NUMBA_CACHE: &str = "NUMBA_CACHE_DIR";

/// A worker that is up, and its name.
pub type WaitingWorker = (String, Box<dyn Conversation>);

impl Processes {
    /// Finds the command of every worker in `workers`. `environment` is the default for variants
    /// that name none.
    ///
    /// # Errors
    /// A worker or an environment that is not declared; see also [`check_declared`].
    pub fn find<'a>(
        workers: impl Iterator<Item = &'a String>,
        suite: &Suite,
        environment: Option<&str>,
        logs: PathBuf,
    ) -> Result<Processes, SetupError> {
        check_declared(suite, environment)?;
        let specs = workers
            .map(|name| {
                let spec = worker_spec(name, suite, environment).map_err(|error| {
                    let asks = |variant: &&VariantId| variant.worker_name() == *name;
                    match suite.origins.keys().find(asks) {
                        Some(variant) => SetupError(format!("{}: {error}", suite.origins[variant])),
                        None => error,
                    }
                })?;
                Ok((name.clone(), spec))
            })
            .collect::<Result<_, SetupError>>()?;
        let mut processes = Processes {
            specs,
            logs,
            // The worker loads its library during the first request, whose limit is the same as any
            // other's.
            limit: Duration::from_secs(suite.settings.timeout_s.into()),
            ..Processes::default()
        };
        // If this folder cannot be made, workers use numba's normal cache.
        if std::env::var_os(NUMBA_CACHE).is_none() {
            processes.compiled = temporary::folder("numba").ok();
        }
        if let Some(folder) = &processes.compiled {
            interrupt::leaves(folder.path().to_owned());
            let variable = (NUMBA_CACHE.to_owned(), folder.path().display().to_string());
            for spec in processes.specs.values_mut() {
                spec.inherited.push(variable.clone());
            }
        }
        Ok(processes)
    }

    /// The hello of a script's worker from when its calls were listed.
    pub(super) fn listed(&self, name: &str) -> Option<&Hello> {
        self.listed.get(name).map(|worker| &worker.hello)
    }

    /// Stores the hellos and files of scripts' workers from when their calls were listed. Such a
    /// worker is not started again to introduce itself.
    pub(super) fn with_listed(mut self, listed: ListedWorkers) -> Processes {
        for (name, worker) in &listed {
            self.loaded.insert(name.clone(), worker.loaded.clone());
        }
        self.listed = listed;
        self
    }

    /// Sets workers up to introduce themselves and do nothing else, within `limit` if given. They
    /// are not forked, because a single process is not worth a fork server.
    pub fn introducing(mut self, limit: Option<Duration>) -> Processes {
        for spec in self.specs.values_mut() {
            spec.forking = Forking::Never;
        }
        self.limit = limit.unwrap_or(self.limit);
        self
    }

    /// Uses the servers of `pool`, which outlive this run in a watch.
    pub(super) fn with_pool(mut self, pool: &Pool) -> Processes {
        for spec in self.specs.values_mut() {
            spec.pool = pool.clone();
            // Such a server keeps one environment, so it cannot have a cache folder of each run.
            spec.inherited
                .retain(|(name, _)| name != NUMBA_CACHE || !pool.keeps());
        }
        self
    }

    /// Starts every worker in `directory`, which relative paths of its command refer to. `own` is
    /// run in place of this executable. Variables of the caller that name files of its checkout
    /// then name those of `directory`.
    ///
    /// # Errors
    /// A variable that names code which this checkout does not have, and that code.
    pub fn started_in(
        mut self,
        directory: &Path,
        own: Option<&Path>,
    ) -> Result<Processes, (String, PathBuf)> {
        let caller = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let inherited = for_checkout(directory, caller)?;
        for (name, spec) in &mut self.specs {
            let worker = name.split('@').next().unwrap_or(name);
            if let Some(own) = own.filter(|_| OWN.contains(&worker)) {
                spec.program = own.to_owned();
            } else if spec.program.components().count() > 1 {
                let own = directory.join(&spec.program);
                // An interpreter in a `.venv` is not part of a revision.
                let is_shared = spec.is_interpreter && !own.exists();
                spec.program = if is_shared {
                    std::path::absolute(&spec.program).unwrap_or(own)
                } else {
                    own
                };
            }
            spec.directory = Some(directory.to_owned());
            spec.inherited.extend(inherited.iter().cloned());
        }
        Ok(self)
    }

    /// From now on, every start must give the same introduction as at the beginning of the run:
    /// with another version, device or library, an invocation would measure something else.
    /// `waiting` is a worker that is already up. It serves if it is the next one needed, and is
    /// ended otherwise.
    pub fn expect(&mut self, introduced: BTreeMap<String, Hello>, waiting: Option<WaitingWorker>) {
        let has_room = |name: &String| introduced.get(name).is_some_and(has_room);
        self.ahead.retain(|name, _| has_room(name));
        (self.introduced, self.waiting) = (introduced, waiting);
    }

    /// Keeps a worker that has introduced itself and done nothing else, if others of its name were
    /// started ahead. Returns it otherwise.
    pub fn put_back(
        &mut self,
        name: &str,
        worker: Box<dyn Conversation>,
    ) -> Option<Box<dyn Conversation>> {
        match self.ahead.get_mut(name) {
            Some(ahead) => {
                ahead.push(worker);
                None
            }
            None => Some(worker),
        }
    }

    /// Forks `count` processes of each worker that can be forked, or fewer if there are several
    /// workers. Returns false if not all of them started.
    pub fn start_first(&mut self, count: usize) -> bool {
        let forking = self.specs.iter();
        let forking = forking.filter(|(_, spec)| spec.forking != Forking::Never);
        let names: Vec<String> = forking.map(|(name, _)| name.clone()).collect();
        let count = count.min(MAX_AHEAD / 2 / names.len().max(1));
        // All are tried, even after a failure.
        let started: Vec<_> = names.iter().map(|name| self.fork(name, count)).collect();
        started
            .into_iter()
            .flatten()
            .all(|started| started == count)
    }

    /// Starts processes of GPU workers before they are needed, up to the `counts`. Contexts that
    /// are created at the same time take as long as two created one after the other. Does nothing
    /// on a device with little memory.
    pub fn start_ahead(&mut self, counts: &BTreeMap<String, usize>) {
        for (name, count) in counts {
            let there = self.ahead.get(name).map_or(0, Vec::len);
            let more = count.saturating_sub(there);
            if more > 1 && self.has_room(name) && self.fork(name, more).is_none() {
                self.start_beside(name, more);
            }
        }
    }

    /// Starts `count` processes of a worker that is not forked, such as a script's, which runs to
    /// its first case. They start at the same time on half of the cores, as the other side does the
    /// same. A process that fails is started again when it is needed, and reports its error then.
    fn start_beside(&mut self, name: &str, count: usize) {
        let log = self.log(name);
        let Some(spec) = self.specs.get(name) else {
            return;
        };
        let start = || WorkerProcess::start(spec, &log, self.limit);
        let started = at_once(vec![start; count.min(cores() / 2)]);
        let ahead = self.ahead.entry(name.to_owned()).or_default();
        ahead.extend(started.into_iter().flatten().map(|one| Box::new(one) as _));
    }

    /// Forks `count` processes of a worker, and returns how many started. `None` for a worker that
    /// is not forked.
    fn fork(&mut self, name: &str, count: usize) -> Option<usize> {
        let log = self.log(name);
        let spec = self.specs.get(name)?;
        let mode = self.modes.entry(name.to_owned()).or_default();
        let started = mode.start_many(spec, &log, self.limit, count)?;
        let number = started.len();
        if number == count && started.iter().all(|one| has_room(one.hello())) {
            mode.want_ahead(count);
        }
        let ahead = self.ahead.entry(name.to_owned()).or_default();
        ahead.extend(started.into_iter().map(|one| Box::new(one) as _));
        Some(number)
    }

    /// True if several processes of a worker can be up at the same time, each with a case.
    pub(crate) fn has_room(&self, name: &str) -> bool {
        self.introduced.get(name).is_some_and(has_room)
    }

    /// Empties the logs, so that they have only the output of this run.
    pub fn begin_logs(&self) {
        for worker in self.specs.keys() {
            let path = self.log(worker);
            // Truncated in place, since a process that has introduced itself still writes to it. If
            // that fails, starting the worker reports the error.
            let _ = if fs::metadata(&path).is_ok_and(|log| log.is_file()) {
                fs::OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .and_then(|log| log.set_len(0))
            } else {
                fs::remove_file(&path)
            };
        }
    }

    /// The identity of these workers: commands, files and variables.
    pub fn identity(&self) -> Identity {
        identity(self.specs.values(), &self.loaded)
    }

    /// Files that the workers have loaded, or that their commands or search-path variables name.
    pub(super) fn loaded(&self) -> BTreeSet<PathBuf> {
        let named = self.specs.values().flat_map(named);
        named
            .chain(self.loaded.values().flatten().cloned())
            .collect()
    }

    /// The source file that a worker's command names, if the checkout in `here` has it and the
    /// revision in which the worker starts lacks it. Files that a build makes are not sources.
    pub(super) fn lacking(&self, worker: &str, here: &Path) -> Option<PathBuf> {
        let spec = self.specs.get(worker)?;
        let directory = spec.directory.as_ref()?;
        let program = spec.program.strip_prefix(directory).ok();
        let words = program.into_iter().chain(spec.args.iter().map(Path::new));
        let is_source = |path: &Path| {
            let listed = |which: &[&str]| {
                let file = path.to_string_lossy();
                let arguments = [&["ls-files"], which, &["--", &*file]].concat();
                git::ask(here, &arguments).is_ok_and(|files| !files.is_empty())
            };
            let new = ["--others", "--exclude-standard"];
            let of_worker = |ending| ending == "py" || ending == "cu";
            listed(&["--cached"]) || path.extension().is_some_and(of_worker) && listed(&new)
        };
        let mut relative = words.filter(|word| word.is_relative());
        let lacking = relative.find(|path| {
            here.join(path).is_file() && !directory.join(path).exists() && is_source(path)
        });
        lacking.map(Path::to_owned)
    }

    /// The path of a worker's log.
    fn log(&self, worker: &str) -> PathBuf {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        let name = worker.replace(|c| !plain(c), "_");
        self.logs.join(format!("{name}.log"))
    }

    /// Starts the import of each fork server, so that all of them import at the same time as those
    /// of the other side. The start that needs a server reports its errors.
    pub(super) fn begin(&mut self) {
        for (name, spec) in &self.specs {
            let log = self.log(name);
            let mode = self.modes.entry(name.clone()).or_default();
            mode.begin(spec, &log);
        }
    }
}

impl Launcher for Processes {
    fn end_ahead(&mut self) {
        let ahead = std::mem::take(&mut self.ahead).into_values().flatten();
        at_once(ahead.map(|worker| move || drop(worker)).collect());
    }

    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, WorkerError> {
        match self.waiting.take() {
            Some((name, conversation)) if name == worker => return Ok(conversation),
            other => drop(other),
        }
        let error = |failure| WorkerError::new(worker, failure);
        let Some(spec) = self.specs.get(worker) else {
            let reason = "this worker is not declared".to_owned();
            return Err(error(WorkerFailure::Refused(reason)));
        };
        let log = self.log(worker);
        let mode = self.modes.entry(worker.to_owned()).or_default();
        let ahead = self.ahead.get_mut(worker).and_then(Vec::pop);
        let started = match ahead {
            Some(ahead) => ahead,
            None => Box::new(mode.start(spec, &log, self.limit)?),
        };
        let loaded = self.loaded.entry(worker.to_owned()).or_default();
        loaded.extend(started.loaded());
        let first = self.introduced.get(worker);
        let differences = first.map(|first| differences(first, started.hello()));
        let differences = differences.unwrap_or_default();
        if differences.is_empty() {
            return Ok(started);
        }
        let named = listed(differences, MAX_NAMED, ", ");
        Err(error(WorkerFailure::Refused(format!(
            "the worker changed since the run started, so this invocation does not count: \
             {named}; measure again with --no-resume once it stays the same"
        ))))
    }
}

/// The maximum number of processes that are started ahead, for both sides together.
pub(crate) const MAX_AHEAD: usize = 16;

/// True for a GPU whose memory has room for several contexts beside a case.
fn has_room(hello: &Hello) -> bool {
    hello.absent.is_none()
        && hello.device.known_kind() == Some(DeviceKind::Cuda)
        && hello.device.memory_bytes >= MIN_MEMORY
}

/// The smallest GPU memory with which processes are started ahead; each needs half a GiB.
const MIN_MEMORY: Bytes = Bytes(32 << 30);

/// The paths that a worker's command and variables name.
fn named(spec: &WorkerSpec) -> BTreeSet<PathBuf> {
    let from = spec.directory.clone().unwrap_or_default();
    let words = std::iter::once(spec.program.clone()).chain(spec.args.iter().map(PathBuf::from));
    let mut named: BTreeSet<PathBuf> = words.filter_map(|word| existing(&from, &word)).collect();
    // The Python worker reports its imports.
    let tells = spec
        .args
        .first()
        .is_some_and(|first| first.ends_with(PACKAGE));
    let is_asked = |name: &str| !(name.contains("CACHE") || tells && name == "PYTHONPATH");
    let inherited = SEARCHED.into_iter().filter_map(|name| {
        let set = is_asked(name) && spec.env.iter().all(|(own, _)| own != name);
        let changed = spec.inherited.iter().find(|(own, _)| own == name);
        let value = || changed.map(|(_, value)| value.clone());
        set.then(|| value().or_else(|| std::env::var(name).ok()))
            .flatten()
    });
    let own = spec.env.iter().filter(|(name, _)| is_asked(name));
    let own = own.map(|(_, value)| value.clone());
    for value in own.chain(inherited) {
        let paths = value.split(':').filter(|path| path.contains('/'));
        named.extend(paths.filter_map(|path| existing(&from, Path::new(path))));
    }
    named
}

/// The caller's variables that name folders of code.
const SEARCHED: [&str; 5] = [
    "PYTHONPATH",
    "PERL5LIB",
    "RUBYLIB",
    "NODE_PATH",
    "CLASSPATH",
];

/// The number of differences that a message names.
const MAX_NAMED: usize = 4;

/// The differences between two introductions. Free memory and new variants are ignored.
fn differences(first: &Hello, now: &Hello) -> Vec<String> {
    let facts = |hello: &Hello| -> BTreeMap<String, String> {
        if let Some(reason) = &hello.absent {
            // An absent worker reports nothing else.
            return [("it was".to_owned(), format!("absent ({reason})"))].into();
        }
        let own = [
            ("it was", "present"),
            ("name", &hello.worker),
            ("device", &hello.device.name),
            ("kind of device", &hello.device.kind),
        ];
        let own = own.map(|(what, value)| (what.to_owned(), value.to_owned()));
        let named = [
            ("fact", &hello.device.facts),
            ("version", &hello.versions),
            ("package", &hello.packages),
        ];
        let named = named.into_iter().flat_map(|(what, values)| {
            let values = values.iter();
            values.map(move |(name, value)| (format!("{what} {name}"), value.clone()))
        });
        own.into_iter().chain(named).collect()
    };
    let (was, is) = (facts(first), facts(now));
    let shared = first.absent.is_some() == now.absent.is_some();
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let names = names.into_iter().filter(|name| shared || *name == "it was");
    let differ = names.filter(|name| was.get(*name) != is.get(*name));
    let differ = differ.map(|name| {
        let [was, is] = [&was, &is].map(|side| side.get(name).map_or("none", String::as_str));
        format!("{name} {was} → {is}")
    });
    let gone = first.variants.iter().filter(|variant| {
        let mut variants = now.variants.iter();
        shared && variants.all(|other| other.name != variant.name)
    });
    let gone = gone.map(|variant| format!("variant {} is gone", variant.name));
    differ.chain(gone).collect()
}

/// Workers that are this executable.
pub const OWN: [&str; 2] = ["cpu", "cuda"];

/// Checks that each declared environment belongs to a worker that exists, and that `default`, the
/// environment of workers that name none, is declared.
///
/// # Errors
/// A name that is unknown or reserved for regatta, or requirements for a worker that runs in no
/// interpreter.
pub fn check_declared(suite: &Suite, default: Option<&str>) -> Result<(), SetupError> {
    let mut declared = suite.origins_of_workers.iter();
    if let Some((name, place)) = declared.find(|(name, _)| is_own(name)) {
        return Err(SetupError(format!(
            "{place}: `{name}` is the name of a built-in worker; choose another name"
        )));
    }
    for (name, environment) in &suite.environments {
        if is_known(name, suite) {
            check_requirements(name, environment, name, suite)?;
        }
    }
    default.map_or(Ok(()), |name| find_environment(name, suite).map(|_| ()))
}

/// Refuses requirements for a worker that is not a Python one: they are installed for an
/// interpreter.
fn check_requirements(
    name: &str,
    environment: &Environment,
    worker: &str,
    suite: &Suite,
) -> Result<(), SetupError> {
    if environment.requirements.is_empty() || is_python(worker, suite) {
        return Ok(());
    }
    Err(SetupError(format!(
        "[environments.{name}] has `requirements`, and worker `{worker}` is started by a command \
         of its own, so that nothing is installed for it; give it an environment without them"
    )))
}

/// True for a worker that is part of regatta.
fn is_own(worker: &str) -> bool {
    OWN.contains(&worker) || LIBRARIES.contains(&worker)
}

pub(super) fn is_known(worker: &str, suite: &Suite) -> bool {
    is_own(worker) || suite.workers.contains_key(worker)
}

/// True for a worker that regatta's own Python worker serves.
pub(super) fn is_python(worker: &str, suite: &Suite) -> bool {
    match suite.workers.get(worker) {
        Some(own) => matches!(own, OwnWorker::Python { .. } | OwnWorker::Script(_)),
        None => LIBRARIES.contains(&worker),
    }
}

pub(super) fn unknown(worker: &str, suite: &Suite) -> SetupError {
    let known = OWN.iter().chain(LIBRARIES).copied();
    let known = known.chain(suite.workers.keys().map(String::as_str));
    SetupError(format!(
        "no worker is called `{worker}` ({}); others are declared in [workers]",
        name_hint(worker, known)
    ))
}

/// Returns the environment of this name.
///
/// # Errors
/// It is not declared. The message suggests a similar name, or lists all.
pub fn find_environment<'a>(wanted: &str, suite: &'a Suite) -> Result<&'a Environment, SetupError> {
    if let Some(environment) = suite.environments.get(wanted) {
        return Ok(environment);
    }
    let known = suite.environments.keys().map(String::as_str);
    Err(SetupError(format!(
        "no environment is called `{wanted}` ({}); declare it as [environments.{wanted}] in the \
         suite or in regatta.toml",
        name_hint(wanted, known)
    )))
}

/// The environment of `worker@environment`, or of `worker`: in that case the caller's `default`,
/// else the environment with the worker's own name, else `environments.default`.
pub(super) fn environment_of<'a>(
    name: &'a str,
    suite: &'a Suite,
    default: Option<&'a str>,
) -> Result<(&'a str, Environment), SetupError> {
    let (worker, named) = match name.split_once('@') {
        Some((worker, named)) => (worker, Some(named)),
        None => (name, None),
    };
    let fallback = suite.environments.get("default");
    let (found, mut environment) = if let Some(wanted) = named.or(default) {
        let environment = find_environment(wanted, suite)?.clone();
        if named.is_some() && is_known(worker, suite) {
            check_requirements(wanted, &environment, worker, suite)?;
        }
        (wanted, environment)
    } else if let Some((own, environment)) = suite.environments.get_key_value(worker) {
        let mut environment = environment.clone();
        if let Some(fallback) = fallback {
            environment.complete_variables(fallback);
        }
        (own.as_str(), environment)
    } else {
        ("default", fallback.cloned().unwrap_or_default())
    };
    // An environment without a Python of its own runs in the default interpreter.
    if let Some(fallback) = fallback.filter(|fallback| fallback.requirements.is_empty()) {
        environment.complete_python(fallback);
    }
    Ok((found, environment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hello;

    #[test]
    fn a_log_lies_in_its_folder_whatever_the_worker_is_called() {
        let processes = Processes {
            logs: PathBuf::from("logs"),
            ..Processes::default()
        };
        let log = |name| processes.log(name).display().to_string();
        assert_eq!(log("torch@old-1.0"), "logs/torch@old-1.0.log");
        assert_eq!(log("../../x\u{1b}"), "logs/.._.._x_.log");
    }

    #[test]
    fn each_command_begins_without_what_numba_compiled_before() {
        let find = || {
            let cpu = "cpu".to_owned();
            let processes = Processes::find([cpu].iter(), &Suite::default(), None, PathBuf::new());
            processes.unwrap().with_pool(&Pool::default())
        };
        let folder = |processes: &Processes| {
            let variables = processes.specs["cpu"].variables().into_iter();
            let mut named = variables.filter(|(name, _)| name == NUMBA_CACHE);
            named.next().map(|(_, value)| PathBuf::from(value))
        };
        let (first, second) = (find(), find());
        let (a, b) = (folder(&first).unwrap(), folder(&second).unwrap());
        assert!(a != b && a.is_dir());
        drop(first);
        assert!(!a.exists() && b.is_dir());
        let watch = Pool::default();
        watch.begin(|_| ());
        assert_eq!(folder(&second.with_pool(&watch)), None);
    }

    #[test]
    fn an_environment_is_for_workers_that_there_are() {
        let find = |worker: &str, requirements: &[&str], asked: &str| {
            let environment = Environment {
                requirements: requirements.iter().map(|&line| line.to_owned()).collect(),
                ..Environment::default()
            };
            let suite = Suite {
                environments: BTreeMap::from([(worker.to_owned(), environment)]),
                ..Suite::default()
            };
            let asked = asked.to_owned();
            let processes = Processes::find(std::iter::once(&asked), &suite, None, PathBuf::new());
            processes.map(|_| ()).map_err(|error| error.to_string())
        };
        // Requirements for torch do not affect cpu, unless cpu has to run in that environment.
        let pinned = &["einops==0.8.2"][..];
        for (worker, requirements, asked, refused) in [
            ("torch", pinned, "cpu", ""),
            ("torch", pinned, "cpu@torch", " has `requirements`"),
            ("cuda", pinned, "cpu", " has `requirements`"),
            ("cuda", &[], "cpu@cuda", ""),
        ] {
            let error = find(worker, requirements, asked).err().unwrap_or_default();
            assert_eq!(error.is_empty(), refused.is_empty(), "{error}");
            assert!(error.contains(refused), "{error}");
            assert!(
                error.is_empty() || error.starts_with(&format!("[environments.{worker}]")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_worker_that_changed_is_told_with_what_changed() {
        let first = hello("cuda", "NVIDIA H200", &[("driver", "580")]);
        let mut now = first.clone();
        now.device.memory_bytes = Bytes(2);
        assert!(differences(&first, &now).is_empty());
        now.device.name = "NVIDIA A100".to_owned();
        now.device.facts.clear();
        now.versions.insert("mine".to_owned(), "2".to_owned());
        let expected =
            "device NVIDIA H200 → NVIDIA A100; fact driver 580 → none; version mine 1 → 2";
        assert_eq!(differences(&first, &now).join("; "), expected);
        now.absent = Some("no driver".to_owned());
        assert_eq!(
            differences(&first, &now),
            ["it was present → absent (no driver)"]
        );
    }
}
