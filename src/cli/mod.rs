//! One file a subcommand: arguments in, calls, what is printed.

pub mod baseline;
pub mod build;
pub mod calibrate;
pub mod completions;
mod criterion;
pub mod diff;
pub mod doctor;
pub mod env;
pub mod gate;
mod harmless;
mod interrupt;
mod introductions;
pub mod list;
mod measure_args;
mod measuring;
mod progress;
pub mod report;
mod reporting;
pub mod ruler;
pub mod run;
mod saying;
mod sides;
mod timings;
pub mod trace;
pub mod verdicts;
pub mod worker;

use std::fmt::Display;
use std::io::{self, Write};

use saying::{indented, say};

use regatta::judge::judgement::VerdictOutcome;

/// Why a command ends without a verdict, and with which exit code.
#[derive(Debug)]
pub enum Stop {
    /// The command line or a file it names is wrong; nothing was measured: 2.
    Usage(anyhow::Error),
    /// It cannot be judged: 3.
    NotJudged(anyhow::Error),
    /// Whoever read the output went away: 0, as nothing is wrong with the answer.
    Unread,
}

/// What a command comes to.
pub type Ended = Result<u8, Stop>;

impl Stop {
    /// A usage or configuration error.
    pub fn usage(error: impl Into<anyhow::Error>) -> Stop {
        Stop::Usage(error.into())
    }

    /// Something that keeps a verdict from being reached.
    pub fn not_judged(error: impl Into<anyhow::Error>) -> Stop {
        Stop::NotJudged(error.into())
    }

    /// The exit code of `docs/ARCHITECTURE.md`'s contract.
    pub fn exit_code(&self) -> u8 {
        match self {
            Stop::Usage(_) => 2,
            Stop::NotJudged(_) => VerdictOutcome::NotJudged.exit_code(),
            Stop::Unread => 0,
        }
    }
}

/// To be called when a command has ended, whatever came of it: it leaves no process behind.
pub fn leave_nothing() {
    interrupt::end();
}

/// Prints a result to standard output, coloured where that is wanted. What a terminal
/// would obey beside our colours is written out, which leaves JSON what it was.
fn print(text: impl Display) -> Result<(), Stop> {
    interrupt::hold_if_stopping();
    let text = harmless::harmless(&text.to_string());
    let mut stdout = anstream::stdout().lock();
    let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Stop::Unread,
        _ => Stop::NotJudged(anyhow::Error::new(error).context("cannot write to standard output")),
    })
}

/// Says something about the work on standard error. Nobody may be reading it.
pub fn note(text: impl Display) {
    interrupt::hold_if_stopping();
    say(text);
}
