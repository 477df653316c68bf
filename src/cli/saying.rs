//! How something is said on standard error, and laid out for a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use super::harmless;
use regatta_report::terminal::COLUMNS;
use regatta_report::text::{width, wrap};

/// Says something, whether or not a stop was asked for. Nobody may be reading it.
pub(super) fn say(text: impl Display) {
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
pub(super) fn indented(text: &str, first: usize, rest: usize) -> String {
    let mut out = String::new();
    for paragraph in text.lines() {
        let words = paragraph.trim_start();
        let own = paragraph.len() - words.len();
        let columns = COLUMNS.saturating_sub(own + first.max(rest));
        let lines = wrapped(words, columns);
        for (i, line) in lines.iter().enumerate() {
            let indent = own + if i == 0 { first } else { rest };
            out += &format!("{:indent$}{line}\n", "");
        }
    }
    out
}

/// Lines of at most `columns` columns; a path that is longer than a line has one of its own,
/// and stays whole to be of use.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut between: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        if width(word) > columns {
            lines.extend(wrap(&between.join(" "), columns));
            lines.push(word.to_owned());
            between.clear();
        } else {
            between.push(word);
        }
    }
    lines.extend(wrap(&between.join(" "), columns));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_a_long_path_is_wrapped() {
        let path = format!("/{}", "x".repeat(90));
        let text = format!("{} {path} {}", "before ".repeat(12), "after ".repeat(12));
        let lines = indented(&text, 0, 2);
        let long = lines.lines().filter(|line| width(line) > COLUMNS);
        assert_eq!(long.collect::<Vec<_>>(), [format!("  {path}")]);
        assert_eq!(lines.matches("before").count(), 12);
        assert_eq!(lines.matches("after").count(), 12);
    }
}
