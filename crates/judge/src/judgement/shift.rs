//! What all cases share.

use serde::{Deserialize, Serialize};

use super::word::Word;
use regatta_worker::units::{Probability, Ratio, Share};

/// What all cases share between base and head: the suite's own row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CommonShift {
    /// Head over base; 1.03: everything reads 3 % slower.
    pub ratio: Ratio,
    /// Cases it was estimated from.
    pub cases: usize,
    /// True when it is chance, and was divided out of each row.
    pub removed: bool,
    /// True when it is larger than the suite's floor.
    pub beyond_floor: bool,
    /// What is said of the suite as a whole.
    pub word: Word,
    /// Lower end of its interval, of 95 %.
    pub low: Ratio,
    /// Upper end of it.
    pub high: Ratio,
    /// Two-sided, against no change.
    pub p: Probability,
    /// Change of the whole suite that would have been called in 95 of 100.
    pub smallest_effect: Share,
    /// Cases that take part in it.
    pub sharing: usize,
    /// True where it is slower beyond the floor and nothing tells the day from the code.
    pub looks_worse: bool,
}
