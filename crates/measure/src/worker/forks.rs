//! A process that has imported a Python library and forks its workers, so that starting a worker
//! costs no import. `python/regatta_worker/forking.py` is its other side. In a watch, a second such
//! process, which has imported no code of the user, outlives each run and forks the first.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice};
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Deserialize;
use serde_json::json;

use super::channel::WorkerLog;
use super::host::WorkerProcess;
use super::pool::Kept;
use super::program::{END_LIMIT, Program, STARTING, Started};
use super::protocol::REQUEST_FD;
use super::supervisor;
use super::{Forking, WorkerError, WorkerSpec};

/// The fork servers of a worker.
#[derive(Debug)]
pub(crate) struct Forks {
    /// Has imported the code under test, and forks workers.
    code: Option<Server>,
    /// Only in a watch: has imported the libraries of that code, and forks `code` for each run.
    kept: Option<Server>,
    /// Only in a watch: workers that `kept` forked after the previous run.
    ahead: Vec<WorkerProcess>,
    /// The number of workers to fork ahead for the next run.
    wanted: usize,
    spec: WorkerSpec,
    log: PathBuf,
}

impl Forks {
    /// Starts the servers, which begin to import. Their output is appended to the file at `log`.
    ///
    /// # Errors
    /// The reason for which workers of this library are not forked.
    pub(super) fn begin(spec: &WorkerSpec, log: &Path) -> Result<Forks, String> {
        let (kept, ahead) = match spec.pool.take(spec, log) {
            Some(Kept { server, ahead }) => (Some(server), ahead),
            None => (None, Vec::new()),
        };
        let mut forks = Forks {
            code: None,
            kept,
            ahead: Vec::new(),
            wanted: 0,
            spec: spec.clone(),
            log: log.to_owned(),
        };
        let start = |more: &[&str]| {
            let server = Server::begin(spec, log, more);
            server.map_err(|error| not_started(&error))
        };
        if let Some(server) = &mut forks.kept {
            match server.fork_server(log) {
                // It has just checked that its imported files have not changed.
                Ok(code) => (forks.code, forks.ahead) = (Some(code), ahead),
                Err(_) if server.is_gone() => spec.pool.lost(&spec.name, "it ended"),
                Err(error) => spec.pool.lost(&spec.name, &error.to_string()),
            }
        }
        if !spec.pool.keeps() {
            forks.code = Some(start(&[])?);
        } else if forks.code.is_none() {
            forks.kept = Some(start(&["--keep"])?);
        }
        Ok(forks)
    }

    /// Waits until the servers have imported.
    ///
    /// # Errors
    /// The reason for which workers of this library are not forked.
    pub(super) fn import(&mut self, limit: Duration) -> Result<(), String> {
        if let (None, Some(server)) = (&self.code, &mut self.kept) {
            server.import(limit)?;
            if let Some(reason) = &server.cannot_stay {
                self.spec.pool.cannot_stay(&self.spec.name, reason);
            }
            let code = server.fork_server(&self.log);
            self.code = Some(code.map_err(|error| not_started(&error))?);
        }
        let code = self.code.as_mut().ok_or("it ended")?;
        code.import(limit)
    }

    /// Forks a worker, which has not introduced itself yet.
    ///
    /// # Errors
    /// Forking failed.
    pub(super) fn worker(&mut self) -> Result<WorkerProcess, WorkerError> {
        let code = self.code.as_mut();
        WorkerProcess::forked(&self.spec, &self.log, |ends, log| {
            let code = code.ok_or_else(|| io::Error::other("it has not imported"))?;
            code.fork(ends, log, false)
        })
    }

    /// Takes up to `count` workers that were forked ahead.
    pub(super) fn take_ahead(&mut self, count: usize) -> Vec<WorkerProcess> {
        self.ahead.drain(..count.min(self.ahead.len())).collect()
    }

    /// Has `count` workers forked for the next run of a watch, unless a number is already set.
    pub(super) fn want_ahead(&mut self, count: usize) {
        if self.wanted == 0 {
            self.wanted = count;
        }
    }

    /// True once the server that forks workers has ended, and its workers with it.
    pub(super) fn is_gone(&mut self) -> bool {
        self.code.as_mut().is_none_or(Server::is_gone)
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        self.code = None;
        if let Some(mut server) = self.kept.take()
            && server.has_imported
            && server.cannot_stay.is_none()
            && !server.is_gone()
        {
            let log = mem::take(&mut self.log);
            let mut fork = || {
                let fork = |ends, log: &File| server.fork(ends, log, false);
                WorkerProcess::forked(&self.spec, &log, fork).ok()
            };
            let ahead = (0..self.wanted).map_while(|_| fork()).collect();
            self.spec.pool.put(&self.spec, log, Kept { server, ahead });
        }
    }
}

/// A fork server.
#[derive(Debug)]
pub(super) struct Server {
    started: Started,
    control: UnixStream,
    has_imported: bool,
    /// The reason for which it serves one run only: it has imported code of the user.
    cannot_stay: Option<String>,
}

/// The reply about an import or a fork, with the reason if it failed.
#[derive(Deserialize)]
struct ForkReply {
    #[serde(alias = "ready", alias = "forked")]
    done: bool,
    cannot_stay: Option<String>,
    #[serde(default)]
    reason: String,
}

impl Server {
    /// Waits until the server has imported.
    ///
    /// # Errors
    /// The reason for which workers of this library are not forked.
    fn import(&mut self, limit: Duration) -> Result<(), String> {
        if self.has_imported {
            return Ok(());
        }
        let set = self.control.set_read_timeout(Some(limit));
        match set.and_then(|()| self.read_reply()) {
            Ok(reply) if reply.done => {
                (self.has_imported, self.cannot_stay) = (true, reply.cannot_stay);
            }
            Ok(ForkReply { reason, .. }) => return Err(reason),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(format!("it did not import in {limit:?}"));
            }
            Err(error) => return Err(not_started(&error)),
        }
        Ok(())
    }

    fn begin(spec: &WorkerSpec, log: &Path, more: &[&str]) -> io::Result<Server> {
        let (_, output) = WorkerLog::open(log)?;
        let (control, theirs) = UnixStream::pair()?;
        let word = match spec.forking {
            Forking::Always => "always",
            Forking::Never | Forking::WhereSound => "auto",
        };
        let more = [&["--forks", word], more].concat();
        let args = spec.args.iter().map(String::as_str).chain(more);
        let args: Vec<String> = args.map(str::to_owned).collect();
        let program = Program {
            env: spec.variables(),
            directory: spec.directory.clone(),
            ..Program::new(&spec.program, args)
        };
        let streams = [Stdio::null(), output.try_clone()?.into(), output.into()];
        let started = program.start(streams, vec![(theirs.into(), REQUEST_FD)])?;
        Ok(Server::new(started, control))
    }

    fn new(started: Started, control: UnixStream) -> Server {
        Server {
            started,
            control,
            has_imported: false,
            cannot_stay: None,
        }
    }

    /// Forks a server, which then imports more.
    fn fork_server(&mut self, log: &Path) -> io::Result<Server> {
        let (_, output) = WorkerLog::open(log)?;
        let (control, theirs) = UnixStream::pair()?;
        let started = self.fork([theirs.try_clone()?.into(), theirs.into()], &output, true)?;
        Ok(Server::new(started, control))
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

    /// Forks a worker, or a server.
    fn fork(
        &mut self,
        [requests, replies]: [OwnedFd; 2],
        log: &File,
        serves: bool,
    ) -> io::Result<Started> {
        let (leash, theirs) = UnixStream::pair()?;
        // The running program, even if its file was replaced since. The forking process may not
        // look up another process's executable, so it gets an open descriptor.
        let executable = File::open(supervisor::EXECUTABLE)?;
        let mut line = json!({ "supervisor": [supervisor::TITLE], "serves": serves }).to_string();
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

    fn is_gone(&mut self) -> bool {
        self.started.ends_within(Duration::ZERO)
    }
}

fn not_started(error: &io::Error) -> String {
    format!("the process that forks them did not start: {error}")
}

impl Drop for Server {
    /// Closes the channel, upon which the server ends.
    fn drop(&mut self) {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        self.started.ends_within(END_LIMIT);
        self.started.end();
    }
}
