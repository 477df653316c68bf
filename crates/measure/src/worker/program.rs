//! Starts a program of somebody else's and ends it together with everything it started.
//!
//! Between this process and the program stands a [`supervisor`]: this executable once
//! more, which is left whatever the program leaves behind, and ends all of it when the
//! program ends or when this process does, even killed by SIGKILL. Where this code runs in
//! another executable (a test, a benchmark), which cannot be one, the program is started
//! directly, and the kernel ends it with the thread that started it, but not its children.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::supervisor::SupervisorReply;
use super::{descendants, supervisor};

/// What a supervisor may take to end everything, before it is ended itself.
pub(super) const ENDING: Duration = Duration::from_secs(5);

/// What a supervisor may take to start a program on a machine that is busy.
pub(super) const STARTING: Duration = Duration::from_secs(60);

/// Descriptors below this are the program's own.
const FIRST_FREE: i32 = 10;

/// What is to be run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables set for it.
    pub env: Vec<(String, String)>,
    /// The folder it is started in; `None`: the caller's.
    pub directory: Option<PathBuf>,
    /// What becomes of its children when it has ended by itself.
    pub leaves: Leaves,
}

/// What a program that ended by itself leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaves {
    /// Nothing: what it started ends with it. It is in a process group of its own, so
    /// that a terminal's Ctrl-C reaches the harness alone.
    Nothing,
    /// What it left running on purpose: it is the user's program, in the group of the
    /// caller. What it started ends only when the caller stops it.
    ItsOwn,
}

/// Standard input, output and error of a program.
pub type Streams = [Stdio; 3];

/// No input, and the output of both kinds on standard error: standard output is the caller's
/// own, for results.
pub fn to_stderr() -> Streams {
    [Stdio::null(), stderr(), Stdio::inherit()]
}

/// This process's standard error, as a program's output.
pub fn stderr() -> Stdio {
    let copy = io::stderr().as_fd().try_clone_to_owned();
    copy.map_or_else(|_| Stdio::null(), Stdio::from)
}

impl Program {
    /// A program that leaves nothing behind, in this folder and environment.
    pub fn new(program: impl Into<PathBuf>, args: impl Into<Vec<String>>) -> Program {
        Program {
            program: program.into(),
            args: args.into(),
            env: Vec::new(),
            directory: None,
            leaves: Leaves::Nothing,
        }
    }

    /// Starts it. `descriptors` are handed on to it beside its standard streams, by these numbers.
    ///
    /// # Errors
    /// When it cannot be started; [`why`] has better words for that.
    pub fn start(
        &self,
        [stdin, stdout, stderr]: Streams,
        mut descriptors: Vec<(OwnedFd, i32)>,
    ) -> io::Result<Started> {
        let supervised = supervisor::possible();
        let (leash, theirs) = UnixStream::pair()?;
        let mut command = match supervised {
            true => {
                // Above whatever the program may be given, and numbered alike there.
                let high = fcntl(&theirs, FcntlArg::F_DUPFD_CLOEXEC(FIRST_FREE))?;
                // SAFETY: made just now, and nobody else's.
                descriptors.push((unsafe { OwnedFd::from_raw_fd(high) }, high));
                supervisor::command(high)
            }
            false => self.command(),
        };
        drop(theirs);
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
        let child = command.spawn()?;
        // The command holds the program's ends of its pipes; only without them here does
        // end of file mean that the program is gone.
        drop(command);
        let mut started = Started {
            pid: child.id(),
            child,
            leash: None,
            status: None,
        };
        if supervised {
            started.leash = Some(leash);
            started.pid = self.hand_over(&started)?;
        }
        Ok(started)
    }

    /// The command of the program itself, which ends with the thread that starts it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if self.leaves == Leaves::Nothing {
            command.process_group(0);
        }
        // SAFETY: both calls are async-signal-safe and touch no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                // Whoever starts it waits for signals with all of them blocked; a program
                // must not inherit that.
                SigSet::empty().thread_set_mask().map_err(io::Error::from)?;
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)
            });
        }
        command
    }

    /// Tells the supervisor what to run, and gives the program's process.
    fn hand_over(&self, started: &Started) -> io::Result<u32> {
        let Some(mut leash) = started.leash.as_ref() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        leash.set_read_timeout(Some(STARTING))?;
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        leash.write_all(line.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(leash).read_line(&mut answer)?;
        match serde_json::from_str(&answer) {
            Ok(SupervisorReply::Runs(pid)) => Ok(pid),
            Ok(SupervisorReply::Fails {
                errno: Some(errno), ..
            }) => Err(io::Error::from_raw_os_error(errno)),
            Ok(SupervisorReply::Fails { words, .. }) => Err(io::Error::other(words)),
            Ok(SupervisorReply::Ended(_)) | Err(_) => Err(io::Error::other(
                "its supervisor ended before it was started",
            )),
        }
    }
}

/// A program that runs, and ends with everything it started.
pub trait RunningProgram: std::fmt::Debug + Send {
    /// Its process.
    fn pid(&self) -> u32;

    /// Waits for it to end by itself, and leaves it to be reaped.
    fn ends_within(&mut self, limit: Duration) -> bool;

    /// Ends it and everything it started, and gives how it ended.
    fn end(&mut self) -> Option<ExitStatus>;
}

/// A program that was started. Dropped, it ends with everything it started.
#[derive(Debug)]
pub struct Started {
    /// The supervisor, or the program itself where there is none.
    child: Child,
    pid: u32,
    /// While this is open the supervisor lets the program run.
    leash: Option<UnixStream>,
    status: Option<ExitStatus>,
}

impl Started {
    /// The process below which everything is that it started, orphans included, and whose
    /// processor time is that of all: its supervisor, or itself where there is none.
    pub fn root(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Waits for its end, however long that takes.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }
}

impl RunningProgram for Started {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn ends_within(&mut self, limit: Duration) -> bool {
        let Ok(pid) = i32::try_from(self.child.id()) else {
            return false;
        };
        if self.status.is_some() {
            return true;
        }
        let deadline = Instant::now() + limit;
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            match waitid(Id::Pid(Pid::from_raw(pid)), peek) {
                Ok(WaitStatus::StillAlive) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(2));
                }
                Ok(WaitStatus::StillAlive) => return false,
                _ => return true,
            }
        }
    }

    fn end(&mut self) -> Option<ExitStatus> {
        if self.status.is_some() {
            return self.status;
        }
        if let Some(leash) = self.leash.take() {
            // Not closed alone: a process that is just being started may hold a copy.
            let _ = leash.shutdown(std::net::Shutdown::Both);
            if !self.ends_within(ENDING) {
                descendants::kill(self.child.id());
            }
        } else {
            // Before the process is reaped: until then its id, and that of its group,
            // cannot have become somebody else's.
            descendants::kill(self.child.id());
        }
        self.status = self.child.wait().ok();
        self.status
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.end();
    }
}

/// `exit code 4`, `killed by SIGSEGV`.
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

/// Why a program cannot be started, in words that say what to do about it.
pub fn why(program: &Path, error: &io::Error) -> String {
    let errno = match error.raw_os_error().map(Errno::from_raw) {
        Some(errno @ (Errno::ENOENT | Errno::EACCES | Errno::ENOEXEC)) => errno,
        // Not the program's fault: no memory, no descriptors, too many processes.
        _ => return error.to_string(),
    };
    let Some(path) = found(program) else {
        return match (std::env::current_dir().is_err(), is_path(program)) {
            (true, _) => "the folder this was started in is gone; change to one that is there",
            (_, true) => "there is no such file",
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
            Some(interpreter) => format!("{shown} wants {interpreter}, which is not there"),
            None => format!("{shown} is there, and the loader that it names is not"),
        },
        Errno::ENOEXEC => {
            format!("{shown} is no program of this machine, and no script that begins with #!")
        }
        _ => error.to_string(),
    }
}

fn is_path(program: &Path) -> bool {
    program.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// The file that is meant, whether or not it can be run.
pub(crate) fn found(program: &Path) -> Option<PathBuf> {
    if is_path(program) {
        return program.exists().then(|| program.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// What the first line of a script names.
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
                "wants /no/such/perl -w, which is not",
            ),
            ("./none".into(), "there is no such file"),
            (
                "no-such-program-anywhere".into(),
                "no folder of PATH has it",
            ),
        ] {
            let error = Command::new(&program).spawn().unwrap_err();
            let said = why(&program, &error);
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn without_a_supervisor_a_program_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("child");
        let program = Program {
            program: "sh".into(),
            args: vec![
                "-c".to_owned(),
                format!("sleep 1000 & echo $! > {}; wait", pid.display()),
            ],
            env: Vec::new(),
            directory: None,
            leaves: Leaves::Nothing,
        };
        let streams = [Stdio::null(), Stdio::null(), Stdio::null()];
        let mut started = program.start(streams, Vec::new()).unwrap();
        let child = loop {
            let text = fs::read_to_string(&pid).unwrap_or_default();
            if let Some(line) = text.strip_suffix('\n') {
                break line.to_owned();
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert!(started.ended().unwrap().is_none());
        started.end();
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
}
