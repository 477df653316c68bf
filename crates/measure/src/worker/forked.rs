//! A worker that was forked, and its supervisor, of which this process is not the parent.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::descendants;
use super::order::Answer;
use super::program::{ENDING, Ends, STARTING};

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
        let Ok(Answer::Runs(pid)) = serde_json::from_str(&answer) else {
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
            && let Ok(Answer::Ended(status)) = serde_json::from_slice(line)
        {
            self.status = Some(ExitStatus::from_raw(status));
            self.ended = true;
        }
    }
}

impl Ends for Forked {
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
