//! The one boundary: the harness process never runs the code under test.
//!
//! Every variant runs in a worker process that speaks [`protocol`]. [`host`] is the harness's
//! side of it. [`program`] starts a process of somebody else's so that nothing it starts outlives
//! it or the harness.

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
    /// True for an interpreter, which is not code under test.
    pub is_interpreter: bool,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// Environment variables set for it.
    pub env: Vec<(String, String)>,
    /// Variables of the caller that name files of its checkout, as they are for a worker of another
    /// checkout: with that one's files.
    pub inherited: Vec<(String, String)>,
    /// The folder it is started in; `None`: the one regatta was started in.
    pub directory: Option<PathBuf>,
    /// The environment that it runs in, which no process makes again meanwhile.
    pub environment: Option<Arc<LockedFolder>>,
    /// The fix if the program is missing.
    pub fix: String,
    /// The way that processes are made: those of regatta's own fork workers if asked to.
    pub forking: Forking,
    /// Owns the processes that outlive an answer of a watch.
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

    /// All variables that it is given beside those of the caller.
    pub fn variables(&self) -> Vec<(String, String)> {
        [&self.inherited[..], &self.env].concat()
    }
}

/// The way that workers are started: forked or not from a process that has imported their library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forking {
    /// Each is started by itself.
    #[default]
    Never,
    /// They are forked where that is known to change nothing: on a GPU, by a process that has
    /// no device open and no thread running.
    WhereSound,
    /// They are forked, or not used.
    Always,
}

/// Does all of these at the same time, each in a thread of its own.
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
    /// When it does not come up.
    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, WorkerError>;

    /// Ends the workers that were started before they are wanted.
    fn end_ahead(&mut self) {}
}

/// A conversation with a worker.
pub trait Conversation: Send {
    /// Asks, and waits for the answer up to a limit. After an error the worker is gone.
    ///
    /// # Errors
    /// When no usable answer came.
    fn ask(&mut self, body: RequestBody, limit: Duration) -> Result<ReplyBody, WorkerError>;

    /// The worker's introduction when it was started.
    fn hello(&self) -> &Hello;

    /// The process that replies, where it is one of this machine.
    fn process(&self) -> Option<u32> {
        None
    }

    /// The thread of this process that reads its replies, if there is one.
    fn reader(&self) -> Option<u32> {
        None
    }

    /// Files that it has loaded: those it names, those that its processes map, and those that
    /// their command lines name.
    fn loaded(&self) -> BTreeSet<PathBuf> {
        BTreeSet::new()
    }

    /// The way that its process was started, if there is one.
    fn start(&self) -> Option<&Start> {
        None
    }
}

/// Why a worker gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("worker {worker}{failure}")]
pub struct WorkerError {
    /// The worker.
    pub worker: String,
    /// The failure.
    pub failure: WorkerFailure,
    /// The last lines it printed; empty where it printed nothing that explains it.
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
    /// The process that forks it did not.
    #[error(": the process that forks its invocations forked none: {0}")]
    NotForked(io::Error),
    /// The process ended, or it lost its device; the details follow its name.
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
    /// The text is not a reply, or not one to the request.
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
    /// It was never put to the question: what it needs could not be made, it speaks another
    /// protocol, or it was ended from outside. What happened follows its name.
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

/// A library takes its time to load, and that is when it does.
fn advice(asked: &str) -> &'static str {
    match asked {
        "hello" => {
            " (loading its library counts: where that takes longer, raise `timeout_s` under \
             [measure])"
        }
        _ => "",
    }
}
