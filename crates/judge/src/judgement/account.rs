//! Where a change of a time went: lines that add up to it, and what is not explained.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Difference;
use regatta_core::machine::{LaunchChange, Sides, StepPart, plain};
use regatta_worker::units::{ARROW, Nanoseconds, Share, counted};

/// A change of a time in parts. The lines and what is not explained add up to the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Account {
    /// Head less base of the time that was judged.
    pub change_ns: Nanoseconds,
    /// The largest first, whichever way they go.
    pub lines: Vec<AccountLine>,
    /// The change less all lines.
    pub unexplained_ns: Nanoseconds,
}

/// One part of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct AccountLine {
    /// What it is of.
    #[serde(flatten)]
    pub item: Item,
    /// The part of a training step that it is in, where the program's operators tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<StepPart>,
    /// What the head takes more for it; below 0: less.
    pub growth_ns: Nanoseconds,
}

/// What a part of a change is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "item", rename_all = "kebab-case")]
pub enum Item {
    /// A kernel, copy or fill that both sides run, as often.
    Longer {
        /// Its name, shortened.
        what: String,
        /// How often a call runs it.
        count: u32,
        /// What changed of its launches.
        changes: Vec<LaunchChange>,
        /// How much more instructions they execute, where hardware counted them exactly on
        /// both sides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executes: Option<Share>,
    },
    /// Operations that only the head runs.
    Added {
        /// Their name, shortened.
        what: String,
        /// How many.
        count: u32,
        /// True where they move data and compute nothing.
        moves: bool,
    },
    /// Operations that only the base runs.
    Gone {
        /// Their name, shortened.
        what: String,
        /// How many.
        count: u32,
    },
    /// Operations in the place of others.
    InPlace {
        /// The operator that launched them, where the program tells.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operator: Option<String>,
        /// Their names on either side, shortened, each once.
        names: Sides<Vec<String>>,
        /// How many on either side.
        count: Sides<u32>,
        /// The time of all of them.
        time: Sides<Nanoseconds>,
    },
    /// The device's own time to go from one operation to the next, of more or fewer of them.
    Starts {
        /// Operations on either side.
        count: Sides<u32>,
    },
    /// The same, where there are as many.
    Gaps,
    /// The device waits for the host.
    Waiting,
    /// The device's clock.
    Clock {
        /// Its medians in MHz.
        mhz: Sides<f64>,
    },
    /// A part of a host's time: calls to CUDA of one class; compiling or loading in a first call.
    Part {
        /// What it is: `launches`, `synchronisations`, `compiling`.
        name: String,
        /// How often.
        count: Sides<u64>,
    },
    /// Lines too small to be told each.
    Others {
        /// How many.
        count: u32,
    },
}

impl AccountLine {
    /// A line of no part of a step.
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
                let executes = executes.map(|more| match more.0 == 0.0 {
                    true => "same instructions".to_owned(),
                    false => format!("instructions {:+.1} %", 100.0 * more.0),
                });
                let changes: Vec<String> = changes.chain(executes).collect();
                match changes.is_empty() {
                    true => format!("{}{}", plain(what), times(count)),
                    false => format!("{}{} ({})", plain(what), times(count), changes.join(", ")),
                }
            }
            Item::Added { what, count, moves } => {
                let kind = match *moves && !what.starts_with("copy ") {
                    true => "copy kernel ",
                    false => "",
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
                let of = operator.as_ref().map(|of| format!("{of}: "));
                format!(
                    "{}{}, {} {ARROW} {}, {}",
                    of.unwrap_or_default(),
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

/// Lines that a sentence has at most; the others are told together.
const TOLD: usize = 4;

/// The part of a change below which a line is told with others.
const SMALL: f64 = 0.03;

impl Account {
    /// What lines of some kind take more, all together.
    pub fn growth(&self, of: impl Fn(&Item) -> bool) -> Nanoseconds {
        let lines = self.lines.iter().filter(|line| of(&line.item));
        lines.map(|line| line.growth_ns).sum()
    }
}

impl fmt::Display for Account {
    /// `+3.2 µs = copy kernel added +1.4, starts of operations 1 → 2 +1.7`: the largest lines, the
    /// small ones as one, and what is not explained where it is not small.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.change_ns.0.abs() * SMALL;
        let is_small = |time: Nanoseconds| time.0.abs() < small;
        let (mut told, mut rest, mut count) = (Vec::new(), Nanoseconds::ZERO, 0);
        for line in &self.lines {
            match &line.item {
                Item::Others { count: others } => {
                    (count, rest) = (count + others, rest + line.growth_ns)
                }
                _ if is_small(line.growth_ns) || told.len() == TOLD => {
                    (count, rest) = (count + 1, rest + line.growth_ns);
                }
                _ => told.push((line.to_string(), line.growth_ns)),
            }
        }
        let mut left = self.unexplained_ns;
        match is_small(rest) || count == 0 {
            // What is not told is not explained either.
            true => left += rest,
            false => told.push((Item::Others { count }.to_string(), rest)),
        }
        if !is_small(left) {
            told.push(("not explained".to_owned(), left));
        }
        let parts = told.into_iter();
        let parts =
            parts.map(|(what, time)| format!("{what} {}", time.signed_beside(self.change_ns)));
        let parts: Vec<String> = parts.collect();
        write!(f, "{} = {}", self.change_ns.signed(), parts.join(", "))
    }
}
