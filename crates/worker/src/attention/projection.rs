//! The linear layers around attention when the sequence is spread over several devices.
//!
//! Sequence parallelism (Korthikanti et al., "Reducing Activation Recomputation in Large
//! Transformer Models", 2022) keeps activations in shards of rows: the projection before
//! attention gathers them and multiplies, the one after it multiplies and sums them back
//! into shards.

use serde::{Deserialize, Serialize};

use super::Attention;
use super::axes::{AXES, Unset};
use crate::case::{ParseError, refuse};
use crate::words;

/// The part of one rank in a sequence-parallel projection.
///
/// With `rows = batch · seq_q` and `columns = heads · head_dim`, for rank `r`:
///
/// | kind | has | computes |
/// |---|---|---|
/// | all-gather | rows of shard `r` of `x [rows, hidden]`, `w_r [hidden, columns]` | `x w_r [rows, columns]` |
/// | reduce-scatter | `y_r [rows, columns]`, `w_r [columns, hidden]` | rows of shard `r` of `Σ y_q w_q [rows, hidden]` |
///
/// Shard `r` has the rows `r · rows / ranks .. (r + 1) · rows / ranks`. So the first kind is a
/// column-parallel layer whose `ranks · columns` outputs are spread over the ranks, and the second
/// is the row-parallel layer that takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Projection {
    /// The kind of projection.
    pub kind: ProjectionKind,
    /// The length of a row between the layers: the width of the model.
    pub hidden: u32,
    /// The number of processes that share the rows, each with a device of its own. It divides the
    /// number of rows.
    pub ranks: u32,
}

words! {
    "projection",
    /// The direction in which rows move.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum ProjectionKind {
        /// Gather the shards, then multiply: the layer before attention.
        AllGather = "all-gather",
        /// Multiply, then sum over the ranks into shards: the layer after attention.
        ReduceScatter = "reduce-scatter",
    }
}

impl ProjectionKind {
    /// The word used in case ids: `ag`, `rs`.
    pub fn short(self) -> &'static str {
        match self {
            ProjectionKind::AllGather => "ag",
            ProjectionKind::ReduceScatter => "rs",
        }
    }
}

/// The sizes of a projection, in 64 bits so that products of axes cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// `batch · seq_q`, for all ranks together.
    pub rows: u64,
    /// `rows / ranks`.
    pub shard_rows: u64,
    /// Width of the model.
    pub hidden: u64,
    /// `heads · head_dim` of one rank.
    pub columns: u64,
    /// Processes that share the rows.
    pub ranks: u64,
}

impl Projection {
    /// The sizes of this projection in its problem.
    pub fn sizes(&self, problem: &Attention) -> Sizes {
        let rows = problem.total_q();
        Sizes {
            rows,
            shard_rows: rows / u64::from(self.ranks.max(1)),
            hidden: self.hidden.into(),
            columns: u64::from(problem.heads) * u64::from(problem.head_dim),
            ranks: self.ranks.into(),
        }
    }

    /// Checks that the problem's axes are those of a projection.
    ///
    /// # Errors
    /// An axis is set that a projection does not have, or the rows do not divide into shards.
    pub fn validate(&self, problem: &Attention) -> Result<(), ParseError> {
        for axis in AXES.iter().filter(|axis| !axis.is_of_projections()) {
            let fixed = axis.is_of_lengths() && problem.varlen.is_some();
            let value = axis.value(problem);
            if fixed || value == axis.unset_value(problem) {
                continue;
            }
            let fix = match axis.unset {
                Unset::Is(text) => format!("`{text}`"),
                Unset::As(other) => format!("that of `{other}`"),
                Unset::Refused(_) | Unset::Absent | Unset::With(_) => "left out".to_owned(),
            };
            refuse!(
                "a projection (`{}`) has no {} of its own; it must be {fix}",
                self.kind,
                axis.name
            );
        }
        let rows = problem.total_q();
        if !rows.is_multiple_of(self.ranks.into()) {
            refuse!(
                "ranks = {} does not divide the {rows} rows (batch · seq)",
                self.ranks
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::ProjectionKind;

    fn refused(id: &str) -> String {
        id.parse::<Attention>().unwrap_err().to_string()
    }

    #[test]
    fn ids_say_kind_width_and_ranks() {
        let id = "h32,s1024,d128,bf16,ag4096,r2";
        let problem: Attention = id.parse().unwrap();
        let projection = Projection {
            kind: ProjectionKind::AllGather,
            hidden: 4096,
            ranks: 2,
        };
        assert_eq!(problem.projection, Some(projection));
        assert_eq!(problem.to_string(), id);
        let sizes = Sizes {
            rows: 1024,
            shard_rows: 512,
            hidden: 4096,
            columns: 4096,
            ranks: 2,
        };
        assert_eq!(projection.sizes(&problem), sizes);
        let scattered: Attention = "b2,s8,d8,rs16,r4".parse().unwrap();
        let kind = scattered.projection.map(|projection| projection.kind);
        assert_eq!(kind, Some(ProjectionKind::ReduceScatter));
    }

    #[test]
    fn what_is_no_projection_is_refused_in_words() {
        for (id, says) in [
            ("s8,d8,causal,ag16,r2", "has no mask of its own"),
            ("v4+4,d8,ag16,r2", "has no varlen of its own"),
            ("s8,d8,bhsd,ag16,r2", "must be `bshd`"),
            ("s8,d8,bwd,rs16,r2", "must be `forward`"),
            ("h4,kv2,s8,d8,ag16,r2", "has no kv_heads of its own"),
            ("s8,sk9,d8,ag16,r2", "has no seq_k of its own"),
            ("s8,d8,dv4,ag16,r2", "has no head_dim_v of its own"),
            ("s9,d8,ag16,r2", "ranks = 2 does not divide the 9 rows"),
            ("s8,d8,ag0,r2", "hidden is 0"),
            ("s8,d8,ag16,r0", "ranks is 0"),
            ("s8,d8,ag16", "a projection needs `ranks`"),
            ("s8,d8,r2", "`ranks` belongs to a projection"),
        ] {
            let error = refused(id);
            assert!(error.contains(says), "{id}: {error}");
        }
    }
}
