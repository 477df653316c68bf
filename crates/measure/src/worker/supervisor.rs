//! The process between the harness and a program: it ends everything that the program started.
//!
//! The kernel gives a process whose parent ended to the nearest ancestor that asks for such orphans
//! (`PR_SET_CHILD_SUBREAPER`). A supervisor asks, so that a daemon that was forked twice, or a
//! child with a session of its own, stays its descendant and is found. It holds one end of a socket
//! whose other end the harness has. When the harness ends, by any signal, the socket reaches its
//! end, and the supervisor ends everything. It ends as its program did, with the same exit code or
//! by the same signal.
//!
//! If the supervisor itself is killed, the kernel kills its program, and the harness, which also
//! asks for orphans, adopts them. Processes can outlive both only if both are killed by SIGKILL at
//! the same time. Only a control group would prevent that, and it needs privileges.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use serde::{Deserialize, Serialize};

use super::descendants;
use super::program::{Leaves, Program};

/// The name of a supervisor in a list of processes. This executable is a supervisor if it is
/// started under this name.
pub(super) const TITLE: &str = "regatta: supervisor";

/// This executable, even if its file was replaced since.
pub(super) const EXECUTABLE: &str = "/proc/self/exe";

static POSSIBLE: AtomicBool = AtomicBool::new(false);

/// True once the harness is gone, or wants everything ended.
static ENDING: AtomicBool = AtomicBool::new(false);

/// A supervisor's reply about a [`Program`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SupervisorReply {
    /// It runs, with this process id.
    Runs(u32),
    /// It could not be started.
    Fails {
        /// The system's error number.
        errno: Option<i32>,
        /// The error in words.
        words: String,
    },
    /// It ended with this wait status.
    Ended(i32),
}

/// Must be called first in `main`. Does not return in a process that was started as a supervisor.
/// In other processes, it allows supervisors to be started.
pub fn here() {
    // The process that started this one may ignore SIGCHLD, which is inherited: the kernel would
    // then reap children itself, and their exit statuses would be lost.
    // SAFETY: restores the default and installs no handler.
    let _ = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
    let mut words = std::env::args_os();
    if words.next().is_some_and(|word| word == TITLE) {
        let mut number = || words.next().and_then(|word| word.to_str()?.parse().ok());
        let leash = number();
        supervise(leash, number());
    }
    POSSIBLE.store(true, Ordering::Relaxed);
}

/// The command of a supervisor that has its socket at the descriptor `leash`.
///
/// # Errors
/// This executable cannot be a supervisor, such as a test's.
pub(super) fn command(leash: RawFd) -> io::Result<Command> {
    if !POSSIBLE.load(Ordering::Relaxed) || !Path::new(EXECUTABLE).exists() {
        return Err(io::Error::other("this executable supervises nothing"));
    }
    let mut command = Command::new(EXECUTABLE);
    command.arg0(TITLE).arg(leash.to_string());
    Ok(command)
}

/// Supervises a program. `child` is its process, if this process forked it before it became a
/// supervisor.
fn supervise(leash: Option<RawFd>, child: Option<libc::pid_t>) -> ! {
    // Signals are for the harness and the program; this process ends when they do.
    let _ = SigSet::all().thread_block();
    let _ = prctl::set_child_subreaper(true);
    let _ = prctl::set_name(c"supervisor");
    let ended = match leash {
        Some(leash) => {
            // SAFETY: the harness opened it for this process, and nothing else here uses it.
            let leash = unsafe { UnixStream::from_raw_fd(leash) };
            oversee(leash, child)
        }
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    match ended {
        Ok(status) => end_as(status),
        Err(_) => exit(1),
    }
}

/// Runs the program that the harness names, or uses `child`. Reports its end to the harness, and
/// returns its wait status.
fn oversee(mut leash: UnixStream, child: Option<libc::pid_t>) -> io::Result<i32> {
    fcntl(&leash, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let tell = |leash: &mut UnixStream, reply: SupervisorReply| -> io::Result<()> {
        // The harness may be gone already, which the thread below notices.
        let _ = leash.write_all((serde_json::to_string(&reply)? + "\n").as_bytes());
        Ok(())
    };
    let (pid, leaves) = match child {
        Some(child) => (child, Leaves::Nothing),
        None => {
            let mut line = String::new();
            BufReader::new(&leash).read_line(&mut line)?;
            let program: Program = serde_json::from_str(&line)?;
            match program.command().spawn() {
                Ok(child) => (child.id() as libc::pid_t, program.leaves),
                Err(error) => {
                    let errno = error.raw_os_error();
                    let words = error.to_string();
                    tell(&mut leash, SupervisorReply::Fails { errno, words })?;
                    return Err(error);
                }
            }
        }
    };
    tell(&mut leash, SupervisorReply::Runs(pid.unsigned_abs()))?;
    // The program has these descriptors. If they stayed open here, their end would never be seen.
    close_all_but(leash.as_raw_fd());
    let mut watched = leash.try_clone()?;
    thread::spawn(move || end_with(&mut watched));
    let status = reap(pid)?;
    if leaves == Leaves::Nothing || ENDING.load(Ordering::SeqCst) {
        descendants::kill_own();
        // Adds their CPU time to the program's.
        reap_the_ended();
    }
    tell(&mut leash, SupervisorReply::Ended(status))?;
    Ok(status)
}

/// Waits for the end of the socket, and then ends everything.
fn end_with(leash: &mut UnixStream) {
    // The harness sends nothing after the program. An error counts as the end too.
    let _ = leash.read(&mut [0]);
    ENDING.store(true, Ordering::SeqCst);
    descendants::kill_own();
    // The other thread sees the program's end and exits. It would wait forever for a program that
    // is stuck in a driver.
    thread::sleep(Duration::from_secs(1));
    exit(1);
}

/// Reaps children until the program is one of them, and returns its wait status.
fn reap(program: libc::pid_t) -> io::Result<i32> {
    loop {
        let mut status = 0;
        // SAFETY: writes one integer. nix does not represent the status of real-time signals.
        match unsafe { libc::waitpid(-1, &mut status, 0) } {
            pid if pid == program => return Ok(status),
            -1 if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                return Err(io::Error::last_os_error());
            }
            _ => {}
        }
    }
}

/// Reaps every child that has ended, so that its CPU time is added to this process's.
fn reap_the_ended() {
    // SAFETY: the null pointer says that no status is written.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

/// Closes all descriptors except the standard ones and `kept`.
fn close_all_but(kept: RawFd) {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&fd| fd > 2 && fd != kept)
        .collect();
    for fd in open {
        // SAFETY: nothing in this process uses them. One of them, that of the folder, is closed
        // already.
        unsafe { libc::close(fd) };
    }
}

/// Ends this process with the status of another, so that its parent sees no difference.
fn end_as(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let number = libc::WTERMSIG(status);
        // The program has already written a core file, if one was wanted.
        let _ = prctl::set_dumpable(false);
        // SAFETY: no handlers are installed, and no memory but the set is touched.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, number);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
            libc::raise(number);
        }
        exit(128 + number);
    }
    exit(libc::WEXITSTATUS(status))
}

/// Exits without flushing or handlers, since there is nothing to write.
fn exit(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}
