//! The kinds of structural change, the quantities that expectations limit, and the counts that they
//! need.

use serde::{Deserialize, Serialize};

use super::Metric;
use crate::machine::MODULE_LOADS;
use regatta_worker::case::Case;
use regatta_worker::words;

words! {
    "kind of change",
    /// A kind of structural change, the most severe first, with its name in suites and scripts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Kind {
        /// A launch leaves multiprocessors idle that were busy before.
        Fill = "fill",
        /// The number of independent pieces of work changed, where a worker counts them.
        Tasks = "tasks",
        /// Whole tensors are copied more often.
        Copies = "copies",
        /// A thread uses more local memory.
        Spills = "spills",
        /// An event that is counted in steady state happens more often.
        Counts = "counts",
        /// The call waits for the device more often.
        Synchronisation = "synchronisation",
        /// Memory is allocated from the driver, or freed, more often.
        DriverMemory = "driver-memory",
        /// A kernel executes more instructions, by more than repeated counts of one side differ.
        Instructions = "instructions",
        /// Another kernel runs in place of one.
        KernelReplaced = "kernel-replaced",
        /// Another grid.
        Grid = "grid",
        /// Another block.
        Block = "block",
        /// Another number of launches.
        Launches = "launches",
        /// Other registers a thread.
        Registers = "registers",
        /// Other shared memory a block.
        SharedMemory = "shared-memory",
        /// Other blocks resident on a multiprocessor.
        Occupancy = "occupancy",
        /// Another number of threads did work.
        Threads = "threads",
        /// More memory is set aside.
        Memory = "memory",
        /// The same request resulted in another effective parameter.
        Parameters = "parameters",
        /// Operators of the framework that a call runs another number of times.
        Operators = "operators",
        /// Python functions of the library that a call enters another number of times.
        Functions = "functions",
    }
}

impl Kind {
    /// The effect on the verdict unless a suite ignores it. An exact change that can
    /// only cost time fails. Another kernel, another tile or one launch more is as often
    /// an improvement, and threads that did work depend on the scheduler: those warn.
    pub fn default_action(self) -> Action {
        if self <= Kind::Instructions {
            Action::Fail
        } else {
            Action::Warn
        }
    }

    /// True for a kind that follows from the configuration that a tuner chose for a kernel.
    pub fn follows_tuning(self) -> bool {
        use Kind::{Block, Fill, Grid, Memory, Occupancy, Registers, SharedMemory, Spills};
        let launch = matches!(self, Fill | Grid | Block | Registers | SharedMemory);
        let other = matches!(self, Memory | Kind::Instructions | Kind::KernelReplaced);
        launch || other || matches!(self, Occupancy | Spills)
    }
}

/// The effect of a structural change on the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Recorded, and shown on the page alone.
    Ignore,
    /// Reported as a warning.
    Warn,
    /// The case fails.
    Fail,
}

/// Smallest relative growth of memory that counts.
pub const MEMORY_SHARE: f64 = 0.10;

/// True for a count that must not grow in steady state.
pub fn is_steady(count: &str) -> bool {
    count.starts_with("calls.") || count.starts_with(MODULE_LOADS)
}

/// Functions whose calls are counted as one event, over steady calls of some cases: those that an
/// expectation names as `calls:module:qualified.name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Count {
    /// The name of the count: `synchronize` is counted as `calls.synchronize`.
    pub name: String,
    /// The worker in whose processes it is made.
    pub worker: String,
    /// Each `module:qualified.name`.
    pub functions: Vec<String>,
}

impl Count {
    /// True if the count is made for this case.
    pub fn selects(&self, case: &Case) -> bool {
        self.worker == case.variant.worker
    }

    /// The name of the count of a function, `module:qualified.name`.
    ///
    /// # Errors
    /// A text that names no function, or one whose name a count has that is always made.
    pub fn function_name(function: &str) -> Result<&str, String> {
        let identifier = |word: &str| {
            let letter = |c: char| c.is_alphabetic() || c == '_';
            word.starts_with(letter) && word.chars().all(|c| letter(c) || c.is_numeric())
        };
        let dotted = |path: &str| path.split('.').all(identifier);
        match function.split_once(':') {
            Some((module, name)) if dotted(module) && dotted(name) => {
                if ALWAYS_COUNTED.contains(&name) {
                    Err(format!("calls.{name} is counted without being asked for"))
                } else {
                    Ok(name)
                }
            }
            _ => Err(
                "name a function as `calls:module:qualified.name`, for example \
                 `calls:torch.cuda:synchronize` or `calls:package.module:Class.method`"
                    .to_owned(),
            ),
        }
    }
}

/// Counts that workers make without being asked.
const ALWAYS_COUNTED: [&str; 4] = [
    "triton_autotune",
    "triton_compile",
    "torch_compile",
    "jax_compile",
];

/// The quantity of an expectation: a metric, a figure of one call's structure, or of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(from = "String", into = "String")]
pub enum Quantity {
    /// A metric, which is compared with that of other cases.
    Metric(Metric),
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
    /// True for a quantity of launches, for which a kernel may be named.
    pub fn is_of_launches(&self) -> bool {
        matches!(
            self,
            Quantity::Launches | Quantity::Blocks | Quantity::SmFill
        )
    }

    /// True for a quantity of a build, which belongs to no case.
    pub fn is_of_build(&self) -> bool {
        *self == Quantity::BuildSeconds
    }
}

/// Figures by their words.
const FIGURES: [(&str, Quantity); 5] = [
    ("launches", Quantity::Launches),
    ("copies", Quantity::Copies),
    ("blocks", Quantity::Blocks),
    ("sm_fill", Quantity::SmFill),
    ("build_seconds", Quantity::BuildSeconds),
];

impl From<String> for Quantity {
    fn from(word: String) -> Quantity {
        match FIGURES.into_iter().find(|(known, _)| *known == word) {
            Some((_, figure)) => figure,
            None => word.parse().map_or(Quantity::Count(word), Quantity::Metric),
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
            Quantity::Metric(metric) => metric.name(),
            Quantity::Count(name) => name,
            figure => FIGURES
                .iter()
                .find(|(_, known)| known == figure)
                .map_or("", |(word, _)| word),
        })
    }
}
