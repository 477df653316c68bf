//! The process boundary: the harness never runs code under test.
//!
//! Every variant runs in a worker process that speaks [`protocol`]. [`host`] is the harness's side
//! of it. [`program`] starts foreign programs so that nothing they start outlives them or the
//! harness.

pub(crate) mod channel;
pub mod descendants;
mod forks;
pub mod host;
pub mod pool;
pub mod program;
pub mod supervisor;

use std::collections::BTreeSet;
use std::io;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use self::pool::Pool;
use self::protocol::{Hello, ReplyBody, RequestBody};
use regatta_core::locked::LockedFolder;
use regatta_core::record::Start;
pub use regatta_worker::protocol;

/// The command that starts a worker.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// The name in messages: `cpu`, `torch@old`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// True for an interpreter, whose executable is not code under test.
    pub is_interpreter: bool,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// Environment variables set for it.
    pub env: Vec<(String, String)>,
    /// Variables of the caller that name files of its checkout. For a worker of another checkout
    /// they name that checkout's files.
    pub inherited: Vec<(String, String)>,
    /// The folder that it is started in; `None` for the current folder.
    pub directory: Option<PathBuf>,
    /// The environment that it runs in, locked so that no process makes it again meanwhile.
    pub environment: Option<Arc<LockedFolder>>,
    /// The fix if the program is missing.
    pub fix: String,
    /// The way its processes are started.
    pub forking: Forking,
    /// Owns the processes that a watch keeps between runs.
    pub pool: Pool,
}

impl WorkerSpec {
    /// A worker that is started in the caller's folder and environment.
    pub fn new(name: &str, program: impl Into<PathBuf>, args: Vec<String>) -> WorkerSpec {
        WorkerSpec {
            name: name.to_owned(),
            program: program.into(),
            is_interpreter: false,
            args,
            env: Vec::new(),
            inherited: Vec::new(),
            directory: None,
            environment: None,
            fix: "is it installed, and is the path right?".to_owned(),
            forking: Forking::Never,
            pool: Pool::default(),
        }
    }

    /// All variables that it gets in addition to the caller's.
    pub fn variables(&self) -> Vec<(String, String)> {
        [&self.inherited[..], &self.env].concat()
    }
}

/// The way a worker's processes are started: forked from one that has imported its library, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forking {
    /// Each process is started individually.
    #[default]
    Never,
    /// Forked where that is known to change nothing; on a GPU, by a process that has no device open
    /// and no thread running.
    WhereSound,
    /// Always forked. Fails if that is not possible.
    Always,
}

/// Runs all tasks at the same time, each in a thread of its own.
pub(crate) fn at_once<T: Send>(tasks: Vec<impl FnOnce() -> T + Send>) -> Vec<T> {
    thread::scope(|scope| {
        let running: Vec<_> = tasks.into_iter().map(|task| scope.spawn(task)).collect();
        let joined = running.into_iter().map(|one| one.join());
        joined
            .map(|done| done.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// Starts workers.
pub trait Launcher: Send {
    /// Starts the worker of this name and has it introduce itself.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, WorkerError>;

    /// Ends the workers that were started ahead.
    fn end_ahead(&mut self) {}
}

/// A conversation with a worker.
pub trait Conversation: Send {
    /// Sends a request, and waits for the reply up to a time limit. After an error the worker is
    /// gone.
    ///
    /// # Errors
    /// No usable reply came.
    fn ask(&mut self, body: RequestBody, limit: Duration) -> Result<ReplyBody, WorkerError>;

    /// The worker's introduction when it was started.
    fn hello(&self) -> &Hello;

    /// The process that replies, if it is on this machine.
    fn process(&self) -> Option<u32> {
        None
    }

    /// The thread of this process that reads its replies, if there is one.
    fn reader(&self) -> Option<u32> {
        None
    }

    /// Files that it has loaded: those that it reports, that its processes map, and that their
    /// command lines name.
    fn loaded(&self) -> BTreeSet<PathBuf> {
        BTreeSet::new()
    }

    /// The way its process was started, if it has one.
    fn start(&self) -> Option<&Start> {
        None
    }
}

/// The reason for which a worker gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("worker {worker}{failure}")]
pub struct WorkerError {
    /// The worker.
    pub worker: String,
    /// The failure.
    pub failure: WorkerFailure,
    /// The last lines of its output; empty if they do not explain the error.
    pub log: String,
}

/// The failure of a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerFailure {
    /// The program could not be started.
    #[error(": cannot start {program}: {why}; {fix}")]
    NotStarted {
        /// The program.
        program: String,
        /// The reason.
        why: String,
        /// The fix.
        fix: String,
    },
    /// The process that should fork it did not.
    #[error(": the process that forks its invocations forked none: {0}")]
    NotForked(io::Error),
    /// The process ended or lost its device. The text follows its name.
    #[error(" {0}")]
    Crashed(String),
    /// It took too long, and was killed with its children.
    #[error(
        " did not answer {asked} within {limit:?}; it was killed{}",
        advice(asked)
    )]
    TimedOut {
        /// The request.
        asked: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The text is not a reply, or not one to this request.
    #[error(" gave an invalid answer to {asked}: {problem}")]
    Garbage {
        /// The request.
        asked: &'static str,
        /// The fault in the reply.
        problem: String,
    },
    /// It cannot work, in its own words.
    #[error(": {0}")]
    Refused(String),
    /// No request was sent to it: its resources could not be created, it speaks another protocol,
    /// or it was ended from outside. The text follows its name.
    #[error("{0}")]
    Unavailable(String),
}

impl WorkerError {
    /// An error before the worker printed anything.
    pub fn new(worker: &str, failure: WorkerFailure) -> WorkerError {
        WorkerError {
            worker: worker.to_owned(),
            failure,
            log: String::new(),
        }
    }
}

/// Advice for a time-out of `hello`, during which a worker loads its library.
fn advice(asked: &str) -> &'static str {
    match asked {
        "hello" => {
            " (loading its library counts: where that takes longer, raise `timeout_s` under \
             [measure])"
        }
        _ => "",
    }
}
