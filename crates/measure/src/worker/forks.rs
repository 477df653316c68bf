//! A process that has imported a Python library and forks its workers, so that the start of
//! one costs no import. See `python/regatta_worker/forking.py`, its other side.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use command_fds::FdMapping;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Deserialize;
use serde_json::json;

use super::forked::Forked;
use super::launch::{Forking, Spec};
use super::log::Log;
use super::program::{ENDING, Leaves, Program, STARTING, Started, Streams};
use super::protocol::REQUEST_FD;
use super::supervisor;

/// The process that forks.
#[derive(Debug)]
pub(super) struct Forks {
    started: Started,
    control: UnixStream,
}

/// What it says once it has imported.
#[derive(Deserialize)]
struct Ready {
    ready: bool,
    #[serde(default)]
    reason: String,
}

/// What it says of each fork.
#[derive(Deserialize)]
struct Answer {
    forked: bool,
    #[serde(default)]
    reason: String,
}

impl Forks {
    /// Starts it and has it import. What it prints is appended to the file at `log`.
    ///
    /// # Errors
    /// Why workers of this library are not forked.
    pub(super) fn start(spec: &Spec, log: &Path, limit: Duration) -> Result<Forks, String> {
        if !supervisor::possible() {
            return Err("this executable supervises nothing".to_owned());
        }
        Forks::try_start(spec, log, limit).unwrap_or_else(|error| {
            Err(match error.kind() {
                io::ErrorKind::WouldBlock => format!("it did not import in {limit:?}"),
                _ => format!("the process that forks them did not start: {error}"),
            })
        })
    }

    fn try_start(spec: &Spec, log: &Path, limit: Duration) -> io::Result<Result<Forks, String>> {
        let (_, output) = Log::open(log)?;
        let (control, theirs) = UnixStream::pair()?;
        let word = match spec.forking {
            Forking::Always => "always",
            Forking::Never | Forking::WhereSound => "auto",
        };
        let program = Program {
            program: spec.program.clone(),
            args: [&spec.args[..], &["--forks".to_owned(), word.to_owned()]].concat(),
            env: spec.env.clone(),
            directory: spec.directory.clone(),
            leaves: Leaves::Nothing,
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
        control.set_read_timeout(Some(limit))?;
        let mut forks = Forks { started, control };
        let said = forks.hear::<Ready>()?;
        Ok(match said.ready {
            true => Ok(forks),
            false => Err(said.reason),
        })
    }

    fn hear<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<T> {
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
        let answer = self.hear::<Answer>()?;
        match answer.forked {
            true => Forked::begun(leash),
            false => Err(io::Error::other(answer.reason)),
        }
    }

    /// True once it has ended, and its workers with it.
    pub(super) fn is_gone(&self) -> bool {
        self.started.ends_within(Duration::ZERO)
    }
}

impl Drop for Forks {
    /// Closes the channel, at whose end it ends.
    fn drop(&mut self) {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        self.started.ends_within(ENDING);
        self.started.end();
    }
}
