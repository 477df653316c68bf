//! Differences between base and head, as values. Every rule makes a difference by the same
//! constructor, and this module has its only wording.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::structure::event;
use regatta_core::machine::{
    BYTES, Counts, DRIVER_ALLOCATIONS, DRIVER_FREES, INSTRUCTIONS, KernelChange, LaunchChange,
    MODULE_LOADS, SYNCHRONISATIONS, Sides, moves_data, short,
};
use regatta_core::suite::{Action, Kind};
use regatta_worker::case::ParamValue;
use regatta_worker::joined::Joined;
use regatta_worker::units::{ARROW, Bytes, Nanoseconds, Ratio, Share, from_to};

/// A fact other than the code in which the two sides differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Mismatch {
    /// The name of the fact: `driver`, `schema`, `torch.versions.cudnn`.
    pub field: String,
    /// The base's value.
    pub base: String,
    /// The head's value.
    pub head: String,
}

impl fmt::Display for Mismatch {
    /// `torch.versions.cudnn 9.1 → 9.2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {ARROW} {}", self.field, self.base, self.head)
    }
}

/// A value of the base and the head's value beside it. Kernels are stored by their full names and
/// printed by their short ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "of", rename_all = "kebab-case")]
pub enum Difference {
    /// A figure of a kernel's launches: `grid 157x1x1 → 1x1x1 of fmha_cutlassB`.
    Launch {
        /// The kernel.
        kernel: String,
        /// The figure.
        change: LaunchChange,
    },
    /// The number of multiprocessors for which a kernel has a block:
    /// `fill 132 → 1 of 132 SMs of fmha_cutlassB`.
    Fill {
        /// The kernel.
        kernel: String,
        /// The number of filled SMs on both sides.
        filled: Sides<u64>,
        /// The number of SMs of the device.
        sms: u32,
    },
    /// The mean time of a launch: `2.60 → 268.0 ms a launch of fmha_cutlassB, 103.1x slower`.
    Mean {
        /// The kernel.
        kernel: String,
        /// The time on both sides; 0 if it is not launched.
        time: Sides<Nanoseconds>,
    },
    /// The number of launches of a kernel: `launches 1 → 2 of combine`.
    Launches {
        /// The kernel.
        kernel: String,
        /// The numbers of launches in a call, or in a repetition.
        count: Sides<f64>,
    },
    /// Kernels that replaced others: `kernel flash_v3 → flash_v2`.
    Kernel {
        /// The names on both sides; a list that was cut ends in `...`.
        names: Sides<Vec<String>>,
    },
    /// Instructions of a kernel: `instructions 1000 → 1010 (+1.00 %) of flash`.
    Instructions {
        /// The kernel, or the whole call.
        kernel: String,
        /// The kind of instructions, in words.
        what: String,
        /// The ranges that were counted.
        counts: Sides<Counts>,
    },
    /// A count: `threads 2 → 1`, `cudaMalloc 0 → 2 a call`.
    Count {
        /// The name that the worker or the trace gives it.
        name: String,
        /// The counts on both sides; a mean over repetitions need not be whole.
        count: Sides<f64>,
        /// The unit: `a call`, or empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        each: String,
    },
    /// Runs of an operator or function in a call: `operators 1 → 2 of aten::copy_`.
    Runs {
        /// [`Kind::Operators`] or [`Kind::Functions`].
        kind: Kind,
        /// The name of the thing that is counted.
        name: String,
        /// The counts on both sides.
        count: Sides<u64>,
    },
    /// Memory: `workspace 512 B → 4.00 KiB`.
    Memory {
        /// The name of the count.
        name: String,
        /// The sizes on both sides.
        size: Sides<Bytes>,
    },
    /// A parameter that changed: `num_splits_key 157 → 1`.
    Parameter {
        /// The name of the parameter.
        name: String,
        /// The values on both sides.
        value: Sides<ParamValue>,
    },
    /// A time: `host 50.3 → 277.0 µs a call`.
    Time {
        /// The operation that takes the time.
        what: String,
        /// The times on both sides.
        time: Sides<Nanoseconds>,
        /// The unit: ` a call`, or empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        each: String,
    },
    /// The share of the copying time in which kernels run as well.
    Overlap {
        /// The shares on both sides.
        share: Sides<Share>,
    },
    /// The medians of the device's clock: `clock 1980 → 1410 MHz`.
    Clock {
        /// The medians on both sides.
        mhz: Sides<f64>,
    },
    /// A version of a library.
    Version(Mismatch),
}

/// The name of the time in which copies and kernels run at once.
pub const AT_ONCE: &str = "copies and compute at once";

impl Difference {
    /// A figure of the launches of a kernel.
    pub fn launch(kernel: &KernelChange, change: LaunchChange) -> Difference {
        let kernel = kernel.called().to_owned();
        Difference::Launch { kernel, change }
    }

    /// The number of multiprocessors for which a kernel has a block, where that changed. `None` for
    /// kernels that move data: wider accesses take fewer blocks, and are faster for it.
    pub fn fill(kernel: &KernelChange) -> Option<Difference> {
        let filled = kernel.filled().filter(|filled| filled.base != filled.head);
        let (filled, sms) = filled.zip(kernel.sms)?;
        let kernel = kernel.called().to_owned();
        (!moves_data(&kernel)).then_some(Difference::Fill {
            kernel,
            filled,
            sms,
        })
    }

    /// The difference in the number of launches of a kernel.
    pub fn launches(kernel: &KernelChange) -> Difference {
        let (kernel, count) = (kernel.called().to_owned(), kernel.count);
        Difference::Launches { kernel, count }
    }

    /// The mean time of a launch of a kernel.
    pub fn mean(kernel: &KernelChange) -> Difference {
        let (kernel, time) = (kernel.called().to_owned(), kernel.mean_ns);
        Difference::Mean { kernel, time }
    }

    /// A count; `each` is the unit of counts per call: `a call`, `a repetition`.
    pub fn count(name: &str, count: Sides<f64>, each: &str) -> Difference {
        let asked = [
            SYNCHRONISATIONS,
            DRIVER_ALLOCATIONS,
            DRIVER_FREES,
            MODULE_LOADS,
        ];
        let per_call = asked.contains(&name) || name.starts_with(CALLS);
        Difference::Count {
            name: name.to_owned(),
            count,
            each: if per_call {
                each.to_owned()
            } else {
                String::new()
            },
        }
    }

    /// A size of memory, from a count of bytes.
    pub fn memory(name: &str, bytes: Sides<f64>) -> Difference {
        Difference::Memory {
            name: name.to_owned(),
            size: bytes.map(|bytes| Bytes(*bytes as u64)),
        }
    }

    /// A time; `each` is its unit, ` a call` or empty.
    pub fn time(what: &str, time: Sides<Nanoseconds>, each: &str) -> Difference {
        Difference::Time {
            what: what.to_owned(),
            time,
            each: each.to_owned(),
        }
    }

    /// The name by which the suite's policy refers to it: the kernel, count or parameter.
    pub fn name(&self) -> &str {
        match self {
            Difference::Launch { kernel: name, .. }
            | Difference::Fill { kernel: name, .. }
            | Difference::Mean { kernel: name, .. }
            | Difference::Launches { kernel: name, .. }
            | Difference::Instructions { kernel: name, .. }
            | Difference::Count { name, .. }
            | Difference::Runs { name, .. }
            | Difference::Memory { name, .. }
            | Difference::Parameter { name, .. }
            | Difference::Time { what: name, .. } => name,
            Difference::Kernel { names } => names.head.first().map_or("", String::as_str),
            Difference::Overlap { .. } => AT_ONCE,
            Difference::Clock { .. } => "clock",
            Difference::Version(version) => &version.field,
        }
    }

    /// The kernel that it concerns, if it concerns one.
    pub fn kernel(&self) -> Option<&str> {
        match self {
            Difference::Launch { .. }
            | Difference::Fill { .. }
            | Difference::Mean { .. }
            | Difference::Launches { .. }
            | Difference::Instructions { .. }
            | Difference::Kernel { .. } => Some(self.name()),
            _ => None,
        }
    }

    /// The difference in words; `with_kernel` is false where a neighbouring difference names the
    /// same kernel.
    pub fn text(&self, with_kernel: bool) -> String {
        let of_kernel = |kernel: &str| {
            if with_kernel {
                format!(" of {}", short(kernel))
            } else {
                String::new()
            }
        };
        match self {
            Difference::Launch { kernel, change } => format!("{change}{}", of_kernel(kernel)),
            Difference::Fill {
                kernel,
                filled,
                sms,
            } => format!("fill {} of {sms} SMs{}", became(filled), of_kernel(kernel)),
            Difference::Mean { kernel, time } => {
                let both = time.base.0 > 0.0 && time.head.0 > 0.0;
                let ratio = if both {
                    time.head / time.base
                } else {
                    Ratio::ONE
                };
                let times = from_to(time.base, time.head);
                format!(
                    "{times} a launch{}, {}",
                    of_kernel(kernel),
                    ratio.in_words()
                )
            }
            Difference::Launches { kernel, count } => {
                let what = if moves_data(kernel) {
                    "copies"
                } else {
                    "launches"
                };
                format!(
                    "{what} {}{}",
                    became(&count.map(rounded)),
                    of_kernel(kernel)
                )
            }
            Difference::Kernel { names } => {
                let names = names.map(|all| all.iter().map(|name| short(name)).joined(", "));
                if names.base == names.head {
                    format!("kernel {} (differs further on in its name)", names.base)
                } else {
                    format!("kernel {}", became(&names))
                }
            }
            Difference::Instructions {
                kernel,
                what,
                counts,
            } => {
                let which = if what == INSTRUCTIONS {
                    String::new()
                } else {
                    format!(", {what}")
                };
                let share = grown(counts);
                format!(
                    "{INSTRUCTIONS} {}{share}{}{which}",
                    became(counts),
                    of_kernel(kernel)
                )
            }
            Difference::Count { name, count, each } => {
                let space = if each.is_empty() { "" } else { " " };
                let count = became(&count.map(rounded));
                format!("{} {count}{space}{each}", count_words(name))
            }
            Difference::Runs { kind, name, count } => {
                format!("{kind} {} of {name}", became(count))
            }
            Difference::Memory { name, size } => {
                let name = name.strip_suffix(BYTES).unwrap_or(name).replace('_', " ");
                format!("{name} {}", became(size))
            }
            Difference::Parameter { name, value } => format!("{name} {}", became(value)),
            Difference::Time { what, time, each } => {
                format!("{what} {}{each}", from_to(time.base, time.head))
            }
            Difference::Overlap { share } => format!("{AT_ONCE} {} of copying", became(share)),
            Difference::Clock { mhz } => {
                format!("clock {:.0} {ARROW} {:.0} MHz", mhz.base, mhz.head)
            }
            Difference::Version(version) => version.to_string(),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(true))
    }
}

/// The prefix of the names of counted functions.
pub const CALLS: &str = "calls.";

/// The name of a count in words, to be followed by its number.
fn count_words(name: &str) -> String {
    let asked = match name {
        SYNCHRONISATIONS => "waits for the device",
        DRIVER_ALLOCATIONS => "cudaMalloc",
        DRIVER_FREES => "cudaFree",
        MODULE_LOADS => "modules loaded",
        _ => match name.strip_prefix(CALLS) {
            Some(function) => event(function).unwrap_or(function),
            None => return name.replace('_', " "),
        },
    };
    asked.to_owned()
}

fn became<T: fmt::Display>(sides: &Sides<T>) -> String {
    format!("{} {ARROW} {}", sides.base, sides.head)
}

/// A count as text, with one decimal if it is not whole.
fn rounded(count: &f64) -> String {
    if (count - count.round()).abs() < 0.05 {
        format!("{count:.0}")
    } else {
        format!("{count:.1}")
    }
}

/// The least growth between two ranges, in the direction in which they changed: ` (+1.00 %)`.
fn grown(counts: &Sides<Counts>) -> String {
    let (before, after) = if counts.head.least > counts.base.most {
        (counts.base.most, counts.head.least)
    } else {
        (counts.base.least, counts.head.most)
    };
    match counts.base.most {
        0 => String::new(),
        _ => format!(" ({:+.2} %)", 100.0 * (after as f64 / before as f64 - 1.0)),
    }
}

/// A difference between the structures of two calls, and the action that the suite's policy
/// demands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct StructuralChange {
    /// The kind of the change.
    pub kind: Kind,
    /// The direction: worse, better or other.
    pub direction: Direction,
    /// The action that the suite's policy demands.
    pub action: Action,
    /// The difference itself.
    #[serde(flatten)]
    pub difference: Difference,
}

impl fmt::Display for StructuralChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.difference.fmt(f)
    }
}

/// The direction of a structural change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The change can only cost time or memory.
    Worse,
    /// The change can only save time or memory.
    Better,
    /// The change may cost or save.
    Other,
}
