//! Where a change of memory went, by the sizes of what is allocated.

use std::fmt;

use serde::{Deserialize, Serialize};

use regatta_core::machine::Sides;
use regatta_worker::units::{Bytes, counted};

/// A change of memory in parts. The lines and what is not explained add up to the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MemoryAccount {
    /// Head less base of the memory that was judged, in bytes.
    pub change_bytes: i64,
    /// Sizes of which there are more or fewer, what makes the most of the change first.
    pub lines: Vec<MemoryLine>,
    /// The change less all lines, in bytes.
    pub unexplained_bytes: i64,
}

/// Allocations of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MemoryLine {
    /// The size of each.
    pub bytes: Bytes,
    /// How many the call has allocated where that is most.
    pub count: Sides<u64>,
}

impl MemoryLine {
    /// What the head has allocated more of it, in bytes; figures come from outside, so that it
    /// saturates.
    pub fn growth(&self) -> i64 {
        let count = i128::from(self.count.head) - i128::from(self.count.base);
        saturated(count.saturating_mul(i128::from(self.bytes.0)))
    }

    /// `2 x 64.0 MiB added`.
    fn told(&self) -> String {
        let more = self.count.head > self.count.base;
        let word = if more { "added" } else { "gone" };
        let number = self.count.head.abs_diff(self.count.base);
        format!("{number} x {} {word}", self.bytes)
    }
}

/// As far as it fits.
pub fn saturated(bytes: i128) -> i64 {
    bytes.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Lines that a sentence has.
const TOLD: usize = 4;

impl fmt::Display for MemoryAccount {
    /// `+640.0 MiB = 1 x 512.0 MiB added, 2 x 64.0 MiB added`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.lines.iter().take(TOLD).map(MemoryLine::told).collect();
        let rest = self.lines.get(TOLD..).unwrap_or_default();
        if !rest.is_empty() {
            let growth = rest.iter().map(|line| i128::from(line.growth())).sum();
            let sizes = counted(rest.len(), "more size");
            parts.push(format!("{sizes} {}", signed(saturated(growth))));
        }
        if self.unexplained_bytes != 0 {
            parts.push(format!("not explained {}", signed(self.unexplained_bytes)));
        }
        write!(f, "{} = {}", signed(self.change_bytes), parts.join(", "))
    }
}

/// `+512.0 MiB`.
fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "+" };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}
