//! Variants and the names that stand in ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ParseError;

/// Longest name of a worker, a variant, an environment or a parameter, and longest word.
pub(super) const LONGEST_NAME: usize = 64;

/// What [`is_name`] takes, in words.
pub const NAME_RULE: &str =
    "at most 64 letters, digits, `-`, `_` and `.`, a letter, a digit or `_` first";

/// True for what can name a worker, a variant or an environment: the name stands in case
/// ids, in patterns, and in the names of files.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.starts_with(['.', '-'])
        && (1..=LONGEST_NAME).contains(&text.len())
        && text.chars().all(plain)
}

/// One implementation: `worker/name`, or `worker/name@environment` where a suite
/// runs it in an environment other than the worker's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct VariantId {
    /// The worker that runs it: `cpu`, `torch`, `jax`, or one a suite declares.
    pub worker: String,
    /// Its name within the worker.
    pub name: String,
    /// The environment it runs in, when not the default one.
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
                "`{text}` is no variant; write `worker/name`, for example `cpu/flash`, \
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
