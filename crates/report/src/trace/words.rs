//! Text of a trace, laid out.

use crate::terminal::COLUMNS;
use crate::text::{one_line, shorten, width, wrap};
use regatta_worker::units::Digits;

/// Lines of at most [`COLUMNS`] columns.
#[derive(Default)]
pub(super) struct Text(pub(super) String);

impl Text {
    pub(super) fn line(&mut self, line: &str) {
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }

    /// A paragraph, its first line at `indent`, the others two further.
    pub(super) fn say(&mut self, indent: usize, words: &str) {
        let lines = wrap(&one_line(words), COLUMNS - indent - 2);
        for (number, line) in lines.iter().enumerate() {
            let indent = indent + if number == 0 { 0 } else { 2 };
            self.line(&format!("{:indent$}{line}", ""));
        }
    }
}

/// A text cut and padded to so many columns.
pub(super) fn cell(text: &str, columns: usize) -> String {
    let text = shorten(&one_line(text), columns);
    let padding = columns.saturating_sub(width(&text));
    format!("{text}{:padding$}", "")
}

/// A count that may be a mean.
pub(super) fn figure(count: f64) -> String {
    match (count - count.round()).abs() < 0.05 {
        true => format!("{count:.0}"),
        false => Digits(count).to_string(),
    }
}
