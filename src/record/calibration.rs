//! What a machine can tell apart: the noise of each case, and what a gate makes of it.
//!
//! `baselines/NAME/MACHINE.calibration.json`, beside the baseline of the same name and
//! machine. It is measured by `regatta calibrate`, of code that did not change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{RecordError, write_atomically};
use crate::attention::CaseId;
use crate::input;
use crate::suite::rules::Metric;
use crate::units::{Nanoseconds, Share};

/// The version of the file.
pub const SCHEMA: u32 = 1;

/// A calibration of a suite on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Version of this file.
    pub schema: u32,
    /// Version of regatta that measured it.
    pub tool: String,
    /// The suite.
    pub suite: String,
    /// Short name of the machine.
    pub machine: String,
    /// What decides speed on it.
    pub hard: BTreeMap<String, String>,
    /// When the run began.
    pub measured: Timestamp,
    /// Invocations of the same code.
    pub invocations: u32,
    /// How the gate was made up that the rates are of.
    pub gate: Gate,
    /// What the rule made of them.
    pub rates: Rates,
    /// Standard deviation of what all cases of an invocation share.
    pub shared: Share,
    /// Noise of each case.
    pub cases: BTreeMap<CaseId, Noise>,
}

/// A gate as it would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Invocations of the base.
    pub base: u32,
    /// Regular invocations of the head.
    pub head: u32,
    /// The most fresh ones.
    pub fresh: u32,
}

/// How often a gate is wrong, and right, by drawing gates from the invocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Gates that were drawn.
    pub gates: u32,
    /// Of unchanged ones, the part that fails.
    pub red: Share,
    /// Of unchanged ones, the part that cannot say.
    pub cannot_say: Share,
    /// Of unchanged cases, the part that is called the same.
    pub same: Share,
    /// The change that the middle one of the cases shows in 95 of 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Share>,
    /// Of changed cases, the part that is called, by change in per cent.
    pub found: BTreeMap<u32, Share>,
    /// Of cases that take twice their floor longer, the part that is called.
    pub twice: Share,
}

/// How a case varies where nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Its device time.
    pub median_ns: Nanoseconds,
    /// Standard deviation of the medians of invocations, by metric, relative.
    pub between: BTreeMap<Metric, Share>,
    /// The smallest change of its device time that so many invocations can judge.
    pub floor: Share,
}

impl Calibration {
    /// The file of a name and a machine.
    pub fn path(root: &Path, name: &str, machine: &str) -> PathBuf {
        root.join(name).join(format!("{machine}.calibration.json"))
    }

    /// Writes it, in place of one that is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| RecordError::io(folder, error))?;
        }
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| RecordError::invalid(path, 1, error.to_string()))?;
        write_atomically(path, format!("{text}\n").as_bytes())
    }

    /// Reads it; `None` where there is none.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn read(path: &Path) -> Result<Option<Calibration>, RecordError> {
        if !path.exists() {
            return Ok(None);
        }
        let text = input::text(path, input::RUN).map_err(|error| RecordError::io(path, error))?;
        let calibration: Calibration = serde_json::from_str(&text)
            .map_err(|error| RecordError::invalid(path, error.line(), error.to_string()))?;
        match calibration.objection() {
            Some(objection) => Err(RecordError::invalid(path, 1, objection)),
            None => Ok(Some(calibration)),
        }
    }

    /// What in an edited file cannot stand.
    fn objection(&self) -> Option<String> {
        if self.schema != SCHEMA {
            return Some(format!(
                "it is of schema {}, and this version reads {SCHEMA}; `regatta calibrate` \
                 measures it anew",
                self.schema
            ));
        }
        let wild = |noise: &Noise| !(0.0..=1.0).contains(&noise.floor.0);
        let case = self.cases.iter().find(|(_, noise)| wild(noise))?;
        Some(format!(
            "the floor of {} is {}, beyond 0 to 1",
            case.0, case.1.floor.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration() -> Calibration {
        let noise = Noise {
            median_ns: Nanoseconds(5e3),
            between: BTreeMap::from([(Metric::Device, Share(0.01))]),
            floor: Share(0.03),
        };
        Calibration {
            schema: SCHEMA,
            tool: "0.1.0".to_owned(),
            suite: "s".to_owned(),
            machine: "m".to_owned(),
            hard: BTreeMap::new(),
            measured: Timestamp::UNIX_EPOCH,
            invocations: 20,
            gate: Gate {
                base: 5,
                head: 5,
                fresh: 30,
            },
            rates: Rates {
                gates: 100,
                red: Share(0.0),
                cannot_say: Share(0.02),
                same: Share(0.98),
                seen: Some(Share(0.011)),
                found: BTreeMap::from([(5, Share(1.0))]),
                twice: Share(1.0),
            },
            shared: Share(0.001),
            cases: BTreeMap::from([(CaseId("cpu/flash:s64,d64".to_owned()), noise)]),
        }
    }

    #[test]
    fn it_reads_back_and_an_absent_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = Calibration::path(folder.path(), "s", "m");
        assert_eq!(Calibration::read(&path).unwrap(), None);
        calibration().write(&path).unwrap();
        assert_eq!(Calibration::read(&path).unwrap(), Some(calibration()));
    }

    #[test]
    fn what_cannot_stand_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = Calibration::path(folder.path(), "s", "m");
        let mut edited = calibration();
        edited.cases.values_mut().next().unwrap().floor = Share(7.0);
        edited.write(&path).unwrap();
        let error = Calibration::read(&path).unwrap_err().to_string();
        assert!(
            error.contains("the floor of cpu/flash:s64,d64 is 7"),
            "{error}"
        );
        std::fs::write(&path, "{").unwrap();
        assert!(Calibration::read(&path).is_err());
    }
}
