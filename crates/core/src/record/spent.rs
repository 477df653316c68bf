//! Where the time of a run went, as the harness saw it: what each step of its work took, by
//! its own monotonic clock.
//!
//! A run has one axis of time, which begins when its first process does. A run that was
//! stopped goes on where what is known of it ends, so that the time between is nowhere. What
//! is not known, of the case in flight when a run was stopped, say, is absent, and never 0.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use regatta_worker::units::Nanoseconds;

/// A step of the harness's work, in the order in which they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Reading the suite, finding its workers, asking which code and machine this is.
    SettingUp,
    /// Starting each worker once, to hear what it is, and ending all but the one that serves
    /// the first invocation.
    Preflight,
    /// Starting a worker, until it has introduced itself.
    Starting,
    /// The request `prepare`: inputs, first call, the worker's own check in float64.
    Preparing,
    /// The harness's own check of what was prepared.
    Checking,
    /// The request `measure`: warm-up, samples, what lies between them, and the worker's
    /// check of its last call.
    Measuring,
    /// The harness's own check of the last call.
    CheckingAfter,
    /// Waiting for quiet ground, before samples are taken again.
    Waiting,
    /// The request `census`, in the first invocation.
    Census,
    /// The request `release`.
    Releasing,
    /// Ending a worker.
    Ending,
    /// Reading the run back and judging it.
    Judging,
    /// Writing the reports.
    Reporting,
}

impl Phase {
    /// Every phase, in their order.
    pub const ALL: [Phase; 13] = [
        Phase::SettingUp,
        Phase::Preflight,
        Phase::Starting,
        Phase::Preparing,
        Phase::Checking,
        Phase::Measuring,
        Phase::CheckingAfter,
        Phase::Waiting,
        Phase::Census,
        Phase::Releasing,
        Phase::Ending,
        Phase::Judging,
        Phase::Reporting,
    ];

    /// Its name in files.
    pub fn key(self) -> &'static str {
        match self {
            Phase::SettingUp => "setting-up",
            Phase::Preflight => "preflight",
            Phase::Starting => "starting",
            Phase::Preparing => "preparing",
            Phase::Checking => "checking",
            Phase::Measuring => "measuring",
            Phase::CheckingAfter => "checking-after",
            Phase::Waiting => "waiting",
            Phase::Census => "census",
            Phase::Releasing => "releasing",
            Phase::Ending => "ending",
            Phase::Judging => "judging",
            Phase::Reporting => "reporting",
        }
    }

    /// The phase of a name in a file.
    pub fn named(key: &str) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.key() == key)
    }

    /// True for what is done with a case, and not with the worker that does it or with the
    /// whole run.
    pub fn is_of_case(self) -> bool {
        matches!(
            self,
            Phase::Preparing
                | Phase::Checking
                | Phase::Measuring
                | Phase::CheckingAfter
                | Phase::Waiting
                | Phase::Census
                | Phase::Releasing
        )
    }
}

/// How long each phase took; one that is not there is not known, or was not gone through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(from = "BTreeMap<String, Nanoseconds>")]
pub struct Spent(BTreeMap<Phase, Nanoseconds>);

impl From<BTreeMap<String, Nanoseconds>> for Spent {
    /// Phases that only another version knows are left out.
    fn from(named: BTreeMap<String, Nanoseconds>) -> Spent {
        let known = Phase::ALL.into_iter();
        let known = known.filter_map(|phase| Some((phase, *named.get(phase.key())?)));
        Spent(known.collect())
    }
}

impl Spent {
    /// Adds a time to that of a phase.
    pub fn add(&mut self, phase: Phase, time: Nanoseconds) {
        *self.0.entry(phase).or_default() += time;
    }

    /// Adds everything that another took.
    pub fn add_all(&mut self, other: &Spent) {
        for (phase, time) in other.iter() {
            self.add(phase, time);
        }
    }

    /// What a phase took, where that is known.
    pub fn of(&self, phase: Phase) -> Option<Nanoseconds> {
        self.0.get(&phase).copied()
    }

    /// Each phase with what it took, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, Nanoseconds)> {
        self.0.iter().map(|(phase, time)| (*phase, *time))
    }

    /// What all of them took.
    pub fn sum(&self) -> Nanoseconds {
        self.0.values().copied().sum()
    }

    /// What was done with a case, and not with its worker or the whole run.
    pub fn of_case(&self) -> Nanoseconds {
        let of_case = self.iter().filter(|(phase, _)| phase.is_of_case());
        of_case.map(|(_, time)| time).sum()
    }

    /// True where nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Phases that followed each other, from some moment on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Stretch {
    /// When the first began, on the run's axis.
    pub from_ns: Nanoseconds,
    /// What each took.
    pub phases: Spent,
}

impl Stretch {
    /// When the last one ended, or a little before: what lies between two is in none.
    pub fn until_ns(&self) -> Nanoseconds {
        self.from_ns + self.phases.sum()
    }
}

/// What one process of the harness did of a run. A run has several where it was stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Part {
    /// When its workers had introduced themselves, as `started` of a run's header.
    pub started: Timestamp,
    /// What came before its first invocation.
    pub spent: Stretch,
    /// The host's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_called_in_files_what_it_is_called_here() {
        for phase in Phase::ALL {
            let mut spent = Spent::default();
            spent.add(phase, Nanoseconds(1.5));
            let text = serde_json::to_string(&spent).unwrap();
            assert_eq!(text, format!(r#"{{"{}":1.5}}"#, phase.key()));
            assert_eq!(serde_json::from_str::<Spent>(&text).unwrap(), spent);
        }
    }

    #[test]
    fn phases_of_another_version_are_left_out() {
        let spent: Spent = serde_json::from_str(r#"{"dreaming":3.0,"census":2.0}"#).unwrap();
        let known: Vec<_> = spent.iter().collect();
        assert_eq!(known, [(Phase::Census, Nanoseconds(2.0))]);
    }
}
