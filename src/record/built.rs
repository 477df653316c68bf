//! What building something cost.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Elapsed, Nanoseconds};

/// What a suite's `[build]` makes, in [`super::header::RunHeader::built`].
pub const SUITE: &str = "suite";

/// An environment of this name, in [`super::header::RunHeader::built`].
pub fn environment(name: &str) -> String {
    format!("environment {name}")
}

/// What a build took, it and everything it started, and what came out. What is not known is
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Built {
    /// From its start to its end.
    pub wall_ns: Nanoseconds,
    /// Processor time of all its processes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<Nanoseconds>,
    /// Cores that it could have used.
    pub cores: u32,
    /// The most memory that its processes had at once, pages of files left out: the largest
    /// of samples, so that a short peak may be higher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<Bytes>,
    /// Size of what came out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_bytes: Option<Bytes>,
    /// Why it left cores idle, where that was seen: `ninja is not there`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl Built {
    /// Cores that were busy, on average: processor time over elapsed time.
    pub fn cores_busy(&self) -> Option<f64> {
        let busy = self.cpu_ns?.0 / self.wall_ns.0;
        busy.is_finite().then_some(busy)
    }

    /// `one core busy of 64: ninja is not there`.
    pub fn cores_told(&self) -> Option<String> {
        let busy = match self.cores_busy()? {
            busy if (0.75..1.25).contains(&busy) => "one core".to_owned(),
            busy => format!("{busy:.1} cores"),
        };
        let because = self.because.as_ref();
        let because = because.map_or(String::new(), |because| format!(": {because}"));
        Some(format!("{busy} busy of {}{because}", self.cores))
    }

    /// What in it cannot be, as a sentence.
    pub(super) fn objection(&self) -> Option<String> {
        let times = [("wall_ns", Some(self.wall_ns)), ("cpu_ns", self.cpu_ns)];
        let known = times.into_iter();
        let mut known = known.filter_map(|(name, time)| Some((name, time?.0)));
        if let Some((name, bad)) = known.find(|(_, time)| !(0.0..1e23).contains(time)) {
            return Some(format!("{name} is {bad}: no build takes it"));
        }
        let peak = || self.peak_bytes?.objection("peak_bytes");
        peak().or_else(|| self.made_bytes?.objection("made_bytes"))
    }
}

/// `41.2 s, one core busy of 64: ninja is not there, 1.2 GiB of memory at most, makes 3.4 MiB`.
impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            Some(Elapsed(self.wall_ns).to_string()),
            self.cores_told(),
            self.peak_bytes
                .map(|peak| format!("{peak} of memory at most")),
            self.made_bytes.map(|made| format!("makes {made}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_told_with_what_is_known_of_it() {
        let bare = Built {
            wall_ns: Nanoseconds::of_seconds(41.2),
            cores: 64,
            ..Built::default()
        };
        assert_eq!(bare.to_string(), "41.2 s");
        assert_eq!(bare.cores_busy(), None);
        let full = Built {
            cpu_ns: Some(Nanoseconds::of_seconds(40.4)),
            peak_bytes: Some(Bytes(1 << 30)),
            made_bytes: Some(Bytes(3 << 20)),
            because: Some("ninja is not there".to_owned()),
            ..bare.clone()
        };
        assert_eq!(
            full.to_string(),
            "41.2 s; one core busy of 64: ninja is not there; 1.00 GiB of memory at most; \
             makes 3.00 MiB"
        );
        let many = Built {
            cpu_ns: Some(Nanoseconds::of_seconds(412.0)),
            ..bare.clone()
        };
        assert_eq!(many.cores_told().as_deref(), Some("10.0 cores busy of 64"));
        let instant = Built {
            cpu_ns: Some(Nanoseconds(0.0)),
            ..Built::default()
        };
        assert_eq!(instant.cores_told(), None);
    }

    #[test]
    fn what_is_not_known_is_absent_in_the_file() {
        let bare = Built {
            wall_ns: Nanoseconds(5.0),
            cores: 2,
            ..Built::default()
        };
        let text = serde_json::to_string(&bare).unwrap();
        assert_eq!(text, r#"{"wall_ns":5.0,"cores":2}"#);
        assert_eq!(serde_json::from_str::<Built>(&text).unwrap(), bare);
        assert_eq!(bare.objection(), None);
        let wild = Built {
            cpu_ns: Some(Nanoseconds(-1.0)),
            ..bare
        };
        assert!(wild.objection().unwrap().contains("cpu_ns is -1"));
    }
}
