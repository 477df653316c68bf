//! Items of an iterator as one text.

use std::fmt::{Display, Write};

/// Iterators of items that can be printed.
pub trait Joined: Iterator<Item: Display> + Sized {
    /// The items as one text, with `separator` between them.
    fn joined(mut self, separator: &str) -> String {
        let mut text = self.next().map_or(String::new(), |first| first.to_string());
        for item in self {
            text += separator;
            // Writing to a string cannot fail.
            let _ = write!(text, "{item}");
        }
        text
    }
}

impl<I: Iterator<Item: Display>> Joined for I {}
