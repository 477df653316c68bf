//! What a suite demands of the structure of its cases: how each kind of change is
//! taken, and limits that need no baseline.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::selector::{Selector, glob, matches_name};
use crate::machine::MODULE_LOADS;
use regatta_worker::units::Share;

/// A kind of structural change. Its words are stable: suites and scripts name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A launch leaves multiprocessors idle that were busy before.
    Fill,
    /// Other independent pieces of work than before, where a worker counts them.
    Tasks,
    /// Whole tensors are copied more often.
    Copies,
    /// More local memory a thread.
    Spills,
    /// Something counted in steady state happens more often.
    Counts,
    /// The call waits for the device more often.
    Synchronisation,
    /// Memory is taken from the driver, or given back to it, more often.
    DriverMemory,
    /// A kernel executes more instructions, beyond what countings of one side differ by.
    Instructions,
    /// Another kernel does the work.
    KernelReplaced,
    /// Another grid.
    Grid,
    /// Another block.
    Block,
    /// Another number of launches.
    Launches,
    /// Other registers a thread.
    Registers,
    /// Other shared memory a block.
    SharedMemory,
    /// Other blocks resident on a multiprocessor.
    Occupancy,
    /// Another number of threads did work.
    Threads,
    /// More memory is set aside.
    Memory,
    /// The same request became another parameter.
    Parameters,
    /// Operators of the framework that a call runs another number of times.
    Operators,
    /// Python functions of the library that a call enters another number of times.
    Functions,
}

impl Kind {
    /// Every kind, gravest first.
    pub const ALL: [Kind; 20] = [
        Kind::Fill,
        Kind::Tasks,
        Kind::Copies,
        Kind::Spills,
        Kind::Counts,
        Kind::Synchronisation,
        Kind::DriverMemory,
        Kind::Instructions,
        Kind::KernelReplaced,
        Kind::Grid,
        Kind::Block,
        Kind::Launches,
        Kind::Registers,
        Kind::SharedMemory,
        Kind::Occupancy,
        Kind::Threads,
        Kind::Memory,
        Kind::Parameters,
        Kind::Operators,
        Kind::Functions,
    ];

    /// The word for it.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Fill => "fill",
            Kind::Tasks => "tasks",
            Kind::Copies => "copies",
            Kind::Spills => "spills",
            Kind::Counts => "counts",
            Kind::Synchronisation => "synchronisation",
            Kind::DriverMemory => "driver-memory",
            Kind::KernelReplaced => "kernel-replaced",
            Kind::Grid => "grid",
            Kind::Block => "block",
            Kind::Launches => "launches",
            Kind::Registers => "registers",
            Kind::SharedMemory => "shared-memory",
            Kind::Occupancy => "occupancy",
            Kind::Threads => "threads",
            Kind::Memory => "memory",
            Kind::Parameters => "parameters",
            Kind::Operators => "operators",
            Kind::Functions => "functions",
            Kind::Instructions => "instructions",
        }
    }

    /// The kind of this word.
    pub fn parse(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.text() == word)
    }

    /// True for what follows from the configuration that a tuner chose for a kernel.
    pub fn follows_tuning(self) -> bool {
        use Kind::{Block, Fill, Grid, Memory, Occupancy, Registers, SharedMemory, Spills};
        let launch = matches!(self, Fill | Grid | Block | Registers | SharedMemory);
        let other = matches!(self, Memory | Kind::Instructions | Kind::KernelReplaced);
        launch || other || matches!(self, Occupancy | Spills)
    }

    /// How it is taken where a suite does not say. What is exact and can only cost time
    /// fails. Another kernel, another tile or one launch more is as often an improvement,
    /// and threads that did work depend on the scheduler: those are told.
    pub fn default_action(self) -> Action {
        match self {
            Kind::Fill
            | Kind::Tasks
            | Kind::Copies
            | Kind::Spills
            | Kind::Counts
            | Kind::Synchronisation
            | Kind::DriverMemory
            | Kind::Instructions => Action::Fail,
            _ => Action::Warn,
        }
    }
}

/// What a structural change does to the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Recorded, and shown on the page alone.
    Ignore,
    /// Told.
    Warn,
    /// The case fails.
    Fail,
}

impl Action {
    /// The action of this word.
    pub fn parse(word: &str) -> Option<Action> {
        match word {
            "ignore" => Some(Action::Ignore),
            "warn" => Some(Action::Warn),
            "fail" => Some(Action::Fail),
            _ => None,
        }
    }
}

/// How structural changes are taken. A change for the better is recorded and no more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct StructurePolicy {
    /// Kinds that are taken otherwise than by default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub actions: BTreeMap<Kind, Action>,
    /// Exceptions; the last one that matches decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<StructureRule>,
    /// Smallest relative growth of memory that counts.
    pub memory_share: Share,
    /// Beginnings of the names of counts that must not grow in steady state.
    pub steady_counts: Vec<String>,
}

impl Default for StructurePolicy {
    fn default() -> StructurePolicy {
        StructurePolicy {
            actions: BTreeMap::new(),
            rules: Vec::new(),
            memory_share: Share(0.10),
            steady_counts: vec!["calls.".to_owned(), MODULE_LOADS.to_owned()],
        }
    }
}

/// An exception to how structural changes are taken. What it leaves out is any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct StructureRule {
    /// Pattern of the kernel, count or parameter that changed, by its whole name or the short one
    /// that reports print; `*` matches anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Pattern of case ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// The kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// How it is taken.
    pub action: Action,
}

impl StructurePolicy {
    /// How a change of this kind, of the thing of this name, is taken in a case.
    pub fn action(&self, kind: Kind, name: &str, case: &str) -> Action {
        let any = |pattern: &Option<String>, fits: fn(&str, &str) -> bool, text: &str| {
            pattern.as_ref().is_none_or(|pattern| fits(pattern, text))
        };
        let rule = self.rules.iter().rev().find(|rule| {
            rule.kind.is_none_or(|of| of == kind)
                && any(&rule.name, matches_name, name)
                && any(&rule.case, glob, case)
        });
        match rule {
            Some(rule) => rule.action,
            None => match self.actions.get(&kind) {
                Some(action) => *action,
                None => kind.default_action(),
            },
        }
    }

    /// True where a suite says nothing of structure.
    pub fn is_default(&self) -> bool {
        *self == StructurePolicy::default()
    }

    /// True for a count that must not grow in steady state.
    pub fn is_steady(&self, count: &str) -> bool {
        self.steady_counts
            .iter()
            .any(|beginning| count.starts_with(beginning.as_str()))
    }
}

/// A limit on the structure of each case that `case` selects, or on each build, without any
/// baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Limit {
    /// A sentence: `the automatic choice fills half of the device`.
    pub name: String,
    /// The cases held to it; a build is of none.
    pub case: Selector,
    /// What is limited.
    pub count: Quantity,
    /// Pattern of the kernels it speaks of, by their whole names or the short ones that reports
    /// print; `None`: those that compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Smallest allowed value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Largest allowed value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

impl Limit {
    /// True for a value within it.
    pub fn allows(&self, value: f64) -> bool {
        self.at_least.is_none_or(|least| value >= least)
            && self.at_most.is_none_or(|most| value <= most)
    }
}

/// A figure of one call's structure, or of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(from = "String", into = "String")]
pub enum Quantity {
    /// Kernel launches.
    Launches,
    /// Copies of whole tensors.
    Copies,
    /// Blocks of the largest grid.
    Blocks,
    /// The share of the multiprocessors that the largest grid has a block for, 0 to 1.
    SmFill,
    /// Seconds that a build took.
    BuildSeconds,
    /// A count of the worker's: `calls.backend_selections`.
    Count(String),
}

impl Quantity {
    /// True where it speaks of launches, so that a kernel may be named.
    pub fn is_of_launches(&self) -> bool {
        matches!(
            self,
            Quantity::Launches | Quantity::Blocks | Quantity::SmFill
        )
    }

    /// True where it speaks of a build, which is of no case.
    pub fn is_of_build(&self) -> bool {
        *self == Quantity::BuildSeconds
    }
}

impl From<String> for Quantity {
    fn from(word: String) -> Quantity {
        match word.as_str() {
            "launches" => Quantity::Launches,
            "copies" => Quantity::Copies,
            "blocks" => Quantity::Blocks,
            "sm_fill" => Quantity::SmFill,
            "build_seconds" => Quantity::BuildSeconds,
            _ => Quantity::Count(word),
        }
    }
}

impl From<Quantity> for String {
    fn from(quantity: Quantity) -> String {
        quantity.to_string()
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Quantity::Launches => "launches",
            Quantity::Copies => "copies",
            Quantity::Blocks => "blocks",
            Quantity::SmFill => "sm_fill",
            Quantity::BuildSeconds => "build_seconds",
            Quantity::Count(name) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_matches_decides_then_the_table_then_the_default() {
        let rule = |name: &str, kind, action| StructureRule {
            name: Some(name.to_owned()),
            case: None,
            kind,
            action,
        };
        let policy_of = |rule| StructurePolicy {
            rules: vec![rule],
            ..StructurePolicy::default()
        };
        let policy = StructurePolicy {
            actions: [(Kind::Grid, Action::Fail)].into(),
            rules: vec![
                rule("*elementwise*", None, Action::Ignore),
                rule("*", Some(Kind::Copies), Action::Warn),
                StructureRule {
                    case: Some("torch/*".to_owned()),
                    ..rule("flash*", Some(Kind::Registers), Action::Fail)
                },
            ],
            ..StructurePolicy::default()
        };
        let action = |kind, name| policy.action(kind, name, "torch/flash:s64,d64");
        assert_eq!(action(Kind::Copies, "elementwise_kernel"), Action::Warn);
        assert_eq!(action(Kind::Grid, "elementwise_kernel"), Action::Ignore);
        assert_eq!(action(Kind::Grid, "flash_fwd"), Action::Fail);
        assert_eq!(action(Kind::Fill, "flash_fwd"), Action::Fail);
        assert_eq!(action(Kind::Launches, "flash_fwd"), Action::Warn);
        assert_eq!(action(Kind::Registers, "flash_fwd"), Action::Fail);
        // A report prints `vectorized_elementwise_kernel<4>` of this.
        let whole = "at::native::vectorized_elementwise_kernel<4>(int, float*)";
        let short = policy_of(rule("vectorized_elementwise_kernel<4>", None, Action::Fail));
        assert_eq!(short.action(Kind::Block, whole, "c"), Action::Fail);
        let long = policy_of(rule("at::native::*(int, float*)", None, Action::Fail));
        assert_eq!(long.action(Kind::Block, whole, "c"), Action::Fail);
        let elsewhere = policy.action(Kind::Registers, "flash_fwd", "cuda/flash:s64,d64");
        assert_eq!(elsewhere, Action::Warn);
    }
}
