//! Runs a program with the launch census injected into it and its children.
//!
//! The program has the terminal: its three streams are the caller's, and so is its process
//! group, so that Ctrl-C reaches it as it always would. Only this process waits it out, to
//! keep what was recorded until then.
//!
//! What the program leaves running when it ends by itself, a daemon it meant to start, is the
//! user's. What is there when this process was asked to stop ends, and so does everything
//! when this process is killed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::machine;
use crate::machine::Recording;
use crate::record::trace::raw;
use crate::record::types::Fingerprint;
use crate::units::Bytes;
use crate::worker::program::{Leaves, Program, Started, Streams};
use crate::worker::protocol::Device;
use crate::worker::{descendants, signals};

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
    let signals = signals::stopping();
    signals.thread_block()?;
    let asked = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    // What the program leaves comes to this process, so that a stop finds it.
    let _ = prctl::set_child_subreaper(true);
    let variable = |name: &str, path: &Path| {
        let path = path.to_str().map(str::to_owned);
        let path = path.ok_or_else(|| io::Error::other(format!("{name}: a path of no UTF-8")))?;
        Ok::<_, io::Error>((name.to_owned(), path))
    };
    let program = Program {
        program: program.into(),
        args: arguments.to_vec(),
        env: vec![
            variable(INJECTION, library)?,
            variable(raw::VARIABLE, folder)?,
        ],
        directory: None,
        leaves: Leaves::ItsOwn,
    };
    let stdout = match quiet {
        true => Stdio::from(io::stderr().as_fd().try_clone_to_owned()?),
        false => Stdio::inherit(),
    };
    let streams = Streams {
        stdin: Stdio::inherit(),
        stdout,
        stderr: Stdio::inherit(),
    };
    wait(program.start(streams, Vec::new())?, &asked)
}

/// Waits for the program's end and passes signals on.
fn wait(mut program: Started, asked: &SignalFd) -> io::Result<ExitStatus> {
    /// What the kernel sends, Ctrl-C in a terminal, it sends to the whole group.
    const FROM_THE_KERNEL: i32 = 0x80;
    let (mut stopped, mut passed_on) = (false, 0);
    loop {
        let ended = program.ended()?;
        // After the look at the program: one that ended over a signal was stopped by it.
        while let Some(signal) = asked.read_signal()? {
            stopped = true;
            if signal.ssi_code == FROM_THE_KERNEL || ended.is_some() {
                continue;
            }
            passed_on += 1;
            match (passed_on, Signal::try_from(signal.ssi_signo as i32)) {
                (1, Ok(signal)) => {
                    // It may have ended just now.
                    let _ = kill(Pid::from_raw(program.pid() as i32), signal);
                }
                _ => {
                    program.end();
                }
            }
        }
        if let Some(status) = ended {
            if stopped {
                descendants::kill_own();
            }
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
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
            memory_bytes: Bytes(0),
            facts: BTreeMap::from([
                ("sms".to_owned(), device.sms.to_string()),
                ("capability".to_owned(), device.capability.clone()),
            ]),
        })
        .collect();
    machine::of_devices(devices.iter())
}
