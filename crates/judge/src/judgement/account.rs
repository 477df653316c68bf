//! The breakdown of a change in time: lines that add up to it, and the unexplained rest.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Difference;
use regatta_core::machine::{LaunchChange, Sides, StepPart, plain};
use regatta_worker::joined::Joined;
use regatta_worker::units::{ARROW, Nanoseconds, Share, counted};

/// The breakdown of a change in time. The lines and the unexplained rest add up to the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Account {
    /// The head's time less the base's, of the time that was judged.
    pub change_ns: Nanoseconds,
    /// The lines, ordered by size without regard to sign, largest first.
    pub lines: Vec<AccountLine>,
    /// The change less the sum of all lines.
    pub unexplained_ns: Nanoseconds,
}

/// One line of a breakdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct AccountLine {
    /// The cause of this line's time.
    #[serde(flatten)]
    pub item: Item,
    /// The part of a training step that the item belongs to, where the program's operators say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<StepPart>,
    /// The growth of the item's time; negative if the head takes less.
    pub growth_ns: Nanoseconds,
}

/// An item of a breakdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "item", rename_all = "kebab-case")]
pub enum Item {
    /// A kernel, copy or fill that both sides run equally often.
    Longer {
        /// The shortened name.
        what: String,
        /// The number of runs in a call.
        count: u32,
        /// The differences between its launches on the two sides.
        changes: Vec<LaunchChange>,
        /// The growth of its executed instructions, if hardware counted them exactly on
        /// both sides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executes: Option<Share>,
    },
    /// Operations that only the head runs.
    Added {
        /// The shortened name.
        what: String,
        /// The number of launches.
        count: u32,
        /// True where the operations only move data.
        moves: bool,
    },
    /// Operations that only the base runs.
    Gone {
        /// The shortened name.
        what: String,
        /// The number of launches.
        count: u32,
    },
    /// Operations of the head that replaced operations of the base.
    InPlace {
        /// The operator that launched them, where the program reports it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operator: Option<String>,
        /// The shortened names on each side, each once.
        names: Sides<Vec<String>>,
        /// The number of launches on each side.
        count: Sides<u32>,
        /// The total time on each side.
        time: Sides<Nanoseconds>,
    },
    /// The device's own time between operations, where the two sides have different numbers of
    /// them.
    Starts {
        /// The number of operations on each side.
        count: Sides<u32>,
    },
    /// The device's own time between operations, where both sides have the same number of them.
    Gaps,
    /// Time in which the device waits for the host.
    Waiting,
    /// A change of the device's clock frequency.
    Clock {
        /// The medians in MHz.
        mhz: Sides<f64>,
    },
    /// A part of a host's time: one class of calls to CUDA, or compiling or loading in a first
    /// call.
    Part {
        /// The name: `launches`, `synchronisations`, `compiling`.
        name: String,
        /// The number of occurrences on each side.
        count: Sides<u64>,
    },
    /// Lines too small to be listed.
    Others {
        /// The number of lines.
        count: u32,
    },
}

impl AccountLine {
    /// A line that belongs to no part of a training step.
    pub fn new(item: Item, growth_ns: Nanoseconds) -> AccountLine {
        AccountLine {
            item,
            part: None,
            growth_ns,
        }
    }
}

impl fmt::Display for AccountLine {
    /// A few words: `backward: flash_bwd_kernel`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(part) = self.part {
            write!(f, "{part}: ")?;
        }
        self.item.fmt(f)
    }
}

impl fmt::Display for Item {
    /// A few words: `copy kernel elementwise_kernel added`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |count: &u32| match count {
            1 => String::new(),
            count => format!(" {count}x"),
        };
        let text = match self {
            Item::Longer {
                what,
                count,
                changes,
                executes,
            } => {
                let changes = changes.iter().map(ToString::to_string);
                let executes = executes.map(|more| {
                    if more.0 == 0.0 {
                        "same instructions".to_owned()
                    } else {
                        format!("instructions {:+.1} %", 100.0 * more.0)
                    }
                });
                let changes = match changes.chain(executes).joined(", ") {
                    changes if changes.is_empty() => changes,
                    changes => format!(" ({changes})"),
                };
                format!("{}{}{changes}", plain(what), times(count))
            }
            Item::Added { what, count, moves } => {
                let kind = if *moves && !what.starts_with("copy ") {
                    "copy kernel "
                } else {
                    ""
                };
                format!("{kind}{} added{}", plain(what), times(count))
            }
            Item::Gone { what, count } => format!("{} gone{}", plain(what), times(count)),
            Item::InPlace {
                operator,
                names,
                count,
                time,
            } => {
                let side = |names: &[String], count: u32| match names {
                    [one] => format!("{}{}", plain(one), times(&count)),
                    _ => counted(count as usize, "operation"),
                };
                let operator = operator.as_ref().map(|operator| format!("{operator}: "));
                format!(
                    "{}{}, {} {ARROW} {}, {}",
                    operator.unwrap_or_default(),
                    side(&names.base, count.base),
                    time.base,
                    side(&names.head, count.head),
                    time.head
                )
            }
            Item::Starts { count } => {
                format!("starts of operations {} {ARROW} {}", count.base, count.head)
            }
            Item::Gaps => "gaps between operations".to_owned(),
            Item::Waiting => "waiting for the host".to_owned(),
            Item::Clock { mhz } => Difference::Clock { mhz: *mhz }.to_string(),
            Item::Part { name, count } if count.base == count.head => name.replace('_', " "),
            Item::Part { name, count } => {
                let count = count.map(|count| *count as f64);
                Difference::count(name, count, "").to_string()
            }
            Item::Others { count } => format!("{count} more"),
        };
        f.write_str(&text)
    }
}

/// The largest number of lines in a sentence; the others are summed.
const MAX_LINES: usize = 4;

/// The share of the change below which a line is summed with others.
const SMALL: f64 = 0.03;

impl Account {
    /// The summed growth of all lines whose item matches.
    pub fn growth(&self, matches: impl Fn(&Item) -> bool) -> Nanoseconds {
        let lines = self.lines.iter().filter(|line| matches(&line.item));
        lines.map(|line| line.growth_ns).sum()
    }
}

impl fmt::Display for Account {
    /// `+3.2 µs = copy kernel added +1.4, starts of operations 1 → 2 +1.7`: the largest lines, the
    /// sum of the small ones, and the unexplained rest unless it is small.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.change_ns.0.abs() * SMALL;
        let is_small = |time: Nanoseconds| time.0.abs() < small;
        let (mut parts, mut rest, mut count) = (Vec::new(), Nanoseconds::ZERO, 0);
        for line in &self.lines {
            match &line.item {
                Item::Others { count: others } => {
                    (count, rest) = (count + others, rest + line.growth_ns)
                }
                _ if is_small(line.growth_ns) || parts.len() == MAX_LINES => {
                    (count, rest) = (count + 1, rest + line.growth_ns);
                }
                _ => parts.push((line.to_string(), line.growth_ns)),
            }
        }
        let mut left = self.unexplained_ns;
        if is_small(rest) || count == 0 {
            // Lines that are left out are added to the unexplained rest.
            left += rest
        } else {
            parts.push((Item::Others { count }.to_string(), rest))
        }
        if !is_small(left) {
            parts.push(("not explained".to_owned(), left));
        }
        let parts = parts.into_iter();
        let parts =
            parts.map(|(what, time)| format!("{what} {}", time.signed_beside(self.change_ns)));
        write!(f, "{} = {}", self.change_ns.signed(), parts.joined(", "))
    }
}
