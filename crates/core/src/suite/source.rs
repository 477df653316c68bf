//! A TOML text, its lines, and complaints about it.

use std::fmt;

/// Longest value that a message quotes, in characters.
pub(super) const LONGEST_QUOTE: usize = 120;

/// Longest message, in characters: others quote values too.
const LONGEST_MESSAGE: usize = 2000;

/// A TOML text and what to call it in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A path, or `built-in suite quick`.
    pub label: String,
    /// The whole text.
    pub text: String,
}

/// Something in a suite or configuration file that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// The file.
    pub label: String,
    /// Counts from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// The key's path, such as `sweep[1].direction`; may be empty.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.label, LONGEST_MESSAGE))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", plain(&self.message, LONGEST_MESSAGE))
    }
}

impl Source {
    /// An error about the file as a whole.
    pub fn error(&self, message: impl Into<String>) -> DocumentError {
        DocumentError {
            label: self.label.clone(),
            line: 0,
            key: String::new(),
            message: message.into(),
        }
    }
}

/// A source and where its lines end.
pub(super) struct Lines<'a> {
    pub(super) source: &'a Source,
    ends: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(source: &'a Source) -> Lines<'a> {
        let bytes = source.text.bytes().enumerate();
        Lines {
            source,
            ends: bytes
                .filter(|(_, byte)| *byte == b'\n')
                .map(|(at, _)| at)
                .collect(),
        }
    }

    /// The line of a byte, from 1.
    pub(super) fn number(&self, offset: usize) -> usize {
        1 + self.ends.partition_point(|end| *end < offset)
    }
}

/// At most so many characters of a text, in one line: what a terminal would obey is spelled
/// out.
pub(super) fn plain(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for c in text.chars().take(most) {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(most).is_some() {
        shown.push_str("...");
    }
    shown
}
