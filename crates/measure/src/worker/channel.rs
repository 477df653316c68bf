//! What the harness and a worker talk through: two pipes, and the file of the worker's log.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use command_fds::FdMapping;

use super::error::HostError;
use super::launch::Spec;
use super::log::Log;

/// A reply line longer than this is garbage, not a message.
const LONGEST_REPLY: u64 = 256 << 20;

/// What a worker is talked to by, and what it is to be given for that.
pub(super) struct Channel {
    pub(super) ours: Ours,
    /// Requests and replies.
    pub(super) theirs: (OwnedFd, OwnedFd),
    /// Its log.
    pub(super) output: File,
}

/// This process's ends of it.
pub(super) struct Ours {
    pub(super) requests: OwnedFd,
    pub(super) replies: OwnedFd,
    pub(super) log: Log,
}

impl Channel {
    /// Makes it, with the worker's log.
    ///
    /// # Errors
    /// When there are no descriptors, or the log cannot be written.
    pub(super) fn open(spec: &Spec, log: &Path) -> Result<Channel, HostError> {
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
        Ok(Channel {
            ours: Ours {
                requests: request_write.into(),
                replies: reply_read.into(),
                log,
            },
            theirs: (request_read.into(), reply_write.into()),
            output,
        })
    }
}

/// Hands a descriptor on, by this number there.
pub(super) fn mapping(parent_fd: OwnedFd, child_fd: i32) -> FdMapping {
    FdMapping {
        parent_fd,
        child_fd,
    }
}

/// Writes request lines on a thread of their own: a worker that does not read must
/// not hold up the limit. Ends, and closes the channel, when its sender is dropped.
pub(super) fn write_lines(requests: OwnedFd) -> Sender<String> {
    let mut requests = File::from(requests);
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
pub(super) fn read_lines(replies: OwnedFd) -> Receiver<io::Result<String>> {
    let (sender, receiver): (Sender<io::Result<String>>, _) = channel();
    thread::spawn(move || {
        let mut replies = BufReader::new(File::from(replies));
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
