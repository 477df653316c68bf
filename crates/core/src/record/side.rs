//! One side of a comparison: a run or a baseline, reduced to the values that are judged.
//!
//! The invocation is the replicate. Its samples are reduced to their median here, and later code
//! never treats single samples as evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

mod reduce;

use serde::{Deserialize, Serialize};

use super::disturbance::{Disturbance, describe, worst};
use super::figures::NamedFigures;
use super::{Compared, Measurement, Outcome, Parts, RunHeader};
use crate::machine::{ActivitySummary, Counters, Division, Shared, Structure};
use crate::suite::{Metric, Values, matches_any};
use regatta_worker::case::{CaseId, ParamValue};
use regatta_worker::units::{Dimensioned, Nanoseconds, counted, is_zero, quantities};

/// A run or a baseline, as the judge sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// The label of the side: a path or a baseline's name.
    pub label: String,
    /// The header of the run.
    pub header: RunHeader,
    /// Every planned case.
    pub cases: BTreeMap<CaseId, CaseRecord>,
    /// Lines of its file that could not be used, as sentences.
    pub damage: Vec<String>,
}

impl Side {
    /// A sentence on the invocations that other programs disturbed, with the worst disturbances:
    /// `other programs disturbed 24 of 24 invocations (foreign load 1.9 of 2 cores)`.
    pub fn disturbed(&self) -> Option<String> {
        let invocations = || self.cases.values().flat_map(|record| &record.invocations);
        let disturbed = || invocations().filter(|one| !one.disturbed.is_empty());
        let number = disturbed().count();
        (number > 0).then(|| {
            format!(
                "other programs disturbed {number} of {} ({})",
                counted(invocations().count(), "invocation"),
                describe(&worst(disturbed().flat_map(|one| &one.disturbed)))
            )
        })
    }

    /// Keeps the cases whose id matches one of `patterns`, as a suite does. It does not follow the
    /// other side's cases, so that a case that is gone is still missed.
    pub fn keep(&mut self, patterns: &[String]) {
        self.cases.retain(|case, _| matches_any(patterns, &case.0));
    }

    /// This side as a base of `head`: if the two were measured in pairs, cases of variants that are
    /// compared with another variant get the ids of that one.
    pub fn as_base_of(mut self, head: &RunHeader) -> Side {
        let counterparts = self.header.counterparts_in(head);
        if counterparts.is_none_or(BTreeMap::is_empty) {
            return self;
        }
        let renamed = |id: CaseId| self.header.named_in(head, &id);
        let cases = self.cases.into_iter();
        self.cases = cases.map(|(id, record)| (renamed(id), record)).collect();
        self
    }
}

/// One case of a side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CaseRecord {
    /// The outcome over all invocations; absent if the case was measured and can be judged.
    #[serde(default, skip_serializing_if = "Outcome::is_measured")]
    pub status: Outcome<()>,
    /// The values of each invocation, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invocations: Vec<Invocation>,
    /// The parts of a first call, each the median over invocations, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_call_parts: Option<Parts>,
    /// Median device clock of each invocation, in MHz.
    #[serde(default, skip_serializing_if = "is_default")]
    pub clock_mhz: Shared<Vec<f64>>,
    /// True if a call covers several problems, so that its time gives no rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// The number of samples behind the medians.
    #[serde(default)]
    pub samples: u64,
    /// The conditions of the samples.
    #[serde(default, skip_serializing_if = "is_default")]
    pub conditions: Shared<Conditions>,
    /// The effective value of each parameter.
    #[serde(default, skip_serializing_if = "is_default")]
    pub effective: Shared<BTreeMap<String, ParamValue>>,
    /// The differences between invocations of one code, by the name of a parameter or
    /// `launches`: `157 in invocation 0, 1 in invocation 3`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub varying: BTreeMap<String, String>,
    /// The choices of a tuner, and their invocations; empty if no tuner is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
    /// Largest relative L2 difference from the float64 reference, by result.
    #[serde(default, skip_serializing_if = "NamedFigures::is_empty")]
    pub errors: NamedFigures,
    /// The structure of one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<Shared<Structure>>,
    /// The device's work in one call, in a few figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<ActivitySummary>,
    /// The time of each operation of a call, each the median over invocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<Box<Division>>,
    /// The hardware counters of its kernels, over all invocations in which they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Box<Counters>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The values of one invocation of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Invocation {
    /// The number of the invocation, from 0.
    pub number: u32,
    /// The value of each metric: nanoseconds or bytes.
    pub values: Values,
    /// Boxed, because a run may have millions of invocations, and those of a GPU seldom have any
    /// circumstances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    circumstances: Option<Box<Circumstances>>,
}

/// The circumstances of an invocation: ratios, threads, disturbances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Circumstances {
    /// The ratios to the base's metrics, where their samples were taken in turns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ratios: BTreeMap<Metric, f64>,
    /// The host time divided by that of the reference operation right after it: the median over
    /// samples. Comparisons of host time use this ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ratio: Option<f64>,
    /// The number of threads that computed in a call of a worker on the CPU: the median over
    /// samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// The page faults in a call of a worker on the CPU: the median over samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<u32>,
    /// True if the time for which a sample's thread was ready and had no core was subtracted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_taken_out: bool,
    /// The summed time for which the threads of a call were ready and had no core: the median over
    /// samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<Nanoseconds>,
    /// The growth of resident memory in bytes per call, where it was steady.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_call: Option<f64>,
    /// The disturbances of its samples by other programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<Disturbance>,
    /// True if other programs disturbed its first call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_call_disturbed: bool,
}

/// The circumstances of an invocation that records none.
static NO_CIRCUMSTANCES: LazyLock<Circumstances> = LazyLock::new(Circumstances::default);

impl Deref for Invocation {
    type Target = Circumstances;

    #[inline]
    fn deref(&self) -> &Circumstances {
        let known = self.circumstances.as_deref();
        known.unwrap_or_else(|| &NO_CIRCUMSTANCES)
    }
}

impl DerefMut for Invocation {
    fn deref_mut(&mut self) -> &mut Circumstances {
        self.circumstances.get_or_insert_default()
    }
}

impl Invocation {
    /// An invocation, whose default circumstances take no memory.
    pub fn new(number: u32, values: Values, circumstances: Circumstances) -> Invocation {
        let known = (circumstances != *NO_CIRCUMSTANCES).then(|| Box::new(circumstances));
        Invocation {
            number,
            values,
            circumstances: known,
        }
    }

    /// True if other programs disturbed the samples of a metric.
    pub fn is_disturbed(&self, metric: Metric) -> bool {
        match metric {
            Metric::FirstCall => self.first_call_disturbed,
            metric => metric.is_wall_time() && !self.disturbed.is_empty(),
        }
    }
}

impl CaseRecord {
    /// The values of a metric, from the invocations that have one.
    pub fn values(&self, metric: Metric) -> impl Iterator<Item = f64> {
        let all = self.invocations.iter();
        all.filter_map(move |one| one.values.get(metric))
    }

    /// The median of a figure over the invocations that have it.
    pub fn median_of(&self, figure: impl Fn(&Invocation) -> Option<f64>) -> Option<f64> {
        middle(self.invocations.iter().filter_map(figure))
    }

    /// The median of a metric over the invocations that have it.
    pub fn median(&self, metric: Metric) -> Option<f64> {
        middle(self.values(metric))
    }

    /// The device times of all invocations.
    pub fn device_ns(&self) -> Vec<Nanoseconds> {
        quantities(self.values(Metric::Device))
    }

    /// Invocations that other programs disturbed.
    pub fn disturbed(&self) -> impl Iterator<Item = &Invocation> {
        let all = self.invocations.iter();
        all.filter(|one| !one.disturbed.is_empty())
    }

    /// True if the invocation in which structure was counted was disturbed.
    pub fn census_disturbed(&self) -> bool {
        self.disturbed().any(|one| one.number == 0)
    }

    /// A record that has only a status.
    pub fn empty(status: Outcome<()>) -> CaseRecord {
        CaseRecord {
            status,
            ..CaseRecord::default()
        }
    }
}

/// True for a time that a clock can show: more than a femtosecond, less than a million years.
pub fn is_time(time: Nanoseconds) -> bool {
    (1e-6..1e23).contains(&time.0)
}

/// The median; the mean of the middle two for an even number of values.
pub fn median<Q: Dimensioned>(values: &[Q]) -> Option<Q> {
    middle(values.iter().map(|value| value.number())).map(Q::from_number)
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    /// The longest list that is sorted without an allocation: there are millions of lists of
    /// samples, and most are short.
    const FEW: usize = 64;
    let (mut few, mut number, mut many) = ([0.0; FEW], 0, Vec::new());
    for value in values {
        if number < FEW {
            few[number] = value;
            number += 1;
        } else {
            many.push(value);
        }
    }
    let sorted = if many.is_empty() {
        &mut few[..number]
    } else {
        many.extend(few);
        &mut many[..]
    };
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The rounded median of a count over samples.
pub fn median_count(counts: &[u32]) -> Option<u32> {
    let counts: Vec<f64> = counts.iter().map(|count| (*count).into()).collect();
    Some(median(&counts)?.round() as u32)
}

/// A parameter that a tuner chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Tuned {
    /// The value that it chose.
    pub value: ParamValue,
    /// True where a case may ask for it: the variant has a parameter of this name that takes
    /// the value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinnable: bool,
}

/// The choices of a tuner, by the parameter's name.
pub type Choices = BTreeMap<String, Tuned>;

/// The choices of a tuner in some invocations of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Choice {
    /// The choices by the parameter's name; empty where the tuner reported nothing in these.
    pub tuned: Choices,
    /// The numbers of these invocations, from 0, rising.
    pub invocations: Vec<u32>,
}

/// Adds the tuner's choices in an invocation. They keep the order in which they were first made.
pub(super) fn add_choice(all: &mut Vec<Choice>, invocation: u32, tuned: &Choices) {
    match all.iter_mut().find(|choice| choice.tuned == *tuned) {
        Some(choice) => choice.invocations.push(invocation),
        None => all.push(Choice {
            tuned: tuned.clone(),
            invocations: vec![invocation],
        }),
    }
}

/// The choice of most invocations; among equals, the one that was made first.
pub fn usual_choice(all: &[Choice]) -> Option<&Choice> {
    // `max_by_key` returns the last of equals.
    let rated = all.iter().rev();
    rated.max_by_key(|choice| choice.invocations.len())
}

/// The choice of the first invocation, in which structure is counted.
pub fn counted_choice(all: &[Choice]) -> Option<&Choice> {
    all.iter().min_by_key(|choice| choice.invocations.first())
}

/// Conditions other than the code that affect a time. Counts are numbers of invocations, later ones
/// included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Conditions {
    /// Invocations after which the device's state is known.
    pub known: u32,
    /// Invocations in which the device throttled its clocks.
    pub throttled: u32,
    /// The reasons for throttling.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub throttle_reasons: BTreeSet<String>,
    /// Invocations in which another process used the device.
    pub shared: u32,
    /// The largest number of other processes at once.
    pub other_processes: u32,
    /// Invocations in which the call itself waited for the device, so that its device time includes
    /// waits for the host.
    pub synchronised: u32,
    /// Invocations whose results were checked only before timing, although several sets of inputs
    /// were requested, because their worker supports none.
    #[serde(skip_serializing_if = "is_zero")]
    pub checked_before_only: u32,
    /// Invocations whose results were compared only with the base's.
    #[serde(skip_serializing_if = "is_zero")]
    pub compared_with_base: u32,
    /// Invocations whose results were not checked.
    #[serde(skip_serializing_if = "is_zero")]
    pub unchecked: u32,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchecked_reason: Option<String>,
    /// Invocations with fewer sets of inputs than requested.
    #[serde(skip_serializing_if = "is_zero")]
    pub fewer_input_sets: u32,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fewer_input_sets_reason: Option<String>,
}

impl Conditions {
    /// Adds one invocation.
    pub(super) fn add(&mut self, measurement: &Measurement) {
        self.synchronised += u32::from(measurement.samples.synchronised);
        if let Some(reason) = &measurement.samples.input_sets_reason {
            self.fewer_input_sets += 1;
            self.fewer_input_sets_reason = Some(reason.clone());
        }
        match &measurement.compared {
            None => {}
            Some(Compared::Base) => self.compared_with_base += 1,
            Some(Compared::Nothing(reason)) => {
                self.unchecked += 1;
                self.unchecked_reason.get_or_insert_with(|| reason.clone());
            }
        }
        let Some(state) = &measurement.samples.state else {
            return;
        };
        self.known += 1;
        let mut reasons = state.throttled_by().peekable();
        self.throttled += u32::from(reasons.peek().is_some());
        self.throttle_reasons.extend(reasons);
        let others = state.other_processes.unwrap_or(0);
        self.shared += u32::from(others > 0);
        self.other_processes = self.other_processes.max(others);
    }
}
