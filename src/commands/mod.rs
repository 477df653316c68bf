//! One file a subcommand: arguments in, calls, what is printed.

pub mod baseline;
pub mod build;
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
mod measuring;
mod progress;
pub mod report;
mod reporting;
pub mod ruler;
pub mod run;
mod sides;
pub mod trace;
pub mod worker;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::judge::judgement::VerdictOutcome;
use crate::report::terminal::COLUMNS;
use crate::report::text::{width, wrap};

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

fn say(text: impl Display) {
    let text = harmless::harmless(&text.to_string());
    // On a terminal, lines as long as a reader's; in a pipe, one line a message,
    // which can be searched.
    let text = match io::stderr().is_terminal() {
        true => indented(&text, 0, 2),
        false => text,
    };
    let _ = writeln!(anstream::stderr(), "{}", text.trim_end());
}

/// A text in lines of at most eighty columns, the first of each paragraph indented
/// by `first`, its others by `rest`. Ends in a line feed.
fn indented(text: &str, first: usize, rest: usize) -> String {
    let mut out = String::new();
    for paragraph in text.lines() {
        let words = paragraph.trim_start();
        let own = paragraph.len() - words.len();
        let columns = COLUMNS.saturating_sub(own + first.max(rest));
        // A path that is longer than a line must stay whole to be of use.
        let lines = match words.split_whitespace().any(|word| width(word) > columns) {
            true => vec![words.to_owned()],
            false => wrap(words, columns),
        };
        for (i, line) in lines.iter().enumerate() {
            let indent = own + if i == 0 { first } else { rest };
            out += &format!("{:indent$}{line}\n", "");
        }
    }
    out
}
