//! What is said of a case.

use serde::{Deserialize, Serialize};

/// What is said of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// Slower, beyond the floor and beyond doubt.
    Regressed,
    /// Faster, likewise.
    Improved,
    /// Shown to lie within the floor.
    Same,
    /// The evidence decides neither way.
    Inconclusive,
    /// Failed or missing: nothing to judge.
    NotMeasured,
    /// The variant does not do this, now as before.
    Unsupported,
    /// Only the head has it.
    Added,
    /// Only the base has it.
    Removed,
    /// Measured, with nothing to compare it to.
    Measured,
    /// What it does was counted, and no time was taken.
    Counted,
}

impl Word {
    /// The word as it is printed.
    pub fn text(self) -> &'static str {
        match self {
            Word::Regressed => "regressed",
            Word::Improved => "improved",
            Word::Same => "same",
            Word::Inconclusive => "inconclusive",
            Word::NotMeasured => "not measured",
            Word::Unsupported => "unsupported",
            Word::Added => "added",
            Word::Removed => "removed",
            Word::Measured => "measured",
            Word::Counted => "counted",
        }
    }
}
