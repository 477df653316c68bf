//! Causes by name, and findings of them with what they rest on.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Difference;
use regatta_core::machine::short;
use regatta_worker::units::{Nanoseconds, Share, part_of};

/// A named cause with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// The facts as a sentence: `threads 2 → 1, num_splits_key 2 → 1`.
    pub evidence: String,
    /// What was seen, most telling first.
    pub facts: Vec<Fact>,
    /// What of the change it accounts for, 1.0 is all of it; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

impl Finding {
    /// A cause that rests on these facts, and for how much of the change it accounts.
    pub fn new(cause: Cause, facts: Vec<Fact>, share: Option<Share>) -> Finding {
        Finding {
            cause,
            evidence: sentence(&facts),
            facts,
            share,
        }
    }

    /// The differences that it rests on.
    pub fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.facts.iter().filter_map(Fact::difference)
    }
}

impl fmt::Display for Finding {
    /// `less-parallel: threads 2 → 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.evidence)
    }
}

/// One thing that was seen, with its figures; prints itself as a part of a sentence. Words
/// that a figure is of stand before it (`what`) or behind it (`each`), and may be empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "fact", rename_all = "kebab-case")]
pub enum Fact {
    /// What differs between the two sides.
    Difference(Difference),
    /// A launch that stands out: its grid, and the share of all kernels' time that it takes.
    Standing {
        /// The kernel.
        kernel: String,
        /// Blocks in x, y, z.
        grid: [u32; 3],
        /// Multiprocessors with a block, and all of them.
        filled: (u64, u32),
        /// The part.
        part: Nanoseconds,
        /// The whole.
        whole: Nanoseconds,
        /// Words behind them.
        each: String,
    },
    /// A time: `device time 75.8 µs`, `80.0 µs no longer hidden`.
    Time {
        /// Words before the figures.
        what: String,
        /// How long.
        time: Nanoseconds,
        /// Words behind them.
        each: String,
    },
    /// A part of a time: `153.0 of 216.0 µs`.
    Part {
        /// Words before the figures.
        what: String,
        /// The part.
        part: Nanoseconds,
        /// The whole.
        whole: Nanoseconds,
        /// Words behind them.
        each: String,
    },
    /// A share: `88.0 % of it waiting for the host`.
    Share {
        /// The share.
        share: Share,
        /// Words behind them.
        each: String,
    },
    /// Invocations under a condition, of the slower side and of the faster.
    Condition {
        /// Words before the figures.
        what: String,
        /// What more is known of it.
        detail: String,
        /// Invocations of the slower side that were under it, and all that tell.
        slower: (u32, u32),
        /// The same of the faster side.
        faster: (u32, u32),
    },
    /// What is no figure.
    Words {
        /// A clause.
        text: String,
    },
}

impl Fact {
    /// A time.
    pub fn time(what: &str, time: Nanoseconds, each: &str) -> Fact {
        Fact::Time {
            what: what.to_owned(),
            time,
            each: each.to_owned(),
        }
    }

    /// A part of a time.
    pub fn part(what: &str, part: Nanoseconds, whole: Nanoseconds, each: &str) -> Fact {
        Fact::Part {
            what: what.to_owned(),
            part,
            whole,
            each: each.to_owned(),
        }
    }

    /// What is no figure.
    pub fn words(text: &str) -> Fact {
        Fact::Words {
            text: text.to_owned(),
        }
    }

    fn difference(&self) -> Option<&Difference> {
        match self {
            Fact::Difference(difference) => Some(difference),
            _ => None,
        }
    }

    fn kernel(&self) -> Option<&str> {
        self.difference()?.kernel()
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

/// Facts as a sentence. Of several of one kernel the last of its launches names it; another
/// kernel, and what is no figure, is set apart by a semicolon.
fn sentence(facts: &[Fact]) -> String {
    let mut text = String::new();
    for (place, fact) in facts.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| &facts[before]);
        let alike = |other: Option<&Fact>| {
            other.is_some_and(|other| fact.kernel().is_some() && other.kernel() == fact.kernel())
        };
        if let Some(before) = before {
            let anew = match fact {
                Fact::Words { .. } => true,
                Fact::Standing { .. } => matches!(before, Fact::Standing { .. }),
                _ => fact.kernel().is_some() && before.kernel().is_some() && !alike(Some(before)),
            };
            text += if anew { "; " } else { ", " };
        }
        let named = match fact.is_mean() {
            true => !alike(before),
            false => {
                let next = facts.get(place + 1);
                !alike(next) || next.is_some_and(Fact::is_mean)
            }
        };
        match fact {
            Fact::Difference(difference) => text += &difference.text(named),
            other => text += &other.to_string(),
        }
    }
    text
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Difference(difference) => difference.fmt(f),
            Fact::Standing {
                kernel,
                grid: [x, y, z],
                filled: (filled, sms),
                part,
                whole,
                each,
            } => write!(
                f,
                "grid {x}x{y}x{z} of {}, {filled} of {sms} SMs, {} of kernels{each} ({})",
                short(kernel),
                part_of(*part, *whole),
                part.share_of(*whole)
            ),
            Fact::Time { what, time, each } => write!(f, "{what}{time}{each}"),
            Fact::Part {
                what,
                part,
                whole,
                each,
            } => write!(f, "{what}{}{each}", part_of(*part, *whole)),
            Fact::Share { share, each } if share.0 == 0.0 => write!(f, "none{each}"),
            Fact::Share { share, each } => write!(f, "{share}{each}"),
            Fact::Condition {
                what,
                detail,
                slower,
                faster,
            } => write!(
                f,
                "{what} in {} of {} invocations ({detail}), before in {} of {}: the machine, \
                 not the code",
                slower.0, slower.1, faster.0, faster.1
            ),
            Fact::Words { text } => f.write_str(text),
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
