//! The causes by name, and findings: a cause with its evidence.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Difference;
use regatta_worker::units::Share;
use regatta_worker::words;

/// A named cause with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// The evidence as a sentence, the most important first: `threads 2 → 1, num_splits_key 2 → 1`.
    pub evidence: String,
    /// The differences in the evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// The share of the change that the cause accounts for, 1.0 for all of it; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

impl Finding {
    /// A finding whose evidence is `facts`, the most important first.
    pub fn new(cause: Cause, facts: Vec<Fact>) -> Finding {
        let evidence = sentence(&facts);
        let differences = facts.into_iter().filter_map(|fact| match fact {
            Fact::Difference(difference) => Some(difference),
            Fact::Figure(_) | Fact::Words(_) => None,
        });
        Finding {
            cause,
            evidence,
            differences: differences.collect(),
            share: None,
        }
    }
}

impl fmt::Display for Finding {
    /// `less-parallel: threads 2 → 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.evidence)
    }
}

/// A part of the evidence.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A difference between the two sides.
    Difference(Difference),
    /// A figure of one side: `153.0 of 216.0 µs`.
    Figure(String),
    /// A clause, separated from the others by a semicolon.
    Words(String),
}

impl Fact {
    /// Makes a clause.
    pub fn words(text: impl ToString) -> Fact {
        Fact::Words(text.to_string())
    }

    fn kernel(&self) -> Option<&str> {
        match self {
            Fact::Difference(difference) => difference.kernel(),
            Fact::Figure(_) | Fact::Words(_) => None,
        }
    }

    fn is_mean(&self) -> bool {
        matches!(self, Fact::Difference(Difference::Mean { .. }))
    }
}

impl From<Difference> for Fact {
    fn from(difference: Difference) -> Fact {
        Fact::Difference(difference)
    }
}

/// Joins facts to a sentence. Of several neighbouring facts about one kernel, only the last about
/// its launches names it. A semicolon separates facts about another kernel.
fn sentence(facts: &[Fact]) -> String {
    let mut text = String::new();
    for (place, fact) in facts.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| &facts[before]);
        let alike = |other: Option<&Fact>| {
            other.is_some_and(|other| fact.kernel().is_some() && other.kernel() == fact.kernel())
        };
        if let Some(before) = before {
            let another_kernel =
                fact.kernel().is_some() && before.kernel().is_some() && !alike(Some(before));
            let new_part = matches!(fact, Fact::Words(_)) || another_kernel;
            text += if new_part { "; " } else { ", " };
        }
        let named = if fact.is_mean() {
            !alike(before)
        } else {
            let next = facts.get(place + 1);
            !alike(next) || next.is_some_and(Fact::is_mean)
        };
        match fact {
            Fact::Difference(difference) => text += &difference.text(named),
            Fact::Figure(words) | Fact::Words(words) => text += words,
        }
    }
    text
}

words! {
    "cause",
    /// Why something takes longer, in a run or in a trace.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Cause {
        /// Less of the device does the work than before.
        LessParallel = "less-parallel",
        /// A kernel that takes much of the time has fewer blocks than the device has
        /// multiprocessors.
        FewBlocks = "few-blocks",
        /// The same request resulted in another effective parameter.
        ParameterChanged = "parameter-changed",
        /// Another kernel does the work.
        KernelReplaced = "kernel-replaced",
        /// The same kernel was compiled to other code, or code is compiled again and again.
        Recompiled = "recompiled",
        /// The same kernel keeps more in local memory.
        Spills = "spills",
        /// The same kernel executes more instructions.
        MoreInstructions = "more-instructions",
        /// A kernel that is launched as before takes longer.
        SameLaunch = "same-launch",
        /// More kernels that compute are launched.
        LaunchesAdded = "launches-added",
        /// More data is moved than before.
        CopiesAdded = "copies-added",
        /// Copies ran beside kernels, or kernels of two streams ran at once, and no longer do.
        LostOverlap = "lost-overlap",
        /// Copies do not run beside kernels.
        NoOverlap = "no-overlap",
        /// Code is loaded in every call, not only in the first.
        ModulesLoaded = "modules-loaded",
        /// Functions that a steady call should not enter run more often.
        EventsAdded = "events-added",
        /// A tuner chose another configuration.
        TunerChose = "tuner-chose",
        /// An autotuner tunes again.
        Retuned = "retuned",
        /// A program makes more calls to CUDA than before.
        CallsAdded = "calls-added",
        /// A call allocates memory from the driver, or frees it.
        DriverMemory = "driver-memory",
        /// The call itself waits for the device.
        Synchronisation = "synchronisation",
        /// A call allocates more memory.
        Workspace = "workspace",
        /// The host issues work more slowly than the device does it.
        HostBound = "host-bound",
        /// The device is idle between operations, for another reason than the host.
        Gaps = "gaps",
        /// The clock frequency of the device was lower.
        LowerClock = "lower-clock",
        /// The clock frequency of the device was higher.
        HigherClock = "higher-clock",
        /// The device throttled its clocks.
        Throttled = "throttled",
        /// Other processes used the device.
        SharedDevice = "shared-device",
        /// The same instructions take more or less time.
        Environment = "environment",
        /// A library or compiler has another version.
        Toolchain = "toolchain",
        /// More threads compute than the machine has cores.
        Oversubscribed = "oversubscribed",
        /// The threads of a call wait for cores.
        WaitingForCores = "waiting-for-cores",
        /// A call sleeps, or waits for a lock, a file or another process.
        Blocked = "blocked",
        /// A call computes with denormal numbers.
        Denormals = "denormals",
        /// A call computes in a wider type than its inputs.
        WiderType = "wider-type",
        /// Each call keeps more memory.
        MemoryGrowth = "memory-growth",
        /// Python collects garbage in a call.
        GarbageCollection = "garbage-collection",
        /// A function in the call takes longer, and no count explains why.
        SlowerFunction = "slower-function",
        /// A call causes more page faults, because the allocator had returned the pages to the
        /// system.
        PageFaults = "page-faults",
    }
}

impl Cause {
    /// True for a cause that is known from what a call does, rather than from a time or from a
    /// condition of the machine.
    pub fn is_structural(self) -> bool {
        use Cause::{Blocked, Environment, Gaps, HigherClock, HostBound, LostOverlap, LowerClock};
        use Cause::{
            NoOverlap, Oversubscribed, SameLaunch, SharedDevice, SlowerFunction, Throttled,
            Toolchain, WaitingForCores,
        };
        let of_the_machine = matches!(
            self,
            LowerClock | HigherClock | Throttled | SharedDevice | Environment | Toolchain
        );
        let of_times = matches!(
            self,
            HostBound
                | Gaps
                | LostOverlap
                | NoOverlap
                | SameLaunch
                | Oversubscribed
                | WaitingForCores
                | Blocked
                | SlowerFunction
        );
        !of_the_machine && !of_times
    }
}
