//! Suites: their TOML files, and the cases that follow from them.

mod builtin;
pub mod document;
pub mod environment;
mod expectations;
pub mod file;
pub mod operators;
pub mod plan;
mod rules;
pub mod script;
mod structural;
mod sweep;
pub mod workers;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use builtin::{BUILTIN, FILE_NAME_RULE, configure, load, load_in, names_a_file};
pub use rules::*;
pub use structural::*;

pub use regatta_worker::protocol::Cache;
use regatta_worker::protocol::{DeviceKind, OutputSample};

use environment::Environment;
use regatta_worker::case::{Case, CaseId, ParamValue, Params, VariantId};
use regatta_worker::operator::Operators;
use regatta_worker::units::{is_one, one};
use workers::{Build, OwnWorker};

/// A suite: the cases, how to measure them, and the demands on the results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suite {
    /// The name: the file's, without the ending.
    pub name: String,
    /// The purpose, in one line.
    pub description: String,
    /// The suite it was built on.
    pub extends: Option<String>,
    /// Operators that it declares, by name.
    pub operators: Operators,
    /// The cases, sorted, each once.
    pub cases: Vec<Case>,
    /// Cases that a filter left out.
    pub filtered_out: usize,
    /// The settings of the measurement.
    pub settings: Settings,
    /// The demands on the results.
    pub rules: Rules,
    /// Parameters that replace those of cases.
    pub overrides: Vec<Override>,
    /// Functions whose calls are counted.
    pub counts: Vec<Count>,
    /// The build of the code under test, if the suite has one.
    pub build: Option<Build>,
    /// The interpreters of workers, by name.
    pub environments: BTreeMap<String, Environment>,
    /// Workers of the suite's own, by name.
    pub workers: BTreeMap<String, OwnWorker>,
    /// The workers that are scripts, whose calls are cases of this suite.
    pub scripts: BTreeSet<String>,
    /// The calls of scripts, which are known once the scripts have run.
    pub listed: BTreeMap<CaseId, Listed>,
    /// The origin of each variant: file, line and key.
    pub origins: BTreeMap<VariantId, String>,
    /// The origin of each worker of its own: file, line and key.
    pub origins_of_workers: BTreeMap<String, String>,
}

/// A call of a script, recorded when the script's calls were listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The place among the calls, from 0.
    pub order: usize,
    /// The file and line of the script.
    pub place: String,
    /// Samples of the arrays that it returned.
    pub outputs: Vec<OutputSample>,
}

/// The taking of samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Settings {
    /// Starts of each worker process: the replicates.
    pub invocations: u32,
    /// Untimed calls before the samples.
    pub warmup: u32,
    /// The largest number of samples of a case in an invocation.
    pub samples: u32,
    /// The number of samples that are taken whatever they cost.
    pub min_samples: u32,
    /// Milliseconds after which no further sample begins.
    pub budget_ms: u64,
    /// State of the last-level cache before a sample, if the suite sets it; else
    /// [`Settings::cache_on`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Time replays of a CUDA graph of the call in place of the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// Measure the peak performance of each device first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub peak: bool,
    /// Read hardware counters of each kernel, apart from all timing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instructions: bool,
    /// The number of sets of inputs, each from its own seed, that samples use in turn. With 1 the
    /// inputs stay the same, and a result that is kept from an earlier call passes for a computed
    /// one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub input_sets: u32,
    /// Seed of inputs and of the order of cases.
    pub seed: u64,
    /// Seconds a worker may take over one request.
    pub timeout_s: u32,
    /// Nothing is timed; the structure of a call is counted, once for each case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub structure_only: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            invocations: 5,
            warmup: 3,
            samples: 20,
            min_samples: 5,
            budget_ms: 200,
            cache: None,
            graph: false,
            peak: false,
            instructions: false,
            input_sets: 3,
            seed: 1,
            timeout_s: 120,
            structure_only: false,
        }
    }
}

impl Settings {
    /// The state of the last-level cache before a sample, for a worker on this kind of device. The
    /// default on a CPU is hot: a program's own data are in its caches, and clearing them takes
    /// longer than most calls.
    pub fn cache_on(&self, kind: Option<DeviceKind>) -> Cache {
        let usual = if kind == Some(DeviceKind::Cpu) {
            Cache::Hot
        } else {
            Cache::Cold
        };
        self.cache.unwrap_or(usual)
    }
}

/// Gives a variant another value than its cases ask for, while the cases keep their ids. So a
/// caller's bug can be reproduced in front of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Override {
    /// The variant.
    pub variant: VariantId,
    /// The parameter.
    pub parameter: String,
    /// The value that it replaces; `None` for any value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ParamValue>,
    /// The value that replaces it.
    pub to: ParamValue,
    /// The origin of the replacement.
    #[serde(skip)]
    pub origin: Origin,
}

impl Override {
    /// True if it replaces the value that a case asks for.
    fn replaces(&self, case: &Case) -> bool {
        let asked = case.params.get(&self.parameter);
        case.variant == self.variant && self.from.as_ref().is_none_or(|from| *from == asked)
    }
}

impl Suite {
    /// The parameters that a case's variant actually gets.
    pub fn params_for(&self, case: &Case) -> Params {
        let mut params = case.params.clone();
        let changes = self.overrides.iter();
        for change in changes.filter(|change| change.replaces(case)) {
            params.set(&change.parameter, change.to.clone());
        }
        params
    }

    /// True for an override that replaces nothing in any case.
    pub fn is_idle(&self, change: &Override) -> bool {
        !self.cases.iter().any(|case| change.replaces(case))
    }

    /// Keeps the cases whose id matches one of the patterns: a glob when it holds
    /// `*`, else a part of the id.
    pub fn keep(&mut self, patterns: &[String]) {
        if !patterns.is_empty() {
            let all = self.cases.len();
            self.cases
                .retain(|case| matches_any(patterns, &case.to_string()));
            self.filtered_out += all - self.cases.len();
        }
    }
}

#[cfg(test)]
mod tests;
