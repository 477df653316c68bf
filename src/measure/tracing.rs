//! Runs a program with the launch census injected into it and its children.
//!
//! The program has the terminal: its three streams are the caller's, and so is its process
//! group, so that Ctrl-C reaches it as it always would. Only this process waits it out, to
//! keep what was recorded until then.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::machine;
use crate::record::trace::Recording;
use crate::record::trace::raw;
use crate::record::types::Fingerprint;
use crate::worker::descendants;
use crate::worker::protocol::Device;

/// Environment variable by which the CUDA driver finds a library to load.
pub const INJECTION: &str = "CUDA_INJECTION64_PATH";

/// Runs a program to its end and gives its status. What its GPUs do is recorded into
/// `folder` by `library`. With `quiet`, what it prints to standard output goes to standard
/// error, so that standard output is the caller's alone.
///
/// A signal that asks this process to stop is passed on; the second one ends the program
/// and everything it started.
///
/// # Errors
/// When it cannot be started.
pub fn run(
    command: &[String],
    library: &Path,
    folder: &Path,
    quiet: bool,
) -> io::Result<ExitStatus> {
    let [program, arguments @ ..] = command else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let asked = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(INJECTION, library)
        .env(raw::VARIABLE, folder);
    if quiet {
        command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
    }
    // SAFETY: the call is async-signal-safe and touches no memory of the parent.
    unsafe {
        // This process blocks the signals that stop a program; it must not.
        command.pre_exec(|| SigSet::empty().thread_set_mask().map_err(io::Error::from));
    }
    wait(command.spawn()?, &asked)
}

/// Waits for the program's end and passes signals on.
fn wait(mut child: Child, asked: &SignalFd) -> io::Result<ExitStatus> {
    /// What the kernel sends, Ctrl-C in a terminal, it sends to the whole group.
    const FROM_THE_KERNEL: i32 = 0x80;
    let mut passed_on = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        while let Some(signal) = asked.read_signal()? {
            if signal.ssi_code == FROM_THE_KERNEL {
                continue;
            }
            passed_on += 1;
            match (passed_on, Signal::try_from(signal.ssi_signo as i32)) {
                (1, Ok(signal)) => {
                    // It may have ended just now.
                    let _ = kill(Pid::from_raw(child.id() as i32), signal);
                }
                _ => end(&child),
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends a program and what it started, but not this process, whose group it is in.
fn end(child: &Child) {
    descendants::kill_own();
    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
}

/// The exit code that a shell gives such an end.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// `exit code 0`, `signal SIGINT`.
pub fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("signal {signal}"),
            Err(_) => format!("signal {number}"),
        },
        (None, None) => status.to_string(),
    }
}

/// The machine, as far as the GPUs that were recorded tell.
pub fn fingerprint(recording: &Recording) -> Fingerprint {
    let devices = recording
        .processes
        .iter()
        .flat_map(|process| &process.devices);
    let devices: Vec<Device> = devices
        .map(|device| Device {
            kind: "cuda".to_owned(),
            name: device.name.clone(),
            memory_bytes: 0,
            facts: BTreeMap::from([
                ("sms".to_owned(), device.sms.to_string()),
                ("capability".to_owned(), device.capability.clone()),
            ]),
        })
        .collect();
    machine::of_devices(devices.iter())
}
