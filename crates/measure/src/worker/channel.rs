//! The channel between harness and worker: a pipe for requests, a socket for replies that carries
//! who sent them, and the file of the worker's log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, recv, recvmsg, setsockopt, sockopt,
};

use super::protocol::SOCKET_VARIABLE;
use crate::interrupt;
use nix::unistd::gettid;
use regatta_core::{last_words, temporary};
use tempfile::TempDir;

/// A reply line longer than this is garbage, not a message.
const MAX_REPLY_BYTES: u64 = 256 << 20;

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
    lines_of(|| File::from(replies))
}

fn lines_of<R: Read>(replies: impl FnOnce() -> R + Send + 'static) -> Receiver<io::Result<String>> {
    let (sender, receiver): (Sender<io::Result<String>>, _) = channel();
    thread::spawn(move || {
        let mut replies = BufReader::new(replies());
        loop {
            let mut line = String::new();
            let read = (&mut replies).take(MAX_REPLY_BYTES).read_line(&mut line);
            let message = match read {
                Ok(0) => return,
                // Sent before any code of others runs, so that its sender is known.
                Ok(_) if line == "\n" => continue,
                Ok(_) if line.ends_with('\n') => Ok(line),
                // An unfinished line: the worker died while it wrote.
                Ok(n) if (n as u64) < MAX_REPLY_BYTES => return,
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

/// The two ends of a channel for replies: the harness's, which learns of each byte which process
/// sent it, and the worker's.
pub(super) fn replies() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    setsockopt(&ours, sockopt::PassCred, &true)?;
    Ok((ours, theirs.into()))
}

/// Reads replies of one process: that which sends first. Bytes of another are an error, since a
/// process that the code under test starts could change what is said of it.
struct OneSender {
    socket: UnixStream,
    /// Zero until the first byte, and for a process that this one cannot see.
    sender: Arc<AtomicI32>,
    has_sent: bool,
}

impl Read for OneSender {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut space = nix::cmsg_space!(UnixCredentials);
        let mut into = [IoSliceMut::new(bytes)];
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(fd, &mut into, Some(&mut space), flags)?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmCredentials(sender) = control
                && message.bytes > 0
            {
                if !self.has_sent {
                    self.sender.store(sender.pid(), Ordering::Relaxed);
                    self.has_sent = true;
                }
                let first = self.sender.load(Ordering::Relaxed);
                if sender.pid() != first {
                    return Err(io::Error::other(format!(
                        "process {} wrote on the channel of the worker, process {first}: code \
                         under test may start processes, but none that replies",
                        sender.pid()
                    )));
                }
            }
        }
        Ok(message.bytes)
    }
}

/// The numbers of what is at both ends of a channel for replies, each 0 until it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    /// The process that sends.
    pub(super) sender: Arc<AtomicI32>,
    /// The thread of this process that reads.
    pub(super) reader: Arc<AtomicI32>,
}

/// Reads reply lines of a worker, all of one process.
pub(super) fn read_replies(
    socket: UnixStream,
    listener: Option<SocketListener>,
) -> (Receiver<io::Result<String>>, Ends) {
    let ends = Ends::default();
    let Ends { sender, reader } = ends.clone();
    let replies = move || {
        reader.store(gettid().as_raw(), Ordering::Relaxed);
        OneSender {
            socket: match listener {
                Some(listener) => listener.first_used(socket),
                None => socket,
            },
            sender,
            has_sent: false,
        }
    };
    (lines_of(replies), ends)
}

/// A worker that closed its descriptors is looked at so often until it connects.
const CONNECTING: u8 = 20;

/// A socket that a worker may connect to in place of descriptors 3 and 4, if these do not reach it,
/// as in a container. Its folder goes when the channel is known.
pub(super) struct Socket {
    socket: UnixListener,
    folder: TempDir,
}

impl Socket {
    /// A socket in a new folder.
    pub(super) fn bind() -> io::Result<Socket> {
        let folder = temporary::folder("socket")?;
        interrupt::leaves(folder.path().to_owned());
        let socket = UnixListener::bind(folder.path().join("socket"))?;
        // Connections inherit it.
        setsockopt(&socket, sockopt::PassCred, &true)?;
        Ok(Socket { socket, folder })
    }

    /// The variable that names it, and its path.
    pub(super) fn variable(&self) -> (String, String) {
        let path = self.folder.path().join("socket");
        (SOCKET_VARIABLE.to_owned(), path.display().to_string())
    }
}

/// Waits for a worker to connect.
pub(super) struct SocketListener {
    pub(super) socket: Socket,
    /// Reads the requests that are written for descriptor 3.
    pub(super) requests: OwnedFd,
    /// The process that was started.
    pub(super) process: u32,
}

impl SocketListener {
    /// The channel that the worker uses first: the end of descriptor 4, `replies`, or a connection.
    /// It can use no other afterwards. One that closed its descriptors may connect until it ends.
    fn first_used(self, replies: UnixStream) -> UnixStream {
        let connection = PollFd::new(self.socket.socket.as_fd(), PollFlags::POLLIN);
        let mut both = [
            PollFd::new(replies.as_fd(), PollFlags::POLLIN),
            connection.clone(),
        ];
        while poll(&mut both, PollTimeout::NONE) == Err(Errno::EINTR) {}
        let mut is_connected = both[1].any() == Some(true);
        let process = format!("/proc/{}", self.process);
        if recv(
            replies.as_raw_fd(),
            &mut [0],
            MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT,
        ) == Ok(0)
        {
            while !is_connected && Path::new(&process).exists() {
                is_connected = poll(&mut [connection.clone()], CONNECTING) == Ok(1);
            }
        }
        if !is_connected {
            return replies;
        }
        let connected = self.socket.socket.accept().and_then(|(connection, _)| {
            let (mut requests, mut to_worker) =
                (File::from(self.requests), connection.try_clone()?);
            thread::spawn(move || io::copy(&mut requests, &mut to_worker));
            Ok(connection)
        });
        connected.unwrap_or(replies)
    }
}

/// A worker that prints more than this is ended.
const MAX_LOG_BYTES: u64 = 64 << 20;

/// The size to which the log of such a worker is cut.
const CUT_LOG_BYTES: u64 = 1 << 20;

/// A log of the workers before that is longer than this is cut before another is started.
const MAX_OLD_LOG_BYTES: u64 = 8 << 20;

/// The end of the log that is searched for the fault when a worker fails.
const SEARCHED_LOG: u64 = 64 << 10;

/// The part of a log that one process writes.
#[derive(Debug)]
pub(super) struct WorkerLog {
    path: PathBuf,
    /// The offset at which this process began.
    start: u64,
    /// The offset at which its case began.
    case: u64,
}

impl WorkerLog {
    /// Opens a log to be appended to, and bounds what is in it already.
    ///
    /// # Errors
    /// When it cannot be made or written.
    pub(super) fn open(path: &Path) -> io::Result<(WorkerLog, File)> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        if fs::metadata(path).is_ok_and(|log| log.is_file() && log.len() > MAX_OLD_LOG_BYTES) {
            let mut text = b"(what stood before was left out)\n".to_vec();
            text.extend(tail(path, CUT_LOG_BYTES)?);
            fs::write(path, text)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            // A pipe of this name may have no reader.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        let start = file.metadata()?.len();
        let log = WorkerLog {
            path: path.to_owned(),
            start,
            case: start,
        };
        Ok((log, file))
    }

    /// Begins the log of a process, which has been emptied since.
    pub(super) fn begin(&mut self) {
        self.start = self.length();
    }

    /// Begins a case, whose fault is not what the cases before it printed.
    pub(super) fn begin_case(&mut self) {
        self.case = self.length();
    }

    fn length(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |log| log.len())
    }

    /// True when this process printed more than anybody will read.
    pub(super) fn is_too_long(&self) -> bool {
        self.length().saturating_sub(self.start) > MAX_LOG_BYTES
    }

    /// Cuts what this process printed to its beginning, which may be of use; the rest of
    /// such a log is not.
    pub(super) fn cut(&self) {
        if let Ok(log) = OpenOptions::new().write(true).open(&self.path) {
            let _ = log.set_len(self.start + CUT_LOG_BYTES);
        }
    }

    /// The lines that the case printed last, and those that name its fault.
    pub(super) fn excerpt(&self) -> String {
        let length = self.length();
        // A log that was begun again since holds only what this process printed.
        let own = length.checked_sub(self.case).unwrap_or(length);
        let text = tail(&self.path, own.min(SEARCHED_LOG)).unwrap_or_default();
        last_words::excerpt(&String::from_utf8_lossy(&text))
    }
}

/// The last so many bytes of a file.
fn tail(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_own_part_and_what_was_before_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker.log");
        fs::write(&path, "before\n").unwrap();
        let (mut log, mut file) = WorkerLog::open(&path).unwrap();
        writeln!(file, "mine").unwrap();
        assert_eq!(log.excerpt(), "mine");
        log.begin_case();
        assert_eq!(log.excerpt(), "");
        writeln!(file, "the case's").unwrap();
        assert_eq!(log.excerpt(), "the case's");
        assert!(!log.is_too_long());
        let long = vec![b'x'; usize::try_from(MAX_OLD_LOG_BYTES).unwrap() + 1];
        fs::write(&path, long).unwrap();
        let (log, _) = WorkerLog::open(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 2 * CUT_LOG_BYTES);
        assert_eq!(log.excerpt(), "");
    }

    #[test]
    fn a_pipe_without_a_reader_is_refused_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker.log");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(WorkerLog::open(&path).is_err());
    }

    #[test]
    fn replies_of_another_process_are_refused() {
        let (ours, theirs) = replies().unwrap();
        let (lines, ends) = read_replies(ours, None);
        File::from(theirs.try_clone().unwrap())
            .write_all(b"\nmine\n")
            .unwrap();
        assert_eq!(lines.recv().unwrap().unwrap(), "mine\n");
        let sender = ends.sender.load(Ordering::Relaxed);
        assert_eq!(sender, std::process::id() as i32);
        let mut other = std::process::Command::new("sh");
        other.args(["-c", "echo forged"]).stdout(theirs);
        assert!(other.status().unwrap().success());
        let error = lines.recv().unwrap().unwrap_err().to_string();
        let expected = "wrote on the channel of the worker";
        assert!(error.contains(expected), "{error}");
    }
}
