//! One side of a comparison: a run or a baseline, reduced to what is judged.
//!
//! The replicate is the invocation: its samples collapse to one median here, and
//! nothing downstream sees single samples as evidence.

use std::collections::BTreeMap;

mod reduce;
mod stream;

use serde::{Deserialize, Serialize};

use super::choices::Choice;
use super::conditions::Conditions;
use super::disturbance::Disturbance;
use super::types::{Fault, Parts, RunHeader};
use crate::machine::{ActivitySummary, Counters, Division, Structure};
use crate::suite::matches_any;
use regatta_worker::attention::{CaseId, ParamValue};
use regatta_worker::units::{Bytes, Nanoseconds, Quantity, numbers};

/// A run or a baseline, as the judge sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// How to call it: a path or a baseline's name.
    pub label: String,
    /// Under what it was measured.
    pub header: RunHeader,
    /// Every planned case.
    pub cases: BTreeMap<CaseId, CaseRecord>,
    /// Lines of its file that could not be used, as sentences.
    pub damage: Vec<String>,
}

impl Side {
    /// Keeps the cases whose id matches one of the patterns, as a suite does: by the pattern, not
    /// by what another side has, so that a case that is gone is missed.
    pub fn keep(&mut self, patterns: &[String]) {
        self.cases.retain(|case, _| matches_any(patterns, &case.0));
    }

    /// This side as a base of `head`: where the two were measured in turn, and a variant of it
    /// stands in for one of the head's, its cases go by the names of those.
    pub fn as_base_of(mut self, head: &RunHeader) -> Side {
        let stands_in = self.header.stands_in_for(head);
        if stands_in.is_none_or(BTreeMap::is_empty) {
            return self;
        }
        let renamed = |id: CaseId| self.header.named_in(head, &id);
        let cases = self.cases.into_iter();
        self.cases = cases.map(|(id, record)| (renamed(id), record)).collect();
        self
    }
}

/// One case of a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CaseRecord {
    /// Whether there is anything to judge.
    #[serde(flatten)]
    pub status: Status,
    /// Median device time of each invocation, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_ns: Vec<Nanoseconds>,
    /// Device times of the sessions of a baseline before the one that the other fields are
    /// of, the oldest first, an invocation each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Vec<Nanoseconds>>,
    /// What a tuner chose in each of those sessions, where an invocation's number is its place
    /// in the session's times; empty where no tuner is known of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_choices: Vec<Vec<Choice>>,
    /// Median device time of each fresh invocation, taken where the regular ones did not decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirm_ns: Vec<Nanoseconds>,
    /// What came of a fresh invocation that gave no time, where one did not: the times of
    /// the others decide nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<Unconfirmed>,
    /// Median host time of each invocation, confirming ones last; empty where an
    /// invocation has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ns: Vec<Nanoseconds>,
    /// Median processor time of the worker's process in a call, of each invocation, confirming
    /// ones last; empty where an invocation has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_ns: Vec<Nanoseconds>,
    /// Invocations that the machine was in: their times are here, and in none of the lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<Disturbed>,
    /// First call of each invocation, but for those that the machine was in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_call_ns: Vec<Nanoseconds>,
    /// What it was made of, over these invocations: the medians of each part, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_call_parts: Option<Parts>,
    /// Median device clock of each invocation, in MHz.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_mhz: Vec<f64>,
    /// True when a call works off several problems, so that its time gives no rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Samples behind the medians.
    #[serde(default)]
    pub samples: u64,
    /// Most device memory in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<Bytes>,
    /// What happened around the samples.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
    /// What each parameter became.
    #[serde(default, skip_serializing_if = "none")]
    pub effective: BTreeMap<String, ParamValue>,
    /// What a tuner chose, and in which invocations; empty where no tuner is known of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
    /// Largest relative L2 difference from the float64 reference, by result.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, f64>,
    /// What one call does to the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<Box<Structure>>,
    /// What the device did in one call, in a few figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<ActivitySummary>,
    /// What each operation of a call takes: over invocations, the medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<Box<Division>>,
    /// What hardware counted of its kernels, over all invocations that were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Box<Counters>>,
}

fn none(parameters: &BTreeMap<String, ParamValue>) -> bool {
    parameters.is_empty()
}

/// Whether there is anything to judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Status {
    /// Checked and timed in every invocation.
    Measured,
    /// The variant does not do this.
    Unsupported {
        /// In its own words.
        reason: String,
    },
    /// It failed in at least one invocation.
    Failed {
        /// What happened.
        reason: String,
        /// What kind of failure that is.
        #[serde(default, skip_serializing_if = "Fault::is_unknown")]
        fault: Fault,
    },
    /// Planned, but without a time in at least one invocation.
    Missing {
        /// Which part is missing.
        reason: String,
    },
}

/// Fresh invocations of a suspect that did not all come to a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Unconfirmed {
    /// What happened.
    pub reason: String,
    /// What kind of failure that is; unknown where they were not taken.
    #[serde(default, skip_serializing_if = "Fault::is_unknown")]
    pub fault: Fault,
}

/// An invocation of a case that the machine was in, to the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Disturbed {
    /// Which.
    pub invocation: u32,
    /// True for one that was to confirm a suspicion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirms: bool,
    /// Its median device time.
    pub device_ns: Nanoseconds,
    /// Its median processor time, where the worker knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<Nanoseconds>,
    /// What of the machine that was.
    pub by: Vec<Disturbance>,
}

impl CaseRecord {
    /// The regular invocations that the machine was in.
    pub fn disturbed_screen(&self) -> impl Iterator<Item = &Disturbed> {
        self.disturbed
            .iter()
            .filter(|disturbed| !disturbed.confirms)
    }

    /// True where the machine was in half of the regular invocations or more: the quiet ones
    /// that are left are too few to speak for the case.
    pub fn is_disturbed(&self) -> bool {
        let disturbed = self.disturbed_screen().count();
        disturbed > 0 && disturbed >= self.device_ns.len()
    }

    /// True where the machine was in the invocation that structure was counted in.
    pub fn census_disturbed(&self) -> bool {
        self.disturbed.iter().any(|one| one.invocation == 0)
    }

    /// The numbers of the regular invocations whose times are in the lists, in their order.
    pub fn quiet_invocations(&self) -> impl Iterator<Item = u32> {
        let disturbed: Vec<u32> = self.disturbed.iter().map(|one| one.invocation).collect();
        let quiet = (0..).filter(move |number| !disturbed.contains(number));
        quiet.take(self.device_ns.len())
    }

    /// The numbers of all invocations whose times are in the lists, regular ones first.
    pub fn invocations(&self) -> Vec<u32> {
        let planned = self.device_ns.len() + self.disturbed_screen().count();
        let disturbed: Vec<u32> = self.disturbed.iter().map(|one| one.invocation).collect();
        let fresh = (planned as u32..).filter(|number| !disturbed.contains(number));
        let fresh = fresh.take(self.confirm_ns.len());
        self.quiet_invocations().chain(fresh).collect()
    }

    /// Median processor time of the worker's process in a call, of each invocation in the
    /// order of their numbers, whether or not the machine was in it: others on the cores
    /// stretch the time on the wall, and hardly this. Empty where an invocation has none.
    pub fn processor_ns(&self) -> Vec<Nanoseconds> {
        let quiet = self
            .invocations()
            .into_iter()
            .zip(self.cpu_ns.iter().copied());
        let disturbed = self.disturbed.iter();
        let disturbed = disturbed.filter_map(|one| Some((one.invocation, one.cpu_ns?)));
        let mut all: Vec<(u32, Nanoseconds)> = quiet.chain(disturbed).collect();
        all.sort_by_key(|(number, _)| *number);
        let measured = self.device_ns.len() + self.confirm_ns.len() + self.disturbed.len();
        match all.len() == measured {
            true => all.into_iter().map(|(_, time)| time).collect(),
            false => Vec::new(),
        }
    }

    /// A record with nothing in it but its status.
    pub fn empty(status: Status) -> CaseRecord {
        CaseRecord {
            status,
            device_ns: Vec::new(),
            earlier: Vec::new(),
            earlier_choices: Vec::new(),
            confirm_ns: Vec::new(),
            unconfirmed: None,
            host_ns: Vec::new(),
            cpu_ns: Vec::new(),
            disturbed: Vec::new(),
            first_call_ns: Vec::new(),
            first_call_parts: None,
            clock_mhz: Vec::new(),
            several: false,
            samples: 0,
            peak_bytes: None,
            conditions: Conditions::default(),
            effective: BTreeMap::new(),
            choices: Vec::new(),
            errors: BTreeMap::new(),
            structure: None,
            activity: None,
            division: None,
            counters: None,
        }
    }
}

/// True for a time that a clock can have shown: more than a femtosecond, less than a
/// million years.
pub fn is_time(time: Nanoseconds) -> bool {
    (1e-6..1e23).contains(&time.0)
}

/// The median; the mean of the middle two for an even number of values.
pub fn median<Q: Quantity>(values: &[Q]) -> Option<Q> {
    /// Most lists are of a case's samples, and there are millions of them.
    const FEW: usize = 64;
    let (mut few, mut many) = ([0.0; FEW], Vec::new());
    let sorted = match values.len() {
        number @ ..=FEW => {
            for (place, value) in few.iter_mut().zip(values) {
                *place = value.number();
            }
            &mut few[..number]
        }
        _ => {
            many.extend(numbers(values));
            &mut many[..]
        }
    };
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(Q::of(sorted[middle])),
        _ => Some(Q::of((sorted[middle - 1] + sorted[middle]) / 2.0)),
    }
}
