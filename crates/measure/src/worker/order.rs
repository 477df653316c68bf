//! What the harness tells a supervisor, and what that answers.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};

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

/// A supervisor's answer to a [`Program`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It runs, as this process.
    Runs(u32),
    /// It could not be started.
    Fails {
        /// The system's number for why.
        errno: Option<i32>,
        /// In words.
        words: String,
    },
    /// It ended, with this status: told where the harness is not the supervisor's parent.
    Ended(i32),
}

impl Program {
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
}
