//! The commands, one file for each: arguments, calls into the library, and the printed answer.

/// Ends a command whose request is invalid: exit code 2.
macro_rules! refuse {
    ($($message:tt)+) => {
        return Err($crate::cli::Stop::Usage(format!($($message)+)))
    };
}

pub mod baseline;
pub mod bisect;
pub mod build;
pub mod compare;
pub mod completions;
pub mod diff;
pub mod doctor;
pub mod env;
pub mod gate;
pub mod history;
pub mod init;
pub mod list;
mod measure_args;
mod on_save;
pub mod outputs;
mod progress;
pub mod report;
mod reporting;
pub mod run;
mod saying;
pub mod trace;
mod traces;
pub mod worker;

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};

use owo_colors::OwoColorize;
pub use reporting::report_error_as_json;
use saying::{harmless, say};
use serde::Serialize;

use regatta_core::secrets;
use regatta_measure::interrupt;
use regatta_report::document::{Block, Document};

/// The reason why a command ends without a verdict.
pub use regatta_measure::experiment::ExperimentError as Stop;

/// The result of a command: its exit code, or the reason why it stopped.
pub type Ended = Result<u8, Stop>;

/// Makes signals end this command together with its workers, for a command that measures.
fn watch() {
    watch_for("; what was measured is kept, and the same command resumes");
}

/// Like [`watch`], with the text that is printed on a signal.
fn watch_for(rest: &'static str) {
    interrupt::watch_for(rest, say);
}

/// Ends all child processes; called at the end of every command.
pub fn leave_nothing() {
    interrupt::end();
}

/// Prints a result to standard output, coloured if wanted. Control characters other than our
/// colours are escaped, which does not change the meaning of JSON.
fn print(text: impl Display) -> Ended {
    write_out(&text.to_string()).map_err(Stop::not_judged)?;
    Ok(0)
}

/// Writes to standard output; a reader that closed the pipe is not an error.
fn write_out(text: &str) -> io::Result<()> {
    interrupt::hold_if_stopping();
    let mut stdout = anstream::stdout().lock();
    let written = write!(stdout, "{}", harmless(text)).and_then(|()| stdout.flush());
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        kind => {
            let what = format!("cannot write to standard output: {error}");
            Err(io::Error::new(kind, what))
        }
    })
}

/// Prints an answer as JSON.
fn print_json(answer: &impl Serialize) -> Ended {
    let text = serde_json::to_string(answer).map_err(Stop::not_judged)?;
    print(text + "\n")
}

/// Prints blocks of a document.
fn show_blocks(body: Vec<Block>) -> Ended {
    let document = Document {
        body,
        ..Document::default()
    };
    print(document.text(true))
}

/// Prints a result while it is rendered, in the way of [`print()`].
fn print_as_made<E: Error>(make: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<(), Stop> {
    let mut lines = PrintedLines(Vec::new());
    make(&mut lines).map_err(Stop::not_judged)?;
    lines.flush().map_err(Stop::not_judged)
}

/// Collects whole lines, and prints many at a time.
struct PrintedLines(Vec<u8>);

impl PrintedLines {
    /// The number of bytes that are printed at once.
    const MANY: usize = 1 << 16;

    fn print(&mut self, end: usize) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.0[..end]).into_owned();
        self.0.drain(..end);
        write_out(&text)
    }
}

impl Write for PrintedLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        if self.0.len() > PrintedLines::MANY
            && let Some(last) = self.0.iter().rposition(|byte| *byte == b'\n')
        {
            self.print(last + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.print(self.0.len())
    }
}

/// Prints a note on standard error, and ignores a closed pipe.
pub fn note(text: impl Display) {
    interrupt::hold_if_stopping();
    say(text);
}

/// Prints the reason why a command has no verdict.
pub fn complain(stop: &Stop) {
    let word = match stop.exit_code() {
        2 => "error",
        _ => "inconclusive",
    };
    let words: Vec<String> = std::env::args().collect();
    let text = secrets::masked(stop.to_string(), &secrets::hidden_values(&words, []));
    note(format!("{}: {text}", word.red().bold()));
}
