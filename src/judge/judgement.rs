//! What the judge says: values only, ready to be shown in any format.

mod difference;
mod disturbed;
mod fact;
mod finding;
mod structural;

use serde::{Deserialize, Serialize};

pub use difference::Difference;
pub use disturbed::DisturbedCase;
pub use fact::Fact;
pub use finding::{Cause, Finding};
pub use structural::{Direction, Held, LimitResult, StructuralChange, Uncounted, asked_of_cuda};

use crate::attention::CaseId;
use crate::record::types::Fault;
pub use crate::record::types::VerdictOutcome;
use crate::suite::rules::Metric;
use crate::suite::structural::Action;
use crate::units::{Nanoseconds, Probability, Rate, Ratio, Share};

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The suite of the head.
    pub suite: String,
    /// What was judged.
    pub head: SideSummary,
    /// What it was held against; `None`: expectations and completeness alone.
    pub base: Option<SideSummary>,
    /// Hard facts in which the two sides differ; times are not compared then.
    pub incomparable: Vec<Difference>,
    /// Hard facts because of which structures are not compared either: grids follow from
    /// them by design.
    #[serde(default)]
    pub structure_incomparable: Vec<Difference>,
    /// True when the head was not timed: structure alone is judged.
    #[serde(default)]
    pub structure_only: bool,
    /// Soft facts in which they differ (versions, host name, revision).
    pub differences: Vec<Difference>,
    /// The part of every change that is the machine's.
    pub common_shift: Option<CommonShift>,
    /// One row a case, sorted by id.
    pub rows: Vec<Row>,
    /// One entry for each case that an expectation holds to something.
    pub expectations: Vec<ExpectationResult>,
    /// One entry for each case that a limit on structure selects.
    #[serde(default)]
    pub limits: Vec<LimitResult>,
    /// What was to be judged and was not, as sentences: each keeps the run from passing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Cases of either side that are not judged because the machine was in their times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<DisturbedCase>,
    /// Sentences worth reading beside the verdict (damaged lines, thin evidence).
    pub notes: Vec<String>,
    /// What follows from all of it.
    pub verdict: Verdict,
}

/// A side, for the reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideSummary {
    /// A path or a baseline's name.
    pub label: String,
    /// Its suite.
    pub suite: String,
    /// When it was measured, RFC 3339.
    pub started: String,
    /// Its machine's short name.
    pub machine: String,
    /// `revision`, with `+` when the tree was dirty.
    pub revision: Option<String>,
    /// Invocations planned.
    pub invocations: u32,
}

/// A change that most cases share belongs to the machine, not to the code.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommonShift {
    /// Head over base; 1.03: everything reads 3 % slower.
    pub ratio: Ratio,
    /// Cases it was estimated from.
    pub cases: usize,
    /// True when it was divided out of each row.
    pub removed: bool,
    /// True when it is larger than the floor: then nobody can tell a slow machine
    /// from a change that all cases run through.
    #[serde(default)]
    pub beyond_floor: bool,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub case: CaseId,
    /// What is said of it.
    pub word: Word,
    /// Why, where the word alone does not say it.
    pub reason: Option<String>,
    /// True when the suite's policy allows this case to be unsupported or fail.
    pub allowed: bool,
    /// What kind of failure kept it from being measured or confirmed, where one did.
    #[serde(default, skip_serializing_if = "Fault::is_unknown")]
    pub fault: Fault,
    /// Why the fresh invocations of this suspect decide nothing, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<String>,
    /// True when it is slower beyond the floor, as it looks, and nothing decided it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looks_worse: bool,
    /// The head's device time.
    pub head: Option<Timing>,
    /// The base's device time.
    pub base: Option<Timing>,
    /// Head against base.
    pub change: Option<Change>,
    /// Causes, most telling first.
    pub findings: Vec<Finding>,
    /// Changes of structure, those that fail first; `None`: not compared.
    #[serde(default)]
    pub structure: Option<Vec<StructuralChange>>,
    /// What the base tells of the structure and the head does not: not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<Uncounted>,
    /// How much longer the case takes, or a training step where the suite says what part
    /// of one it is. `None` without a comparison.
    #[serde(default)]
    pub severity: Option<Share>,
}

impl Row {
    /// True for a case that the suite does not allow to fail, and that gave a wrong result,
    /// crashed or hung.
    pub fn is_faulty(&self) -> bool {
        let grave = matches!(self.fault, Fault::WrongResult | Fault::Crash | Fault::Hang);
        grave && !self.allowed
    }

    /// Head over base of the two times that are shown. `change.ratio` is what is judged: the
    /// Hodges-Lehmann estimate over all invocations, with the machine's share taken out.
    pub fn times_ratio(&self) -> Option<Ratio> {
        let (base, head) = (self.base.as_ref()?, self.head.as_ref()?);
        self.change.as_ref()?;
        Some(head.median_ns / base.median_ns)
    }

    /// True when nobody can say whether its structure is what it was. A case that may fail
    /// may also not be counted.
    pub fn structure_unjudged(&self) -> bool {
        !self.uncounted.is_empty() && !self.allowed
    }

    /// True when the structure is another one, for better or for worse.
    pub fn restructured(&self) -> bool {
        self.structure.as_ref().is_some_and(|all| !all.is_empty())
    }

    /// Changes of structure that are taken so.
    pub fn structure_at(&self, action: Action) -> impl Iterator<Item = &StructuralChange> {
        let changes = self.structure.iter().flatten();
        changes.filter(move |change| change.action == action)
    }

    /// True when a change of structure fails the case.
    pub fn fails_by_structure(&self) -> bool {
        self.structure_at(Action::Fail).next().is_some()
    }

    /// Changes of structure worth telling, as sentences, those that fail first.
    pub fn structure_told(&self) -> Vec<String> {
        let fail = self.structure_at(Action::Fail);
        let told = fail.chain(self.structure_at(Action::Warn));
        told.map(ToString::to_string).collect()
    }
}

/// What is said of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// Slower, beyond the floor and beyond doubt.
    Regressed,
    /// Faster, likewise.
    Improved,
    /// Shown to lie within the floor.
    Same,
    /// The evidence decides neither way.
    Inconclusive,
    /// Failed or missing: nothing to judge.
    NotMeasured,
    /// The variant does not do this, now as before.
    Unsupported,
    /// Only the head has it.
    Added,
    /// Only the base has it.
    Removed,
    /// Measured, with nothing to compare it to.
    Measured,
    /// What it does was counted, and no time was taken.
    Counted,
}

impl Word {
    /// The word as it is printed.
    pub fn text(self) -> &'static str {
        match self {
            Word::Regressed => "regressed",
            Word::Improved => "improved",
            Word::Same => "same",
            Word::Inconclusive => "inconclusive",
            Word::NotMeasured => "not measured",
            Word::Unsupported => "unsupported",
            Word::Added => "added",
            Word::Removed => "removed",
            Word::Measured => "measured",
            Word::Counted => "counted",
        }
    }
}

/// A time over invocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median over the invocations that were judged: of a case that was confirmed, the fresh
    /// ones.
    pub median_ns: Nanoseconds,
    /// The fastest of them.
    pub min_ns: Nanoseconds,
    /// The slowest of them.
    pub max_ns: Nanoseconds,
    /// All invocations' medians, in the order measured, confirming ones last.
    pub invocations_ns: Vec<Nanoseconds>,
    /// Median host time to issue a call, where it is a metric of its own.
    pub host_ns: Option<Nanoseconds>,
    /// Median first call.
    pub first_call_ns: Option<Nanoseconds>,
    /// Work over the median, by the formulas of `attention::work`, where a call is one
    /// problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tflops: Option<Rate>,
    /// Compulsory bytes over the median, in GB/s, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// Samples behind it.
    pub samples: u64,
}

/// Head against base, the common shift taken out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Head over base (Hodges-Lehmann); 1.10: 10 % slower.
    pub ratio: Ratio,
    /// Lower end of its interval.
    pub low: Ratio,
    /// Upper end of its interval.
    pub high: Ratio,
    /// Coverage of the interval, at least the nominal one, as the ranks allow.
    pub confidence: Share,
    /// Two-sided exact Mann-Whitney.
    pub p: Probability,
    /// The smallest p these numbers of invocations can reach.
    pub reachable_p: Probability,
    /// Smallest change that these invocations could have shown; infinite (`null` in JSON)
    /// where they are too few to show any.
    #[serde(with = "unbounded")]
    pub smallest_effect: Share,
    /// Which invocations these figures are of.
    pub stage: Stage,
}

/// JSON has no infinity; `null` stands for it.
mod unbounded {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::units::Share;

    pub fn serialize<S: Serializer>(value: &Share, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(value).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(Share(f64::INFINITY)))
    }
}

/// Which invocations were judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Those every case has.
    Screen,
    /// Fresh ones, taken because the screen was suspicious.
    Confirm,
}

/// One case held to an expectation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectationResult {
    /// The expectation's name.
    pub name: String,
    /// The case held to it.
    pub case: CaseId,
    /// The best case it was held against; `None` when none was measured.
    pub against: Option<CaseId>,
    /// Which time.
    pub metric: Metric,
    /// Largest allowed ratio.
    pub within: Ratio,
    /// Median ratio over invocations.
    pub ratio: Option<Ratio>,
    /// Lower end of its interval.
    pub low: Option<Ratio>,
    /// Upper end of its interval.
    pub high: Option<Ratio>,
    /// What came of it.
    pub held: Held,
    /// Why, where the ratio alone does not say it.
    pub reason: Option<String>,
    /// True when the ratio lies beyond the limit and nothing decided it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looks_worse: bool,
}

/// What follows: the exit code and its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Pass, fail or not judged.
    pub outcome: VerdictOutcome,
    /// Sentences, gravest first: `2 of 48 cases regressed`.
    pub reasons: Vec<String>,
    /// What was not decided and does not look worse, and what size of change could have
    /// hidden in it; `None`: everything was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<String>,
}
