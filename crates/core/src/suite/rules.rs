//! What a suite demands of its results: expectations and policy.
//!
//! A run carries the rules it was measured under, so a stored run is judged as
//! its suite meant it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use super::selector::Selector;
use super::structural::{Action, Limit, StructurePolicy};
use regatta_worker::attention::{Case, FACETS};
use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// Everything a suite demands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Rules {
    /// Relations between cases of one run.
    pub expectations: Vec<Expectation>,
    /// Limits on the structure of single cases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// How differences are judged.
    pub policy: Policy,
}

/// A relation that must hold inside one run, without any baseline: each case
/// that `case` selects takes at most `within` times the best of the cases that
/// `against` selects and that are alike in everything neither of them names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Expectation {
    /// A sentence: `automatic splits as good as the best explicit ones`.
    pub name: String,
    /// The cases held to it.
    pub case: Selector,
    /// What they are held against.
    pub against: Selector,
    /// Largest allowed ratio of times.
    pub within: Ratio,
    /// Which time.
    pub metric: Metric,
}

impl Expectation {
    /// Everything about a case that neither selector names: two cases with the same are alike,
    /// and held against each other.
    ///
    /// Facets overlap, and naming one names what it implies: the variant is the worker's, so a
    /// rule that names variants compares across workers, and a rule that names workers compares
    /// variants of the same name.
    pub fn alike(&self, case: &Case) -> Vec<(String, String)> {
        let named: BTreeSet<&str> = self.case.facets().chain(self.against.facets()).collect();
        let variant = named.contains("variant");
        let free = |facet: &str| match facet {
            "worker" => variant || named.contains("worker"),
            facet => named.contains(facet),
        };
        let parameters = case.params.iter().map(|(name, _)| name.as_str());
        FACETS
            .into_iter()
            .chain(parameters)
            .filter(|facet| !free(facet))
            .map(|facet| {
                let value = match facet {
                    "variant" if named.contains("worker") => case.variant.name.clone(),
                    facet => case.facet(facet),
                };
                (facet.to_owned(), value)
            })
            .collect()
    }
}

/// A time that is measured of each case.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// How long the device worked.
    #[default]
    Device,
    /// How long the host needed to issue the call.
    Host,
    /// How long the first call of a process took, with all that is done once.
    FirstCall,
    /// How much processor time a call took, of all threads: the second witness of a worker on
    /// the processor, where the machine was in its other times.
    Processor,
}

impl Metric {
    /// Those that are judged beside the device's time.
    pub const BESIDE: [Metric; 2] = [Metric::Host, Metric::FirstCall];

    /// Every one that is judged beside it or in its place.
    pub const OTHERS: [Metric; 3] = [Metric::Host, Metric::FirstCall, Metric::Processor];

    /// The metric of every call that a suite calls so: what expectations can be on.
    pub fn named(name: &str) -> Option<Metric> {
        match name {
            "device" => Some(Metric::Device),
            "host" => Some(Metric::Host),
            _ => None,
        }
    }

    /// As a suite's `[policy.metrics]` calls it.
    pub fn key(self) -> &'static str {
        match self {
            Metric::Device => "device",
            Metric::Host => "host",
            Metric::FirstCall => "first_call",
            Metric::Processor => "processor",
        }
    }

    /// As a reader calls it.
    pub fn text(self) -> &'static str {
        match self {
            Metric::Device => "device time",
            Metric::Host => "host time",
            Metric::FirstCall => "first call",
            Metric::Processor => "processor time",
        }
    }

    /// Where the time was taken, to end a sentence; nothing for the device, which is usual.
    pub fn where_timed(self) -> &'static str {
        match self {
            Metric::Device => "",
            Metric::Host => " on the host",
            Metric::FirstCall => " in its first call",
            Metric::Processor => " of the processor",
        }
    }
}

/// How a metric is judged beside the device's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MetricPolicy {
    /// Smallest relative change that counts.
    pub floor: Share,
    /// Smallest change that counts, in nanoseconds: a fraction of nearly nothing is nothing.
    pub least_ns: Nanoseconds,
    /// What a change beyond both does.
    pub action: Action,
}

impl MetricPolicy {
    /// How a metric is judged where a suite says nothing of it.
    ///
    /// A call of PyTorch costs its host some 10 to 50 µs. Processes of one session differ by a
    /// tenth to a third, and on a shared host one case of 36 that did not change was seen to
    /// take 2.4 times as long in a later session: twice as much counts, and 10 µs do not. What a
    /// first call takes depends on caches that no run controls, compiled kernels above all:
    /// from twice on it is told, and fails where a suite says so.
    pub fn default_of(metric: Metric) -> MetricPolicy {
        let (floor, least_ns, action) = match metric {
            Metric::Device | Metric::Processor => (0.05, 0.0, Action::Fail),
            Metric::Host => (1.0, 1e4, Action::Fail),
            Metric::FirstCall => (1.0, 5e6, Action::Warn),
        };
        MetricPolicy {
            floor: Share(floor),
            least_ns: Nanoseconds(least_ns),
            action,
        }
    }
}

/// How differences are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Policy {
    /// Smallest relative change that counts, for example 0.05. A real but
    /// smaller one is not called a regression.
    pub floor: Share,
    /// The most fresh invocations that a case gets which the regular ones do not decide.
    pub confirm: u32,
    /// Metrics that are judged otherwise than [`MetricPolicy::default_of`] says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<Metric, MetricPolicy>,
    /// True where the processor time of cases that were measured in turn is judged as well, and
    /// not only where others were on the cores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processor: bool,
    /// How much of a suite a gate must have been able to judge, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sight: Option<Sight>,
    /// Patterns of case ids (`*` matches anything) that may fail or be
    /// unsupported without making the run incomplete.
    pub allow: Vec<String>,
    /// What part of a training step the cases take, from 0 to 1, where the suite knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_share: Option<Share>,
    /// How changes of structure are taken.
    #[serde(default, skip_serializing_if = "StructurePolicy::is_default")]
    pub structure: StructurePolicy,
}

/// What a gate must have been able to see: else it cannot say, and does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Sight {
    /// A relative change.
    pub change: Share,
    /// The part of the cases that could have shown it.
    pub cases: Share,
}

impl Policy {
    /// How a metric beside the device's time is judged.
    pub fn metric(&self, metric: Metric) -> MetricPolicy {
        let own = self.metrics.get(&metric).copied();
        own.unwrap_or_else(|| MetricPolicy::default_of(metric))
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            floor: Share(0.05),
            confirm: 30,
            metrics: BTreeMap::new(),
            processor: false,
            sight: None,
            allow: Vec::new(),
            step_share: None,
            structure: StructurePolicy::default(),
        }
    }
}
