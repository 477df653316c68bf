//! Enums of words, and errors about texts that cannot be parsed.

use crate::joined::Joined;

/// Declares an enum of words with each value's name. Generates a list of all values, printing and
/// parsing.
#[macro_export]
macro_rules! words {
    ($what:literal, $(#[$meta:meta])* $access:vis enum $type:ident {
        $($(#[$doc:meta])* $value:ident = $name:literal,)+
    }) => {
        $(#[$meta])*
        $access enum $type {
            $($(#[$doc])* $value,)+
        }

        impl $type {
            /// All values, in the order of declaration.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$value),+];

            /// The word for it in suites and on the wire.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::case::ParseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let named = Self::ALL.into_iter().find(|value| value.name() == text);
                let names = Self::ALL.iter().map(|value| value.name());
                named.ok_or_else(|| $crate::case::ParseError::one_of($what, text, names))
            }
        }
    };
}

/// Returns a [`ParseError`] with this message.
macro_rules! refuse {
    ($($message:tt)+) => {
        return Err($crate::case::ParseError::new(format!($($message)+)))
    };
}

pub(crate) use refuse;

/// A text that cannot be parsed. The message says what is wrong and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> ParseError {
        ParseError(message.into())
    }

    /// An error for a `text` that is not a name of a `what`. Lists the names.
    pub fn one_of<'a>(what: &str, text: &str, names: impl Iterator<Item = &'a str>) -> ParseError {
        let names = names.map(|name| format!("`{name}`")).joined(", ");
        ParseError(format!("`{text}` is not a {what}; use {names}"))
    }
}
