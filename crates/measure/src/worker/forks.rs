//! A process that has imported a Python library and forks its workers, so that the start of
//! one costs no import. See `python/regatta_worker/forking.py`, its other side.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Deserialize;
use serde_json::json;

use super::channel::{WorkerLog, read_lines};
use super::program::{ENDING, Program, RunningProgram, STARTING, Started};
use super::protocol::REQUEST_FD;
use super::supervisor::{self, SupervisorReply};
use super::{Forking, WorkerSpec, descendants};

/// The process that forks.
#[derive(Debug)]
pub(crate) struct Forks {
    started: Started,
    control: UnixStream,
    has_imported: bool,
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

    /// Waits until it has imported.
    ///
    /// # Errors
    /// Why workers of this library are not forked.
    pub(super) fn import(&mut self, limit: Duration) -> Result<(), String> {
        if self.has_imported {
            return Ok(());
        }
        let set = self.control.set_read_timeout(Some(limit));
        match set.and_then(|()| self.read_reply()) {
            Ok(ForkReply { done: true, .. }) => self.has_imported = true,
            Ok(ForkReply { reason, .. }) => return Err(reason),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(format!("it did not import in {limit:?}"));
            }
            Err(error) => return Err(not_started(&error)),
        }
        Ok(())
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
        let streams = [Stdio::null(), output.try_clone()?.into(), output.into()];
        let started = program.start(streams, vec![(theirs.into(), REQUEST_FD)])?;
        Ok(Forks {
            started,
            control,
            has_imported: false,
        })
    }

    fn read_reply(&self) -> io::Result<ForkReply> {
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
        [requests, replies]: [OwnedFd; 2],
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
        let answer = self.read_reply()?;
        match answer.done {
            true => Forked::new(leash),
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
    /// While this is open the supervisor lets the worker run.
    leash: UnixStream,
    /// What the supervisor says at its other end, until the worker has ended.
    replies: Receiver<io::Result<String>>,
    pid: u32,
    ended: bool,
    status: Option<ExitStatus>,
}

impl Forked {
    /// Waits until the supervisor at the other end says that the worker runs.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn new(leash: UnixStream) -> io::Result<Forked> {
        let replies = read_lines(leash.try_clone()?.into());
        let Some(SupervisorReply::Runs(pid)) = reply(replies.recv_timeout(STARTING)) else {
            return Err(io::Error::other(
                "its supervisor ended before it was forked",
            ));
        };
        Ok(Forked {
            leash,
            replies,
            pid,
            ended: false,
            status: None,
        })
    }
}

/// What a line of a supervisor says; `None` for none, or another.
fn reply(line: Result<io::Result<String>, RecvTimeoutError>) -> Option<SupervisorReply> {
    serde_json::from_str(&line.ok()?.ok()?).ok()
}

impl RunningProgram for Forked {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn ends_within(&mut self, limit: Duration) -> bool {
        if !self.ended {
            let line = self.replies.recv_timeout(limit);
            self.ended = !matches!(line, Err(RecvTimeoutError::Timeout));
            if let Some(SupervisorReply::Ended(status)) = reply(line) {
                self.status = Some(ExitStatus::from_raw(status));
            }
        }
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
