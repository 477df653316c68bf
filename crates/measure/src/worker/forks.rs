//! A process that has imported a Python library and forks its workers, so that the start of
//! one costs no import. See `python/regatta_worker/forking.py`, its other side.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Deserialize;
use serde_json::json;

use super::channel::WorkerLog;
use super::program::{END_LIMIT, Program, STARTING, Started};
use super::protocol::REQUEST_FD;
use super::supervisor;
use super::{Forking, WorkerSpec};

/// The process that forks.
#[derive(Debug)]
pub(crate) struct Forks {
    started: Started,
    control: UnixStream,
    has_imported: bool,
}

/// The answer about an import, or about a fork; with the reason if it failed.
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
            env: spec.variables(),
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
        serde_json::from_str(&line).map_err(|_| {
            if line.is_empty() {
                io::Error::other("it ended")
            } else {
                io::Error::other(format!("it said {line:?}"))
            }
        })
    }

    /// Forks a worker with these for its descriptors and its log.
    ///
    /// # Errors
    /// When it failed; the reason, in words.
    pub(super) fn fork(
        &mut self,
        [requests, replies]: [OwnedFd; 2],
        log: &File,
    ) -> io::Result<Started> {
        let (leash, theirs) = UnixStream::pair()?;
        // The program that runs, even where its file was replaced since. The process that forks may
        // look up no other process's program, so it gets it open.
        let executable = File::open(supervisor::EXECUTABLE)?;
        let mut line = json!({ "supervisor": [supervisor::TITLE] }).to_string();
        line.push('\n');
        let descriptors = [
            requests.as_raw_fd(),
            replies.as_raw_fd(),
            log.as_raw_fd(),
            theirs.as_raw_fd(),
            executable.as_raw_fd(),
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
        if answer.done {
            Started::begun(leash, None)
        } else {
            Err(io::Error::other(answer.reason))
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
        self.started.ends_within(END_LIMIT);
        self.started.end();
    }
}
