//! Values of attention's axes: layouts, and the lengths of ragged batches; and the results of each
//! direction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::case::{ParseError, refuse};
use crate::operator::Direction;
use crate::words;

words! {
    "layout",
    /// Physical order of a tensor's axes in memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Layout {
        /// `[batch, seq, heads, head_dim]`: FlashAttention, xFormers.
        Bshd = "bshd",
        /// `[batch, heads, seq, head_dim]`: PyTorch's SDPA.
        Bhsd = "bhsd",
    }
}

/// The results of a direction, each with the direction whose limit applies to it.
pub fn results(direction: Direction) -> &'static [(&'static str, Direction)] {
    use Direction::{Backward, Forward};
    const ALL: [(&str, Direction); 4] = [
        ("out", Forward),
        ("dq", Backward),
        ("dk", Backward),
        ("dv", Backward),
    ];
    match direction {
        Direction::Forward => &ALL[..1],
        Direction::Backward => &ALL[1..],
        Direction::Both => &ALL,
    }
}

/// The largest number of sequences in a ragged batch, since the case's id lists all of them.
const MAX_SEQUENCES: usize = 4096;

/// Lengths of the sequences in a ragged ("varlen") batch. They are packed one after the other
/// without padding, as `cu_seqlens` describes them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Varlen {
    /// Queries of each sequence.
    pub q: Vec<u32>,
    /// Keys of each sequence, with as many entries as `q`.
    pub k: Vec<u32>,
}

impl Varlen {
    /// The number of queries over all sequences.
    pub fn total_q(&self) -> u64 {
        self.q.iter().map(|&n| u64::from(n)).sum()
    }

    /// The number of keys over all sequences.
    pub fn total_k(&self) -> u64 {
        self.k.iter().map(|&n| u64::from(n)).sum()
    }
}

impl fmt::Display for Varlen {
    /// `100+200`, or `1+1:100+200` if queries and keys differ.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |lengths: &[u32]| {
            let texts: Vec<String> = lengths.iter().map(u32::to_string).collect();
            texts.join("+")
        };
        f.write_str(&list(&self.q))?;
        if self.q != self.k {
            write!(f, ":{}", list(&self.k))?;
        }
        Ok(())
    }
}

impl FromStr for Varlen {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Varlen, ParseError> {
        let list = |part: &str| -> Result<Vec<u32>, ParseError> {
            if part.split('+').nth(MAX_SEQUENCES).is_some() {
                refuse!("a varlen batch has at most {MAX_SEQUENCES} sequences");
            }
            part.split('+')
                .map(|n| match n.parse::<u32>() {
                    Ok(n) if n > 0 => Ok(n),
                    _ => Err(ParseError::new(format!(
                        "`{text}` is not a list of sequence lengths; write `100+200`, \
                         or `1+1:100+200` for queries and keys apart"
                    ))),
                })
                .collect()
        };
        let (q, k) = match text.split_once(':') {
            Some((q, k)) => (list(q)?, list(k)?),
            None => (list(text)?, list(text)?),
        };
        if q.len() != k.len() {
            refuse!(
                "varlen `{text}` lists {} query lengths and {} key lengths; \
                 each sequence needs both",
                q.len(),
                k.len()
            );
        }
        Ok(Varlen { q, k })
    }
}
