//! The first line of a history's file.

use std::path::Path;

use serde::Deserialize;

use super::wire::{First, Kind};
use super::{HistoryError, SCHEMA};
use crate::record::{RecordError, line};

/// Checks the first line, and what it is of where that is known.
pub(super) fn head(
    path: &Path,
    text: &str,
    of: Option<(&str, &str)>,
) -> Result<First, HistoryError> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u32,
    }
    if let Ok(Versioned { schema }) = serde_json::from_str(text)
        && schema != SCHEMA
    {
        return Err(HistoryError::Schema {
            path: path.to_owned(),
            found: schema,
        });
    }
    let invalid = |problem: String| HistoryError::from(RecordError::invalid(path, 1, problem));
    let first: First = line::read(text).map_err(invalid)?;
    let here = (first.suite.as_str(), first.machine.as_str());
    match of {
        _ if first.kind != Kind::History => Err(invalid("its first line is missing".to_owned())),
        Some(of) if of != here => Err(invalid(format!(
            "it is the history of {} on {}, not of {} on {}; move it to its place",
            here.0, here.1, of.0, of.1
        ))),
        _ => Ok(first),
    }
}
