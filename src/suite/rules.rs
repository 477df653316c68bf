//! What a suite demands of its results: expectations and policy.
//!
//! A run carries the rules it was measured under, so a stored run is judged as
//! its suite meant it.

use serde::{Deserialize, Serialize};

pub use super::selector::Selector;
use super::structural::{Limit, StructurePolicy};
use crate::units::{Ratio, Share};

/// Everything a suite demands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Relations between cases of one run.
    pub expectations: Vec<Expectation>,
    /// Limits on the structure of single cases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// How differences are judged.
    pub policy: Policy,
}

/// A relation that must hold inside one run, without any baseline: each case
/// that `case` selects takes at most `within` times the best of the cases that
/// `against` selects and that are alike in everything neither of them names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// A sentence: `automatic splits as good as the best explicit ones`.
    pub name: String,
    /// The cases held to it.
    pub case: Selector,
    /// What they are held against.
    pub against: Selector,
    /// Largest allowed ratio of times.
    pub within: Ratio,
    /// Which time.
    pub metric: Metric,
}

/// A time that is measured at each call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// How long the device worked.
    #[default]
    Device,
    /// How long the host needed to issue the call.
    Host,
}

impl Metric {
    /// The metric that a suite calls so.
    pub fn named(name: &str) -> Option<Metric> {
        match name {
            "device" => Some(Metric::Device),
            "host" => Some(Metric::Host),
            _ => None,
        }
    }

    /// Where the time was taken, to end a sentence; nothing for the device, which is usual.
    pub fn where_timed(self) -> &'static str {
        match self {
            Metric::Device => "",
            Metric::Host => " on the host",
        }
    }
}

/// How differences are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Smallest relative change that counts, for example 0.05. A real but
    /// smaller one is not called a regression.
    pub floor: Share,
    /// Fresh invocations on which a suspected change must show again.
    pub confirm: u32,
    /// Patterns of case ids (`*` matches anything) that may fail or be
    /// unsupported without making the run incomplete.
    pub allow: Vec<String>,
    /// What part of a training step the cases take, from 0 to 1, where the suite knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_share: Option<Share>,
    /// How changes of structure are taken.
    #[serde(default, skip_serializing_if = "StructurePolicy::is_default")]
    pub structure: StructurePolicy,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            floor: Share(0.05),
            confirm: 10,
            allow: Vec::new(),
            step_share: None,
            structure: StructurePolicy::default(),
        }
    }
}
