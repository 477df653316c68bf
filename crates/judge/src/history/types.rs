//! What a history says, as values.

use serde::Serialize;

use crate::judgement::Mismatch;
use regatta_core::record::history::Clock;
use regatta_worker::units::{Nanoseconds, Ratio, RatioInterval};

/// How a history is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Which of the times.
    pub clock: Clock,
    /// The run that the reference begins with.
    pub reference_from: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: Clock::Device,
            reference_from: 0,
        }
    }
}

/// The times of one case, in the runs that have one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Places of the runs in the history, ascending.
    pub runs: Vec<u32>,
    /// Its times there.
    pub times: Vec<Nanoseconds>,
    /// The same of each invocation, as far as they are kept.
    pub values: Vec<Vec<Nanoseconds>>,
}

/// A change of level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Place of the first run after it.
    pub run: usize,
    /// Place of the last run before it that has a time.
    pub before: usize,
    /// Level before: the median of the runs since the change before.
    pub from_ns: Nanoseconds,
    /// Level after.
    pub to_ns: Nanoseconds,
    /// By how much: the median of all ratios of a run after to one before.
    pub ratio: Ratio,
    /// Lower end of its 90 % interval.
    pub low: Ratio,
    /// Upper end.
    pub high: Ratio,
    /// Runs after it, to the next change or the last run.
    pub runs_after: usize,
}

impl Step {
    /// The change with its interval.
    pub fn interval(&self) -> RatioInterval {
        RatioInterval {
            ratio: self.ratio,
            low: self.low,
            high: self.high,
        }
    }
}

/// What the times of one case say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trend {
    /// Runs that have a time of it.
    pub runs: usize,
    /// Level now: the median of the runs since its last change, or of the last few where it
    /// creeps.
    pub level_ns: Option<Nanoseconds>,
    /// Level of the reference.
    pub reference_ns: Option<Nanoseconds>,
    /// Its changes, in their order.
    pub steps: Vec<Step>,
    /// What moved it without any of these.
    pub creep: Option<Creep>,
}

impl Trend {
    /// Now over the reference.
    pub fn since_reference(&self) -> Option<Ratio> {
        Some(self.level_ns? / self.reference_ns?)
    }
}

/// A case whose latest run gave no time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Place of the run since when.
    pub run: usize,
    /// Why, in its latest run.
    pub reason: String,
}

/// Everything that a history says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trends {
    /// What all cases share, by the factor over its median; `None` where there are too few.
    pub shared: Option<Trend>,
    /// What each case says, by its number.
    pub cases: Vec<Trend>,
    /// What moved together, in the order of the runs.
    pub events: Vec<Event>,
    /// What creeps, all cases first.
    pub crept: Vec<Crept>,
    /// Cases whose latest run gave no time, by their number.
    pub lost: Vec<Option<Lost>>,
}

/// A change from the oldest run to the newest that no step explains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Creep {
    /// Median of the oldest run.
    pub from_ns: Nanoseconds,
    /// Median of the newest.
    pub to_ns: Nanoseconds,
    /// One over the other, without the steps between them.
    pub ratio: Ratio,
    /// Lower end of its 90 % interval.
    pub low: Ratio,
    /// Upper end.
    pub high: Ratio,
}

/// Who moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "who", content = "which", rename_all = "lowercase")]
pub enum Who {
    /// One case.
    Case,
    /// Cases with something in common, told: `all 12 cases of torch/efficient`.
    Family(String),
    /// Cases with nothing in common.
    Several,
    /// Nearly all cases of the suite.
    Suite,
    /// Nearly all cases of several workers, or what they run on is no longer the same.
    Machine,
    /// They are no longer measured in the same way.
    Method,
}

/// A change that several cases may share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Place of the first run after it.
    pub run: usize,
    /// Place of the run before.
    pub before: usize,
    /// Who moved.
    #[serde(flatten)]
    pub who: Who,
    /// The cases by their numbers, the one that changed most first.
    pub cases: Vec<usize>,
    /// The middle one of their changes.
    pub ratio: Ratio,
    /// The change of the one that changed most, with its interval.
    pub most: Step,
    /// What else changed between the two runs: revision, versions.
    pub code: Vec<Mismatch>,
    /// The same of what a time depends on beside the code: hard facts, the way of measuring.
    pub machine: Vec<Mismatch>,
    /// Versions and facts that changed within two runs of it: noise moves the place of a small
    /// change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearby: Vec<Mismatch>,
}

impl Who {
    /// True where it is no change of the code that is measured.
    pub fn is_beside_the_code(&self) -> bool {
        matches!(self, Who::Machine | Who::Method)
    }
}

impl Event {
    /// True where it got slower.
    pub fn is_slower(&self) -> bool {
        self.ratio > Ratio::ONE
    }

    /// The change of the one that changed most.
    pub fn interval(&self) -> RatioInterval {
        self.most.interval()
    }
}

/// Cases that creep the same way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crept {
    /// Who moved.
    #[serde(flatten)]
    pub who: Who,
    /// The cases by their numbers, the one that crept farthest first.
    pub cases: Vec<usize>,
    /// The middle one of them.
    pub ratio: Ratio,
}
