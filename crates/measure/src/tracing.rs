//! Runs a program with the launch census injected into it and its children.
//!
//! The program has the terminal: its three streams and its process group are the caller's, so
//! Ctrl-C reaches it as usual. This process only waits, in order to keep what was recorded.
//!
//! A process that the program leaves running, such as a daemon that it meant to start, stays when
//! the program ends by itself. If this process is asked to stop or is killed, all of them end.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::machine;
use crate::experiment::arm::argv;
use crate::interrupt::stopping;
use crate::worker::descendants;
pub use crate::worker::program::ended;
use crate::worker::program::{self, Leaves, Program, Started};
use regatta_core::machine::Recording;
use regatta_core::record::trace::{Trace, TraceHeader, raw};
use regatta_core::record::{Fingerprint, METHOD_VERSION, SCHEMA_VERSION};
use regatta_worker::protocol::Device;
use regatta_worker::units::Bytes;

/// Environment variable from which the CUDA driver takes a library to load.
pub const INJECTION: &str = "CUDA_INJECTION64_PATH";

/// Environment variable from which NVTX takes a library that receives a program's ranges. A value
/// that the caller has set stays.
pub const RANGES: &str = "NVTX_INJECTION64_PATH";

/// Environment variable with the folders that Python searches first for modules.
const PYTHON_PATH: &str = "PYTHONPATH";

/// The module that turns on PyTorch's own ranges. Python imports a module of this name when it
/// starts.
const TORCH: (&str, &str) = (
    "sitecustomize.py",
    include_str!("../../../python/regatta_ranges/sitecustomize.py"),
);

/// Settings of a recording.
pub struct Recorder<'a> {
    /// The library that is loaded into the program.
    pub library: &'a Path,
    /// The folder that the recording goes to.
    pub folder: &'a Path,
    /// Turn on PyTorch's ranges of its operators.
    pub torch: bool,
}

impl Recorder<'_> {
    /// The environment variables with which a program is recorded.
    fn variables(
        &self,
        set: impl Fn(&str) -> Option<OsString>,
    ) -> io::Result<Vec<(String, String)>> {
        let there = |name: &str| set(name).filter(|value| !value.is_empty());
        let mut variables = vec![
            variable(INJECTION, self.library.as_os_str())?,
            variable(raw::VARIABLE, self.folder.as_os_str())?,
        ];
        if there(RANGES).is_none() {
            variables.push(variable(RANGES, self.library.as_os_str())?);
        }
        if self.torch {
            let (name, text) = TORCH;
            let modules = self.folder.join("python");
            fs::create_dir_all(&modules)?;
            fs::write(modules.join(name), text)?;
            let behind = there(PYTHON_PATH).unwrap_or_default();
            let mut path = modules.into_os_string();
            if !behind.is_empty() {
                path.push(":");
                path.push(behind);
            }
            variables.push(variable(PYTHON_PATH, &path)?);
        }
        Ok(variables)
    }
}

fn variable(name: &str, value: &OsStr) -> io::Result<(String, String)> {
    let value = value.to_str().map(str::to_owned);
    let value = value.ok_or_else(|| io::Error::other(format!("{name}: a path of no UTF-8")))?;
    Ok((name.to_owned(), value))
}

/// The end of a program.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEnd {
    /// The exit status.
    pub status: ExitStatus,
    /// True if this process was asked to stop meanwhile.
    pub stopped: bool,
}

/// Runs a program to its end, and returns how it ended. `recorder` records its GPU work. If
/// `quiet`, the program's standard output goes to standard error, so that standard output is the
/// caller's alone.
///
/// The first signal that asks this process to stop is passed on; the second ends the program and
/// everything it started.
///
/// # Errors
/// The program cannot be started.
pub fn run(command: &[String], recorder: &Recorder, quiet: bool) -> io::Result<ProgramEnd> {
    let [program, arguments @ ..] = command else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let signals = stopping();
    signals.thread_block()?;
    let asked = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    // This process adopts children that the program leaves, so that a stop finds them.
    let _ = prctl::set_child_subreaper(true);
    let program = Program {
        env: recorder.variables(|name| env::var_os(name))?,
        leaves: Leaves::ItsOwn,
        ..Program::new(program, arguments)
    };
    let stdout = if quiet {
        program::stderr()
    } else {
        Stdio::inherit()
    };
    let streams = [Stdio::inherit(), stdout, Stdio::inherit()];
    wait(program.start(streams, Vec::new())?, &asked)
}

/// Waits for the program's end, and passes signals on.
fn wait(mut program: Started, asked: &SignalFd) -> io::Result<ProgramEnd> {
    /// The sender of a signal is the kernel: Ctrl-C in a terminal already goes to the whole group.
    const FROM_THE_KERNEL: i32 = 0x80;
    let (mut stopped, mut passed_on) = (false, 0);
    loop {
        let status = program.ended();
        // Read after the check of the program: if it ended because of a signal, that signal stopped
        // it.
        while let Some(signal) = asked.read_signal()? {
            stopped = true;
            if signal.ssi_code == FROM_THE_KERNEL || status.is_some() {
                continue;
            }
            passed_on += 1;
            match (passed_on, Signal::try_from(signal.ssi_signo as i32)) {
                (1, Ok(signal)) => {
                    // Fails if the program has just ended.
                    let _ = kill(Pid::from_raw(program.pid() as i32), signal);
                }
                _ => {
                    program.end();
                }
            }
        }
        if let Some(status) = status {
            if stopped {
                descendants::kill_own();
            }
            return Ok(ProgramEnd { status, stopped });
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The exit code that a shell would give.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// PyTorch's profiler, by its name in messages.
pub const KINETO: &str = "PyTorch's profiler (Kineto)";

/// The header of a recording.
pub fn header(
    command: Vec<String>,
    started: Timestamp,
    ended: String,
    recording: &Recording,
) -> TraceHeader {
    TraceHeader {
        schema: SCHEMA_VERSION,
        method: METHOD_VERSION,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        argv: argv(),
        command,
        started,
        ended,
        git: None,
        machine: fingerprint(recording),
        recorder: None,
        earlier: Vec::new(),
    }
}

/// The trace in a file that PyTorch's profiler wrote. The time of writing stands for its start,
/// which is not known more exactly.
pub fn of_kineto(recording: Recording, label: String, written: Timestamp) -> Trace {
    let ended = "an end that is not known".to_owned();
    let header = TraceHeader {
        recorder: Some(KINETO.to_owned()),
        ..header(vec![label], written, ended, &recording)
    };
    Trace { header, recording }
}

/// The machine's fingerprint, as far as the recorded GPUs determine it.
fn fingerprint(recording: &Recording) -> Fingerprint {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_variables_stay_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = |torch| Recorder {
            library: Path::new("/cache/probe.so"),
            folder: folder.path(),
            torch,
        };
        let value = |torch, set: &[(&str, &str)], name: &str| {
            let variable = |name: &str| {
                let mut set = set.iter().filter(|(known, _)| *known == name);
                set.next().map(|(_, value)| value.into())
            };
            let variables = recorder(torch).variables(variable).unwrap();
            let mut variables = variables.into_iter().filter(|(known, _)| known == name);
            variables.next().map(|(_, value)| value)
        };
        let probe = Some("/cache/probe.so".to_owned());
        assert_eq!(value(false, &[], INJECTION), probe);
        assert_eq!(value(false, &[], RANGES), probe);
        assert_eq!(value(false, &[(RANGES, "/nsight.so")], RANGES), None);
        assert_eq!(value(false, &[], PYTHON_PATH), None);
        let modules = folder.path().join("python").display().to_string();
        assert_eq!(value(true, &[], PYTHON_PATH), Some(modules.clone()));
        let both = value(true, &[(PYTHON_PATH, "/mine:/yours")], PYTHON_PATH);
        assert_eq!(both, Some(format!("{modules}:/mine:/yours")));
        let module = fs::read_to_string(folder.path().join("python/sitecustomize.py")).unwrap();
        assert!(module.contains("emit_nvtx"));
    }
}
