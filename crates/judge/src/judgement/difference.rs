//! What is not the same of two sides.

use serde::{Deserialize, Serialize};

/// A fact in which the two sides differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Difference {
    /// Its name: `driver`, `schema`, `torch.versions.cudnn`.
    pub field: String,
    /// The base's.
    pub base: String,
    /// The head's.
    pub head: String,
}
