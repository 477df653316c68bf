//! The harness's side: starts a worker process, asks, waits with a limit, and
//! ends it together with everything it started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::channel::{Channel, Ours, mapping, read_lines, write_lines};
pub use super::error::HostError;
use super::forks::Forks;
pub use super::launch::Spec;
use super::log::Log;
use super::program::{Ends, Leaves, Program, Streams, why};
use super::protocol::{
    Hello, PROTOCOL_VERSION, REPLY_FD, REQUEST_FD, Reply, ReplyBody, Request, RequestBody,
};
use regatta_worker::units::Bytes;

/// How a worker process came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Started by itself.
    Started {
        /// Why, where it was to be forked.
        because: Option<String>,
    },
    /// Forked from a process that had imported its library.
    Forked,
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

    /// How its process came to be, where there is one.
    fn origin(&self) -> Option<&Origin> {
        None
    }
}

/// A worker process.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: Box<dyn Ends>,
    origin: Origin,
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
        let ends = Channel::open(spec, log)?;
        let output = ends
            .output
            .try_clone()
            .map_err(|error| HostError::Channel {
                name: spec.name.clone(),
                error,
            })?;
        let streams = Streams {
            stdin: Stdio::null(),
            stdout: output.into(),
            stderr: ends.output.into(),
        };
        let program = Program {
            program: spec.program.clone(),
            args: spec.args.clone(),
            env: spec.env.clone(),
            directory: spec.directory.clone(),
            leaves: Leaves::Nothing,
        };
        let descriptors = vec![
            mapping(ends.theirs.0, REQUEST_FD),
            mapping(ends.theirs.1, REPLY_FD),
        ];
        let program = program.start(streams, descriptors);
        let program = program.map_err(|error| HostError::Missing {
            name: spec.name.clone(),
            program: spec.program.display().to_string(),
            why: why(&spec.program, &error),
            fix: spec.fix.clone(),
        })?;
        let origin = Origin::Started { because: None };
        Process::introduced(spec, ends.ours, Box::new(program), origin, limit)
    }

    /// The same, of a worker that was to be forked, with the reason why it is not.
    ///
    /// # Errors
    /// As [`start`](Process::start).
    pub(super) fn start_instead(
        spec: &Spec,
        log: &Path,
        limit: Duration,
        because: String,
    ) -> Result<Process, HostError> {
        let mut process = Process::start(spec, log, limit)?;
        let because = Some(because);
        process.origin = Origin::Started { because };
        Ok(process)
    }

    /// The same of a worker that is forked.
    ///
    /// # Errors
    /// As of one that is started.
    pub(super) fn fork(
        forks: &mut Forks,
        spec: &Spec,
        log: &Path,
        limit: Duration,
    ) -> Result<Process, HostError> {
        let ends = Channel::open(spec, log)?;
        let program = forks.fork(&ends.theirs.0, &ends.theirs.1, &ends.output);
        let program = program.map_err(|error| HostError::Forked {
            name: spec.name.clone(),
            error,
        })?;
        drop((ends.theirs, ends.output));
        Process::introduced(spec, ends.ours, Box::new(program), Origin::Forked, limit)
    }

    /// The worker at the other ends, once it has said who it is.
    fn introduced(
        spec: &Spec,
        ours: Ours,
        program: Box<dyn Ends>,
        origin: Origin,
        limit: Duration,
    ) -> Result<Process, HostError> {
        let mut process = Process {
            name: spec.name.clone(),
            program,
            origin,
            requests: Some(write_lines(ours.requests)),
            replies: read_lines(ours.replies),
            log: ours.log,
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
        if self.origin == Origin::Forked && status.is_none() {
            return HostError::Orphaned {
                name: self.name.clone(),
                asked,
                log: self.log.excerpt(),
            };
        }
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

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
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
