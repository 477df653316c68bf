//! The values a problem's axes can have: storage types, layouts, directions, and
//! the lengths of ragged batches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ParseError;

/// Longest axis: far beyond what fits in memory, and short enough that what follows from
/// several of them can be counted.
pub const LONGEST_AXIS: u32 = 1 << 24;

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
            type Err = $crate::attention::ParseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let named = Self::ALL.into_iter().find(|value| value.name() == text);
                let names = Self::ALL.iter().map(|value| value.name());
                named.ok_or_else(|| $crate::attention::ParseError::one_of($what, text, names))
            }
        }
    };
}

words! {
    "dtype",
    /// The type tensors are stored in. Arithmetic inside a kernel may be wider.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Dtype {
        /// IEEE binary32.
        F32 = "f32",
        /// IEEE binary16.
        F16 = "f16",
        /// bfloat16.
        Bf16 = "bf16",
    }
}

impl Dtype {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        }
    }
}

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

words! {
    "direction",
    /// The passes that are timed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Direction {
        /// `out` from `q, k, v`.
        Forward = "forward",
        /// `dq, dk, dv` from `q, k, v`, what forward saved, and `dout`.
        Backward = "backward",
        /// Forward, then backward, as one call.
        Both = "both",
    }
}

impl Direction {
    /// `fwd`, `bwd`, `both`: the word used in case ids.
    pub fn short(self) -> &'static str {
        match self {
            Direction::Forward => "fwd",
            Direction::Backward => "bwd",
            Direction::Both => "both",
        }
    }

    /// True when the call yields `out`.
    pub fn has_forward(self) -> bool {
        self != Direction::Backward
    }

    /// True when the call yields `dq`, `dk` and `dv`.
    pub fn has_backward(self) -> bool {
        self != Direction::Forward
    }
}

/// Most sequences of a ragged batch: its case's id names every one.
const MAX_SEQUENCES: usize = 4096;

/// Lengths of the sequences of a ragged ("varlen") batch, packed one after the
/// other without padding, as `cu_seqlens` describes them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Varlen {
    /// Queries of each sequence.
    pub q: Vec<u32>,
    /// Keys of each sequence; as many entries as `q`.
    pub k: Vec<u32>,
}

impl Varlen {
    /// Total queries over all sequences.
    pub fn total_q(&self) -> u64 {
        self.q.iter().map(|&n| u64::from(n)).sum()
    }

    /// Total keys over all sequences.
    pub fn total_k(&self) -> u64 {
        self.k.iter().map(|&n| u64::from(n)).sum()
    }
}

impl fmt::Display for Varlen {
    /// `100+200`, or `1+1:100+200` when queries and keys differ.
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
                return Err(ParseError::new(format!(
                    "a varlen batch has at most {MAX_SEQUENCES} sequences"
                )));
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
            return Err(ParseError::new(format!(
                "varlen `{text}` lists {} query lengths and {} key lengths; \
                 each sequence needs both",
                q.len(),
                k.len()
            )));
        }
        Ok(Varlen { q, k })
    }
}
