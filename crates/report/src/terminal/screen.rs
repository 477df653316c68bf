//! Text being laid out: lines of at most [`COLUMNS`] columns, in colour or not.

use std::fmt::Display;
use std::io::{self, Write};

use owo_colors::{OwoColorize, Style};

use crate::text::{one_line, shorten, shorten_middle, wrap};

/// Widest line.
pub const COLUMNS: usize = 80;

/// Longest reason, in columns; the whole of it is in the other formats.
const REASON: usize = 320;

/// The style of what is against the verdict.
pub(crate) fn bad() -> Style {
    Style::new().red().bold()
}

/// The style of what is for it.
pub(crate) fn good() -> Style {
    Style::new().green().bold()
}

/// The style of what is neither.
pub(crate) fn doubtful() -> Style {
    Style::new().yellow().bold()
}

/// Text being laid out.
pub(crate) struct Screen<'o> {
    pub(crate) out: &'o mut dyn Write,
    /// Whether everything until now was.
    pub(crate) written: io::Result<()>,
    pub(crate) colour: bool,
    /// Cases of one list.
    pub(crate) most: usize,
}

impl Screen<'_> {
    pub(crate) fn paint(&self, text: impl Display, style: Style) -> String {
        if self.colour {
            text.style(style).to_string()
        } else {
            text.to_string()
        }
    }

    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        if self.written.is_ok() {
            self.written = writeln!(self.out, "{}", line.as_ref());
        }
    }

    /// A paragraph from outside, on one indent.
    pub(crate) fn wrapped(&mut self, indent: usize, text: &str) {
        let text = shorten(&one_line(text), REASON);
        for line in wrap(&text, COLUMNS - indent) {
            self.line(format!("{:indent$}{line}", ""));
        }
    }

    pub(crate) fn heading(&mut self, name: &str, count: usize, style: Style) {
        let heading = self.paint(format!("{name} ({count})"), style);
        self.line("");
        self.line(heading);
    }

    pub(crate) fn case(&mut self, indent: usize, id: &str) {
        let id = shorten_middle(&one_line(id), COLUMNS - indent);
        let id = self.paint(id, Style::new().bold());
        self.line(format!("{:indent$}{id}", ""));
    }

    /// Says how many of a list were left out.
    pub(crate) fn left_out(&mut self, count: usize) {
        if count > self.most {
            let more = count - self.most;
            self.line(format!("  and {more} more, which --all prints"));
        }
    }
}
