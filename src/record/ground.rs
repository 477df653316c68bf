//! What the machine's processor did around the samples of a case.

use serde::{Deserialize, Serialize};

use crate::units::{Nanoseconds, Share};

/// Work of the cores that regatta may run on, over the time in which a case was measured.
/// Amounts are cores: 0.5 is half of the time of one. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Ground {
    /// How long it was looked at, the samples at its end.
    pub window_ns: Nanoseconds,
    /// How many cores there are.
    pub cores: u32,
    /// Work of processes that regatta did not start: what the cores did less what regatta
    /// and all it started did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<f64>,
    /// Work of regatta and all it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<f64>,
    /// What the hypervisor gave to others (`steal` of proc_stat(5)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// What the worker's threads waited for a core, ready to run, while it measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<f64>,
    /// Part of the time in which some process of this machine waited for a core
    /// (`/proc/pressure/cpu`), regatta's own included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Share>,
    /// Processes that ran or were ready, over the last minute (`/proc/loadavg`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
}

impl Ground {
    /// What in it cannot be, as a sentence.
    pub(super) fn objection(&self) -> Option<String> {
        let window = ("window_ns", Some(self.window_ns.0));
        let amounts = [
            window,
            ("foreign", self.foreign),
            ("own", self.own),
            ("steal", self.steal),
            ("waited", self.waited),
            ("pressure", self.pressure.map(|share| share.0)),
            ("load", self.load),
        ];
        let known = amounts.into_iter();
        let mut known = known.filter_map(|(name, amount)| Some((name, amount?)));
        let (name, bad) = known.find(|(_, amount)| !(0.0..1e23).contains(amount))?;
        Some(format!("ground.{name} is {bad}: no machine shows it"))
    }
}
