//! The linear layers around attention when the sequence is spread over several devices.
//!
//! Sequence parallelism (Korthikanti et al., "Reducing Activation Recomputation in Large
//! Transformer Models", 2022) keeps activations in shards of rows: the projection before
//! attention gathers them and multiplies, the one after it multiplies and sums them back
//! into shards.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ParseError;

/// What one rank of a sequence-parallel projection computes.
///
/// With `rows = batch · seq_q` and `columns = heads · head_dim`, each of rank `r`:
///
/// | kind | has | computes |
/// |---|---|---|
/// | all-gather | rows of shard `r` of `x [rows, hidden]`, `w_r [hidden, columns]` | `x w_r [rows, columns]` |
/// | reduce-scatter | `y_r [rows, columns]`, `w_r [columns, hidden]` | rows of shard `r` of `Σ y_q w_q [rows, hidden]` |
///
/// Shard `r` is rows `r · rows / ranks .. (r + 1) · rows / ranks`. So the first is a
/// column-parallel layer whose `ranks · columns` outputs are spread over the ranks, and
/// the second the row-parallel layer that takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Projection {
    /// Which of the two.
    pub kind: ProjectionKind,
    /// Elements of a row between the layers: the model's width.
    pub hidden: u32,
    /// Processes, each with a device of its own, that share the rows. Divides them.
    pub ranks: u32,
}

/// Which way the rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ProjectionKind {
    /// Gather the shards, then multiply: the layer before attention.
    AllGather,
    /// Multiply, then sum over the ranks into shards: the layer after attention.
    ReduceScatter,
}

impl ProjectionKind {
    /// Both kinds, in the order of their declaration.
    pub const ALL: [ProjectionKind; 2] = [ProjectionKind::AllGather, ProjectionKind::ReduceScatter];

    /// `all-gather`, `reduce-scatter`: the word used in suites and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            ProjectionKind::AllGather => "all-gather",
            ProjectionKind::ReduceScatter => "reduce-scatter",
        }
    }

    /// `ag`, `rs`: the word used in case ids.
    pub fn short(self) -> &'static str {
        match self {
            ProjectionKind::AllGather => "ag",
            ProjectionKind::ReduceScatter => "rs",
        }
    }
}

impl fmt::Display for ProjectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ProjectionKind {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<ProjectionKind, ParseError> {
        let kinds = ProjectionKind::ALL;
        let named = kinds.into_iter().find(|kind| kind.name() == text);
        named.ok_or_else(|| {
            ParseError::one_of("projection", text, kinds.iter().map(|kind| kind.name()))
        })
    }
}

impl Projection {
    /// Holds an id to saying all of a projection (`ag` or `rs` with the width, `r` with the
    /// ranks) or nothing.
    ///
    /// # Errors
    /// When one of the two is there without the other.
    pub(super) fn said_whole(
        said: &BTreeMap<&'static str, String>,
        id: &str,
    ) -> Result<(), ParseError> {
        match (
            said.get("projection"),
            said.get("hidden"),
            said.get("ranks"),
        ) {
            (Some(kind), Some(hidden), None) => Err(ParseError::new(format!(
                "`{}{hidden}` in `{id}` needs its ranks, for example `r2`",
                kind.parse::<ProjectionKind>()?.short()
            ))),
            (None, _, Some(ranks)) => Err(ParseError::new(format!(
                "`r{ranks}` in `{id}` is of a projection; add `ag4096` or `rs4096`"
            ))),
            _ => Ok(()),
        }
    }
}
