//! What a device was doing besides the call: evidence for judging samples later.

use serde::{Deserialize, Serialize};

/// State of a device right after the samples of a case; what is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DeviceState {
    /// Clock of the SMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<f64>,
    /// Clock of the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<f64>,
    /// Why clocks are not higher, as NVML's bits `nvmlClocksThrottleReason*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_bits: Option<u64>,
    /// The same in words; [`throttle_words`] has those for NVML's bits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle_reasons: Vec<String>,
    /// Power drawn by the board, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Temperature of the chip, in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// Processes that compute on the device apart from the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_processes: Option<u32>,
}

/// NVML's reasons (nvml.h), and whether each means that the device is slower than it
/// could be for a cause that comes and goes.
const REASONS: [(u64, &str, bool); 9] = [
    (0x1, "idle", false),
    (0x2, "applications clocks setting", false),
    (0x4, "software power cap", true),
    (0x8, "hardware slowdown", true),
    (0x10, "sync boost", false),
    (0x20, "software thermal slowdown", true),
    (0x40, "hardware thermal slowdown", true),
    (0x80, "hardware power brake", true),
    (0x100, "display clock setting", false),
];

/// The words for NVML's bits; a bit without a word reads as a number.
pub fn throttle_words(bits: u64) -> Vec<String> {
    (0..u64::BITS)
        .map(|bit| bits & (1 << bit))
        .filter(|bit| *bit != 0)
        .map(|bit| {
            let known = REASONS.iter().find(|(known, ..)| *known == bit);
            known.map_or_else(|| format!("{bit:#x}"), |(_, word, _)| (*word).to_owned())
        })
        .collect()
}

impl DeviceState {
    /// The reasons by which the device held its clocks back. An idle device and clocks
    /// that somebody set are none; a word that nobody here knows is one.
    pub fn throttled_by(&self) -> impl Iterator<Item = &str> {
        let harmless = |word: &str| {
            REASONS
                .iter()
                .any(|(_, known, slows)| *known == word && !slows)
        };
        let reasons = self.throttle_reasons.iter().map(String::as_str);
        reasons.filter(move |word| !harmless(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_words_and_only_some_are_throttling() {
        assert_eq!(
            throttle_words(0x4 | 0x1 | 0x8000),
            ["idle", "software power cap", "0x8000"]
        );
        let state = DeviceState {
            throttle_reasons: throttle_words(0x1 | 0x2 | 0x4 | 0x40),
            ..DeviceState::default()
        };
        let slowing: Vec<&str> = state.throttled_by().collect();
        assert_eq!(slowing, ["software power cap", "hardware thermal slowdown"]);
    }
}
