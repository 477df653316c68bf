//! What a device was seen to reach, for a share of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::attention::Dtype;
use crate::units::Rate;

/// The most that a worker's device did in a product of matrices and in a copy: what a kernel can
/// be held beside, since the figure on a data sheet is one that nothing reaches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Peak {
    /// Of products of large square matrices of random numbers, in TFLOP/s, by storage type;
    /// float32 without TF32. A type that was not measured is left out.
    pub tflops: BTreeMap<Dtype, Rate>,
    /// Of a copy that no cache holds, in GB/s: bytes read and bytes written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// What was called, in a line.
    pub how: String,
}

/// A thousand times what a device of 2026 reaches: 10^18 FLOP/s, 10^15 B/s.
const FASTEST: f64 = 1e6;

/// Characters of a line that says what was called.
const LONGEST: usize = 200;

impl Peak {
    /// True where nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.tflops.is_empty() && self.gbps.is_none()
    }

    /// The same without figures that no device has, and with a line of what was called.
    pub fn sound(mut self) -> Peak {
        let real = |figure: f64| figure > 0.0 && figure <= FASTEST;
        self.how = self.how.chars().take(LONGEST).collect();
        self.tflops.retain(|_, rate| real(rate.0));
        self.gbps = self.gbps.filter(|rate| real(*rate));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_device_reaches_is_left_out() {
        let text = r#"{"tflops":{"bf16":790.5,"f32":-1.0},"gbps":0.0,"how":"a product"}"#;
        let peak: Peak = serde_json::from_str(text).unwrap();
        let sound = peak.sound();
        assert_eq!(sound.tflops, BTreeMap::from([(Dtype::Bf16, Rate(790.5))]));
        assert_eq!(sound.gbps, None);
        assert!(!sound.is_empty());
        let text = format!(
            r#"{{"tflops":{{"f32":1e308}},"gbps":1e9,"how":"{}"}}"#,
            "é".repeat(9999)
        );
        let sound = serde_json::from_str::<Peak>(&text).unwrap().sound();
        assert!(sound.is_empty());
        assert_eq!(sound.how.chars().count(), 200);
    }
}
