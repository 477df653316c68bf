//! Variants, their parameters, and the rules for names in ids.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::FACETS;
use super::{ParseError, refuse};
use crate::operator::SEQ;

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

/// The word that leaves the choice of a parameter to the implementation.
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

    /// Parses a number, or a word that a case id can contain: it must not have the id's separators.
    fn from_str(text: &str) -> Result<ParamValue, ParseError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
        if (1..=MAX_NAME).contains(&text.len()) && text.chars().all(plain) {
            return Ok(ParamValue::from(text));
        }
        Err(ParseError::new(format!(
            "{text:?} cannot stand in a case id: a parameter is a whole number, or a word of at \
             most {MAX_NAME} letters, digits, `-`, `_`, `.`, `+` and `/`"
        )))
    }
}

/// Checks that a parameter's name can be part of a case id and of a selector.
///
/// # Errors
/// The name has characters other than letters, digits, `-` and `_`, or is the name of an axis.
pub fn parameter_name(name: &str) -> Result<(), ParseError> {
    plain_name(name)?;
    if FACETS.contains(&name) || name == SEQ {
        refuse!("`{name}` cannot name a parameter: a selector means the case's own `{name}` by it");
    }
    Ok(())
}

/// Checks that the name of a script's value can be part of a case id.
pub(super) fn plain_name(name: &str) -> Result<(), ParseError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    if name.len() > MAX_NAME || !name.starts_with(letter) || !name.chars().all(plain) {
        refuse!(
            "{name:?} cannot name a parameter: a name is at most {MAX_NAME} letters, digits, \
             `-` and `_`, a letter or `_` first"
        );
    }
    Ok(())
}

impl From<&str> for ParamValue {
    /// The value, without checks.
    fn from(text: &str) -> ParamValue {
        match text.parse() {
            Ok(number) => ParamValue::Int(number),
            Err(_) => ParamValue::Word(text.to_owned()),
        }
    }
}

/// Parameters by name. `auto` means that a parameter is absent, so it is never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(
    from = "BTreeMap<String, ParamValue>",
    into = "BTreeMap<String, ParamValue>"
)]
// A sorted list: parameters are few, and a run may have a hundred thousand lists.
pub struct Params(Vec<(String, ParamValue)>);

impl From<BTreeMap<String, ParamValue>> for Params {
    fn from(by_name: BTreeMap<String, ParamValue>) -> Params {
        Params(by_name.into_iter().collect())
    }
}

impl From<Params> for BTreeMap<String, ParamValue> {
    fn from(params: Params) -> BTreeMap<String, ParamValue> {
        params.0.into_iter().collect()
    }
}

impl Params {
    /// The value of a parameter; `auto` if it is not set.
    pub fn get(&self, name: &str) -> ParamValue {
        let mut all = self.0.iter();
        let set = all.find(|(known, _)| known == name);
        set.map_or_else(ParamValue::auto, |(_, value)| value.clone())
    }

    /// Sets a parameter; `auto` removes it.
    pub fn set(&mut self, name: &str, value: ParamValue) {
        self.0.retain(|(known, _)| known != name);
        if !value.is_auto() {
            let place = self.0.partition_point(|(known, _)| known.as_str() < name);
            self.0.reserve_exact(1);
            self.0.insert(place, (name.to_owned(), value));
        }
    }

    /// The parameters that are not `auto`, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &ParamValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// True if every parameter is `auto`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The longest name of a worker, a variant, an environment or a parameter, and the longest word.
const MAX_NAME: usize = 64;

/// The rule of [`is_name`], in words.
pub const NAME_RULE: &str =
    "at most 64 letters, digits, `-`, `_` and `.`, a letter, a digit or `_` first";

/// True if the text can name a worker, a variant or an environment. Such names are part of case
/// ids, of patterns, and of file names.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.starts_with(['.', '-']) && (1..=MAX_NAME).contains(&text.len()) && text.chars().all(plain)
}

/// An implementation: `worker/name`, or `worker/name@environment` if a suite runs it in another
/// environment than the worker's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct VariantId {
    /// The worker that runs it: `cpu`, `torch`, `jax`, or one that a suite declares.
    pub worker: String,
    /// The name within the worker.
    pub name: String,
    /// The environment that it runs in, unless that is the default one.
    pub environment: Option<String>,
}

impl VariantId {
    /// The process that runs it: `worker`, or `worker@environment`.
    pub fn worker_name(&self) -> String {
        match &self.environment {
            Some(environment) => format!("{}@{environment}", self.worker),
            None => self.worker.clone(),
        }
    }
}

impl fmt::Display for VariantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker, self.name)?;
        match &self.environment {
            Some(environment) => write!(f, "@{environment}"),
            None => Ok(()),
        }
    }
}

impl FromStr for VariantId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<VariantId, ParseError> {
        let (path, environment) = match text.split_once('@') {
            Some((path, environment)) => (path, Some(environment)),
            None => (text, None),
        };
        match path.split_once('/') {
            Some((worker, name))
                if is_name(worker) && is_name(name) && environment.is_none_or(is_name) =>
            {
                Ok(VariantId {
                    worker: worker.to_owned(),
                    name: name.to_owned(),
                    environment: environment.map(str::to_owned),
                })
            }
            _ => Err(ParseError::new(format!(
                "`{text}` is not a variant; write `worker/name`, for example `cpu/flash`, \
                 or `worker/name@environment`"
            ))),
        }
    }
}

impl TryFrom<String> for VariantId {
    type Error = ParseError;

    fn try_from(text: String) -> Result<VariantId, ParseError> {
        text.parse()
    }
}

impl From<VariantId> for String {
    fn from(variant: VariantId) -> String {
        variant.to_string()
    }
}
