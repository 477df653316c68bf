//! What a run says that is a part of another.

use serde::{Deserialize, Serialize};

use crate::suite::shard::Place;
use regatta_worker::attention::CaseId;

/// What the header of a run says that measured a part of a suite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Shard {
    /// Which part it is.
    #[serde(flatten)]
    pub place: Place,
    /// Checksum of the ids of all cases, those of the other parts too.
    pub whole: String,
}

/// Checksum of the ids of cases.
pub fn checksum(cases: impl IntoIterator<Item = CaseId>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    for case in cases {
        hasher.update(case.0.as_bytes());
        hasher.update(b"\n");
    }
    format!("{:08x}", hasher.finalize())
}

/// A baseline as it was when a run was compared with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct BaseId {
    /// Its name.
    pub name: String,
    /// Checksum of its file.
    pub sum: String,
}

impl BaseId {
    /// Nothing: a run by itself.
    pub fn none() -> BaseId {
        BaseId {
            name: String::new(),
            sum: "none".to_owned(),
        }
    }

    /// The other side of a comparison, which is measured in turn and stored nowhere.
    pub fn in_turn(label: String) -> BaseId {
        BaseId {
            name: label,
            sum: "measured in turn".to_owned(),
        }
    }
}
