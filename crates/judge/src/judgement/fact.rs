//! What a finding saw, each figure by itself.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Difference;
use super::finding::chosen;
use crate::counts::{self, within};
use regatta_core::machine::{LaunchChange, Sides};
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{ARROW, Bytes, Nanoseconds, Ratio, Share, from_to, part_of};

/// One thing that was seen, with its figures; prints itself as a part of a sentence. Words
/// that a figure is of stand before it (`what`) or behind it (`of`), and may be empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "fact", rename_all = "kebab-case")]
pub enum Fact {
    /// A count, which of a mean over repetitions need not be whole: `threads 2 → 1`,
    /// `allocations 4 → 6`.
    Count {
        /// Words before the figures.
        what: String,
        /// What it was and is.
        count: Sides<f64>,
        /// Words behind them.
        of: String,
    },
    /// `workspace 512 B → 4.00 KiB`.
    Size {
        /// Words before the figures.
        what: String,
        /// What it was and is.
        size: Sides<Bytes>,
    },
    /// Launches that were added, with a kernel that is among them.
    Added {
        /// How many.
        number: usize,
        /// Words before the figures.
        what: String,
        /// The name of one.
        example: String,
    },
    /// What a parameter became.
    Parameter {
        /// Its name.
        name: String,
        /// What it was and is.
        value: Sides<ParamValue>,
    },
    /// What a tuner chose otherwise: `the tuner chose BLOCK_M 128 → 64, num_warps 8 → 4`.
    Chosen {
        /// What it was and is, by the parameter's name.
        value: BTreeMap<String, Sides<ParamValue>>,
    },
    /// A kernel and what changed of its launches: `grid 157x1x1 → 1x1x1 of fmha_cutlassB, 1
    /// of 132 SMs`; with the time of a launch, where a trace tells it.
    Launch {
        /// The kernel's name, shortened.
        kernel: String,
        /// Figures of its launches that changed.
        changes: Vec<LaunchChange>,
        /// Multiprocessors with a block, and all of them, where it is worth a word.
        filled: Option<(u64, u32)>,
        /// The mean time of a launch, where a trace tells it.
        mean: Option<Sides<Nanoseconds>>,
    },
    /// A launch that stands out: its grid, and the share of all kernels' time that it takes.
    Standing {
        /// The kernel's name, shortened.
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
        of: String,
    },
    /// Kernels in the place of others.
    Replaced {
        /// Their names, shortened.
        kernels: Sides<String>,
        /// The mean time of a launch, where a trace tells it.
        mean: Option<Sides<Nanoseconds>>,
    },
    /// Runs of a counted function, where its name says what it is, with the host's time in it.
    Events {
        /// Words before the figures.
        what: String,
        /// How often a call, before and after.
        count: Sides<u64>,
        /// Words behind them.
        of: String,
        /// The host's time a call in it, where known.
        host: Option<Nanoseconds>,
    },
    /// Calls of a counted function, with the host's time in it.
    Calls {
        /// Its name.
        name: String,
        /// How often a call, before and after.
        count: Sides<u64>,
        /// The host's time a call in it, where known.
        host: Option<Nanoseconds>,
    },
    /// A time before and after: `host 50.3 → 277.0 µs a call`.
    Times {
        /// Words before the figures.
        what: String,
        /// What it was and is.
        time: Sides<Nanoseconds>,
        /// Words behind them.
        of: String,
    },
    /// A time: `device time 75.8 µs`, `80.0 µs no longer hidden`.
    Time {
        /// Words before the figures.
        what: String,
        /// How long.
        time: Nanoseconds,
        /// Words behind them.
        of: String,
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
        of: String,
    },
    /// A share before and after.
    Shares {
        /// Words before the figures.
        what: String,
        /// What it was and is.
        share: Sides<Share>,
        /// Words behind them.
        of: String,
    },
    /// A share: `88.0 % of it waiting for the host`.
    Share {
        /// The share.
        share: Share,
        /// Words behind them.
        of: String,
    },
    /// A version of a library that differs.
    Version(Difference),
    /// The device's clock in MHz, and the share of the change that it accounts for.
    Clock {
        /// Its medians.
        mhz: Sides<f64>,
        /// The share.
        share: Share,
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
    Said {
        /// A clause.
        text: String,
    },
}

/// The facts of a finding as a sentence: a list of alike ones, and what is no figure, is set
/// apart by semicolons.
pub fn told(facts: &[Fact]) -> String {
    let mut text = String::new();
    for (place, fact) in facts.iter().enumerate() {
        if let Some(before) = place.checked_sub(1).map(|before| &facts[before]) {
            text += if fact.begins_anew(before) { "; " } else { ", " };
        }
        text += &fact.to_string();
    }
    text
}

impl Fact {
    /// A count before and after.
    pub fn count(what: &str, count: Sides<f64>, of: &str) -> Fact {
        Fact::Count {
            what: what.to_owned(),
            count,
            of: of.to_owned(),
        }
    }

    /// A time before and after.
    pub fn times(what: &str, time: Sides<Nanoseconds>, of: &str) -> Fact {
        Fact::Times {
            what: what.to_owned(),
            time,
            of: of.to_owned(),
        }
    }

    /// A part of a time.
    pub fn part(what: &str, part: Nanoseconds, whole: Nanoseconds, of: &str) -> Fact {
        Fact::Part {
            what: what.to_owned(),
            part,
            whole,
            of: of.to_owned(),
        }
    }

    /// What is no figure.
    pub fn said(text: &str) -> Fact {
        Fact::Said {
            text: text.to_owned(),
        }
    }

    /// True where a comma would run it into the one before it.
    fn begins_anew(&self, before: &Fact) -> bool {
        use Fact::{Calls, Events, Launch, Replaced, Said, Standing};
        match self {
            Launch { .. } => matches!(before, Launch { .. }),
            Standing { .. } => matches!(before, Standing { .. }),
            Replaced { .. } => matches!(before, Replaced { .. }),
            Events { .. } | Calls { .. } => matches!(before, Events { .. } | Calls { .. }),
            Said { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Count { what, count, of } => write!(f, "{what} {}{of}", became(*count)),
            Fact::Size { what, size } => write!(f, "{what} {} {ARROW} {}", size.base, size.head),
            Fact::Added {
                number,
                what,
                example,
            } => {
                let plural = if *number == 1 { "" } else { "s" };
                write!(f, "{number} {what}{plural} added ({example})")
            }
            Fact::Parameter { name, value } => {
                write!(f, "{name} became {} (was {})", value.head, value.base)
            }
            Fact::Chosen { value } => write!(f, "the tuner chose {}", chosen(value)),
            Fact::Launch {
                kernel,
                changes,
                filled,
                mean,
            } => {
                let mut told: Vec<String> = changes.iter().map(ToString::to_string).collect();
                let filled = filled.map(|(filled, sms)| format!("{filled} of {sms} SMs"));
                match mean {
                    Some(mean) => {
                        told.extend(filled);
                        told.push(times(*mean));
                        write!(f, "{kernel}: {}", told.join(", "))
                    }
                    None => {
                        write!(f, "{} of {kernel}", told.join(", "))?;
                        filled.map_or(Ok(()), |filled| write!(f, ", {filled}"))
                    }
                }
            }
            Fact::Standing {
                kernel,
                grid: [x, y, z],
                filled: (filled, sms),
                part,
                whole,
                of,
            } => write!(
                f,
                "{kernel}: grid {x}x{y}x{z}, {filled} of {sms} SMs, {} of kernels{of} ({})",
                part_of(*part, *whole),
                part.share_of(*whole)
            ),
            Fact::Replaced { kernels, mean } => {
                let Sides { base, head } = kernels;
                let mean = mean.map_or(String::new(), |mean| format!(": {}", times(mean)));
                match base == head {
                    true => write!(f, "{base} (differs further on in its name){mean}"),
                    false => write!(f, "{base} {ARROW} {head}{mean}"),
                }
            }
            Fact::Events {
                what,
                count,
                of,
                host,
            } => {
                let (often, within) = (counts::times(count.head), within(*host));
                write!(f, "{what} {often}{of}, was {}{within}", count.base)
            }
            Fact::Calls { name, count, host } => {
                let Sides { base, head } = count;
                write!(f, "{name} {base} {ARROW} {head} a call{}", within(*host))
            }
            Fact::Times { what, time, of } => {
                write!(f, "{what} {}{of}", from_to(time.base, time.head))
            }
            Fact::Time { what, time, of } => write!(f, "{what}{time}{of}"),
            Fact::Part {
                what,
                part,
                whole,
                of,
            } => write!(f, "{what}{}{of}", part_of(*part, *whole)),
            Fact::Shares { what, share, of } => {
                write!(f, "{what} {} {ARROW} {}{of}", share.base, share.head)
            }
            Fact::Share { share, of } if share.0 == 0.0 => write!(f, "none{of}"),
            Fact::Share { share, of } => write!(f, "{share}{of}"),
            Fact::Version(Difference { field, base, head }) => {
                write!(f, "{field} {base} {ARROW} {head}")
            }
            Fact::Clock { mhz, share } => write!(
                f,
                "clock {:.0} {ARROW} {:.0} MHz, which accounts for {share} of the change: the \
                 machine, not the code",
                mhz.base, mhz.head
            ),
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
            Fact::Said { text } => f.write_str(text),
        }
    }
}

/// `2 → 5`, of counts that need not be whole, as means over repetitions are.
fn became(count: Sides<f64>) -> String {
    let figure = |count: f64| match (count - count.round()).abs() < 0.05 {
        true => format!("{count:.0}"),
        false => format!("{count:.1}"),
    };
    format!("{} {ARROW} {}", figure(count.base), figure(count.head))
}

/// `2.60 → 268.0 ms, 103.1x slower`, of a launch; one that is on one side only is no slower.
fn times(mean: Sides<Nanoseconds>) -> String {
    let both = mean.base.0 > 0.0 && mean.head.0 > 0.0;
    let ratio = if both {
        mean.head / mean.base
    } else {
        Ratio::ONE
    };
    format!("{}, {}", from_to(mean.base, mean.head), ratio.told())
}
