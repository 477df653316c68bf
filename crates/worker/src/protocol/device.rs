//! The device of a worker.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::attention::ParseError;
use crate::units::Bytes;

/// The device a worker runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Device {
    /// A [`DeviceKind`]. Text, so that one that is none is refused in words, and is no
    /// malformed reply.
    pub kind: String,
    /// Marketing name, for example `NVIDIA H200`.
    pub name: String,
    /// Memory a case may use.
    pub memory_bytes: Bytes,
    /// Facts that make two devices comparable or not: `sms`, `driver`, `cuda`,
    /// `power_limit_w`, `mig`. All of them enter the machine's fingerprint.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

impl Device {
    /// Its kind, where that is one of those there are.
    pub fn known_kind(&self) -> Option<DeviceKind> {
        self.kind.parse().ok()
    }
}

/// A kind of device that a worker may run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The processor: calls are timed by the host's clock.
    Cpu,
    /// A GPU of NVIDIA's.
    Cuda,
}

impl DeviceKind {
    /// Every kind, in the order of its declaration.
    pub const ALL: [DeviceKind; 2] = [DeviceKind::Cpu, DeviceKind::Cuda];

    /// `cpu`, `cuda`: the word on the wire and in runs.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
        }
    }

    /// All words there are, for a message.
    pub fn names() -> String {
        DeviceKind::ALL.map(DeviceKind::name).join(", ")
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DeviceKind {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<DeviceKind, ParseError> {
        let kinds = DeviceKind::ALL;
        let named = kinds.into_iter().find(|kind| kind.name() == text);
        named.ok_or_else(|| {
            ParseError::one_of("kind of device", text, kinds.iter().map(|kind| kind.name()))
        })
    }
}

/// State of the last-level cache before a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Flushed.
    Cold,
    /// As the call before left it.
    Hot,
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Cache::Cold => "cold",
            Cache::Hot => "hot",
        })
    }
}

impl FromStr for Cache {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Cache, ParseError> {
        match text {
            "cold" => Ok(Cache::Cold),
            "hot" => Ok(Cache::Hot),
            _ => Err(ParseError::new(
                "use `cold` (flushed before each call) or `hot`",
            )),
        }
    }
}
