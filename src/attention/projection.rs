//! The linear layers around attention when the sequence is spread over several devices.
//!
//! Sequence parallelism (Korthikanti et al., "Reducing Activation Recomputation in Large
//! Transformer Models", 2022) keeps activations in shards of rows: the projection before
//! attention gathers them and multiplies, the one after it multiplies and sums them back
//! into shards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Direction, LONGEST_AXIS, Layout, ParseError, Problem};

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

impl fmt::Display for Projection {
    /// The tokens of a case id: `ag4096,r2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{},r{}", self.kind.short(), self.hidden, self.ranks)
    }
}

/// The sizes of a projection, as products that cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// `batch · seq_q`, over all ranks.
    pub rows: u64,
    /// `rows / ranks`.
    pub shard_rows: u64,
    /// Width of the model.
    pub hidden: u64,
    /// `heads · head_dim`, of one rank.
    pub columns: u64,
    /// Processes that share the rows.
    pub ranks: u64,
}

impl Projection {
    /// The sizes of this projection in its problem.
    pub fn sizes(&self, problem: &Problem) -> Sizes {
        let rows = problem.total_q();
        Sizes {
            rows,
            shard_rows: rows / u64::from(self.ranks.max(1)),
            hidden: self.hidden.into(),
            columns: u64::from(problem.heads) * u64::from(problem.head_dim),
            ranks: self.ranks.into(),
        }
    }

    /// The projection of an id's tokens (`ag` or `rs` with the width, `r` with the ranks).
    ///
    /// # Errors
    /// When one of the two is there without the other.
    pub(super) fn of_tokens(
        layer: Option<(ProjectionKind, u32)>,
        ranks: Option<u32>,
        id: &str,
    ) -> Result<Option<Projection>, ParseError> {
        match (layer, ranks) {
            (Some((kind, hidden)), Some(ranks)) => Ok(Some(Projection {
                kind,
                hidden,
                ranks,
            })),
            (None, None) => Ok(None),
            (Some((kind, hidden)), None) => Err(ParseError::new(format!(
                "`{}{hidden}` in `{id}` needs its ranks, for example `r2`",
                kind.short()
            ))),
            (None, Some(ranks)) => Err(ParseError::new(format!(
                "`r{ranks}` in `{id}` is of a projection; add `ag4096` or `rs4096`"
            ))),
        }
    }

    /// Checks that the problem's axes are those of a projection.
    ///
    /// # Errors
    /// An axis that a projection does not have, or rows that do not divide into shards.
    pub fn validate(&self, problem: &Problem) -> Result<(), ParseError> {
        for (axis, value) in [("hidden", self.hidden), ("ranks", self.ranks)] {
            if value == 0 {
                return Err(ParseError::new(format!("{axis} is 0; it must be positive")));
            }
            if value > LONGEST_AXIS {
                return Err(ParseError::new(format!(
                    "{axis} is {value}; it must be at most {LONGEST_AXIS}"
                )));
            }
        }
        let foreign = [
            ("mask", !problem.mask.is_full(), "`full`"),
            ("varlen", problem.varlen.is_some(), "left out"),
            ("layout", problem.layout != Layout::Bshd, "`bshd`"),
            (
                "direction",
                problem.direction != Direction::Forward,
                "`forward`",
            ),
            (
                "kv_heads",
                problem.kv_heads != problem.heads,
                "that of `heads`",
            ),
            ("seq_k", problem.seq_k != problem.seq_q, "that of `seq_q`"),
            (
                "head_dim_v",
                problem.head_dim_v != problem.head_dim,
                "that of `head_dim`",
            ),
        ];
        if let Some((axis, _, fix)) = foreign.iter().find(|(_, set, _)| *set) {
            return Err(ParseError::new(format!(
                "a projection (`{}`) has no {axis} of its own; it must be {fix}",
                self.kind
            )));
        }
        let rows = problem.total_q();
        if !rows.is_multiple_of(self.ranks.into()) {
            return Err(ParseError::new(format!(
                "ranks = {} does not divide the {rows} rows (batch · seq)",
                self.ranks
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(id: &str) -> String {
        id.parse::<Problem>().unwrap_err().to_string()
    }

    #[test]
    fn ids_say_kind_width_and_ranks() {
        let id = "h32,s1024,d128,bf16,ag4096,r2";
        let problem: Problem = id.parse().unwrap();
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
        let scattered: Problem = "b2,s8,d8,rs16,r4".parse().unwrap();
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
            ("s8,d8,ag16", "its ranks, for example `r2`"),
            ("s8,d8,r2", "`ag4096` or `rs4096`"),
        ] {
            let error = refused(id);
            assert!(error.contains(says), "{id}: {error}");
        }
    }

    #[test]
    fn attention_is_written_as_it_was() {
        let attention = Problem::new(16, 8);
        let text = serde_json::to_string(&attention).unwrap();
        assert!(!text.contains("projection"), "{text}");
        assert_eq!(
            serde_json::from_str::<Problem>(&text).unwrap().projection,
            None
        );
        let problem: Problem = "s16,d8,rs32,r2".parse().unwrap();
        let text = serde_json::to_string(&problem).unwrap();
        let wire = r#""projection":{"kind":"reduce-scatter","hidden":32,"ranks":2}"#;
        assert!(text.contains(wire), "{text}");
        assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), problem);
    }
}
