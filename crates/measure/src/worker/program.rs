//! Starts a foreign program and ends it together with everything it started.
//!
//! Between this process and the program is a [`supervisor`], another process of this executable. It
//! adopts whatever the program leaves behind, and ends all of it when the program ends or when this
//! process does, even by SIGKILL.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};

use super::channel::read_lines;
use super::supervisor::SupervisorReply;
use super::{descendants, supervisor};

/// The time that a supervisor may take to end everything before it is killed.
pub(super) const END_LIMIT: Duration = Duration::from_secs(5);

/// The time that a supervisor may take to start a program on a busy machine.
pub(super) const STARTING: Duration = Duration::from_secs(60);

/// Lower descriptors belong to the program.
const FIRST_FREE: i32 = 10;

/// The program to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// The program.
    pub program: PathBuf,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// Environment variables set for it.
    pub env: Vec<(String, String)>,
    /// The folder that it is started in; `None` for the caller's.
    pub directory: Option<PathBuf>,
    /// The treatment of its children once it has ended by itself.
    pub leaves: Leaves,
}

/// The processes that a program may leave behind when it ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaves {
    /// None: everything that it started ends with it. It has a process group of its own, so that
    /// Ctrl-C in a terminal reaches only the harness.
    Nothing,
    /// Children that were left running on purpose. This is the user's program, in the caller's
    /// process group; its children end only if the caller stops it.
    ItsOwn,
}

/// Standard input, output and error of a program.
pub type Streams = [Stdio; 3];

/// No input, and both outputs to standard error, because standard output is for the caller's
/// results.
pub fn to_stderr() -> Streams {
    [Stdio::null(), stderr(), Stdio::inherit()]
}

/// This process's standard error, as a program's output.
pub fn stderr() -> Stdio {
    let copy = io::stderr().as_fd().try_clone_to_owned();
    copy.map_or_else(|_| Stdio::null(), Stdio::from)
}

impl Program {
    /// A program that leaves nothing behind, in the current folder and environment.
    pub fn new(program: impl Into<PathBuf>, args: impl Into<Vec<String>>) -> Program {
        Program {
            program: program.into(),
            args: args.into(),
            env: Vec::new(),
            directory: None,
            leaves: Leaves::Nothing,
        }
    }

    /// Starts it. It inherits `descriptors` under the given numbers, in addition to its standard
    /// streams.
    ///
    /// # Errors
    /// It cannot be started; [`why`] explains the error.
    pub fn start(
        &self,
        [stdin, stdout, stderr]: Streams,
        mut descriptors: Vec<(OwnedFd, i32)>,
    ) -> io::Result<Started> {
        let (mut leash, theirs) = UnixStream::pair()?;
        // Above all numbers that the program may be given, and with the same number there.
        let high = fcntl(&theirs, FcntlArg::F_DUPFD_CLOEXEC(FIRST_FREE))?;
        // SAFETY: just duplicated, and not shared.
        descriptors.push((unsafe { OwnedFd::from_raw_fd(high) }, high));
        drop(theirs);
        let mut command = supervisor::command(high)?;
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        if self.leaves == Leaves::Nothing {
            command.process_group(0);
        }
        let mapping = |(parent_fd, child_fd)| FdMapping {
            parent_fd,
            child_fd,
        };
        command
            .fd_mappings(descriptors.into_iter().map(mapping).collect())
            .map_err(|error| io::Error::other(error.to_string()))?;
        let line = serde_json::to_string(self)? + "\n";
        let child = command.spawn()?;
        // The command holds the program's ends of its pipes. End of file means that the program is
        // gone only after they are closed here.
        drop(command);
        // If the supervisor is already gone it does not reply, which is checked next.
        let _ = leash.write_all(line.as_bytes());
        Started::begun(leash, Some(child))
    }

    /// The command of the program itself, which ends with the thread that starts it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
            // Shells correct this variable, but other programs trust it, and it would name the
            // caller's folder.
            let whole = std::path::absolute(directory);
            command.env("PWD", whole.as_ref().unwrap_or(directory));
            command.env_remove("OLDPWD");
        }
        if self.leaves == Leaves::Nothing {
            command.process_group(0);
        }
        let traces = self.leaves == Leaves::ItsOwn;
        // SAFETY: the calls are async-signal-safe and do not touch the parent's memory.
        unsafe {
            command.pre_exec(move || {
                // The process that starts it has all signals blocked; the program must not inherit
                // that.
                SigSet::empty().thread_set_mask().map_err(io::Error::from)?;
                if !traces {
                    lose_tracing();
                }
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)
            });
        }
        command
    }
}

/// The capability with which root may trace any process (`CAP_SYS_PTRACE`).
const TRACING: libc::c_ulong = 19;

/// Keeps this process and its children from tracing processes of other users, and as root those
/// with more capabilities: code under test must not write into the harness.
fn lose_tracing() {
    // SAFETY: changes only this process. It fails without such a capability to drop.
    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, TRACING, 0, 0, 0) };
}

/// A program that was started or forked. When dropped, it ends with everything it started.
#[derive(Debug)]
pub struct Started {
    /// The supervisor, if it is a child of this process.
    child: Option<Child>,
    /// The program's process.
    pid: u32,
    /// The supervisor lets the program run while this is open.
    leash: UnixStream,
    /// Replies of the supervisor, until the program has ended.
    replies: Receiver<io::Result<String>>,
    ended: bool,
    status: Option<ExitStatus>,
}

impl Started {
    /// Waits until the supervisor reports that the program runs.
    ///
    /// # Errors
    /// It reports an error, or nothing.
    pub(super) fn begun(leash: UnixStream, child: Option<Child>) -> io::Result<Started> {
        let mut started = Started {
            child,
            pid: 0,
            replies: read_lines(leash.try_clone()?.into()),
            leash,
            ended: false,
            status: None,
        };
        match reply(started.replies.recv_timeout(STARTING)) {
            Some(SupervisorReply::Runs(pid)) => started.pid = pid,
            Some(SupervisorReply::Fails {
                errno: Some(errno), ..
            }) => return Err(io::Error::from_raw_os_error(errno)),
            Some(SupervisorReply::Fails { words, .. }) => return Err(io::Error::other(words)),
            Some(SupervisorReply::Ended(_)) | None => {
                let what = "its supervisor ended before it was started";
                return Err(io::Error::other(what));
            }
        }
        Ok(started)
    }

    /// The exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ends_within(Duration::ZERO) {
            self.end()
        } else {
            None
        }
    }

    /// Waits for its end, without a time limit.
    ///
    /// # Errors
    /// The supervisor was ended, so the status is unknown.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.ends_within(Duration::MAX);
        let lost = || io::Error::other("its supervisor was ended");
        self.end().ok_or_else(lost)
    }

    /// Waits for it to end by itself; returns true if it has.
    pub(super) fn ends_within(&mut self, limit: Duration) -> bool {
        if !self.ended {
            let line = self.replies.recv_timeout(limit);
            self.ended = !matches!(line, Err(RecvTimeoutError::Timeout));
            if let Some(SupervisorReply::Ended(status)) = reply(line) {
                self.status = Some(ExitStatus::from_raw(status));
            }
        }
        self.ended
    }

    /// Ends it and everything it started, and returns its exit status.
    pub fn end(&mut self) -> Option<ExitStatus> {
        if !self.ended {
            // Closing alone is not enough: a process that is just being started may hold a copy.
            let _ = self.leash.shutdown(Shutdown::Write);
            if !self.ends_within(END_LIMIT) {
                descendants::kill(self.child.as_ref().map_or(self.pid, Child::id));
                self.ended = true;
            }
        }
        // A supervisor that was killed does not report its program's status.
        let status = self.child.take().and_then(|mut child| child.wait().ok());
        self.status = self.status.or(status);
        self.status
    }

    /// The program's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.end();
    }
}

/// The reply in a supervisor's line; `None` without one, or if it cannot be parsed.
fn reply(line: Result<io::Result<String>, RecvTimeoutError>) -> Option<SupervisorReply> {
    serde_json::from_str(&line.ok()?.ok()?).ok()
}

/// The status in words: `exit code 4`, `killed by SIGSEGV`.
pub fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("killed by {signal}"),
            Err(_) => format!("killed by signal {number}"),
        },
        (None, None) => status.to_string(),
    }
}

/// The reason for which a program cannot be started, with a hint at the fix.
pub fn why(program: &Path, error: &io::Error) -> String {
    let errno = match error.raw_os_error().map(Errno::from_raw) {
        Some(errno @ (Errno::ENOENT | Errno::EACCES | Errno::ENOEXEC)) => errno,
        // The program is not at fault: no memory, no descriptors, too many processes.
        _ => return error.to_string(),
    };
    let Some(path) = found(program) else {
        return match (std::env::current_dir().is_err(), is_path(program)) {
            (true, _) => "the current folder no longer exists; change to another",
            (_, true) => "the file does not exist",
            (_, false) => "no folder of PATH has it",
        }
        .to_owned();
    };
    let shown = path.display();
    if path.is_dir() {
        return format!("{shown} is a folder, not a program");
    }
    let executable = fs::metadata(&path).is_ok_and(|file| file.permissions().mode() & 0o111 != 0);
    match errno {
        Errno::EACCES if !executable => {
            format!("{shown} is not executable; try `chmod +x {shown}`")
        }
        Errno::ENOENT => match interpreter(&path) {
            Some(interpreter) => format!("{shown} needs {interpreter}, which does not exist"),
            None => format!("{shown} exists, but the loader that it names does not"),
        },
        Errno::ENOEXEC => {
            format!(
                "{shown} is neither a program for this machine nor a script that begins with #!"
            )
        }
        _ => error.to_string(),
    }
}

fn is_path(program: &Path) -> bool {
    program.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// The file that `program` names, whether or not it can be run.
pub(crate) fn found(program: &Path) -> Option<PathBuf> {
    if is_path(program) {
        return program.exists().then(|| program.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// The interpreter in the first line of a script.
fn interpreter(script: &Path) -> Option<String> {
    let mut start = String::new();
    let file = BufReader::new(fs::File::open(script).ok()?);
    io::Read::take(file, 256).read_line(&mut start).ok()?;
    Some(start.strip_prefix("#!")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_the_folder_that_it_is_started_in() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program {
            directory: Some(folder.path().to_owned()),
            ..Program::new("printenv", ["PWD".to_owned()])
        };
        let output = program.command().env("OLDPWD", "/").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(Path::new(printed.trim()), folder.path());
    }

    #[test]
    fn what_cannot_be_started_is_told_by_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        for (program, says) in [
            (folder.path().to_owned(), "is a folder, not a program"),
            (
                file("plain", "text", 0o644),
                "is not executable; try `chmod +x ",
            ),
            (
                file("script", "#!/no/such/perl -w\n", 0o755),
                "needs /no/such/perl -w, which does",
            ),
            ("./none".into(), "the file does not exist"),
            (
                "no-such-program-anywhere".into(),
                "no folder of PATH has it",
            ),
        ] {
            let error = Command::new(&program).spawn().unwrap_err();
            let message = why(&program, &error);
            assert!(message.contains(says), "{message}");
        }
    }
}
