//! A process that has imported a Python library and forks its workers, so that the start of
//! one costs no import. See `python/regatta_worker/forking.py`, its other side.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use command_fds::FdMapping;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Deserialize;
use serde_json::json;

use super::channel::WorkerLog;
use super::program::{ENDING, Program, RunningProgram, STARTING, Started, Streams};
use super::protocol::REQUEST_FD;
use super::supervisor::{self, SupervisorReply};
use super::{Forking, WorkerSpec, descendants};

/// The process that forks.
#[derive(Debug)]
pub(crate) struct Forks {
    started: Started,
    control: UnixStream,
}

/// Whether it has imported, or whether a fork was made; and why not.
#[derive(Deserialize)]
struct ForkReply {
    #[serde(alias = "ready", alias = "forked")]
    done: bool,
    #[serde(default)]
    reason: String,
}

impl Forks {
    /// Starts it, which begins to import. What it prints is appended to the file at `log`.
    ///
    /// # Errors
    /// Why workers of this library are not forked.
    pub(super) fn begin(spec: &WorkerSpec, log: &Path) -> Result<Forks, String> {
        if !supervisor::possible() {
            return Err("this executable supervises nothing".to_owned());
        }
        Forks::try_begin(spec, log).map_err(|error| not_started(&error))
    }

    /// The same once it has imported.
    ///
    /// # Errors
    /// Why workers of this library are not forked.
    pub(super) fn ready(self: Box<Forks>, limit: Duration) -> Result<Box<Forks>, String> {
        let set = self.control.set_read_timeout(Some(limit));
        match set.and_then(|()| self.hear()) {
            Ok(ForkReply { done: true, .. }) => Ok(self),
            Ok(ForkReply { reason, .. }) => Err(reason),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(format!("it did not import in {limit:?}"))
            }
            Err(error) => Err(not_started(&error)),
        }
    }

    fn try_begin(spec: &WorkerSpec, log: &Path) -> io::Result<Forks> {
        let (_, output) = WorkerLog::open(log)?;
        let (control, theirs) = UnixStream::pair()?;
        let word = match spec.forking {
            Forking::Always => "always",
            Forking::Never | Forking::WhereSound => "auto",
        };
        let args = [&spec.args[..], &["--forks".to_owned(), word.to_owned()]].concat();
        let program = Program {
            env: spec.env.clone(),
            directory: spec.directory.clone(),
            ..Program::new(&spec.program, args)
        };
        let streams = Streams {
            stdin: Stdio::null(),
            stdout: output.try_clone()?.into(),
            stderr: output.into(),
        };
        let descriptors = vec![FdMapping {
            parent_fd: theirs.into(),
            child_fd: REQUEST_FD,
        }];
        let started = program.start(streams, descriptors)?;
        Ok(Forks { started, control })
    }

    fn hear(&self) -> io::Result<ForkReply> {
        let mut line = String::new();
        // Each line answers a request, so there is never more than one.
        BufReader::new(&self.control).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(|_| match line.is_empty() {
            true => io::Error::other("it ended"),
            false => io::Error::other(format!("it said {line:?}")),
        })
    }

    /// Forks a worker with these for its descriptors and its log.
    ///
    /// # Errors
    /// When none came of it; why, in words.
    pub(super) fn fork(
        &mut self,
        requests: &OwnedFd,
        replies: &OwnedFd,
        log: &File,
    ) -> io::Result<Forked> {
        let (leash, theirs) = UnixStream::pair()?;
        let mut line = json!({
            // This very file, even where it was replaced since.
            "executable": format!("/proc/{}/exe", std::process::id()),
            "supervisor": [supervisor::TITLE],
        })
        .to_string();
        line.push('\n');
        let descriptors = [
            requests.as_raw_fd(),
            replies.as_raw_fd(),
            log.as_raw_fd(),
            theirs.as_raw_fd(),
        ];
        self.control.set_read_timeout(Some(STARTING))?;
        sendmsg::<()>(
            self.control.as_raw_fd(),
            &[IoSlice::new(line.as_bytes())],
            &[ControlMessage::ScmRights(&descriptors)],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        drop(theirs);
        let answer = self.hear()?;
        match answer.done {
            true => Forked::begun(leash),
            false => Err(io::Error::other(answer.reason)),
        }
    }

    /// True once it has ended, and its workers with it.
    pub(super) fn is_gone(&mut self) -> bool {
        self.started.ends_within(Duration::ZERO)
    }
}

fn not_started(error: &io::Error) -> String {
    format!("the process that forks them did not start: {error}")
}

impl Drop for Forks {
    /// Closes the channel, at whose end it ends.
    fn drop(&mut self) {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        self.started.ends_within(ENDING);
        self.started.end();
    }
}

/// A forked worker. Dropped, it ends with everything it started.
#[derive(Debug)]
pub(super) struct Forked {
    /// While this is open the supervisor lets the worker run; it tells here how that ended.
    leash: UnixStream,
    said: Vec<u8>,
    pid: u32,
    ended: bool,
    status: Option<ExitStatus>,
}

impl Forked {
    /// Waits until the supervisor at the other end says that the worker runs.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn begun(leash: UnixStream) -> io::Result<Forked> {
        leash.set_read_timeout(Some(STARTING))?;
        let mut answer = String::new();
        // One line is all that is there until the worker ends.
        BufReader::with_capacity(1, &leash).read_line(&mut answer)?;
        let Ok(SupervisorReply::Runs(pid)) = serde_json::from_str(&answer) else {
            return Err(io::Error::other(
                "its supervisor ended before it was forked",
            ));
        };
        leash.set_nonblocking(true)?;
        Ok(Forked {
            leash,
            said: Vec::new(),
            pid,
            ended: false,
            status: None,
        })
    }

    /// Hears what the supervisor says, for so long.
    fn hear(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while !self.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(self.leash.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, timeout) {
                Ok(0) => return,
                Ok(_) => self.read(),
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => self.ended = true,
            }
        }
    }

    fn read(&mut self) {
        let mut part = [0; 256];
        match self.leash.read(&mut part) {
            Ok(0) => self.ended = true,
            Ok(read) => self.said.extend_from_slice(&part[..read]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => self.ended = true,
        }
        if let Some(line) = self.said.strip_suffix(b"\n")
            && let Ok(SupervisorReply::Ended(status)) = serde_json::from_slice(line)
        {
            self.status = Some(ExitStatus::from_raw(status));
            self.ended = true;
        }
    }
}

impl RunningProgram for Forked {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn ends_within(&mut self, limit: Duration) -> bool {
        self.hear(limit);
        self.ended
    }

    fn end(&mut self) -> Option<ExitStatus> {
        if !self.ended {
            let _ = self.leash.shutdown(std::net::Shutdown::Write);
            if !self.ends_within(ENDING) {
                descendants::kill(self.pid);
                self.ended = true;
            }
        }
        self.status
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        self.end();
    }
}
