//! Parameters of a variant beside the problem's axes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ParseError;
use super::axes::{FACETS, SEQ};
use super::variant::LONGEST_NAME;

/// The value of a variant's parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ParamValue {
    /// A number, such as an explicit `num_splits_key`.
    Int(i64),
    /// A word, such as `views`.
    Word(String),
}

/// The word that leaves a parameter to the implementation.
pub const AUTO: &str = "auto";

impl ParamValue {
    /// The value that leaves the choice to the implementation.
    pub fn auto() -> ParamValue {
        ParamValue::Word(AUTO.to_owned())
    }

    /// True for [`ParamValue::auto`].
    pub fn is_auto(&self) -> bool {
        matches!(self, ParamValue::Word(word) if word == AUTO)
    }
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamValue::Int(number) => number.fmt(f),
            ParamValue::Word(word) => word.fmt(f),
        }
    }
}

impl FromStr for ParamValue {
    type Err = ParseError;

    /// A number, or a word that can stand in a case id: its separators are no part of one.
    fn from_str(text: &str) -> Result<ParamValue, ParseError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
        if (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(plain) {
            return Ok(ParamValue::from(text));
        }
        Err(ParseError::new(format!(
            "{text:?} cannot stand in a case id: a parameter is a whole number, or a word of at \
             most {LONGEST_NAME} letters, digits, `-`, `_`, `.`, `+` and `/`"
        )))
    }
}

/// Holds a parameter's name to what can stand in a case id and in a selector.
///
/// # Errors
/// A name with other characters than letters, digits, `-` and `_`, or one that an axis has.
pub fn parameter_name(name: &str) -> Result<(), ParseError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    if name.len() > LONGEST_NAME || !name.starts_with(letter) || !name.chars().all(plain) {
        return Err(ParseError::new(format!(
            "{name:?} cannot name a parameter: a name is at most {LONGEST_NAME} letters, digits, \
             `-` and `_`, a letter or `_` first"
        )));
    }
    if FACETS.contains(&name) || name == SEQ {
        return Err(ParseError::new(format!(
            "`{name}` cannot name a parameter: a selector means the case's own `{name}` by it"
        )));
    }
    Ok(())
}

impl From<&str> for ParamValue {
    /// The value as it stands, unchecked.
    fn from(text: &str) -> ParamValue {
        match text.parse() {
            Ok(number) => ParamValue::Int(number),
            Err(_) => ParamValue::Word(text.to_owned()),
        }
    }
}

/// Parameters by name. `auto` is the absence of a parameter, so it is never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Params(BTreeMap<String, ParamValue>);

impl Params {
    /// The value of a parameter; `auto` when it was not set.
    pub fn get(&self, name: &str) -> ParamValue {
        self.0.get(name).cloned().unwrap_or_else(ParamValue::auto)
    }

    /// Sets a parameter; `auto` removes it.
    pub fn set(&mut self, name: &str, value: ParamValue) {
        if value.is_auto() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// The parameters that are not `auto`, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &ParamValue)> {
        self.0.iter()
    }

    /// True when every parameter is `auto`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
