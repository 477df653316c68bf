//! The harness's side: starts a worker process, asks, waits with a limit, and
//! ends it together with everything it started.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::descendants;
use super::protocol::{
    Hello, PROTOCOL_VERSION, REPLY_FD, REQUEST_FD, Reply, ReplyBody, Request, RequestBody,
};

/// Lines of a worker's log that are shown when it fails.
const LOG_LINES: usize = 12;

/// A reply line longer than this is garbage, not a message.
const LONGEST_REPLY: u64 = 256 << 20;

/// A worker that prints more than this is ended.
const LONGEST_LOG: u64 = 64 << 20;

/// What is kept of the log of such a worker.
const LOG_KEPT: u64 = 1 << 20;

/// How to start a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What to call it: `cpu`, `torch@old`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables set for it.
    pub env: Vec<(String, String)>,
    /// What to do when the program is missing.
    pub fix: String,
}

/// Why a worker gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It could not be started.
    #[error("worker {name}: cannot start {program}: {error}; {fix}")]
    Missing {
        /// The worker.
        name: String,
        /// The program.
        program: String,
        /// The system's words.
        error: io::Error,
        /// What to do.
        fix: String,
    },
    /// Its process ended.
    #[error("worker {name} ended ({status}) before it answered {asked}")]
    Died {
        /// The worker.
        name: String,
        /// How it ended.
        status: String,
        /// What was asked.
        asked: &'static str,
        /// The last lines it printed.
        log: String,
    },
    /// It took too long, and was killed with its children.
    #[error("worker {name} did not answer {asked} within {limit:?}; it was killed")]
    TimedOut {
        /// The worker.
        name: String,
        /// What was asked.
        asked: &'static str,
        /// The limit.
        limit: Duration,
        /// The last lines it printed.
        log: String,
    },
    /// What it wrote is no reply, or not one to what was asked.
    #[error("worker {name} answered {asked} with something else: {problem}")]
    Garbage {
        /// The worker.
        name: String,
        /// What was asked.
        asked: &'static str,
        /// What is wrong with it.
        problem: String,
        /// The last lines it printed.
        log: String,
    },
    /// It speaks another version of the protocol.
    #[error(
        "worker {name} speaks protocol {theirs}, this regatta {PROTOCOL_VERSION}; \
         update whichever is older"
    )]
    Version {
        /// The worker.
        name: String,
        /// Its version.
        theirs: u32,
    },
    /// It lost its device in the middle of the work, and was ended.
    #[error("worker {name} lost its device: {reason}")]
    Lost {
        /// The worker.
        name: String,
        /// In its own words.
        reason: String,
        /// The last lines it printed.
        log: String,
    },
    /// It cannot work, and says why.
    #[error("worker {name}: {reason}")]
    Refused {
        /// The worker.
        name: String,
        /// In its own words.
        reason: String,
    },
}

impl HostError {
    /// The last lines the worker printed; empty when there are none.
    pub fn log(&self) -> &str {
        match self {
            HostError::Died { log, .. }
            | HostError::TimedOut { log, .. }
            | HostError::Lost { log, .. }
            | HostError::Garbage { log, .. } => log,
            _ => "",
        }
    }
}

/// A conversation with a worker.
pub trait Conversation {
    /// Asks, and waits for the answer up to a limit. After an error the worker is
    /// gone.
    ///
    /// # Errors
    /// When no usable answer came.
    fn ask(&mut self, body: RequestBody, limit: Duration) -> Result<ReplyBody, HostError>;

    /// What it said of itself when it was started.
    fn hello(&self) -> &Hello;
}

/// A worker process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    requests: Option<Sender<String>>,
    replies: Receiver<io::Result<String>>,
    log: PathBuf,
    log_start: u64,
    last_id: u64,
    hello: Hello,
    reaped: bool,
}

impl Process {
    /// Starts a worker and has it introduce itself. What it prints is appended to
    /// the file at `log`.
    ///
    /// Must be called from a thread that outlives the worker: the kernel ends a
    /// worker when the thread that started it ends, so that no worker survives a
    /// killed harness.
    ///
    /// # Errors
    /// When it cannot be started, or its answer to `hello` is no use.
    pub fn start(spec: &Spec, log: &Path, limit: Duration) -> Result<Process, HostError> {
        let missing = |error: io::Error| HostError::Missing {
            name: spec.name.clone(),
            program: spec.program.display().to_string(),
            error,
            fix: spec.fix.clone(),
        };
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(missing)?;
        let log_start = output.metadata().map_err(missing)?.len();
        let (request_read, request_write) = io::pipe().map_err(missing)?;
        let (reply_read, reply_write) = io::pipe().map_err(missing)?;
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(missing)?)
            .stderr(output)
            // A group of its own, so that it can be ended with its children.
            .process_group(0);
        command
            .fd_mappings(vec![
                mapping(request_read.into(), REQUEST_FD),
                mapping(reply_write.into(), REPLY_FD),
            ])
            .map_err(|error| missing(io::Error::other(error.to_string())))?;
        // SAFETY: both calls are async-signal-safe and touch no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                // The harness waits for signals on a thread of its own, with all of
                // them blocked; a worker must not inherit that.
                SigSet::empty().thread_set_mask().map_err(io::Error::from)?;
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)
            });
        }
        let child = command.spawn().map_err(missing)?;
        // The command holds the worker's ends of the pipes; only without them here
        // does end of file mean that the worker is gone.
        drop(command);
        let mut process = Process {
            name: spec.name.clone(),
            child,
            requests: Some(write_lines(File::from(OwnedFd::from(request_write)))),
            replies: read_lines(File::from(OwnedFd::from(reply_read))),
            log: log.to_owned(),
            log_start,
            last_id: 0,
            hello: no_hello(),
            reaped: false,
        };
        process.hello = process.introduce(limit)?;
        Ok(process)
    }

    fn introduce(&mut self, limit: Duration) -> Result<Hello, HostError> {
        let name = self.name.clone();
        let protocol = PROTOCOL_VERSION;
        match self.ask(RequestBody::Hello { protocol }, limit)? {
            ReplyBody::Hello(hello) if hello.protocol != PROTOCOL_VERSION => {
                Err(HostError::Version {
                    name,
                    theirs: hello.protocol,
                })
            }
            ReplyBody::Hello(hello) => Ok(hello),
            ReplyBody::Failed { reason } | ReplyBody::Unsupported { reason } => {
                Err(HostError::Refused { name, reason })
            }
            other => Err(self.garbage("hello", format!("{other:?}"))),
        }
    }

    fn garbage(&mut self, asked: &'static str, problem: String) -> HostError {
        self.kill();
        HostError::Garbage {
            name: self.name.clone(),
            asked,
            problem,
            log: self.log_tail(),
        }
    }

    fn died(&mut self, asked: &'static str) -> HostError {
        // It closed its channel; it may still be dying. Let it end by itself, so
        // that the status is its own and not that of our kill.
        let by_itself = self.ends_within(Duration::from_secs(2));
        let status = self.kill();
        HostError::Died {
            name: self.name.clone(),
            status: match status {
                Some(status) if by_itself => describe(status),
                _ => "it closed its channel".to_owned(),
            },
            asked,
            log: self.log_tail(),
        }
    }

    /// Ends the worker and everything it started.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        if !self.reaped {
            // Before the process is reaped: until then its id, and that of its
            // group, cannot have become somebody else's.
            descendants::kill(self.child.id());
        }
        self.reaped = true;
        self.child.wait().ok()
    }

    /// Waits for the process to end by itself, and leaves it to be reaped.
    fn ends_within(&self, limit: Duration) -> bool {
        let Ok(pid) = i32::try_from(self.child.id()) else {
            return false;
        };
        let deadline = Instant::now() + limit;
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            match waitid(Id::Pid(Pid::from_raw(pid)), peek) {
                Ok(WaitStatus::StillAlive) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(2));
                }
                Ok(WaitStatus::StillAlive) => return false,
                _ => return true,
            }
        }
    }

    /// Waits for a reply line, looking in between whether the worker still lives and
    /// how much it prints.
    fn wait(&mut self, asked: &'static str, limit: Duration) -> Result<String, HostError> {
        const SLICE: Duration = Duration::from_millis(100);
        let deadline = Instant::now() + limit;
        let mut ended = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.replies.recv_timeout(left.min(SLICE)) {
                Ok(Ok(line)) => return Ok(line),
                Ok(Err(error)) => return Err(self.garbage(asked, error.to_string())),
                // A child of a dead worker may hold its channel open: end of file is
                // not the only sign of death. What it wrote last is read first.
                Err(RecvTimeoutError::Timeout) if ended => return Err(self.died(asked)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.died(asked)),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    self.kill();
                    return Err(HostError::TimedOut {
                        name: self.name.clone(),
                        asked,
                        limit,
                        log: self.log_tail(),
                    });
                }
                Err(RecvTimeoutError::Timeout) => ended = self.ends_within(Duration::ZERO),
            }
            self.hold_log(asked)?;
        }
    }

    /// Ends a worker that prints without end, before it fills the disk.
    fn hold_log(&mut self, asked: &'static str) -> Result<(), HostError> {
        let length = fs::metadata(&self.log).map_or(0, |log| log.len());
        if length.saturating_sub(self.log_start) <= LONGEST_LOG {
            return Ok(());
        }
        let error = self.garbage(asked, "it printed more than 64 MiB".to_owned());
        if let Ok(log) = OpenOptions::new().write(true).open(&self.log) {
            // What stands there is of no use; the start of it may be.
            let _ = log.set_len(self.log_start + LOG_KEPT);
        }
        Err(error)
    }

    /// The last lines this process printed.
    fn log_tail(&self) -> String {
        let text = || -> io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(
                self.log_start.max(length.saturating_sub(64 << 10)),
            ))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = text().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Conversation for Process {
    fn ask(&mut self, body: RequestBody, limit: Duration) -> Result<ReplyBody, HostError> {
        let asked = body.name();
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
        match serde_json::from_str::<Reply>(&line) {
            Ok(Reply {
                id: answered,
                body: ReplyBody::Lost { reason },
            }) if answered == id => {
                self.kill();
                Err(HostError::Lost {
                    name: self.name.clone(),
                    reason,
                    log: self.log_tail(),
                })
            }
            Ok(reply) if reply.id == id => Ok(reply.body),
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
}

impl Drop for Process {
    /// Closes the channel, which tells the worker to end, and ends it if it does not.
    fn drop(&mut self) {
        self.requests = None;
        if !self.reaped {
            self.ends_within(Duration::from_millis(500));
            self.kill();
        }
    }
}

fn mapping(parent_fd: OwnedFd, child_fd: i32) -> FdMapping {
    FdMapping {
        parent_fd,
        child_fd,
    }
}

fn no_hello() -> Hello {
    Hello {
        packages: Default::default(),
        absent: None,
        protocol: 0,
        worker: String::new(),
        versions: Default::default(),
        device: super::protocol::Device {
            kind: String::new(),
            name: String::new(),
            memory_bytes: 0,
            facts: Default::default(),
        },
        variants: Vec::new(),
    }
}

/// Writes request lines on a thread of their own: a worker that does not read must
/// not hold up the limit. Ends, and closes the channel, when its sender is dropped.
fn write_lines(mut requests: File) -> Sender<String> {
    let (sender, receiver) = channel::<String>();
    thread::spawn(move || {
        for line in receiver {
            // The worker is gone; whoever waits for its reply finds out.
            if requests.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    });
    sender
}

/// Reads reply lines on a thread of their own, so that waiting can have a limit.
fn read_lines(replies: File) -> Receiver<io::Result<String>> {
    let (sender, receiver): (Sender<io::Result<String>>, _) = channel();
    thread::spawn(move || {
        let mut replies = BufReader::new(replies);
        loop {
            let mut line = String::new();
            let read = (&mut replies).take(LONGEST_REPLY).read_line(&mut line);
            let message = match read {
                Ok(0) => return,
                Ok(_) if line.ends_with('\n') => Ok(line),
                // An unfinished line: the worker died while it wrote.
                Ok(n) if (n as u64) < LONGEST_REPLY => return,
                Ok(_) => Err(io::Error::other("a reply of more than 256 MiB")),
                Err(error) => Err(error),
            };
            let last = message.is_err();
            if sender.send(message).is_err() || last {
                return;
            }
        }
    });
    receiver
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("killed by {signal}"),
            Err(_) => format!("killed by signal {number}"),
        },
        (None, None) => status.to_string(),
    }
}
