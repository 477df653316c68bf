//! One file a subcommand: arguments in, calls, what is printed.

pub mod baseline;
pub mod bisect;
pub mod build;
pub mod compare;
pub mod completions;
pub mod diff;
pub mod doctor;
pub mod env;
pub mod gate;
pub mod gone;
pub mod history;
pub mod init;
pub mod list;
mod measure_args;
mod outputs;
mod progress;
pub mod report;
mod reporting;
pub mod run;
mod saying;
pub mod trace;
mod traces;
pub mod worker;

use std::fmt::Display;
use std::io::{self, Write};

use saying::{harmless, say};
use serde::Serialize;

use regatta_core::suite::document::DocumentError;
use regatta_judge::judgement::VerdictOutcome;
use regatta_measure::SetupError;
use regatta_measure::experiment::ExperimentError;
use regatta_measure::interrupt;
use regatta_report::document::{Block, Document};

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

impl From<ExperimentError> for Stop {
    fn from(error: ExperimentError) -> Stop {
        match error {
            ExperimentError::Usage(text) => Stop::Usage(anyhow::Error::msg(text)),
            ExperimentError::NotJudged(text) => Stop::NotJudged(anyhow::Error::msg(text)),
            ExperimentError::Unusable { error, .. } => Stop::from(*error),
        }
    }
}

impl From<SetupError> for Stop {
    fn from(error: SetupError) -> Stop {
        Stop::usage(error)
    }
}

impl From<DocumentError> for Stop {
    fn from(error: DocumentError) -> Stop {
        Stop::usage(error)
    }
}

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
            Stop::NotJudged(_) => VerdictOutcome::Inconclusive.exit_code(),
            Stop::Unread => 0,
        }
    }
}

/// Has a signal end this command with its workers, for one that measures.
fn watch() {
    watch_for("; what was measured is kept, and the same command resumes");
}

/// The same, with what is said of it.
fn watch_for(rest: &'static str) {
    interrupt::watch_for(rest, say);
}

/// To be called when a command has ended, whatever came of it: it leaves no process behind.
pub fn leave_nothing() {
    interrupt::end();
}

/// Prints a result to standard output, coloured where that is wanted. What a terminal
/// would obey beside our colours is written out, which leaves JSON what it was.
fn print(text: impl Display) -> Result<(), Stop> {
    interrupt::hold_if_stopping();
    let text = harmless(&text.to_string());
    let mut stdout = anstream::stdout().lock();
    let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Stop::Unread,
        _ => Stop::NotJudged(anyhow::Error::new(error).context("cannot write to standard output")),
    })
}

/// Prints an answer as JSON.
fn print_json(answer: &impl Serialize) -> Ended {
    let text = serde_json::to_string(answer).map_err(Stop::not_judged)?;
    print(text + "\n")?;
    Ok(0)
}

/// Prints blocks of a document.
fn show_blocks(body: Vec<Block>) -> Ended {
    let document = Document {
        body,
        ..Document::default()
    };
    print(document.text(true))?;
    Ok(0)
}

/// Prints a result as it is made, as [`print()`] prints one that is there.
fn print_as_made<E: Into<anyhow::Error>>(
    make: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), Stop> {
    let mut lines = PrintedLines {
        text: Vec::new(),
        stop: None,
    };
    let made = make(&mut lines);
    let ended = lines.flush();
    match (lines.stop.take(), made) {
        (Some(stop), _) => Err(stop),
        (None, Err(error)) => Err(Stop::not_judged(error)),
        (None, Ok(())) => ended.map_err(Stop::not_judged),
    }
}

/// Prints whole lines, many at a time.
struct PrintedLines {
    text: Vec<u8>,
    /// Why no more could be printed.
    stop: Option<Stop>,
}

impl PrintedLines {
    /// So much is printed at once.
    const MANY: usize = 1 << 16;

    fn print(&mut self, end: usize) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.text[..end]).into_owned();
        self.text.drain(..end);
        match text.is_empty() {
            true => Ok(()),
            false => print(text).map_err(|stop| {
                self.stop = Some(stop);
                io::Error::other("standard output takes no more")
            }),
        }
    }
}

impl Write for PrintedLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if self.text.len() > PrintedLines::MANY
            && let Some(last) = self.text.iter().rposition(|byte| *byte == b'\n')
        {
            self.print(last + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.print(self.text.len())
    }
}

/// Says something about the work on standard error. Nobody may be reading it.
pub fn note(text: impl Display) {
    interrupt::hold_if_stopping();
    say(text);
}
