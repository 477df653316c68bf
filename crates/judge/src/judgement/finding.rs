//! Causes by name and findings of them, and what a tuner chose.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::fact::{Fact, told};
use regatta_core::machine::Sides;
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{ARROW, Share};

/// A named cause with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(from = "Written", into = "Written")]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// What was seen, most telling first.
    pub facts: Vec<Fact>,
    /// What of the change it accounts for; `None` where that is not known.
    pub share: Option<Share>,
}

impl Finding {
    /// The facts as a sentence: `threads 2 → 1, num_splits_key became 1 (was 2)`.
    pub fn evidence(&self) -> String {
        told(&self.facts)
    }
}

impl fmt::Display for Finding {
    /// `less-parallel: threads 2 → 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.evidence())
    }
}

/// A finding in JSON: the sentence for people, the facts for machines.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Written {
    /// What it is.
    cause: Cause,
    /// The facts as a sentence.
    evidence: String,
    /// What was seen, most telling first.
    facts: Vec<Fact>,
    /// What of the change it accounts for: 1.0 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<Share>,
}

impl From<Finding> for Written {
    fn from(finding: Finding) -> Written {
        Written {
            cause: finding.cause,
            evidence: finding.evidence(),
            facts: finding.facts,
            share: finding.share,
        }
    }
}

impl From<Written> for Finding {
    fn from(written: Written) -> Finding {
        Finding {
            cause: written.cause,
            facts: written.facts,
            share: written.share,
        }
    }
}

/// Declares the causes, each with the name that it has in every format.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $name:literal,)*) => {
        /// Why something takes longer, in a run or in a trace.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
        pub enum Cause {
            $($(#[$doc])* #[serde(rename = $name)] $cause,)*
        }

        impl Cause {
            /// Its name, as every format has it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Cause::$cause => $name,)*
                }
            }
        }
    };
}

causes! {
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
}

impl Cause {
    /// True for a cause that is read off what a call does, and not off a time or a condition
    /// around it.
    pub fn is_structural(self) -> bool {
        use Cause::{Environment, Gaps, HigherClock, HostBound, LostOverlap, LowerClock};
        use Cause::{NoOverlap, SameLaunch, SharedDevice, Throttled, Toolchain};
        let of_the_machine = matches!(
            self,
            LowerClock | HigherClock | Throttled | SharedDevice | Environment | Toolchain
        );
        let of_times = matches!(
            self,
            HostBound | Gaps | LostOverlap | NoOverlap | SameLaunch
        );
        !of_the_machine && !of_times
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// `BLOCK_M 128 → 64, num_warps 8 → 4`.
pub fn chosen(changed: &BTreeMap<String, Sides<ParamValue>>) -> String {
    let each = changed.iter();
    let each = each.map(|(name, value)| format!("{name} {} {ARROW} {}", value.base, value.head));
    each.collect::<Vec<_>>().join(", ")
}
