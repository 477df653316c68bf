//! Words of a closed list, and texts that cannot be read.

use crate::joined::Joined;

/// Declares an enum of words, each value once with its name: a list of all values, how one prints,
/// and how it is read.
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
            /// Every value, in the order of declaration.
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

/// A text that is not what it should be; the message says what is wrong and
/// what may stand there instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> ParseError {
        ParseError(message.into())
    }

    /// `text` is not one of the names a `what` can have.
    pub fn one_of<'a>(what: &str, text: &str, names: impl Iterator<Item = &'a str>) -> ParseError {
        let names = names.map(|name| format!("`{name}`")).joined(", ");
        ParseError(format!("`{text}` is not a {what}; use {names}"))
    }
}
