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
        /// Computes results from inputs.
        Forward = "forward",
        /// Computes gradients of the inputs from gradients of the results and values saved by
        /// forward.
        Backward = "backward",
        /// Forward, then backward, in one call.
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

    /// True if the call computes results.
    pub fn has_forward(self) -> bool {
        self != Direction::Backward
    }

    /// True if the call computes gradients.
    pub fn has_backward(self) -> bool {
        self != Direction::Forward
    }
}
