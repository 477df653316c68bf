//! The passes of a call.

use serde::{Deserialize, Serialize};

use crate::words;

words! {
    "direction",
    /// The passes that are timed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Direction {
        /// The results of the inputs.
        Forward = "forward",
        /// The gradients of the inputs, from those of the results and what forward saved.
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

    /// True when the call yields results.
    pub fn has_forward(self) -> bool {
        self != Direction::Backward
    }

    /// True when the call yields gradients.
    pub fn has_backward(self) -> bool {
        self != Direction::Forward
    }
}
