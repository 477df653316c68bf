//! The process between the harness and a program: it ends all that the program started.
//!
//! The kernel gives a process whose parent ended to the nearest ancestor that asked for
//! such orphans (`PR_SET_CHILD_SUBREAPER`). A supervisor asks, so that a daemon that was
//! forked twice, or a child with a session of its own, remains its descendant and is found.
//! It holds one end of a socket whose other end the harness has: when the harness ends, by
//! whatever signal, the socket is at its end, and the supervisor ends everything. It ends
//! as its program did, with the same exit code or by the same signal.
//!
//! Were the supervisor itself killed, its program would be killed by the kernel, and the
//! orphans would come to the harness, which asks for them too. Only where both are killed
//! by SIGKILL at once may something outlive them; nothing short of a control group, which
//! takes privileges, would help there.

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

/// The name of a supervisor in a list of processes; this executable started by this
/// name is one.
pub(super) const TITLE: &str = "regatta: supervisor";

/// This executable, even where its file was replaced since.
pub(super) const EXECUTABLE: &str = "/proc/self/exe";

static POSSIBLE: AtomicBool = AtomicBool::new(false);

/// The harness is gone, or wants everything ended.
static ENDING: AtomicBool = AtomicBool::new(false);

/// A supervisor's answer to a [`Program`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SupervisorReply {
    /// It runs, as this process.
    Runs(u32),
    /// It could not be started.
    Fails {
        /// The system's number for why.
        errno: Option<i32>,
        /// In words.
        words: String,
    },
    /// It ended, with this status.
    Ended(i32),
}

/// To be called first in `main`: does not return in a process that was started as a
/// supervisor, and lets all others start theirs.
pub fn here() {
    // Whoever started this may have had it ignored, which is inherited: the kernel would
    // then reap children by itself, and their exit status would be lost.
    // SAFETY: restores the default, no handler is installed.
    let _ = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
    let mut words = std::env::args_os();
    if words.next().is_some_and(|word| word == TITLE) {
        let mut number = || words.next().and_then(|word| word.to_str()?.parse().ok());
        let leash = number();
        supervise(leash, number());
    }
    POSSIBLE.store(true, Ordering::Relaxed);
}

/// The command of a supervisor that finds its socket at a descriptor.
///
/// # Errors
/// When this executable cannot be one: a test's.
pub(super) fn command(leash: RawFd) -> io::Result<Command> {
    if !POSSIBLE.load(Ordering::Relaxed) || !Path::new(EXECUTABLE).exists() {
        return Err(io::Error::other("this executable supervises nothing"));
    }
    let mut command = Command::new(EXECUTABLE);
    command.arg0(TITLE).arg(leash.to_string());
    Ok(command)
}

/// `child` is there already where a process became a supervisor after it had forked its
/// program.
fn supervise(leash: Option<RawFd>, child: Option<libc::pid_t>) -> ! {
    // Signals are for the harness and the program: this process ends when they do.
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

/// Runs the program that the harness names, unless it is this process's child already, tells how it
/// ended, and gives the status.
fn oversee(mut leash: UnixStream, child: Option<libc::pid_t>) -> io::Result<i32> {
    fcntl(&leash, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let tell = |leash: &mut UnixStream, reply: SupervisorReply| -> io::Result<()> {
        // The harness may be gone already; the thread below finds that out.
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
    // The program has them. Held here too, their end would never be seen.
    close_all_but(leash.as_raw_fd());
    let mut watched = leash.try_clone()?;
    thread::spawn(move || end_with(&mut watched));
    let status = reap(pid)?;
    if leaves == Leaves::Nothing || ENDING.load(Ordering::SeqCst) {
        descendants::kill_own();
        // Their CPU time is a part of the program's.
        reap_the_ended();
    }
    tell(&mut leash, SupervisorReply::Ended(status))?;
    Ok(status)
}

/// Waits for the end of the socket, and ends everything then.
fn end_with(leash: &mut UnixStream) {
    // Nothing is sent after the program; an error is an end as well.
    let _ = leash.read(&mut [0]);
    ENDING.store(true, Ordering::SeqCst);
    descendants::kill_own();
    // The other thread sees the program's end and is about to leave; it would wait for
    // ever for one that is stuck in a driver.
    thread::sleep(Duration::from_secs(1));
    exit(1);
}

/// Reaps every child until the program is among them, and gives its status.
fn reap(program: libc::pid_t) -> io::Result<i32> {
    loop {
        let mut status = 0;
        // SAFETY: writes one integer. nix has no status for real-time signals.
        match unsafe { libc::waitpid(-1, &mut status, 0) } {
            pid if pid == program => return Ok(status),
            -1 if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                return Err(io::Error::last_os_error());
            }
            _ => {}
        }
    }
}

/// Reaps every child that has ended, so that its processor time is in this process's.
fn reap_the_ended() {
    // SAFETY: writes nothing.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

/// Closes all descriptors but the standard ones and one more.
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
        // SAFETY: nothing in this process uses them; one of them, that of the folder, is
        // closed already.
        unsafe { libc::close(fd) };
    }
}

/// Ends this process as another ended: whoever waits for it sees no difference.
fn end_as(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let number = libc::WTERMSIG(status);
        // The program has left its core, where one was wanted.
        let _ = prctl::set_dumpable(false);
        // SAFETY: no handlers are installed, no memory is touched but the set's.
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

/// Without what a process does at its end: there is nothing to write out.
fn exit(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}
