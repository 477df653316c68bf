//! What to measure: a suite as written in TOML, and the cases it makes.

mod axes;
mod builtin;
pub mod document;
mod parse;
pub mod rules;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use builtin::{BUILTIN, configure, load};

use crate::attention::{Case, ParamValue, Params, VariantId};
use rules::Rules;

/// A suite: cases, how to measure them, and what is demanded of the results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suite {
    /// Its name: the file's, without the ending.
    pub name: String,
    /// What it is for, in a line.
    pub description: String,
    /// The suite it was built on.
    pub extends: Option<String>,
    /// What is measured, sorted, each once.
    pub cases: Vec<Case>,
    /// How.
    pub settings: Settings,
    /// What is demanded.
    pub rules: Rules,
    /// Parameters handed over in place of those asked for.
    pub overrides: Vec<Override>,
    /// Where workers run, by name.
    pub environments: BTreeMap<String, Environment>,
    /// Workers of the suite's own, by name.
    pub workers: BTreeMap<String, WorkerCommand>,
    /// Where each variant was asked for: file, line and key.
    pub origins: BTreeMap<VariantId, String>,
}

/// How samples are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Starts of each worker process: the replicates.
    pub invocations: u32,
    /// Untimed calls before the samples.
    pub warmup: u32,
    /// Most samples of a case in an invocation.
    pub samples: u32,
    /// Samples taken whatever they cost.
    pub min_samples: u32,
    /// Milliseconds after which no further sample begins.
    pub budget_ms: u64,
    /// `cold` (flushed before each call) or `hot`.
    pub cache: String,
    /// Seed of inputs and of the order of cases.
    pub seed: u64,
    /// Seconds a worker may take over one request.
    pub timeout_s: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            invocations: 5,
            warmup: 3,
            samples: 20,
            min_samples: 5,
            budget_ms: 500,
            cache: "cold".to_owned(),
            seed: 1,
            timeout_s: 120,
        }
    }
}

/// Hands a variant another value than its cases ask for, while the cases keep
/// their ids: how a caller's bug is put in front of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The variant.
    pub variant: VariantId,
    /// The parameter.
    pub parameter: String,
    /// The value it replaces; `None`: whatever is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ParamValue>,
    /// The value handed over.
    pub to: ParamValue,
}

/// Where a worker runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The Python interpreter; `None`: `python3`.
    pub interpreter: Option<String>,
    /// Environment variables set for the process.
    pub env: BTreeMap<String, String>,
    /// Folders put in front of Python's import path.
    pub import_paths: Vec<String>,
}

/// The command that starts a worker of the suite's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand(pub Vec<String>);

impl Suite {
    /// The parameters that a case's variant is really given.
    pub fn params_for(&self, case: &Case) -> Params {
        let mut params = case.params.clone();
        for change in &self.overrides {
            let asked = case.params.get(&change.parameter);
            if change.variant == case.variant
                && change.from.as_ref().is_none_or(|from| *from == asked)
            {
                params.set(&change.parameter, change.to.clone());
            }
        }
        params
    }

    /// The first override that replaces nothing in any case.
    pub fn idle_override(&self) -> Option<&Override> {
        self.overrides.iter().find(|change| {
            let meets = |case: &Case| {
                let asked = case.params.get(&change.parameter);
                case.variant == change.variant
                    && change.from.as_ref().is_none_or(|from| *from == asked)
            };
            !self.cases.iter().any(meets)
        })
    }

    /// Keeps the cases whose id matches one of the patterns: a glob when it holds
    /// `*`, else a part of the id.
    pub fn keep(&mut self, patterns: &[String]) {
        if patterns.is_empty() {
            return;
        }
        self.cases.retain(|case| {
            let id = case.to_string();
            patterns.iter().any(|pattern| matches_id(pattern, &id))
        });
    }
}

/// True when a case id matches a pattern: `*` stands for anything, and a pattern
/// without one may be any part of the id.
pub fn matches_id(pattern: &str, id: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return id.contains(pattern);
    };
    let Some(mut left) = id.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = rest.split('*').collect();
    let (last, middle) = parts.split_last().unwrap_or((&"", &[]));
    for part in middle {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests;
