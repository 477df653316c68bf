//! Which baseline a run is held against.

use serde::{Deserialize, Serialize};

/// A baseline as it was when a run was held against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct BaseId {
    /// Its name.
    pub name: String,
    /// Checksum of its file.
    pub sum: String,
}

impl BaseId {
    /// The other side of a comparison, which is measured in turn and stored nowhere.
    pub fn in_turn(label: String) -> BaseId {
        BaseId {
            name: label,
            sum: "measured in turn".to_owned(),
        }
    }
}
