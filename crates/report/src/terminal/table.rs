//! Cases in columns: a head, a line each, and below a line what belongs to it.

use owo_colors::Style;

use super::screen::{COLUMNS, Screen};
use crate::text::{shorten_middle, width};

/// Columns before a line.
const INDENT: usize = 2;

/// Columns between two columns.
const GAP: usize = 2;

/// Columns before what belongs to a line.
const BELOW: usize = 4;

/// One line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// What the case is called.
    pub label: String,
    /// Its figures, as many as there are heads; an empty one is not known.
    pub cells: Vec<String>,
    /// How the last figure is painted.
    pub last: Option<Style>,
    /// What belongs to it: paragraphs.
    pub below: Vec<String>,
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    /// What stands over the columns after the first, which is right of them.
    pub heads: Vec<&'static str>,
    /// Its lines.
    pub lines: Vec<Line>,
}

impl Table {
    /// The heads of columns that have a figure in some line, with their places and widths.
    fn columns(&self) -> Vec<(usize, &'static str, usize)> {
        let columns = self.heads.iter().enumerate().filter_map(|(place, head)| {
            let cells = self.lines.iter().filter_map(|line| line.cells.get(place));
            let widest = cells.map(|cell| width(cell)).max().unwrap_or(0);
            (widest > 0).then(|| (place, *head, widest.max(width(head))))
        });
        columns.collect()
    }

    /// Prints it. A label that leaves no room for its figures has a line of its own: no figure
    /// is ever cut.
    pub(crate) fn print(&self, screen: &mut Screen) {
        const HEAD: &str = "case";
        let columns = self.columns();
        let figures: usize = columns.iter().map(|(_, _, wide)| GAP + wide).sum();
        let room = COLUMNS.saturating_sub(INDENT + figures);
        // A line without figures has all of it.
        let figured = |line: &&Line| line.cells.iter().any(|cell| !cell.is_empty());
        let labels = self.lines.iter().filter(figured);
        let labels = labels.map(|line| width(&line.label));
        let labels = labels.filter(|label| *label <= room);
        let first = labels.max().unwrap_or(0).max(HEAD.len());
        if !columns.is_empty() {
            let mut head = format!("{:INDENT$}{HEAD:first$}", "");
            for (_, name, wide) in &columns {
                head += &format!("{:GAP$}{name:>wide$}", "");
            }
            let head = screen.paint(head, Style::new().dimmed());
            screen.line(head);
        }
        for line in &self.lines {
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
                    match line.last.filter(|_| place + 1 == self.heads.len()) {
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

    fn printed(table: &Table) -> String {
        let mut bytes = Vec::new();
        let mut screen = Screen {
            out: &mut bytes,
            written: Ok(()),
            colour: false,
            most: usize::MAX,
        };
        table.print(&mut screen);
        String::from_utf8(bytes).unwrap()
    }

    fn line(label: &str, cells: &[&str]) -> Line {
        Line {
            label: label.to_owned(),
            cells: cells.iter().map(|cell| (*cell).to_owned()).collect(),
            ..Line::default()
        }
    }

    #[test]
    fn a_label_without_room_has_a_line_of_its_own() {
        let long = "x".repeat(90);
        let table = Table {
            heads: vec!["time", "never", "change"],
            lines: vec![
                line("short", &["1.00 µs", "", "+1.0 %"]),
                line(&long, &["12.0 µs", "", "+12.0 %"]),
                line("nothing", &["", "", ""]),
            ],
        };
        let text = printed(&table);
        let half = "x".repeat(39);
        assert_eq!(
            text,
            format!(
                "  case      time   change\n  \
                 short  1.00 µs   +1.0 %\n  \
                 {half}…{}\n         \
                 12.0 µs  +12.0 %\n  \
                 nothing\n",
                &half[1..]
            )
        );
        assert!(text.lines().all(|line| width(line) <= COLUMNS));
    }
}
