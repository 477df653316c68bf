//! Printing on standard error.
//!
//! A terminal gets only our own colours and plain text. Texts of workers, libraries, file names and
//! recordings may contain anything, but must not move a cursor, set a title, ring, or reorder a
//! line. Such characters are printed as `\u001b`, which is also their form in JSON, so a machine
//! still reads the exact text.

use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::iter::Peekable;
use std::str::Chars;
use std::sync::atomic::{AtomicBool, Ordering};

use terminal_size::terminal_size_of;

use regatta_report::terminal::COLUMNS;
use regatta_report::text::{hides, shorten_middle, wrap};

/// True while a progress line is on the terminal.
static DRAWN: AtomicBool = AtomicBool::new(false);

/// Draws a progress line over the previous one, as wide as the terminal.
pub(super) fn draw(line: &str) {
    let columns = terminal_size_of(io::stderr()).map_or(COLUMNS, |(width, _)| width.0.into());
    let line = shorten_middle(line, columns.saturating_sub(1));
    DRAWN.store(true, Ordering::Relaxed);
    let _ = write!(io::stderr(), "\r{line}\u{1b}[K");
}

/// Erases the progress line.
pub(super) fn erase() {
    if DRAWN.swap(false, Ordering::Relaxed) {
        let _ = write!(io::stderr(), "\r\u{1b}[K");
    }
}

/// Prints a line, even after a stop was requested, and ignores a closed pipe.
pub(super) fn say(text: impl Display) {
    let text = harmless(&text.to_string());
    erase();
    // On a terminal, lines are wrapped; in a pipe, each message is one line, which can be searched.
    let text = if io::stderr().is_terminal() {
        in_lines(&text)
    } else {
        text
    };
    let _ = writeln!(anstream::stderr(), "{}", text.trim_end());
}

/// Wraps a text into lines of at most eighty columns, and indents the lines after the first of a
/// paragraph.
fn in_lines(text: &str) -> String {
    let mut out = String::new();
    for paragraph in text.lines() {
        let words = paragraph.trim_start();
        let own = paragraph.len() - words.len();
        let lines = wrap(words, COLUMNS.saturating_sub(own + 2));
        for (i, line) in lines.iter().enumerate() {
            let indent = own + if i == 0 { 0 } else { 2 };
            out += &format!("{:indent$}{line}\n", "");
        }
    }
    out
}

/// Escapes everything that controls a terminal, except our own colours.
pub(super) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut coloured = false;
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => match colour(&mut rest) {
                Some(codes) => {
                    coloured = !codes.is_empty() && codes != "0" && codes != "39";
                    let _ = write!(out, "\u{1b}[{codes}m");
                }
                None => escape(c, &mut out),
            },
            '\n' | '\t' => out.push(c),
            c if c.is_control() || hides(c) => escape(c, &mut out),
            c => out.push(c),
        }
    }
    if coloured {
        // Resets a foreign colour that would otherwise continue.
        out.push_str("\u{1b}[0m");
    }
    out
}

/// Removes the codes of a colour that this program may have set from the text and returns them;
/// removes nothing for any other sequence.
fn colour(rest: &mut Peekable<Chars>) -> Option<String> {
    let mut ahead = rest.clone();
    if ahead.next() != Some('[') {
        return None;
    }
    let mut codes = String::new();
    loop {
        match ahead.next()? {
            'm' => break,
            c @ ('0'..='9' | ';') => codes.push(c),
            _ => return None,
        }
    }
    // Codes that hide, blink or colour the background are not ours.
    let ours = |code: &str| matches!(code, "" | "0" | "1" | "2" | "22" | "39") || shade(code);
    let all = codes.split(';').all(ours);
    all.then(|| {
        *rest = ahead;
        codes
    })
}

fn shade(code: &str) -> bool {
    matches!(code.parse(), Ok(31..=37u32))
}

/// Escapes a character as in JSON, in one or two UTF-16 units.
fn escape(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use owo_colors::{OwoColorize, Style};
    use proptest::prelude::*;

    use super::*;
    use regatta_report::text::width;

    #[test]
    fn what_stands_around_a_long_path_is_wrapped() {
        let path = format!("/{}", "x".repeat(90));
        let text = format!("{} {path} {}", "before ".repeat(12), "after ".repeat(12));
        let lines = in_lines(&text);
        let long = lines.lines().filter(|line| width(line) > COLUMNS);
        assert_eq!(long.collect::<Vec<_>>(), [format!("  {path}")]);
        assert_eq!(lines.matches("before").count(), 12);
        assert_eq!(lines.matches("after").count(), 12);
    }

    #[test]
    fn our_colours_stay() {
        let style = Style::new().red().bold();
        for text in ["a".red().to_string(), "a".style(style).to_string()] {
            assert_eq!(harmless(&text), text);
        }
        assert_eq!(harmless("µs → 3×\n\tx"), "µs → 3×\n\tx");
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (nasty, shown) in [
            ("\u{1b}[2J", "\\u001b[2J"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("\u{1b}[8mhidden", "\\u001b[8mhidden"),
            ("\u{1b}[", "\\u001b["),
            ("\u{9b}31m", "\\u009b31m"),
            ("a\rb\u{8}\0", "a\\u000db\\u0008\\u0000"),
            ("\u{202e}txt", "\\u202etxt"),
            ("\u{2066}\u{200b}", "\\u2066\\u200b"),
            ("\u{e0041}", "\\udb40\\udc41"),
            ("\u{1b}[31mred", "\u{1b}[31mred\u{1b}[0m"),
        ] {
            assert_eq!(harmless(nasty), shown);
        }
    }

    proptest! {
        /// Machines read from JSON exactly what was there.
        #[test]
        fn json_means_the_same_after(text in "[\\x00-\\x9f\u{202a}-\u{202e}\u{e0041}\"\\\\a]{0,40}") {
            let json = serde_json::to_string(&text).unwrap();
            let shown = harmless(&json);
            prop_assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
            prop_assert!(shown.chars().all(|c| !c.is_control() && !hides(c)));
        }
    }
}
