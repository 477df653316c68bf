//! A document on a terminal: lines of at most [`COLUMNS`] columns, in colour or not.

use std::fmt::Display;
use std::io::{self, Write};

use owo_colors::{OwoColorize, Style};

use crate::document::{Block, Document, Table, TableRow, Tone};
use crate::labels::Labels;
use crate::text::{shorten, shorten_middle, width, wrap};
use regatta_worker::case::CaseId;
use regatta_worker::joined::Joined;

/// The widest line, in columns.
pub const COLUMNS: usize = 80;

/// The longest paragraph below a line, in columns; other formats have the full text.
const REASON: usize = 320;

/// The indentation of a table or a list, in columns.
const INDENT: usize = 2;

/// The gap between two columns of a table.
const GAP: usize = 2;

/// The further indentation of a paragraph's lines after the first.
const FURTHER: usize = 2;

/// The indentation of text that belongs to a line.
const BELOW: usize = 4;

fn style(tone: Tone) -> Option<Style> {
    match tone {
        Tone::Calm => None,
        Tone::Good => Some(Style::new().green()),
        Tone::Bad => Some(Style::new().red()),
        Tone::Doubtful => Some(Style::new().yellow()),
    }
}

fn strong(tone: Tone) -> Style {
    style(tone).unwrap_or_default().bold()
}

impl Document {
    /// The text for a terminal, at most [`COLUMNS`] wide except for commands, logs and long paths.
    /// `colour` adds only colour.
    pub fn text(self, colour: bool) -> String {
        let mut bytes = Vec::new();
        // Writing into memory does not fail.
        let _ = self.write(colour, &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes [`Document::text`] line by line.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn write(mut self, colour: bool, out: &mut dyn Write) -> io::Result<()> {
        self.clean();
        let mut screen = Screen {
            out,
            written: Ok(()),
            is_empty: true,
            colour,
        };
        screen.headline(&self);
        let mut before = None;
        for block in self.summary.iter().chain(&self.body) {
            screen.block(block, before);
            before = Some(block);
        }
        screen.written
    }
}

/// A terminal that is written to.
struct Screen<'o> {
    out: &'o mut dyn Write,
    /// The first error of the writer.
    written: io::Result<()>,
    /// True before the first line.
    is_empty: bool,
    colour: bool,
}

impl Screen<'_> {
    fn paint(&self, text: impl Display, style: Style) -> String {
        if self.colour {
            text.style(style).to_string()
        } else {
            text.to_string()
        }
    }

    fn line(&mut self, line: impl AsRef<str>) {
        if self.written.is_ok() {
            self.written = writeln!(self.out, "{}", line.as_ref().trim_end());
        }
        self.is_empty = false;
    }

    /// An empty line, except at the beginning.
    fn gap(&mut self) {
        if !self.is_empty {
            self.line("");
        }
    }

    /// A paragraph whose first line is indented by `indent`, and the others by `further` more.
    fn paragraph(&mut self, indent: usize, further: usize, text: &str) {
        for (number, line) in wrap(text, COLUMNS - indent - further).iter().enumerate() {
            let indent = indent + if number == 0 { 0 } else { further };
            self.line(format!("{:indent$}{line}", ""));
        }
    }

    /// A paragraph that begins with a painted lead.
    fn led(&mut self, indent: usize, lead: &str, style: Style, text: &str) {
        let all = if lead.is_empty() {
            text.to_owned()
        } else {
            format!("{lead}: {text}")
        };
        let lines = wrap(&all, COLUMNS - indent - FURTHER);
        for (number, line) in lines.iter().enumerate() {
            match line.strip_prefix(lead).filter(|_| number == 0) {
                Some(rest) => {
                    self.line(format!("{:indent$}{}{rest}", "", self.paint(lead, style)));
                }
                None => self.line(format!("{:1$}{line}", "", indent + FURTHER)),
            }
        }
    }

    /// A paragraph below a line, cut where it is longer than [`REASON`].
    fn below(&mut self, text: &str) {
        self.paragraph(BELOW, 0, &shorten(text, REASON));
    }

    /// `FAILED  quick: 48 same`.
    fn headline(&mut self, document: &Document) {
        let word = &document.word;
        let subject = shorten(&document.subject, 40);
        let parts = [&*subject, &document.sentence].into_iter();
        let rest = parts.filter(|part| !part.is_empty()).joined(": ");
        if word.is_empty() {
            return self.paragraph(0, FURTHER, &rest);
        }
        let lines = wrap(&format!("{word} {rest}"), COLUMNS - 3);
        for (number, line) in lines.iter().enumerate() {
            match line.strip_prefix(&**word).filter(|_| number == 0) {
                Some(rest) => {
                    let word = self.paint(word, strong(document.tone));
                    self.line(format!("{word} {rest}"));
                }
                None => self.line(format!("  {line}")),
            }
        }
    }

    fn block(&mut self, block: &Block, before: Option<&Block>) {
        match block {
            Block::Heading(title, rest, tone) => {
                self.gap();
                if rest.is_empty() {
                    self.line(self.paint(title, strong(*tone)))
                } else {
                    self.led(0, title, strong(*tone), rest)
                }
            }
            Block::Text(paragraphs) => {
                if !paragraphs.is_empty() {
                    self.gap();
                }
                for paragraph in paragraphs {
                    self.paragraph(0, FURTHER, paragraph);
                }
            }
            Block::Note(line) => self.paragraph(0, FURTHER, line),
            Block::List(items) => {
                for item in items {
                    let style = style(item.tone).unwrap_or_default();
                    self.led(INDENT, &item.lead, style, &item.text);
                    item.below.iter().for_each(|line| self.below(line));
                }
            }
            Block::Table(table) => {
                let follows = match before {
                    Some(Block::Heading(_, rest, _)) => rest.is_empty(),
                    Some(Block::Note(_)) => true,
                    _ => false,
                };
                if !follows {
                    self.gap();
                }
                self.table(table);
            }
            Block::Log(text) => {
                for line in text.lines() {
                    self.line(format!("{:INDENT$}{line}", ""));
                }
            }
            Block::Command(words) => {
                let whole = words.join(" ");
                // A command is never cut. If it is too long for a line, it is broken between words.
                if whole.len() + BELOW <= COLUMNS {
                    self.line(format!("    {whole}"))
                } else {
                    self.line(format!("    {}", words.join(" \\\n      ")))
                }
            }
            Block::Figure(_) | Block::Details(..) | Block::Page(_) => {}
        }
    }

    /// Prints a table. A label that leaves no room for its figures gets its own line, since no
    /// figure is ever cut.
    fn table(&mut self, table: &Table) {
        let rows = &table.rows;
        let (common, labels) = labels(table);
        if let Some(common) = common {
            self.paragraph(INDENT, FURTHER, &shorten(&format!("all {common}"), REASON));
        }
        let widest = |place: usize| {
            let cells = rows.iter().filter_map(|row| row.cells.get(place));
            let cells = cells.map(|cell| width(cell)).max().unwrap_or(0);
            cells.max(width(table.heads[place]))
        };
        let widths: Vec<usize> = (0..table.heads.len()).map(widest).collect();
        let figures: usize = widths.iter().map(|wide| GAP + wide).sum();
        let room = COLUMNS.saturating_sub(INDENT + figures);
        // A row without figures may use the full width.
        let figured = |row: &TableRow| row.cells.iter().any(|cell| !cell.is_empty());
        let beside = rows.iter().zip(&labels).filter(|(row, _)| figured(row));
        let beside = beside.map(|(_, (_, label))| width(label));
        let beside = beside.filter(|label| *label <= room);
        let first = beside.max().unwrap_or(0).max(width(table.label));
        if !widths.is_empty() {
            let mut head = format!("{:INDENT$}{:first$}", "", table.label);
            for (name, wide) in table.heads.iter().zip(&widths) {
                head += &format!("{:GAP$}{name:>wide$}", "");
            }
            self.line(self.paint(head, Style::new().dimmed()));
        }
        let bold = Style::new().bold();
        for (row, (above, label)) in rows.iter().zip(&labels) {
            if let Some(above) = above {
                let above = shorten(above, COLUMNS - INDENT);
                self.line(format!("{:INDENT$}{}", "", self.paint(&above, bold)));
            }
            let label = shorten_middle(label, COLUMNS - INDENT);
            let mut text = format!("{:INDENT$}{}", "", self.paint(&label, bold));
            if figured(row) {
                let mut used = width(&label);
                if used > first {
                    self.line(&text);
                    (text, used) = (" ".repeat(INDENT), 0);
                }
                text += &" ".repeat(first - used);
                let last = row.cells.iter().rposition(|cell| !cell.is_empty());
                for (place, (figure, wide)) in row.cells.iter().zip(&widths).enumerate() {
                    // The padding is not coloured, and nothing follows the last figure.
                    text += &" ".repeat(GAP + wide - width(figure));
                    match style(row.tone).filter(|_| place + 1 == widths.len()) {
                        Some(style) => text += &self.paint(figure, style),
                        None => text += figure,
                    }
                    if Some(place) == last {
                        break;
                    }
                }
            }
            self.line(text);
            row.below.iter().for_each(|line| self.below(line));
        }
        for line in &table.each {
            self.paragraph(INDENT, FURTHER, &shorten(&format!("each: {line}"), REASON));
        }
        if !table.rest.is_empty() {
            self.paragraph(INDENT, FURTHER, &table.rest);
        }
    }
}

/// The tokens that all rows of a table of cases share, and the label of each row. If they share
/// none, the tokens that the rows of a variant share are printed above the first of these rows.
fn labels(table: &Table) -> (Option<String>, Vec<(Option<String>, String)>) {
    let rows = &table.rows;
    if !table.ids {
        return (
            None,
            rows.iter().map(|row| (None, row.label.clone())).collect(),
        );
    }
    let ids = |rows: &[TableRow]| -> Vec<CaseId> {
        let cases = rows.iter().filter(|row| !row.label.is_empty());
        cases.map(|row| CaseId(row.label.as_str().into())).collect()
    };
    let all = ids(rows);
    let common = Labels::new(&all).common();
    let variant = |row: &TableRow| row.label.split(':').next().map(str::to_owned);
    let same = |a: &TableRow, b: &TableRow| {
        common.is_some() || b.label.is_empty() || variant(a) == variant(b)
    };
    let mut labels = Vec::new();
    for group in rows.chunk_by(same) {
        let ids = ids(group);
        let names = Labels::new(&ids);
        let mut above = names.common().filter(|_| common.is_none());
        let indent = if above.is_some() { "  " } else { "" };
        labels.extend(group.iter().map(|row| {
            if row.label.is_empty() {
                (None, String::new())
            } else {
                let label = names.label(&CaseId(row.label.as_str().into()));
                (above.take(), format!("{indent}{label}"))
            }
        }));
    }
    (common, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, cells: &[&str]) -> TableRow {
        TableRow {
            label: label.to_owned(),
            cells: cells.iter().map(|cell| (*cell).to_owned()).collect(),
            ..TableRow::default()
        }
    }

    #[test]
    fn a_label_without_room_has_a_line_of_its_own() {
        let long = "0123456789".repeat(9);
        let table = Table::new(
            "case",
            vec!["time", "never", "change"],
            vec![
                row("short", &["1.00 µs", "", "+1.0 %"]),
                row(&long, &["12.0 µs", "", "+12.0 %"]),
                row("nothing", &["", "", ""]),
            ],
        );
        let body = vec![Block::heading("Times"), Block::Table(table)];
        let document = Document {
            body,
            ..Document::default()
        };
        let text = document.text(false);
        crate::fixture::fits(&text);
        insta::assert_snapshot!(text);
    }
}
