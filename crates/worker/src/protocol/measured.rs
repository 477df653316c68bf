//! Samples, and the results of the last timed call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::DeviceState;
use crate::units::{Bytes, Nanoseconds};

/// How far a result tensor is from the float64 reference.
///
/// `None` stands for a figure that is not finite, which JSON cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TensorError {
    /// `‖result - reference‖₂ / ‖reference‖₂` over the whole tensor.
    pub relative_l2: Option<f64>,
    /// `max |result - reference|` over the whole tensor.
    pub max_abs: Option<f64>,
}

/// Samples of the prepared case, one entry a call in each list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Measured {
    /// How long the device worked on the call.
    pub device_ns: Vec<Nanoseconds>,
    /// How long the host needed to issue the call; empty where the two are one.
    #[serde(default)]
    pub host_ns: Vec<Nanoseconds>,
    /// How long a reference operation of the same framework took on the host, right after each
    /// call; empty where there is none. Host time is judged as a ratio to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_reference_ns: Vec<Nanoseconds>,
    /// Processor time of the worker's process in each call, over all its threads, where it
    /// runs on the processor; empty where unknown. A call that waited for a core took more of
    /// the wall's time than of this one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_ns: Vec<Nanoseconds>,
    /// How often the system took a core from the worker's process while it was still
    /// computing, in each sample (`ru_nivcsw` of getrusage); empty where unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preempted: Vec<u32>,
    /// Clock of the device at each sample in MHz; empty where unknown.
    #[serde(default)]
    pub clock_mhz: Vec<f64>,
    /// Most device memory in use during the call, where known.
    #[serde(default)]
    pub peak_bytes: Option<Bytes>,
    /// State of the device right after the samples, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DeviceState>,
    /// True when the call itself waits for the device, so that `device_ns` holds waits
    /// for the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synchronised: bool,
    /// True when these are replays of a CUDA graph, as asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// Sets of inputs that there were, those of the first call among them; 1 where the
    /// worker does not change them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub input_sets: u32,
    /// Why there were fewer than asked for, such as short memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_sets_reason: Option<String>,
    /// The results of the last timed call, checked after it. `None`: the worker does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
}

/// What the last timed call computed, held to float64 after the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Checked {
    /// Seed of the inputs it was given: `seed + 1` of [`Prepare`](super::Prepare), or `seed` where there is
    /// one set alone.
    pub seed: u64,
    /// As in [`Prepared`](super::Prepared); of the key-value heads that were compared.
    #[serde(default)]
    pub errors: BTreeMap<String, TensorError>,
    /// As in [`Prepared`](super::Prepared), of the whole result.
    pub probes: BTreeMap<String, Vec<Option<f64>>>,
}

impl Default for Measured {
    /// No samples yet, of one plain call each.
    fn default() -> Measured {
        Measured {
            device_ns: Vec::new(),
            host_ns: Vec::new(),
            host_reference_ns: Vec::new(),
            cpu_ns: Vec::new(),
            preempted: Vec::new(),
            clock_mhz: Vec::new(),
            peak_bytes: None,
            state: None,
            synchronised: false,
            graph: false,
            input_sets: 1,
            input_sets_reason: None,
            checked: None,
        }
    }
}

/// What `u32`s are that a message leaves out.
pub(super) fn one() -> u32 {
    1
}

/// Whether one may be left out.
pub(super) fn is_one(number: &u32) -> bool {
    *number == 1
}
