//! The harness's side of a worker process: starts it, sends requests, waits with a time limit, and
//! ends it with everything it started.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::channel::{self, Ends, SocketListener, WorkerLog, write_lines};
use super::forks::Forks;
use super::program::{Program, Started, ended, why};
use super::protocol::{
    DeviceKind, Hello, PROTOCOL_VERSION, REPLY_FD, REQUEST_FD, Reply, ReplyBody, Request,
    RequestBody,
};
use super::{Conversation, Forking, WorkerError, WorkerFailure, WorkerSpec, at_once};
use crate::loaded;
use regatta_core::record::{How, Start};
use regatta_core::secrets;
use regatta_core::text::json_of_plain_text;

/// The number of this process's workers that have a GPU open.
static ON_GPU: AtomicU32 = AtomicU32::new(0);

/// The number of workers that have a GPU open, without the worker that asks.
pub(crate) fn others_on_gpu() -> u32 {
    ON_GPU.load(Ordering::Relaxed).saturating_sub(1)
}

/// A worker process.
#[derive(Debug)]
pub struct WorkerProcess {
    name: String,
    program: Started,
    start: Start,
    requests: Option<Sender<String>>,
    replies: Receiver<io::Result<String>>,
    /// The process that replies and the thread that reads.
    ends: Ends,
    log: WorkerLog,
    last_id: u64,
    hello: Hello,
    /// Secrets in its command and variables, which its output may repeat.
    hidden: Vec<String>,
    /// True once it has reported that it runs on a GPU.
    on_gpu: bool,
}

impl WorkerProcess {
    /// Starts a worker and has it introduce itself. Its output is appended to the file at `log`.
    ///
    /// # Errors
    /// It cannot be started, or its reply to `hello` is not usable.
    pub fn start(
        spec: &WorkerSpec,
        log: &Path,
        limit: Duration,
    ) -> Result<WorkerProcess, WorkerError> {
        let socket = channel::Socket::bind().ok();
        let named = socket.as_ref().map(channel::Socket::variable);
        let start = |[requests, replies]: [OwnedFd; 2], output: &File| {
            let copy = || output.try_clone().map(Stdio::from);
            let program = Program {
                env: spec.variables().into_iter().chain(named).collect(),
                directory: spec.directory.clone(),
                ..Program::new(&spec.program, &spec.args[..])
            };
            let descriptors = vec![(requests, REQUEST_FD), (replies, REPLY_FD)];
            let started = copy()
                .and_then(|stdout| program.start([Stdio::null(), stdout, copy()?], descriptors));
            let failed = |error| WorkerFailure::NotStarted {
                program: spec.program.display().to_string(),
                why: why(&spec.program, &error),
                fix: spec.fix.clone(),
            };
            started.map_err(failed)
        };
        WorkerProcess::connected(spec, log, (How::Exec, socket), start)?.introduced(limit)
    }

    /// A worker that `fork` forks with its ends of the channel and its log. It has not introduced
    /// itself yet.
    pub(super) fn forked(
        spec: &WorkerSpec,
        log: &Path,
        fork: impl FnOnce([OwnedFd; 2], &File) -> io::Result<Started>,
    ) -> Result<WorkerProcess, WorkerError> {
        let fork = |ends, output: &File| fork(ends, output).map_err(WorkerFailure::NotForked);
        WorkerProcess::connected(spec, log, (How::Forked, None), fork)
    }

    /// A worker that `start` starts with its ends of the channel and its log.
    fn connected(
        spec: &WorkerSpec,
        log: &Path,
        (how, socket): (How, Option<channel::Socket>),
        start: impl FnOnce([OwnedFd; 2], &File) -> Result<Started, WorkerFailure>,
    ) -> Result<WorkerProcess, WorkerError> {
        // Code under test runs as the same user, and must not read this process's memory.
        let _ = nix::sys::prctl::set_dumpable(false);
        let error = |failure| WorkerError::new(&spec.name, failure);
        let unavailable = |what: String| error(WorkerFailure::Unavailable(what));
        let (log, output) = WorkerLog::open(log).map_err(|problem| {
            unavailable(format!(
                ": its log {} cannot be written: {problem}; move what is in the way",
                log.display()
            ))
        })?;
        let no_channel = |problem: io::Error| {
            unavailable(format!(": no channel to it could be made: {problem}"))
        };
        let (request_read, request_write) = io::pipe().map_err(no_channel)?;
        let (replies, reply_end) = channel::replies().map_err(no_channel)?;
        let requests = request_read.try_clone().map_err(no_channel)?;
        let program = start([request_read.into(), reply_end], &output).map_err(error)?;
        let listener = socket.map(|socket| SocketListener {
            socket,
            requests: requests.into(),
            process: program.pid(),
        });
        let (replies, ends) = channel::read_replies(replies, listener);
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Ok(WorkerProcess {
            name: spec.name.clone(),
            program,
            start: Start { how, because: None },
            requests: Some(write_lines(request_write.into())),
            replies,
            ends,
            log,
            last_id: 0,
            hello: Hello::default(),
            hidden: secrets::hidden_values(&spec.args, variables.chain(spec.env.iter().cloned())),
            on_gpu: false,
        })
    }

    /// Has the worker introduce itself.
    fn introduced(mut self, limit: Duration) -> Result<WorkerProcess, WorkerError> {
        self.hello = self.introduce(limit)?;
        self.on_gpu = self.hello.device.known_kind() == Some(DeviceKind::Cuda);
        if self.on_gpu {
            ON_GPU.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self)
    }

    fn introduce(&mut self, limit: Duration) -> Result<Hello, WorkerError> {
        let protocol = PROTOCOL_VERSION;
        match self.ask(RequestBody::Hello { protocol }, limit)? {
            ReplyBody::Hello(hello) if hello.protocol != PROTOCOL_VERSION => Err(WorkerError::new(
                &self.name,
                WorkerFailure::Unavailable(format!(
                    " speaks protocol {}, this regatta {PROTOCOL_VERSION}; update whichever is \
                         older",
                    hello.protocol
                )),
            )),
            ReplyBody::Hello(hello) => Ok(hello),
            ReplyBody::Failed { reason }
            | ReplyBody::Unavailable { reason }
            | ReplyBody::Unsupported { reason } => {
                Err(WorkerError::new(&self.name, WorkerFailure::Refused(reason)))
            }
            other => Err(self.garbage("hello", format!("{other:?}"))),
        }
    }

    /// An error of this worker, with the last lines of its output.
    fn failed(&self, failure: WorkerFailure) -> WorkerError {
        WorkerError {
            worker: self.name.clone(),
            failure,
            log: secrets::message(&secrets::masked(self.log.excerpt(), &self.hidden)),
        }
    }

    fn garbage(&mut self, asked: &'static str, problem: String) -> WorkerError {
        self.kill();
        self.failed(WorkerFailure::Garbage { asked, problem })
    }

    fn died(&mut self, asked: &'static str) -> WorkerError {
        // It closed its channel but may still be ending. Waiting lets it end by itself, so that the
        // status is its own and not that of a kill.
        let by_itself = self.program.ends_within(Duration::from_secs(2));
        let status = match self.kill() {
            None if self.start.how == How::Forked => {
                let what = format!(
                    " was ended before it answered {asked}, and not by itself: what forked it is \
                     gone, or its supervisor is"
                );
                return WorkerError::new(&self.name, WorkerFailure::Unavailable(what));
            }
            Some(status) if by_itself => ended(status),
            _ => "it closed its channel".to_owned(),
        };
        self.failed(WorkerFailure::Crashed(format!(
            "ended ({status}) before it answered {asked}"
        )))
    }

    /// Ends the worker and everything it started.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        self.program.end()
    }

    /// Waits for a reply line. Meanwhile checks that the worker is alive, and how much it prints.
    fn wait(&mut self, asked: &'static str, limit: Duration) -> Result<String, WorkerError> {
        const SLICE: Duration = Duration::from_millis(100);
        let deadline = Instant::now() + limit;
        let mut is_gone = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.replies.recv_timeout(left.min(SLICE)) {
                Ok(Ok(line)) => return Ok(line),
                Ok(Err(error)) => return Err(self.garbage(asked, error.to_string())),
                // A child of a dead worker may keep the channel open, so end of file is not the
                // only sign of death. Anything that the worker wrote before is read first.
                Err(RecvTimeoutError::Timeout) if is_gone => return Err(self.died(asked)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.died(asked)),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    self.kill();
                    return Err(self.failed(WorkerFailure::TimedOut { asked, limit }));
                }
                Err(RecvTimeoutError::Timeout) => {
                    is_gone = self.program.ends_within(Duration::ZERO)
                }
            }
            self.hold_log(asked)?;
        }
    }

    /// Ends a worker that prints without end, before it fills the disk.
    fn hold_log(&mut self, asked: &'static str) -> Result<(), WorkerError> {
        if !self.log.is_too_long() {
            return Ok(());
        }
        let why = "it printed more than 64 MiB; have it print less, or into a file".to_owned();
        let error = self.garbage(asked, why);
        self.log.cut();
        Err(error)
    }
}

/// Masks secrets, recognised by name or form, in the texts of a reply that are stored or printed.
fn without_named_secrets(mut body: ReplyBody) -> ReplyBody {
    match &mut body {
        ReplyBody::Hello(hello) => {
            hello.device.name = secrets::description(&hello.device.name);
            for (name, text) in hello.versions.iter_mut().chain(&mut hello.device.facts) {
                *text = if secrets::names_a_secret(name) {
                    secrets::HIDDEN.to_owned()
                } else {
                    secrets::description(text)
                };
            }
            hello.absent = hello.absent.as_deref().map(secrets::message);
        }
        ReplyBody::Unsupported { reason }
        | ReplyBody::Unavailable { reason }
        | ReplyBody::Failed { reason } => {
            *reason = secrets::message(reason);
        }
        _ => {}
    }
    body
}

impl Conversation for WorkerProcess {
    fn ask(&mut self, body: RequestBody, limit: Duration) -> Result<ReplyBody, WorkerError> {
        let asked = body.name();
        if let RequestBody::Prepare(_) = body {
            self.log.begin_case();
        }
        self.last_id += 1;
        let id = self.last_id;
        let mut line = serde_json::to_string(&Request { id, body })
            .map_err(|error| self.garbage(asked, error.to_string()))?;
        line.push('\n');
        let sent = self.requests.as_ref().map(|requests| requests.send(line));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.died(asked));
        }
        let line = self.wait(asked, limit)?;
        let line = secrets::masked(json_of_plain_text(&line).into_owned(), &self.hidden);
        match serde_json::from_str::<Reply>(&line) {
            Ok(Reply {
                id: answered,
                body: ReplyBody::Lost { reason },
            }) if answered == id => {
                self.kill();
                Err(self.failed(WorkerFailure::Crashed(format!(
                    "lost its device: {}",
                    secrets::message(&reason)
                ))))
            }
            Ok(reply) if reply.id == id => Ok(without_named_secrets(reply.body)),
            Ok(reply) => Err(self.garbage(
                asked,
                format!("its id is {}, the request's was {id}", reply.id),
            )),
            Err(error) => {
                let start: String = line.chars().take(200).collect();
                Err(self.garbage(asked, format!("{error}, in `{start}`")))
            }
        }
    }

    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn process(&self) -> Option<u32> {
        known_number(&self.ends.sender)
    }

    fn reader(&self) -> Option<u32> {
        known_number(&self.ends.reader)
    }

    fn loaded(&self) -> BTreeSet<PathBuf> {
        let mut files = loaded::by_processes(self.program.pid());
        files.extend(self.hello.files.iter().cloned());
        files
    }

    fn start(&self) -> Option<&Start> {
        Some(&self.start)
    }
}

/// A process or thread id; `None` for 0.
fn known_number(number: &AtomicI32) -> Option<u32> {
    let number = u32::try_from(number.load(Ordering::Relaxed)).ok();
    number.filter(|number| *number > 0)
}

impl Drop for WorkerProcess {
    /// Closes the channel, which asks the worker to end, and kills it if it does not.
    fn drop(&mut self) {
        self.requests = None;
        self.program.ends_within(Duration::from_millis(500));
        self.kill();
        if self.on_gpu {
            ON_GPU.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The way in which a worker's processes are created, chosen at the first start.
#[derive(Debug, Default)]
pub(crate) enum StartMode {
    /// Not decided yet.
    #[default]
    Undecided,
    /// Forked by a server that has imported the library.
    Forked(Box<Forks>),
    /// Started individually. Has the reason if forks were wanted.
    Started(Option<String>),
}

impl StartMode {
    /// Starts the fork server, if one is wanted. It begins to import; this does not wait.
    pub(crate) fn begin(&mut self, spec: &WorkerSpec, log: &Path) {
        if matches!(self, StartMode::Undecided) {
            *self = match spec.forking {
                Forking::Never => StartMode::Started(None),
                _ => match Forks::begin(spec, log) {
                    Ok(forks) => StartMode::Forked(Box::new(forks)),
                    Err(reason) => StartMode::Started(Some(reason)),
                },
            };
        }
    }

    /// Forks `count` more processes, which introduce themselves at the same time. `None` if the
    /// worker is not forked. If some fail, a later start reports the reason.
    pub(crate) fn start_many(
        &mut self,
        spec: &WorkerSpec,
        log: &Path,
        limit: Duration,
        count: usize,
    ) -> Option<Vec<WorkerProcess>> {
        self.begin(spec, log);
        let StartMode::Forked(forks) = self else {
            return None;
        };
        let introduced = |forked: Vec<WorkerProcess>| -> Vec<WorkerProcess> {
            let introductions = forked.into_iter();
            let introductions = introductions.map(|forked| move || forked.introduced(limit));
            let introduced = at_once(introductions.collect()).into_iter();
            introduced.filter_map(Result::ok).collect()
        };
        let mut ahead = forks.take_ahead(count);
        ahead.iter_mut().for_each(|process| process.log.begin());
        let mut processes = introduced(ahead);
        if processes.len() < count {
            if let Err(reason) = forks.import(limit) {
                *self = StartMode::Started(Some(reason));
                return None;
            }
            let more = processes.len()..count;
            let more = more.map_while(|_| forks.worker().ok());
            processes.extend(introduced(more.collect()));
        }
        Some(processes)
    }

    /// Has `count` processes forked ahead for the next run of a watch.
    pub(crate) fn want_ahead(&mut self, count: usize) {
        if let StartMode::Forked(forks) = self {
            forks.want_ahead(count);
        }
    }

    /// Creates another process of the worker, which has introduced itself.
    ///
    /// # Errors
    /// The process does not start, or its introduction is not usable.
    pub(crate) fn start(
        &mut self,
        spec: &WorkerSpec,
        log: &Path,
        limit: Duration,
    ) -> Result<WorkerProcess, WorkerError> {
        self.begin(spec, log);
        if let StartMode::Forked(forks) = self {
            let reason = match forks.import(limit) {
                Err(reason) => reason,
                Ok(()) => match forks.worker().and_then(|forked| forked.introduced(limit)) {
                    Err(error)
                        if forks.is_gone()
                            || matches!(error.failure, WorkerFailure::NotForked(_)) =>
                    {
                        error.to_string()
                    }
                    answer => return answer,
                },
            };
            *self = StartMode::Started(Some(reason));
        }
        let because = match self {
            StartMode::Started(because) => because.clone(),
            _ => None,
        };
        if let (Some(reason), Forking::Always) = (&because, spec.forking) {
            let what = format!(
                " cannot be forked as requested: {reason}; leave REGATTA_FORK out, or set it to \
                 `no`"
            );
            let failure = WorkerFailure::Unavailable(what);
            return Err(WorkerError::new(&spec.name, failure));
        }
        let mut process = WorkerProcess::start(spec, log, limit)?;
        process.start.because = because;
        Ok(process)
    }
}
