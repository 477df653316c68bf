//! Text being laid out: lines of at most [`COLUMNS`] columns, in colour or not.

use std::fmt::Display;
use std::io::{self, Write};

use owo_colors::{OwoColorize, Style};
use serde::Serialize;

use crate::text::{one_line, shorten, shorten_middle, width, wrap};

/// Widest line.
pub const COLUMNS: usize = 80;

/// Longest reason, in columns; the whole of it is in the other formats.
const REASON: usize = 320;

/// What something means to its reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tone {
    /// Nothing to act upon.
    #[default]
    Calm,
    /// Better.
    Good,
    /// Worse.
    Bad,
    /// Neither is known.
    Doubtful,
}

impl Tone {
    /// How it is painted.
    fn style(self) -> Option<Style> {
        match self {
            Tone::Calm => None,
            Tone::Good => Some(Style::new().green()),
            Tone::Bad => Some(Style::new().red()),
            Tone::Doubtful => Some(Style::new().yellow()),
        }
    }

    /// How a word alone is painted.
    pub(crate) fn strong(self) -> Style {
        self.style().unwrap_or_default().bold()
    }
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

/// What is laid out, as text: of a list at most so many cases.
pub(crate) fn laid_out(colour: bool, most: usize, lay: impl FnOnce(&mut Screen)) -> String {
    let mut bytes = Vec::new();
    lay(&mut Screen {
        out: &mut bytes,
        // Memory takes whatever is written.
        written: Ok(()),
        colour,
        most,
    });
    String::from_utf8_lossy(&bytes).into_owned()
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
            self.written = writeln!(self.out, "{}", line.as_ref().trim_end());
        }
    }

    /// A paragraph from outside, on one indent, cut where it is longer than [`REASON`].
    pub(crate) fn wrapped(&mut self, indent: usize, text: &str) {
        self.paragraph(indent, 0, &shorten(&one_line(text), REASON));
    }

    /// A paragraph of regatta's own, on one indent.
    pub(crate) fn whole(&mut self, indent: usize, text: &str) {
        self.paragraph(indent, 0, &one_line(text));
    }

    /// A paragraph from outside, its first line at `indent`, the others two further.
    pub(crate) fn hanging(&mut self, indent: usize, text: &str) {
        self.paragraph(indent, 2, &one_line(text));
    }

    /// A painted word with what is said of it: `FAILED  quick: 48 same`.
    pub(crate) fn painted_word(&mut self, word: &str, style: Style, text: &str) {
        let rest = one_line(text);
        let lines = wrap(&format!("{word} {rest}"), COLUMNS - 3);
        for (number, line) in lines.iter().enumerate() {
            match line.strip_prefix(word).filter(|_| number == 0) {
                Some(rest) => self.line(format!("{} {rest}", self.paint(word, style))),
                None => self.line(format!("  {line}")),
            }
        }
    }

    fn paragraph(&mut self, indent: usize, others: usize, text: &str) {
        for (number, line) in wrap(text, COLUMNS - indent - others).iter().enumerate() {
            let indent = indent + if number == 0 { 0 } else { others };
            self.line(format!("{:indent$}{line}", ""));
        }
    }

    pub(crate) fn heading(&mut self, name: &str, count: usize, style: Style) {
        self.line("");
        self.painted(&format!("{name} ({count})"), style);
    }

    /// A line of one style.
    pub(crate) fn painted(&mut self, line: &str, style: Style) {
        self.line(self.paint(line, style));
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

/// Columns before a line.
const INDENT: usize = 2;

/// Columns between two columns.
const GAP: usize = 2;

/// Columns before what belongs to a line.
const BELOW: usize = 4;

/// A row of a [`Grid`].
#[derive(Debug, Default, Serialize)]
pub(crate) struct GridRow {
    /// What it is of.
    pub label: String,
    /// Its figures, as many as there are heads; an empty one is not known.
    pub cells: Vec<String>,
    /// What its last figure means.
    pub tone: Tone,
    /// What belongs to it: paragraphs.
    pub below: Vec<String>,
}

/// A table: labels, and figures right of them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Grid {
    /// What stands over the labels.
    pub label: &'static str,
    /// What stands over the figures.
    pub heads: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<GridRow>,
}

impl Grid {
    /// The heads of columns that have a figure in some line, with their places and widths.
    fn columns(&self) -> Vec<(usize, &'static str, usize)> {
        let columns = self.heads.iter().enumerate().filter_map(|(place, head)| {
            let cells = self.rows.iter().filter_map(|line| line.cells.get(place));
            let widest = cells.map(|cell| width(cell)).max().unwrap_or(0);
            (widest > 0).then(|| (place, *head, widest.max(width(head))))
        });
        columns.collect()
    }

    /// Prints at most so many of its rows. A label that leaves no room for its figures has a line of its own: no figure
    /// is ever cut.
    pub(crate) fn print(&self, screen: &mut Screen, most: usize) {
        let columns = self.columns();
        let figures: usize = columns.iter().map(|(_, _, wide)| GAP + wide).sum();
        let room = COLUMNS.saturating_sub(INDENT + figures);
        // A line without figures has all of it.
        let figured = |line: &&GridRow| line.cells.iter().any(|cell| !cell.is_empty());
        let labels = self.rows.iter().filter(figured);
        let labels = labels.map(|line| width(&line.label));
        let labels = labels.filter(|label| *label <= room);
        let first = labels.max().unwrap_or(0).max(width(self.label));
        if !columns.is_empty() {
            let mut head = format!("{:INDENT$}{:first$}", "", self.label);
            for (_, name, wide) in &columns {
                head += &format!("{:GAP$}{name:>wide$}", "");
            }
            let head = screen.paint(head, Style::new().dimmed());
            screen.line(head);
        }
        for line in self.rows.iter().take(most) {
            let label = shorten_middle(&line.label, COLUMNS - INDENT);
            let bold = Style::new().bold();
            let mut text = format!("{:INDENT$}{}", "", screen.paint(&label, bold));
            let cell = |place: usize| line.cells.get(place).map_or("", String::as_str);
            if columns.iter().any(|(place, _, _)| !cell(*place).is_empty()) {
                let mut used = width(&label);
                if used > first {
                    screen.line(&text);
                    (text, used) = (" ".repeat(INDENT), 0);
                }
                text += &" ".repeat(first - used);
                // Padded outside the paint, and nothing after the last figure.
                let known = columns
                    .iter()
                    .filter(|(place, _, _)| !cell(*place).is_empty());
                let last = known.map(|(place, _, _)| *place).max();
                for (place, _, wide) in &columns {
                    let figure = cell(*place);
                    text += &" ".repeat(GAP + wide - width(figure));
                    match line.tone.style().filter(|_| place + 1 == self.heads.len()) {
                        Some(style) => text += &screen.paint(figure, style),
                        None => text += figure,
                    }
                    if Some(*place) == last {
                        break;
                    }
                }
            }
            screen.line(text);
            for paragraph in &line.below {
                screen.wrapped(BELOW, paragraph);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(label: &str, cells: &[&str]) -> GridRow {
        GridRow {
            label: label.to_owned(),
            cells: cells.iter().map(|cell| (*cell).to_owned()).collect(),
            ..GridRow::default()
        }
    }

    #[test]
    fn a_label_without_room_has_a_line_of_its_own() {
        let long = "0123456789".repeat(9);
        let table = Grid {
            label: "case",
            heads: vec!["time", "never", "change"],
            rows: vec![
                line("short", &["1.00 µs", "", "+1.0 %"]),
                line(&long, &["12.0 µs", "", "+12.0 %"]),
                line("nothing", &["", "", ""]),
            ],
        };
        let text = laid_out(false, usize::MAX, |screen| table.print(screen, usize::MAX));
        crate::fixture::fits(&text);
        insta::assert_snapshot!(text);
    }
}
