//! The result of judging: values only, ready to be shown in any format.

mod account;
mod comparison;
mod difference;
mod finding;

pub use account::{Account, AccountLine, Item};
pub use comparison::Comparison;
pub use difference::{AT_ONCE, CALLS, Difference, Direction, Mismatch, StructuralChange};
pub use finding::{Cause, Fact, Finding};

pub use regatta_core::record::VerdictOutcome;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use regatta_core::record::{Fault, now};
use regatta_core::suite::{Action, Expectation, Metric, Origin, Quantity};
use regatta_core::text::listed;
use regatta_worker::case::CaseId;
use regatta_worker::joined::Joined;
use regatta_worker::units::{ARROW, Nanoseconds, Rate, Ratio, from_to, is_zero};
use regatta_worker::words;

/// The whole answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Judgement {
    /// The suite of the head.
    pub suite: String,
    /// The run that was judged.
    pub head: SideSummary,
    /// The base of the comparison; `None` if only expectations and completeness were judged.
    pub base: Option<SideSummary>,
    /// Hard facts in which the two sides differ; times are not compared then.
    pub incomparable: Vec<Mismatch>,
    /// Hard facts because of which structures are not compared either: grids follow from
    /// them by design.
    #[serde(default)]
    pub structure_incomparable: Vec<Mismatch>,
    /// True when the head was not timed: structure alone is judged.
    #[serde(default)]
    pub structure_only: bool,
    /// Soft facts in which they differ (versions, host name, revision).
    pub differences: Vec<Mismatch>,
    /// True where head and base were measured in pairs, so that no day lies between them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paired: bool,
    /// One row a case, sorted by id.
    pub rows: Vec<Row>,
    /// One entry for each case, or build, that an expectation is about.
    pub expectations: Vec<ExpectationResult>,
    /// The demands that could not be judged, as sentences: each keeps the run from passing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Demands of the base's suite that the head's does not make, and that its build made the base,
    /// as a sentence of the verdict's first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weaker: Option<String>,
    /// The reference of declared operators' results, as a sentence of the verdict's first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
    /// Sentences worth reading beside the verdict (damaged lines, few invocations).
    pub notes: Vec<String>,
    /// The verdict on all of it.
    pub verdict: Verdict,
}

impl Judgement {
    /// True where the head's cases were compared with a base's.
    pub fn is_comparison(&self) -> bool {
        self.base.is_some() && self.incomparable.is_empty()
    }

    /// A judgement of nothing: what was asked for could not be measured.
    pub fn refused(suite: &str, reason: String) -> Judgement {
        Judgement {
            suite: suite.to_owned(),
            head: SideSummary {
                label: String::new(),
                suite: suite.to_owned(),
                started: now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                ..SideSummary::default()
            },
            verdict: Verdict::inconclusive(vec![reason]),
            ..Judgement::default()
        }
    }
}

/// A side, for the reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SideSummary {
    /// A path or a baseline's name.
    pub label: String,
    /// The name of the suite.
    pub suite: String,
    /// When it was measured, RFC 3339.
    pub started: String,
    /// The short name of the machine.
    pub machine: String,
    /// `revision`, with `+` when the tree was dirty.
    pub revision: Option<String>,
    /// The most invocations of a case.
    pub invocations: u32,
    /// The filter, with the number of cases that it left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The options of its command line that changed the suite: `--threshold 0.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<String>,
}

/// One case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Row {
    /// Which.
    pub case: CaseId,
    /// The gravest word of its metrics and its structure.
    pub word: Word,
    /// Why, and what would decide it, where the word alone does not say it.
    pub reason: Option<String>,
    /// True when the suite's policy allows this case to be unsupported or fail.
    pub allowed: bool,
    /// The kind of failure, if it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The head's device time.
    pub head: Option<Timing>,
    /// The base's device time.
    pub base: Option<Timing>,
    /// The metrics compared with the base's; the device time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricRow>,
    /// Causes, those that account for most first.
    pub findings: Vec<Finding>,
    /// Changes of structure, those that fail first; `None`: not compared.
    #[serde(default)]
    pub structure: Option<Vec<StructuralChange>>,
    /// Figures of the structure that the base reports and the head does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<Uncounted>,
    /// The autotuner's choices, if they differ between invocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuner: Option<String>,
}

/// So many operators and functions at the most explain a change by their names.
const FEW_RUNS: usize = 8;

impl Row {
    /// The row of a case that neither side measured.
    pub fn unmeasured(case: CaseId, word: Word, reason: String, allowed: bool) -> Row {
        Row {
            case,
            word,
            reason: Some(reason),
            allowed,
            ..Row::default()
        }
    }

    /// The comparison by a metric.
    pub fn metric(&self, metric: Metric) -> Option<&MetricRow> {
        self.metrics.iter().find(|row| row.metric == metric)
    }

    /// The change of its device time.
    pub fn change(&self) -> Option<&Comparison> {
        Some(&self.metric(Metric::Device)?.change)
    }

    /// The metric that a reader sees first: the gravest, and of those the first. Another than the
    /// device time counts where it regressed or may be worse, and CPU time never: it explains.
    pub fn first_metric(&self) -> Option<&MetricRow> {
        let counts = |row: &&MetricRow| match row.metric {
            Metric::Device => true,
            Metric::CpuTime => false,
            _ => row.change.word == Word::Regressed || row.change.may_be_worse,
        };
        let all = self.metrics.iter().filter(counts).rev();
        all.max_by_key(|row| (row.change.word, row.change.may_be_worse))
    }

    /// Head over base of that metric, or of CPU time if it decided; 1 without a
    /// comparison.
    pub fn ratio(&self) -> Ratio {
        let first = self.first_metric().map(|first| self.deciding(first));
        first.map_or(Ratio::ONE, |deciding| deciding.change.ratio)
    }

    /// The comparison that decided a metric: its own, or that of CPU time.
    pub fn deciding<'a>(&'a self, metric: &'a MetricRow) -> &'a MetricRow {
        let cpu = self
            .metric(Metric::CpuTime)
            .filter(|_| metric.change.by_cpu_time);
        cpu.unwrap_or(metric)
    }

    /// Metrics that got worse: the slow tenth of samples where their median did not, and CPU time
    /// never.
    pub fn regressed(&self) -> impl Iterator<Item = &MetricRow> {
        let worse = |row: &&MetricRow| row.change.word == Word::Regressed;
        let device = self.metric(Metric::Device).filter(worse).is_some();
        let explains = move |metric| match metric {
            Metric::CpuTime => true,
            Metric::DeviceP90 => device,
            _ => false,
        };
        let worse = self.metrics.iter().filter(worse);
        worse.filter(move |row| !explains(row.metric))
    }

    /// True where it may be worse, and nothing decided it: the run does not pass by it.
    pub fn may_be_worse(&self) -> bool {
        let mut changes = self.metrics.iter().map(|metric| metric.change);
        self.word == Word::Inconclusive && changes.any(|change| change.may_be_worse)
    }

    /// True where more pairs could decide it.
    pub fn is_open(&self) -> bool {
        let mut changes = self.metrics.iter().map(|metric| metric.change);
        self.word == Word::Inconclusive && changes.any(|change| change.open)
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

    /// The operator or function that a call runs more often, by the most; `None` of many, which
    /// are the inside of something else.
    pub fn added_runs(&self) -> Option<&Difference> {
        let differences = self.worth_telling().map(|change| &change.difference);
        let more = |difference: &Difference| match difference {
            Difference::Runs { count, .. } => count.head.checked_sub(count.base),
            _ => None,
        };
        let added = Vec::from_iter(differences.filter(|one| more(one) > Some(0)));
        let are_few = added.len() <= FEW_RUNS;
        let most = added.into_iter().max_by_key(|one| more(one));
        most.filter(|_| are_few)
    }

    /// Changes of structure worth telling, those that fail first.
    pub fn worth_telling(&self) -> impl Iterator<Item = &StructuralChange> {
        let fail = self.structure_at(Action::Fail);
        fail.chain(self.structure_at(Action::Warn))
    }
}

/// A time over invocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Timing {
    /// Median over all invocations.
    pub median_ns: Nanoseconds,
    /// The fastest of them.
    pub min_ns: Nanoseconds,
    /// The slowest of them.
    pub max_ns: Nanoseconds,
    /// All invocations' medians, in the order measured.
    pub invocations_ns: Vec<Nanoseconds>,
    /// Median host time to issue a call, where it is a metric of its own.
    pub host_ns: Option<Nanoseconds>,
    /// Median first call.
    pub first_call_ns: Option<Nanoseconds>,
    /// Work over the median, as its operator has it, where a call is one
    /// problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tflops: Option<Rate>,
    /// Compulsory bytes over the median, in GB/s, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// Samples behind it.
    pub samples: u64,
}

/// One case of an expectation, or one build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ExpectationResult {
    /// The expectation's name.
    pub name: String,
    /// The case that it is about; `None`: a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<CaseId>,
    /// The build that it is about, if it is about one and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<String>,
    /// The quantity: a metric is compared with that of other cases, a figure with its bounds.
    pub metric: Quantity,
    /// The best of the cases that it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<CaseId>,
    /// Smallest allowed value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Largest allowed value; of a metric, the largest allowed ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The value; of a metric, the estimated ratio.
    pub value: Option<f64>,
    /// The case against that one, of a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// Same: it is met. Regressed: it is violated. Missing: it has no value.
    pub word: Word,
    /// Why, what would decide it, or what the value was read off.
    pub reason: Option<String>,
}

impl ExpectationResult {
    /// A result without a value.
    pub fn missing(rule: &Expectation, case: Option<&CaseId>) -> ExpectationResult {
        ExpectationResult {
            name: rule.name.clone(),
            case: case.cloned(),
            built: None,
            metric: rule.metric.clone(),
            against: None,
            at_least: rule.at_least,
            at_most: rule.at_most,
            value: None,
            comparison: None,
            word: Word::Missing,
            reason: None,
        }
    }

    /// Compares a figure with its bounds.
    pub fn of_figure(
        rule: &Expectation,
        case: Option<&CaseId>,
        value: Option<f64>,
        reason: Option<String>,
    ) -> ExpectationResult {
        let result = ExpectationResult {
            value,
            word: match value {
                None => Word::Missing,
                Some(value) if rule.allows(value) => Word::Same,
                Some(_) => Word::Regressed,
            },
            reason,
            ..ExpectationResult::missing(rule, case)
        };
        result.missing_at(&rule.origin)
    }

    /// The same with where the suite demands it, where it has no value.
    pub fn missing_at(mut self, origin: &Origin) -> ExpectationResult {
        if let (Word::Missing, Some(reason)) = (self.word, &mut self.reason) {
            *reason += &origin.to_string();
        }
        self
    }

    /// The case, or what was built.
    pub fn subject(&self) -> String {
        match (&self.case, &self.built) {
            (Some(case), _) => case.to_string(),
            (None, Some(built)) => format!("the build of {built}"),
            (None, None) => "the build".to_owned(),
        }
    }

    /// `takes 1.24x, at most 1.10x is allowed`, or `sm_fill is 0.008, at least 0.500 is allowed`.
    pub fn sentence(&self) -> String {
        let value = self.value_text();
        let is = match &self.metric {
            Quantity::Metric(_) if self.is_by_cpu_time() => format!("takes {value} by CPU time"),
            Quantity::Metric(metric) => format!("takes {value}{}", metric.where_timed()),
            figure => format!("{figure} is {value}"),
        };
        format!("{is}, {} is allowed", self.allowed())
    }

    fn is_by_cpu_time(&self) -> bool {
        (self.comparison).is_some_and(|comparison| comparison.by_cpu_time)
    }

    /// The value, in its unit.
    pub fn value_text(&self) -> String {
        self.value
            .map_or("unknown".to_owned(), |value| self.figure(value))
    }

    /// `at most 1.10x`.
    pub fn allowed(&self) -> String {
        bounds_text(self.at_least, self.at_most, |bound| self.figure(bound))
    }

    /// The interval of a ratio: `[1.21x, 1.32x]`.
    pub fn interval(&self) -> Option<String> {
        let Comparison { low, high, .. } = self.comparison?;
        let [low, high] = [low?, high?].map(Ratio::factor);
        Some(format!("[{low}, {high}]"))
    }

    /// True where it may be violated, and nothing decided it.
    pub fn may_be_worse(&self) -> bool {
        self.comparison
            .is_some_and(|compared| compared.may_be_worse)
    }

    /// The value divided by its bound; infinite without a value.
    pub fn excess(&self) -> Ratio {
        let beyond = |value: f64| match (self.at_most, self.at_least) {
            (Some(most), _) if value > most => value / most,
            (_, Some(least)) => least / value,
            (most, None) => value / most.unwrap_or(1.0),
        };
        Ratio(self.value.map_or(f64::INFINITY, beyond))
    }

    fn figure(&self, value: f64) -> String {
        match self.metric {
            Quantity::Metric(_) => Ratio(value).factor().to_string(),
            // Three decimals tell one of 132 multiprocessors; whole counts have none.
            _ if value.fract() == 0.0 => format!("{value}"),
            _ => format!("{value:.3}"),
        }
    }
}

/// `at least 0.5 and at most 1`, of the bounds that there are.
pub(crate) fn bounds_text(
    least: Option<f64>,
    most: Option<f64>,
    figure: impl Fn(f64) -> String,
) -> String {
    let bounds = [("at least", least), ("at most", most)].into_iter();
    let bounds = bounds.filter_map(|(word, bound)| Some(format!("{word} {}", figure(bound?))));
    bounds.joined(" and ")
}

/// The exit code and its reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Passed, failed or inconclusive.
    pub outcome: VerdictOutcome,
    /// Sentences, gravest first: `worst regression CASE: 1.74 times as long`.
    pub reasons: Vec<String>,
    /// The number of cases by verdict, and the method: `48 same, 2 inconclusive (at most +2.9 %); by pairs`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shown: String,
}

impl Verdict {
    /// A verdict of which nothing was shown.
    pub fn inconclusive(reasons: Vec<String>) -> Verdict {
        Verdict {
            reasons,
            ..Verdict::default()
        }
    }

    /// The summary, then the reasons.
    pub fn sentences(&self) -> Vec<&str> {
        let all = std::iter::once(&self.shown).chain(&self.reasons);
        all.map(String::as_str)
            .filter(|text| !text.is_empty())
            .collect()
    }
}

words! {
    "word",
    /// The verdict on a case, a metric or an expectation, the gravest last. Each
    /// word has one meaning and one exit code; everything else is a reason.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
    )]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Word {
        /// Shown within the threshold; shown to be met; a structure that did not get worse.
        Same = "same",
        /// Shown beyond the threshold, on the good side.
        Improved = "improved",
        /// Only the head has it, so nothing is there to compare it with.
        New = "new",
        /// Not supported or installed, as the suite allows, or not on either side.
        Skipped = "skipped",
        /// Neither is shown after all that could be measured. Keeps a run from passing where it may
        /// be worse.
        Inconclusive = "inconclusive",
        /// Planned or in the base, and without a value.
        #[default]
        Missing = "missing",
        /// Shown beyond the threshold, or more slow starts; violated; structure for the worse.
        Regressed = "regressed",
        /// A wrong result, a crash, a hang.
        Error = "error",
    }
}

/// The count of each word, in order.
pub fn tally(words: impl IntoIterator<Item = Word>) -> BTreeMap<Word, usize> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

impl Word {
    /// The same of a case. Nothing is new in a run that is compared with none.
    pub fn of_case(self, compared: bool) -> &'static str {
        match self {
            Word::New if !compared => "measured",
            word => word.name(),
        }
    }

    /// The same of an expectation.
    pub fn of_demand(self) -> &'static str {
        match self {
            Word::Same => "met",
            Word::Regressed => "violated",
            word => word.name(),
        }
    }
}

/// One metric of a case, compared with the base's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MetricRow {
    /// Which.
    pub metric: Metric,
    /// Median of the base, in nanoseconds or bytes.
    pub base: f64,
    /// Median of the head.
    pub head: f64,
    /// Head against base.
    #[serde(flatten)]
    pub change: Comparison,
    /// Why, and what would decide it, where the word alone does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True where other programs disturbed what it is judged by.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
    /// The number of invocations that were disturbed and left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
    /// The breakdown of the change, if both sides report their operations, calls or parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Box<Account>>,
}

impl MetricRow {
    /// The same as [`changed`](MetricRow::changed), and where that went, where known.
    pub fn sentence(&self) -> String {
        let account = self.account.as_ref();
        let account = account.map_or(String::new(), |account| format!(": {account}"));
        self.changed() + &account
    }

    /// `host time 52.1 → 352.4 µs, 6.76x slower [6.72x, 6.80x]`.
    pub fn changed(&self) -> String {
        format!("{} {}", self.metric.text(), self.change_of_time())
    }

    /// `52.1 → 352.4 µs, 6.76x slower [6.72x, 6.80x]`.
    pub fn change_of_time(&self) -> String {
        let change = match self.metric {
            Metric::PeakMemory => self.change.ratio.in_amounts(),
            _ => self.change.ratio.in_words(),
        };
        format!("{}, {}", self.from_to(), self.change.with_interval(change))
    }

    /// `52.1 → 352.4 µs`.
    pub fn from_to(&self) -> String {
        match self.metric {
            Metric::PeakMemory => {
                let [base, head] = [self.base, self.head].map(|value| self.metric.value(value));
                format!("{base} {ARROW} {head}")
            }
            _ => from_to(Nanoseconds(self.base), Nanoseconds(self.head)),
        }
    }
}

/// A metric, parameter or part of the structure that the base reports and the head does not:
/// whether it changed is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Uncounted {
    /// `launches`, a figure of them (`local memory`), or the name of a count, metric or parameter.
    pub name: String,
    /// The base's figure, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Why the head does not tell it, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if both sides report it and it may be more: `reason` says why it is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inconclusive: bool,
}

impl Uncounted {
    /// A figure that the head does not report; `before` is the base's.
    pub fn new(name: &str, before: Option<u64>, reason: Option<String>) -> Uncounted {
        Uncounted {
            name: name.to_owned(),
            before,
            reason,
            inconclusive: false,
        }
    }

    /// A figure that both sides report, without a decision if it is more.
    pub fn inconclusive(name: &str, reason: String) -> Uncounted {
        Uncounted {
            inconclusive: true,
            ..Uncounted::new(name, None, Some(reason))
        }
    }

    /// `in the base and not in the head: launches (2), allocations (3): the census failed`.
    pub fn sentence(all: &[Uncounted]) -> Option<String> {
        const MAX_NAMED: usize = 6;
        let (open, lost): (Vec<&Uncounted>, Vec<&Uncounted>) =
            all.iter().partition(|one| one.inconclusive);
        let named = lost.iter().map(|one| match one.before {
            Some(before) => format!("{} ({before})", one.name),
            None => one.name.clone(),
        });
        let mut text = listed(named, MAX_NAMED, ", ");
        let reason = |one: &&Uncounted| one.reason.clone().filter(|reason| !reason.is_empty());
        let mut reasons = lost.iter().enumerate();
        match reasons.find_map(|(place, one)| Some((place, &one.name, reason(one)?))) {
            Some((0, _, reason)) => text += &format!(": {reason}"),
            Some((_, name, reason)) => text += &format!("; {name}: {reason}"),
            None => {}
        }
        let lost = (!lost.is_empty()).then(|| format!("in the base and not in the head: {text}"));
        let parts = lost.into_iter().chain(open.iter().find_map(reason));
        Some(parts.joined("; ")).filter(|parts| !parts.is_empty())
    }
}
