//! How far a head lies from its base.

use serde::{Deserialize, Serialize};

use regatta_worker::units::{Probability, Ratio, Share};

/// Head against base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Change {
    /// Head over base, as judged; 1.10: 10 % slower.
    pub ratio: Ratio,
    /// Lower end of its interval.
    pub low: Ratio,
    /// Upper end of its interval.
    pub high: Ratio,
    /// Coverage of the interval.
    pub confidence: Share,
    /// Two-sided, against no change of its own (see `judge::rule`).
    pub p: Probability,
    /// The smallest p that ranks of these numbers of invocations can reach.
    pub reachable_p: Probability,
    /// Change that this gate would have called in 95 of 100; infinite (`null` in JSON) where
    /// there are too few invocations to call any.
    #[serde(with = "unbounded")]
    #[cfg_attr(feature = "schemas", schemars(with = "Option<Share>"))]
    pub smallest_effect: Share,
    /// Which invocations these figures are of.
    pub stage: Stage,
}

/// JSON has no infinity; `null` stands for it.
mod unbounded {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use regatta_worker::units::Share;

    pub fn serialize<S: Serializer>(value: &Share, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(value).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(Share(f64::INFINITY)))
    }
}

/// Which invocations were judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Those every case has.
    Screen,
    /// Fresh ones as well, taken because those did not decide.
    Confirm,
}
