//! Causes by name, and findings of them with what they rest on.

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
    /// The differences in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// The share of the change that it accounts for, 1.0 is all of it; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

impl Finding {
    /// A cause that rests on these facts, most telling first.
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
    /// A clause, which a semicolon sets apart.
    Words(String),
}

impl Fact {
    /// A clause.
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

/// Facts as a sentence. Of several of one kernel the last of its launches names it; a semicolon
/// sets another kernel apart.
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
        /// Less of the device does the work than did.
        LessParallel = "less-parallel",
        /// A kernel that dominates has fewer blocks than the device has multiprocessors.
        FewBlocks = "few-blocks",
        /// The same request became another parameter.
        ParameterChanged = "parameter-changed",
        /// Another kernel does the work.
        KernelReplaced = "kernel-replaced",
        /// The same kernel was compiled into something else, or code is compiled again and again.
        Recompiled = "recompiled",
        /// The same kernel keeps more in local memory.
        Spills = "spills",
        /// The same kernel executes more instructions.
        MoreInstructions = "more-instructions",
        /// A kernel that is launched as before takes longer.
        SameLaunch = "same-launch",
        /// More kernels that compute are launched.
        LaunchesAdded = "launches-added",
        /// Data is moved that was not moved before.
        CopiesAdded = "copies-added",
        /// Copies ran beside kernels, or kernels of two streams at once, and do so no longer.
        LostOverlap = "lost-overlap",
        /// Copies do not run beside kernels.
        NoOverlap = "no-overlap",
        /// Code is loaded in every call, not only in the first.
        ModulesLoaded = "modules-loaded",
        /// Functions run more often that a steady call should not enter.
        EventsAdded = "events-added",
        /// A tuner chose another configuration.
        TunerChose = "tuner-chose",
        /// An autotuner tunes again.
        Retuned = "retuned",
        /// A program asks more of CUDA than it did.
        CallsAdded = "calls-added",
        /// A call takes memory from the driver, or gives it back.
        DriverMemory = "driver-memory",
        /// A call waits for the device by itself.
        Synchronisation = "synchronisation",
        /// More memory is set aside for a call.
        Workspace = "workspace",
        /// The host cannot issue work as fast as the device does it.
        HostBound = "host-bound",
        /// The device does nothing between operations, and it is not the host's fault.
        Gaps = "gaps",
        /// The device's clock was lower.
        LowerClock = "lower-clock",
        /// The device's clock was higher.
        HigherClock = "higher-clock",
        /// The device held its clocks back.
        Throttled = "throttled",
        /// Other processes computed on the device.
        SharedDevice = "shared-device",
        /// The same instructions take another time.
        Environment = "environment",
        /// Another library or compiler.
        Toolchain = "toolchain",
        /// More threads compute than there are cores.
        Oversubscribed = "oversubscribed",
        /// The threads of a call wait for cores.
        WaitingForCores = "waiting-for-cores",
        /// A call sleeps, or waits for a lock, a file or another process.
        Blocked = "blocked",
        /// A call computes with denormal numbers.
        Denormals = "denormals",
        /// A call computes in a wider type than its inputs.
        WiderType = "wider-type",
        /// A call keeps memory.
        MemoryGrowth = "memory-growth",
        /// Python collects garbage in a call.
        GarbageCollection = "garbage-collection",
        /// A function of a call takes longer, for no reason that was counted.
        SlowerFunction = "slower-function",
        /// The system gives a call more pages of memory that it had given back.
        PageFaults = "page-faults",
    }
}

impl Cause {
    /// True for a cause that is read off what a call does, and not off a time or a condition
    /// around it.
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
