//! The result of judging, as plain values that any format can show.

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

/// The result of judging a run: its rows, its expectations and the verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Judgement {
    /// The suite of the head.
    pub suite: String,
    /// The run that was judged.
    pub head: SideSummary,
    /// The base of the comparison; without one, only expectations and completeness were judged.
    pub base: Option<SideSummary>,
    /// Hard facts in which the two sides differ. If there are any, times are not compared.
    pub incomparable: Vec<Mismatch>,
    /// Hard facts that keep structures from being compared as well, because launch grids follow
    /// from them by design.
    #[serde(default)]
    pub structure_incomparable: Vec<Mismatch>,
    /// True when the head was not timed, so that only structure is judged.
    #[serde(default)]
    pub structure_only: bool,
    /// Soft facts in which the two sides differ: versions, host name, revision.
    pub differences: Vec<Mismatch>,
    /// True where head and base were measured in pairs, so that no day-to-day allowance applies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paired: bool,
    /// One row for each case, sorted by id.
    pub rows: Vec<Row>,
    /// One entry for each case, or build, that an expectation applies to.
    pub expectations: Vec<ExpectationResult>,
    /// The demands that could not be judged, as sentences. Each keeps the run from passing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Demands of the base's suite that the head's suite does not make, and a base that was built
    /// by the head's `[build]`: a sentence of the verdict's first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weaker: Option<String>,
    /// The references that the results of declared operators were compared with, as a sentence of
    /// the verdict's first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
    /// Sentences worth reading beside the verdict (damaged lines, few invocations).
    pub notes: Vec<String>,
    /// The verdict on the whole run.
    pub verdict: Verdict,
}

impl Judgement {
    /// True where the head's cases were compared with those of a base.
    pub fn is_comparison(&self) -> bool {
        self.base.is_some() && self.incomparable.is_empty()
    }

    /// A judgement without rows, for a request that could not be measured.
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

/// One side of a comparison, summarised for the reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SideSummary {
    /// A path or a baseline's name.
    pub label: String,
    /// The name of the suite.
    pub suite: String,
    /// The time at which the measurement started, in RFC 3339.
    pub started: String,
    /// The short name of the machine.
    pub machine: String,
    /// The short revision, with `+` when the working tree had changes.
    pub revision: Option<String>,
    /// The largest number of invocations of a case.
    pub invocations: u32,
    /// The `--filter` options, with the number of cases that they left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The command-line options that changed the suite: `--threshold 0.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<String>,
}

/// The judgement of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Row {
    /// Which.
    pub case: CaseId,
    /// The most severe word among its metrics and its structure.
    pub word: Word,
    /// The reason for the word, and what would decide an open comparison, where the word alone does
    /// not say it.
    pub reason: Option<String>,
    /// True when the suite's policy allows this case to be unsupported or to fail.
    pub allowed: bool,
    /// The kind of failure, if the case could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The head's device time.
    pub head: Option<Timing>,
    /// The base's device time.
    pub base: Option<Timing>,
    /// The metrics that were compared with the base's, device time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricRow>,
    /// The causes found, ordered by the share of the change that they account for, largest first.
    pub findings: Vec<Finding>,
    /// Changes of structure, those that fail the case first; `None` if structures were not
    /// compared.
    #[serde(default)]
    pub structure: Option<Vec<StructuralChange>>,
    /// Figures that the base reports and the head does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<Uncounted>,
    /// The autotuner's choices, if they differ between invocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuner: Option<String>,
}

/// The largest number of added operators and functions of which one is named as the reason for a
/// change.
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

    /// The comparison of `metric`, if it was compared.
    pub fn metric(&self, metric: Metric) -> Option<&MetricRow> {
        self.metrics.iter().find(|row| row.metric == metric)
    }

    /// The comparison of the device time.
    pub fn change(&self) -> Option<&Comparison> {
        Some(&self.metric(Metric::Device)?.change)
    }

    /// The metric that a reader sees first: the one with the most severe word, and the first of
    /// several. A metric other than the device time is considered only if it regressed or may be
    /// worse. CPU time is never chosen, because it only explains the others.
    pub fn first_metric(&self) -> Option<&MetricRow> {
        let counts = |row: &&MetricRow| match row.metric {
            Metric::Device => true,
            Metric::CpuTime => false,
            _ => row.change.word == Word::Regressed || row.change.may_be_worse,
        };
        let all = self.metrics.iter().filter(counts).rev();
        all.max_by_key(|row| (row.change.word, row.change.may_be_worse))
    }

    /// Head over base of [`first_metric`](Row::first_metric), or of CPU time if that decided; 1
    /// without a comparison.
    pub fn ratio(&self) -> Ratio {
        let first = self.first_metric().map(|first| self.deciding(first));
        first.map_or(Ratio::ONE, |deciding| deciding.change.ratio)
    }

    /// The comparison that decided `metric`: its own, or that of CPU time.
    pub fn deciding<'a>(&'a self, metric: &'a MetricRow) -> &'a MetricRow {
        let cpu = self
            .metric(Metric::CpuTime)
            .filter(|_| metric.change.by_cpu_time);
        cpu.unwrap_or(metric)
    }

    /// The metrics that regressed. The slow tenth of the samples is left out if their median
    /// regressed as well, and CPU time always, because it only explains.
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

    /// True for an inconclusive case that may be worse, which keeps the run from passing.
    pub fn may_be_worse(&self) -> bool {
        let mut changes = self.metrics.iter().map(|metric| metric.change);
        self.word == Word::Inconclusive && changes.any(|change| change.may_be_worse)
    }

    /// True where more pairs could decide the case.
    pub fn is_open(&self) -> bool {
        let mut changes = self.metrics.iter().map(|metric| metric.change);
        self.word == Word::Inconclusive && changes.any(|change| change.open)
    }

    /// Changes of structure for which the policy demands `action`.
    pub fn structure_at(&self, action: Action) -> impl Iterator<Item = &StructuralChange> {
        let changes = self.structure.iter().flatten();
        changes.filter(move |change| change.action == action)
    }

    /// True when at least one change of structure fails the case.
    pub fn fails_by_structure(&self) -> bool {
        self.structure_at(Action::Fail).next().is_some()
    }

    /// The operator or function whose number of runs in a call grew most. `None` if more than eight
    /// grew: these are then the inside of some larger change.
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

    /// Changes of structure that are reported: those that fail the case, then those that warn.
    pub fn worth_telling(&self) -> impl Iterator<Item = &StructuralChange> {
        let fail = self.structure_at(Action::Fail);
        fail.chain(self.structure_at(Action::Warn))
    }
}

/// The device time of a case over its invocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Timing {
    /// The median over all invocations.
    pub median_ns: Nanoseconds,
    /// The time of the fastest invocation.
    pub min_ns: Nanoseconds,
    /// The time of the slowest invocation.
    pub max_ns: Nanoseconds,
    /// The median of each invocation, in the order of measurement.
    pub invocations_ns: Vec<Nanoseconds>,
    /// The median host time to issue a call, where that is a metric of its own.
    pub host_ns: Option<Nanoseconds>,
    /// The median time of the first call.
    pub first_call_ns: Option<Nanoseconds>,
    /// Floating-point operations, as the operator defines them, over the median time; only where a
    /// call is one problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tflops: Option<Rate>,
    /// Compulsory bytes over the median time, in GB/s; only where a call is one problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// The number of samples behind these times.
    pub samples: u64,
}

/// The result of an expectation for one case, or for one build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ExpectationResult {
    /// The expectation's name.
    pub name: String,
    /// The case that the expectation was applied to; `None` for a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<CaseId>,
    /// The build that the expectation was applied to, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<String>,
    /// The quantity. A metric is compared with that of other cases, a figure with its bounds.
    pub metric: Quantity,
    /// The reference: the fastest of the cases that the case is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<CaseId>,
    /// The smallest allowed value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The largest allowed value; for a metric, the largest allowed ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The value; for a metric, the estimated ratio.
    pub value: Option<f64>,
    /// For a metric, the comparison of the case with `against`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// `Same` if the expectation is met, `Regressed` if it is violated, `Missing` if it has no
    /// value.
    pub word: Word,
    /// The reason for the word, what would decide it, or the launch or events that the value was
    /// read from.
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

    /// Appends the place in the suite that makes the demand to the reason of a missing value.
    pub fn missing_at(mut self, origin: &Origin) -> ExpectationResult {
        if let (Word::Missing, Some(reason)) = (self.word, &mut self.reason) {
            *reason += &origin.to_string();
        }
        self
    }

    /// The case or the build, as text.
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

    /// The value in its unit, or `unknown`.
    pub fn value_text(&self) -> String {
        self.value
            .map_or("unknown".to_owned(), |value| self.figure(value))
    }

    /// The bounds as text: `at most 1.10x`.
    pub fn allowed(&self) -> String {
        bounds_text(self.at_least, self.at_most, |bound| self.figure(bound))
    }

    /// The interval of a ratio: `[1.21x, 1.32x]`.
    pub fn interval(&self) -> Option<String> {
        let Comparison { low, high, .. } = self.comparison?;
        let [low, high] = [low?, high?].map(Ratio::factor);
        Some(format!("[{low}, {high}]"))
    }

    /// True where the expectation may be violated, and nothing decided it.
    pub fn may_be_worse(&self) -> bool {
        self.comparison
            .is_some_and(|compared| compared.may_be_worse)
    }

    /// By how many times the value exceeds its bound, or falls short of it; infinite without a
    /// value.
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
            // With three decimals, one of 132 multiprocessors still shows. Whole counts have none.
            _ if value.fract() == 0.0 => format!("{value}"),
            _ => format!("{value:.3}"),
        }
    }
}

/// The bounds that are present, as text: `at least 0.5 and at most 1`.
pub(crate) fn bounds_text(
    least: Option<f64>,
    most: Option<f64>,
    figure: impl Fn(f64) -> String,
) -> String {
    let bounds = [("at least", least), ("at most", most)].into_iter();
    let bounds = bounds.filter_map(|(word, bound)| Some(format!("{word} {}", figure(bound?))));
    bounds.joined(" and ")
}

/// The outcome of a judgement, from which the exit code follows, and its reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Passed, failed or inconclusive.
    pub outcome: VerdictOutcome,
    /// Sentences, the most severe first: `worst regression CASE: 1.74 times as long`.
    pub reasons: Vec<String>,
    /// The number of cases by verdict, and the method: `48 same, 2 inconclusive (at most +2.9 %); by pairs`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shown: String,
}

impl Verdict {
    /// An inconclusive verdict without a summary of cases.
    pub fn inconclusive(reasons: Vec<String>) -> Verdict {
        Verdict {
            reasons,
            ..Verdict::default()
        }
    }

    /// The summary, then the reasons; an empty one is left out.
    pub fn sentences(&self) -> Vec<&str> {
        let all = std::iter::once(&self.shown).chain(&self.reasons);
        all.map(String::as_str)
            .filter(|text| !text.is_empty())
            .collect()
    }
}

words! {
    "word",
    /// The verdict on a case, a metric or an expectation, the most severe last. Each word has one
    /// meaning and one exit code; all details go into reasons.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
    )]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Word {
        /// The change is shown to lie within the threshold; an expectation is shown to be met;
        /// structure did not get worse.
        Same = "same",
        /// The change is shown to be a gain beyond the threshold.
        Improved = "improved",
        /// Only the head has the case, so there is nothing to compare it with.
        New = "new",
        /// Not supported, or not installed and the suite allows that.
        Skipped = "skipped",
        /// Everything that could be measured shows neither. Keeps the run from passing if the case
        /// may be worse.
        Inconclusive = "inconclusive",
        /// The case is planned or in the base, and has no value.
        #[default]
        Missing = "missing",
        /// The change is shown to be a loss beyond the threshold, or more starts are slow; an
        /// expectation is violated; structure got worse.
        Regressed = "regressed",
        /// A wrong result, a crash, a hang.
        Error = "error",
    }
}

/// The number of times that each word occurs.
pub fn tally(words: impl IntoIterator<Item = Word>) -> BTreeMap<Word, usize> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

impl Word {
    /// The word for a case. Without a base nothing is new: such a case is `measured`.
    pub fn of_case(self, compared: bool) -> &'static str {
        match self {
            Word::New if !compared => "measured",
            word => word.name(),
        }
    }

    /// The word for an expectation: `met` or `violated`.
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
    /// The median of the base, in nanoseconds or bytes.
    pub base: f64,
    /// The median of the head, in the same unit.
    pub head: f64,
    /// The head compared with the base.
    #[serde(flatten)]
    pub change: Comparison,
    /// The reason for the word, and what would decide an open comparison, where the word alone does
    /// not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True where other programs disturbed the values that it is judged by.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
    /// The number of invocations that were left out because other programs disturbed them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
    /// The breakdown of the change, if both sides report their operations, calls or parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Box<Account>>,
}

impl MetricRow {
    /// [`changed`](MetricRow::changed), followed by the breakdown of the change where it is known.
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

/// A metric, parameter or part of the structure that the base reports and the head does not, so
/// that nothing is known of its change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Uncounted {
    /// `launches`, a figure of a launch (`local memory`), or the name of a count, metric or
    /// parameter.
    pub name: String,
    /// The base's value, where it is a whole number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Why the head does not report it, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if both sides report it and it may have grown; `reason` then says why that is not
    /// decided.
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

    /// A figure that both sides report, of which it is not decided whether it grew.
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
