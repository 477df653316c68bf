//! What the judge says: values only, ready to be shown in any format.

mod account;
mod fact;
mod finding;
mod structural;

pub use account::{Account, AccountLine, Item};
pub use fact::Fact;
pub use finding::{Cause, Finding, Tuner};
pub use structural::{Direction, Held, LimitResult, StructuralChange, Uncounted, asked_of_cuda};

pub use regatta_core::record::types::VerdictOutcome;

use serde::{Deserialize, Serialize};

use regatta_core::record::disturbance::Disturbance;
use regatta_core::record::types::Fault;
use regatta_core::suite::rules::{Metric, Sight};
use regatta_core::suite::structural::Action;
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Probability, Rate, Ratio, Share, from_to};

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
    /// True when head and base were measured in turn, so that no day lies between them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turn: bool,
    /// What all cases share.
    pub common_shift: Option<CommonShift>,
    /// What the suite wants a gate to have been able to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sight: Option<Sight>,
    /// True when fresh invocations need the company of cases that nothing is wrong with, to
    /// know what all of them share.
    #[serde(skip)]
    pub needs_company: bool,
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
    /// Other metrics of the case, held to the base's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricRow>,
    /// True when more invocations could decide what is inconclusive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Causes, those that account for most first.
    pub findings: Vec<Finding>,
    /// Where the change of its time went, where both sides tell their operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// Changes of structure, those that fail first; `None`: not compared.
    #[serde(default)]
    pub structure: Option<Vec<StructuralChange>>,
    /// What the base tells of the structure and the head does not: not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<Uncounted>,
    /// What a tuner chose otherwise, on the other side or in another invocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuner: Option<Box<Tuner>>,
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

    /// Other metrics that got worse, those that fail first.
    pub fn metrics_told(&self) -> impl Iterator<Item = &MetricRow> {
        let fails = self.metrics.iter().filter(|of| of.fails());
        fails.chain(self.metrics.iter().filter(|of| of.warns()))
    }

    /// True when another metric than the device's time fails the case.
    pub fn fails_by_metric(&self) -> bool {
        self.metrics.iter().any(MetricRow::fails)
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

    /// The metric that fails a case whose device's time does not: its causes and its account are
    /// of that one.
    pub fn fails_by(&self) -> Option<&MetricRow> {
        let metrics = [Metric::Host, Metric::Processor].into_iter();
        let mut metrics = metrics.filter(|_| self.word != Word::Regressed);
        metrics.find_map(|metric| {
            let mut all = self.metrics.iter();
            all.find(|of| of.metric == metric && of.fails())
        })
    }

    /// Where its change went, as a sentence that names the time where it is not the device's:
    /// `host time +299.0 µs = launches +120, not explained +179`.
    pub fn account_told(&self) -> Option<String> {
        let account = self.account.as_ref()?;
        Some(match self.fails_by() {
            None => account.to_string(),
            Some(of) => format!("{} {account}", of.metric.text()),
        })
    }

    /// True when a change of structure fails the case.
    pub fn fails_by_structure(&self) -> bool {
        self.structure_at(Action::Fail).next().is_some()
    }

    /// What is worth telling beside the device's time, as sentences: other metrics, then
    /// structure, those that fail first.
    pub fn told(&self) -> Vec<String> {
        let metrics = self.metrics_told().map(MetricRow::told);
        metrics.chain(self.structure_told()).collect()
    }

    /// Changes of structure worth telling, as sentences, those that fail first.
    pub fn structure_told(&self) -> Vec<String> {
        let fail = self.structure_at(Action::Fail);
        let told = fail.chain(self.structure_at(Action::Warn));
        told.map(ToString::to_string).collect()
    }
}

/// A time over invocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Timing {
    /// Median over the invocations that were judged.
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

/// One case held to an expectation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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

impl ExpectationResult {
    /// What it takes and what it may, in words.
    pub fn told(&self) -> String {
        format!(
            "takes {}{}, at most {} is allowed",
            self.ratio.unwrap_or(Ratio(f64::NAN)).factor(),
            self.metric.where_timed(),
            self.within.factor()
        )
    }
}

/// What follows: the exit code and its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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

/// What is said of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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

/// A fact in which the two sides differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Difference {
    /// Its name: `driver`, `schema`, `torch.versions.cudnn`.
    pub field: String,
    /// The base's.
    pub base: String,
    /// The head's.
    pub head: String,
}

/// A case of one side whose quiet invocations are too few to speak for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DisturbedCase {
    /// Which.
    pub case: CaseId,
    /// True of the base's record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base: bool,
    /// Regular invocations that the machine was in.
    pub invocations: usize,
    /// All of them.
    pub of: usize,
    /// What of the machine that was, the worst of each kind.
    pub by: Vec<Disturbance>,
}

/// One metric of a case beside its device time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MetricRow {
    /// Which.
    pub metric: Metric,
    /// What is said of it.
    pub word: Word,
    /// Why, where the word alone does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a regression of it does to the verdict.
    pub action: Action,
    /// True when it is slower beyond the floor, as it looks, and nothing decided it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looks_worse: bool,
    /// True when more invocations could decide it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Median of the base.
    pub base_ns: Nanoseconds,
    /// Median of the head.
    pub head_ns: Nanoseconds,
    /// Head against base.
    pub change: Change,
    /// Where its change went, where both sides tell what it is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
}

impl MetricRow {
    /// True when it got worse, and the suite fails for it.
    pub fn fails(&self) -> bool {
        self.word == Word::Regressed && self.action == Action::Fail
    }

    /// True when it got worse, and the suite wants to know.
    pub fn warns(&self) -> bool {
        self.word == Word::Regressed && self.action == Action::Warn
    }

    /// The same as [`changed`](MetricRow::changed), and where that went, where known.
    pub fn told(&self) -> String {
        let account = self.account.as_ref();
        let account = account.map_or(String::new(), |account| format!(": {account}"));
        self.changed() + &account
    }

    /// `host time 52.1 → 352.4 µs, 6.76 times as long`.
    pub fn changed(&self) -> String {
        format!(
            "{} {}, {} times as long",
            self.metric.text(),
            from_to(self.base_ns, self.head_ns),
            (self.head_ns / self.base_ns).times(),
        )
    }
}

/// What all cases share between base and head: the suite's own row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CommonShift {
    /// Head over base; 1.03: everything reads 3 % slower.
    pub ratio: Ratio,
    /// Cases it was estimated from.
    pub cases: usize,
    /// True when it is chance, and was divided out of each row.
    pub removed: bool,
    /// True when it is larger than the suite's floor.
    pub beyond_floor: bool,
    /// What is said of the suite as a whole.
    pub word: Word,
    /// Lower end of its interval, of 95 %.
    pub low: Ratio,
    /// Upper end of it.
    pub high: Ratio,
    /// Two-sided, against no change.
    pub p: Probability,
    /// Change of the whole suite that would have been called in 95 of 100.
    pub smallest_effect: Share,
    /// Cases that take part in it.
    pub sharing: usize,
    /// True where it is slower beyond the floor and nothing tells the day from the code.
    pub looks_worse: bool,
}
