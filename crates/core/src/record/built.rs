//! What building something took.

use std::fmt;

use serde::{Deserialize, Serialize};

use regatta_worker::units::{Elapsed, Nanoseconds};

/// What a suite's `[build]` makes, in [`super::header::RunHeader::built`].
pub const SUITE: &str = "suite";

/// An environment of this name, in [`super::header::RunHeader::built`].
pub fn environment(name: &str) -> String {
    format!("environment {name}")
}

/// What a build took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Built {
    /// From its start to its end.
    pub wall_ns: Nanoseconds,
}

impl Built {
    /// What in it cannot be, as a sentence.
    pub(super) fn objection(&self) -> Option<String> {
        let time = self.wall_ns.0;
        let wild = !(0.0..1e23).contains(&time);
        wild.then(|| format!("wall_ns is {time}: no build takes it"))
    }
}

/// `41.2 s`.
impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Elapsed(self.wall_ns).fmt(f)
    }
}
