//! The harness's side: starts a worker process, asks, waits with a limit, and
//! ends it together with everything it started.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use command_fds::FdMapping;
use nix::sys::signal::Signal;

pub use super::error::HostError;
use super::log::Log;
use super::program::{Leaves, Program, Started, Streams, why};
use super::protocol::{
    Hello, PROTOCOL_VERSION, REPLY_FD, REQUEST_FD, Reply, ReplyBody, Request, RequestBody,
};
use crate::units::Bytes;

/// A reply line longer than this is garbage, not a message.
const LONGEST_REPLY: u64 = 256 << 20;

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
    program: Started,
    requests: Option<Sender<String>>,
    replies: Receiver<io::Result<String>>,
    log: Log,
    last_id: u64,
    hello: Hello,
}

impl Process {
    /// Starts a worker and has it introduce itself. What it prints is appended to
    /// the file at `log`.
    ///
    /// # Errors
    /// When it cannot be started, or its answer to `hello` is no use.
    pub fn start(spec: &Spec, log: &Path, limit: Duration) -> Result<Process, HostError> {
        let (log, output) = Log::open(log).map_err(|error| HostError::Log {
            name: spec.name.clone(),
            path: log.display().to_string(),
            error,
        })?;
        let channel = |error: io::Error| HostError::Channel {
            name: spec.name.clone(),
            error,
        };
        let (request_read, request_write) = io::pipe().map_err(channel)?;
        let (reply_read, reply_write) = io::pipe().map_err(channel)?;
        let streams = Streams {
            stdin: Stdio::null(),
            stdout: output.try_clone().map_err(channel)?.into(),
            stderr: output.into(),
        };
        let program = Program {
            program: spec.program.clone(),
            args: spec.args.clone(),
            env: spec.env.clone(),
            leaves: Leaves::Nothing,
        };
        let descriptors = vec![
            mapping(request_read.into(), REQUEST_FD),
            mapping(reply_write.into(), REPLY_FD),
        ];
        let program = program.start(streams, descriptors);
        let program = program.map_err(|error| HostError::Missing {
            name: spec.name.clone(),
            program: spec.program.display().to_string(),
            why: why(&spec.program, &error),
            fix: spec.fix.clone(),
        })?;
        let mut process = Process {
            name: spec.name.clone(),
            program,
            requests: Some(write_lines(File::from(OwnedFd::from(request_write)))),
            replies: read_lines(File::from(OwnedFd::from(reply_read))),
            log,
            last_id: 0,
            hello: no_hello(),
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
            log: self.log.excerpt(),
        }
    }

    fn died(&mut self, asked: &'static str) -> HostError {
        // It closed its channel; it may still be dying. Let it end by itself, so
        // that the status is its own and not that of our kill.
        let by_itself = self.program.ends_within(Duration::from_secs(2));
        let status = self.kill();
        HostError::Died {
            name: self.name.clone(),
            status: match status {
                Some(status) if by_itself => describe(status),
                _ => "it closed its channel".to_owned(),
            },
            asked,
            log: self.log.excerpt(),
        }
    }

    /// Ends the worker and everything it started.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        self.program.end()
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
                        log: self.log.excerpt(),
                    });
                }
                Err(RecvTimeoutError::Timeout) => ended = self.program.ends_within(Duration::ZERO),
            }
            self.hold_log(asked)?;
        }
    }

    /// Ends a worker that prints without end, before it fills the disk.
    fn hold_log(&mut self, asked: &'static str) -> Result<(), HostError> {
        if !self.log.is_too_long() {
            return Ok(());
        }
        let error = self.garbage(asked, "it printed more than 64 MiB".to_owned());
        self.log.cut();
        Err(error)
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
                    log: self.log.excerpt(),
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
        self.program.ends_within(Duration::from_millis(500));
        self.kill();
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
            memory_bytes: Bytes(0),
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
