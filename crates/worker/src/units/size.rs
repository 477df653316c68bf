//! Sizes in bytes, and rates.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use super::{Digits, NONE, Nanoseconds, put};

/// A size: `512 B`, `1.50 MiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The largest size that is believed of a file or a worker: 1 PiB, more than any machine has.
    pub const MOST: Bytes = Bytes(1 << 50);

    /// Why a size of this name cannot be, as a sentence. Sizes come from outside: what nothing
    /// can have had is refused, or told as unknown, and never printed as if it were one.
    pub fn objection(self, name: &str) -> Option<String> {
        (self > Bytes::MOST).then(|| format!("{name} is {} bytes: no machine has so many", self.0))
    }

    /// In GiB, where several sizes are told in one unit.
    pub fn gib(self) -> f64 {
        self.0 as f64 / f64::from(1 << 30)
    }
}

impl Add for Bytes {
    type Output = Bytes;

    /// Sizes come from outside: the sum saturates.
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(sizes: I) -> Bytes {
        sizes.fold(Bytes(0), Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KIB: f64 = 1024.0;
        let size = self.0 as f64;
        let text = match size {
            size if size < KIB => format!("{} B", self.0),
            size if size < KIB.powi(2) => format!("{} KiB", Digits(size / KIB)),
            size if size < KIB.powi(3) => format!("{} MiB", Digits(size / KIB.powi(2))),
            size => format!("{} GiB", Digits(size / KIB.powi(3))),
        };
        put(f, &text)
    }
}

/// Floating-point operations over time, in TFLOP/s. Prints the prefix that fits, without
/// its `FLOP/s`: `12.4 T`, `193.4 G`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Rate(pub f64);

quantity!(Rate);

impl Rate {
    /// Of so many operations in a time. Those of a nanosecond are giga a second, and tera
    /// is a thousand of them.
    pub fn of_work(flops: f64, time: Nanoseconds) -> Rate {
        Rate(flops / time.0 / 1e3)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0.abs() {
            tera if !tera.is_finite() => return put(f, NONE),
            tera if tera < 0.999_95e-3 => (self.0 * 1e6, "M"),
            tera if tera < 0.999_95 => (self.0 * 1e3, "G"),
            _ => (self.0, "T"),
        };
        put(f, &format!("{} {unit}", Digits(value)))
    }
}
