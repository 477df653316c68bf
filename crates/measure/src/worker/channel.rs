//! The channel between harness and worker: a pipe for requests, a socket for replies that carries
//! their sender's process id, and the file of the worker's log.

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

/// A longer reply line is not a message.
const MAX_REPLY_BYTES: u64 = 256 << 20;

/// Writes request lines in a thread of their own, because a worker that does not read must not
/// block the harness past a time limit. The thread ends and closes the channel when the sender is
/// dropped.
pub(super) fn write_lines(requests: OwnedFd) -> Sender<String> {
    let mut requests = File::from(requests);
    let (sender, receiver) = channel::<String>();
    thread::spawn(move || {
        for line in receiver {
            // The worker is gone; waiting for its reply fails.
            if requests.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    });
    sender
}

/// Reads reply lines in a thread of their own, so that waiting can have a time limit.
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
                // Sent before any code under test runs, so that the sender is known.
                Ok(_) if line == "\n" => continue,
                Ok(_) if line.ends_with('\n') => Ok(line),
                // The line is unfinished, because the worker died while it wrote.
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

/// The two ends of a channel for replies: the harness's, which receives each byte with its sender's
/// process id, and the worker's.
pub(super) fn replies() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    setsockopt(&ours, sockopt::PassCred, &true)?;
    Ok((ours, theirs.into()))
}

/// Reads replies of one process, the first one that sends. Bytes from another process are an error,
/// because a process that the code under test starts could forge replies.
struct OneSender {
    socket: UnixStream,
    /// Zero until the first byte, and for a process that is not visible from here.
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

/// The process and thread ids at both ends of a channel for replies, each 0 until known.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    /// The process that sends.
    pub(super) sender: Arc<AtomicI32>,
    /// The thread of this process that reads.
    pub(super) reader: Arc<AtomicI32>,
}

/// Reads reply lines of a worker, which must all come from one process.
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

/// The number of times that a worker with closed descriptors is checked for a connection.
const CONNECTING: u8 = 20;

/// A socket to which a worker may connect if it cannot use descriptors 3 and 4, for example in a
/// container. Its folder is removed once the worker's channel is known.
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
        // Connections inherit this option.
        setsockopt(&socket, sockopt::PassCred, &true)?;
        Ok(Socket { socket, folder })
    }

    /// The variable that names the socket, and its value.
    pub(super) fn variable(&self) -> (String, String) {
        let path = self.folder.path().join("socket");
        (SOCKET_VARIABLE.to_owned(), path.display().to_string())
    }
}

/// Waits for a worker to connect.
pub(super) struct SocketListener {
    pub(super) socket: Socket,
    /// The read end of the requests for descriptor 3.
    pub(super) requests: OwnedFd,
    /// The process that was started.
    pub(super) process: u32,
}

impl SocketListener {
    /// The channel that the worker uses first: its end of descriptor 4 (`replies`), or a
    /// connection. It cannot use the other one afterwards. A worker that closed its descriptors may
    /// still connect until it ends.
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

/// A worker that prints more is ended.
const MAX_LOG_BYTES: u64 = 64 << 20;

/// The size to which the log of such a worker is cut.
const CUT_LOG_BYTES: u64 = 1 << 20;

/// A log with more output of earlier workers is cut before another worker starts.
const MAX_OLD_LOG_BYTES: u64 = 8 << 20;

/// The number of bytes at the end of the log that are searched for the failure of a worker.
const SEARCHED_LOG: u64 = 64 << 10;

/// The part of a log that belongs to one process.
#[derive(Debug)]
pub(super) struct WorkerLog {
    path: PathBuf,
    /// The offset at which the process began.
    start: u64,
    /// The offset at which its current case began.
    case: u64,
}

impl WorkerLog {
    /// Opens a log for appending, and cuts old content that is too long.
    ///
    /// # Errors
    /// The log cannot be created or written.
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
            // The name may be a pipe without a reader.
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

    /// Begins the log of a process again, after the log was emptied.
    pub(super) fn begin(&mut self) {
        self.start = self.length();
    }

    /// Begins a case, so that its failure is not explained by output of earlier cases.
    pub(super) fn begin_case(&mut self) {
        self.case = self.length();
    }

    fn length(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |log| log.len())
    }

    /// True if this process printed more than anyone will read.
    pub(super) fn is_too_long(&self) -> bool {
        self.length().saturating_sub(self.start) > MAX_LOG_BYTES
    }

    /// Keeps only the beginning of this process's output, which may be useful.
    pub(super) fn cut(&self) {
        if let Ok(log) = OpenOptions::new().write(true).open(&self.path) {
            let _ = log.set_len(self.start + CUT_LOG_BYTES);
        }
    }

    /// The lines that the case printed last, and those that name its failure.
    pub(super) fn excerpt(&self) -> String {
        let length = self.length();
        // A log that was emptied since has only this process's output.
        let own = length.checked_sub(self.case).unwrap_or(length);
        let text = tail(&self.path, own.min(SEARCHED_LOG)).unwrap_or_default();
        last_words::excerpt(&String::from_utf8_lossy(&text))
    }
}

/// The last `bytes` bytes of a file.
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
