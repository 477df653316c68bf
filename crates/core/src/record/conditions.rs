//! What happened around a case's samples, over its invocations.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::types::Measurement;
use regatta_worker::units::{Share, is_zero};

/// Conditions that say something about a time beside the code that took it. Counts are
/// of invocations, later ones included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Conditions {
    /// Those after which the device's state is known.
    pub known: u32,
    /// Those in which the device held its clocks back.
    pub throttled: u32,
    /// By what.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub throttle_reasons: BTreeSet<String>,
    /// Those in which another process computed on the device.
    pub shared: u32,
    /// Most other processes at once.
    pub other_processes: u32,
    /// Those in which the call itself waited for the device, so that its device time
    /// holds waits for the host.
    pub synchronised: u32,
    /// Those whose results were checked before timing only, though several sets of inputs
    /// were asked for: their worker knows none.
    #[serde(skip_serializing_if = "is_zero")]
    pub checked_before_only: u32,
    /// Those that had fewer sets of inputs than asked for.
    #[serde(skip_serializing_if = "is_zero")]
    pub fewer_input_sets: u32,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fewer_input_sets_reason: Option<String>,
}

impl Conditions {
    /// Takes in one invocation.
    pub(super) fn add(&mut self, measurement: &Measurement) {
        self.synchronised += u32::from(measurement.samples.synchronised);
        if let Some(reason) = &measurement.samples.input_sets_reason {
            self.fewer_input_sets += 1;
            self.fewer_input_sets_reason = Some(reason.clone());
        }
        let Some(state) = &measurement.samples.state else {
            return;
        };
        self.known += 1;
        let mut reasons = state.throttled_by().peekable();
        self.throttled += u32::from(reasons.peek().is_some());
        self.throttle_reasons.extend(reasons);
        let others = state.other_processes.unwrap_or(0);
        self.shared += u32::from(others > 0);
        self.other_processes = self.other_processes.max(others);
    }

    /// Share of the known invocations in which the device held its clocks back.
    pub fn throttled_share(&self) -> Share {
        share(self.throttled, self.known)
    }

    /// Share of the known invocations in which another process was on the device.
    pub fn shared_share(&self) -> Share {
        share(self.shared, self.known)
    }

    /// True when nothing is known, which is then not written.
    pub(super) fn is_empty(&self) -> bool {
        *self == Conditions::default()
    }
}

fn share(part: u32, whole: u32) -> Share {
    Share(f64::from(part) / f64::from(whole.max(1)))
}
