//! Where the host's time of a call goes, as a worker that watches it tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The host's time of one steady call by functions and operators: of each its own, without what it
/// calls that is named as well, so that they add up to no more than the call. Watching makes all
/// of them longer: they say what grew, and by how much at the most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct HostTimes {
    /// Nanoseconds in Python functions of the library under test, by their names in
    /// [`Structure::functions`](super::Structure::functions).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub functions_ns: BTreeMap<String, u64>,
    /// Nanoseconds in operators of the framework, by their names in
    /// [`Structure::operators`](super::Structure::operators).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub operators_ns: BTreeMap<String, u64>,
}
