//! Masks: the keys that a query may see.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::case::{ParseError, refuse};

/// The position of the diagonal of a causal or windowed mask if `seq_q != seq_k`.
///
/// PyTorch's SDPA and the default of cuDNN align it top-left; FlashAttention (since 2.1),
/// FlashInfer and decoding in general align it bottom-right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Align {
    /// Query 0 is at key 0.
    TopLeft,
    /// The last query is at the last key.
    BottomRight,
}

/// A band of visible keys around each query's own position.
///
/// Query `i` sees key `j` if and only if `i + offset - left <= j <= i + offset + right`,
/// where `None` is unbounded and `offset` is 0 for [`Align::TopLeft`] and
/// `seq_k - seq_q` (of each sequence) for [`Align::BottomRight`]. The same
/// convention as FlashAttention's `window_size=(left, right)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Mask {
    /// Keys visible before the query's own position; `None`: all of them.
    pub left: Option<u32>,
    /// Keys visible after the query's own position; `None`: all of them.
    pub right: Option<u32>,
    /// The rule for the query's own position among the keys.
    pub align: Align,
}

impl Mask {
    /// Every query sees every key.
    pub const FULL: Mask = Mask {
        left: None,
        right: None,
        align: Align::TopLeft,
    };

    /// Every query sees its own position and all before it.
    pub const fn causal(align: Align) -> Mask {
        Mask {
            left: None,
            right: Some(0),
            align,
        }
    }

    /// Every query sees `left` keys before and `right` keys after its own position.
    pub const fn window(left: u32, right: u32, align: Align) -> Mask {
        Mask {
            left: Some(left),
            right: Some(right),
            align,
        }
    }

    /// True if every query sees every key, for any lengths.
    pub fn is_full(&self) -> bool {
        self.left.is_none() && self.right.is_none()
    }

    /// The keys that query `i` sees, as a half-open range within `0..seq_k`. Empty if it sees none.
    pub fn visible(&self, i: usize, seq_q: usize, seq_k: usize) -> std::ops::Range<usize> {
        let own = i as i64
            + match self.align {
                Align::TopLeft => 0,
                Align::BottomRight => seq_k as i64 - seq_q as i64,
            };
        let first = self.left.map_or(0, |left| own - i64::from(left));
        let last = self
            .right
            .map_or(seq_k as i64 - 1, |right| own + i64::from(right));
        let first = first.clamp(0, seq_k as i64) as usize;
        let end = (last + 1).clamp(0, seq_k as i64) as usize;
        first..end.max(first)
    }

    /// The canonical form of this mask: top-left if both alignments are equivalent (`square`, or a
    /// full mask).
    pub fn canonical(mut self, square: bool) -> Mask {
        if square || self.is_full() {
            self.align = Align::TopLeft;
        }
        self
    }

    /// The name in a case id, for example `causal`, `causal-br`, `window-128-0`.
    ///
    /// If `square`, `seq_q == seq_k` and the name has no suffix for alignment.
    pub fn name(&self, square: bool) -> String {
        let band = match (self.left, self.right) {
            (None, None) => return "full".to_owned(),
            (None, Some(0)) => "causal".to_owned(),
            (left, right) => {
                let side = |keys: Option<u32>| keys.map_or("inf".to_owned(), |k| k.to_string());
                format!("window-{}-{}", side(left), side(right))
            }
        };
        match (square, self.align) {
            (true, _) => band,
            (false, Align::TopLeft) => band + "-tl",
            (false, Align::BottomRight) => band + "-br",
        }
    }

    /// Parses a mask name. `square` says whether `seq_q == seq_k`.
    ///
    /// # Errors
    /// The name is not a mask, or it does not say which diagonal is meant although
    /// `seq_q != seq_k`.
    pub fn parse(name: &str, square: bool) -> Result<Mask, ParseError> {
        let mask: Mask = name.parse()?;
        let says_align = name.ends_with("-tl") || name.ends_with("-br");
        if !square && !mask.is_full() && !says_align {
            refuse!(
                "mask `{name}` is ambiguous when seq_q != seq_k; \
                 write `{name}-tl` (PyTorch's is_causal) or `{name}-br` (FlashAttention's causal)"
            );
        }
        Ok(mask.canonical(square))
    }
}

impl FromStr for Mask {
    type Err = ParseError;

    /// Parses `full`, `causal` or `window-LEFT-RIGHT` (either may be `inf`), the last two with an
    /// optional `-tl` or `-br`.
    fn from_str(name: &str) -> Result<Mask, ParseError> {
        let (band, align) = if let Some(band) = name.strip_suffix("-tl") {
            (band, Align::TopLeft)
        } else if let Some(band) = name.strip_suffix("-br") {
            (band, Align::BottomRight)
        } else {
            (name, Align::TopLeft)
        };
        let wrong = || {
            ParseError::new(format!(
                "`{name}` is not a mask; masks are `full`, `causal`, `causal-tl`, `causal-br`, \
                 `window-LEFT-RIGHT` (also with `-tl` or `-br`)"
            ))
        };
        match band {
            "full" if align == Align::TopLeft && band == name => Ok(Mask::FULL),
            "causal" => Ok(Mask::causal(align)),
            _ => {
                let (left, right) = band
                    .strip_prefix("window-")
                    .and_then(|sides| sides.split_once('-'))
                    .ok_or_else(wrong)?;
                let side = |text: &str| match text {
                    "inf" => Ok(None),
                    _ => text.parse().map(Some).map_err(|_| wrong()),
                };
                let mask = Mask {
                    left: side(left)?,
                    right: side(right)?,
                    align,
                };
                // `window-inf-0` is `causal` and `window-inf-inf` is `full`; each mask has one
                // name.
                if mask.left.is_none() && matches!(mask.right, None | Some(0)) {
                    return Err(wrong());
                }
                Ok(mask)
            }
        }
    }
}

impl fmt::Display for Mask {
    /// The name, always with its alignment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_moves_the_diagonal() {
        let rows = |mask: Mask, seq_q, seq_k| {
            (0..seq_q)
                .map(|i| mask.visible(i, seq_q, seq_k))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            rows(Mask::causal(Align::TopLeft), 2, 4),
            [0..1, 0..2],
            "top-left leaves the last keys unseen"
        );
        assert_eq!(rows(Mask::causal(Align::BottomRight), 2, 4), [0..3, 0..4]);
        assert_eq!(
            rows(Mask::causal(Align::BottomRight), 4, 2),
            [0..0, 0..0, 0..1, 0..2],
            "with more queries than keys the first ones see nothing"
        );
        assert_eq!(
            rows(Mask::window(1, 0, Align::TopLeft), 3, 3),
            [0..1, 0..2, 1..3]
        );
    }
}
