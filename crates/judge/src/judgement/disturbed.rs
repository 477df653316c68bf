//! What was not judged because the machine was in it.

use serde::{Deserialize, Serialize};

use regatta_core::record::disturbance::Disturbance;
use regatta_worker::attention::CaseId;

/// A case of one side whose quiet invocations are too few to speak for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DisturbedCase {
    /// Which.
    pub case: CaseId,
    /// True of the base's record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base: bool,
    /// Regular invocations that the machine was in.
    pub invocations: usize,
    /// All of them.
    pub of: usize,
    /// What of the machine that was, the worst of each kind.
    pub by: Vec<Disturbance>,
}
