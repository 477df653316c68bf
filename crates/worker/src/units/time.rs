//! Times, sizes in bytes, and rates.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, SubAssign};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ARROW, Digits, NONE, Ratio, Share, put};

/// A time. Prints three or four digits and a fitting unit: `118.6 µs`, `2.64 ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Nanoseconds(pub f64);

quantity!(Nanoseconds);

impl Nanoseconds {
    /// A time that was recorded in whole nanoseconds.
    pub fn whole(ns: u64) -> Nanoseconds {
        Nanoseconds(ns as f64)
    }

    /// Zero.
    pub const ZERO: Nanoseconds = Nanoseconds(0.0);

    /// A time in seconds.
    pub fn of_seconds(seconds: f64) -> Nanoseconds {
        Nanoseconds(seconds * 1e9)
    }

    /// This time as a share of `whole`.
    pub fn share_of(self, whole: Nanoseconds) -> Share {
        Share(self.0 / whole.0)
    }

    /// The time in seconds.
    pub fn seconds(self) -> f64 {
        self.0 / 1e9
    }
}

impl Nanoseconds {
    /// A difference with its sign: `+3.20 µs`.
    pub fn signed(self) -> String {
        if self.0 < 0.0 {
            format!("-{}", Nanoseconds(-self.0))
        } else {
            format!("+{self}")
        }
    }

    /// A part of a difference with its sign, in the unit and precision of the whole: `+1.70` of
    /// `+3.20 µs`.
    pub fn signed_beside(self, whole: Nanoseconds) -> String {
        let (scale, _) = unit(whole);
        let digits = (whole.0.abs() / scale).max(1.0).log10().floor() as usize;
        format!("{:+.*}", 2usize.saturating_sub(digits), self.0 / scale)
    }
}

impl From<Duration> for Nanoseconds {
    fn from(duration: Duration) -> Nanoseconds {
        Nanoseconds(duration.as_nanos() as f64)
    }
}

operators! {
    Nanoseconds Add add + Nanoseconds = Nanoseconds;
    Nanoseconds Sub sub - Nanoseconds = Nanoseconds;
    Nanoseconds Mul mul * f64 = Nanoseconds;
    Nanoseconds Mul mul * Ratio = Nanoseconds;
    Nanoseconds Mul mul * Share = Nanoseconds;
    Nanoseconds Div div / f64 = Nanoseconds;
    Nanoseconds Div div / Ratio = Nanoseconds;
    Nanoseconds Div div / Nanoseconds = Ratio;
}

impl AddAssign for Nanoseconds {
    fn add_assign(&mut self, other: Nanoseconds) {
        *self = *self + other;
    }
}

impl SubAssign for Nanoseconds {
    fn sub_assign(&mut self, other: Nanoseconds) {
        *self = *self - other;
    }
}

impl Sum for Nanoseconds {
    fn sum<I: Iterator<Item = Nanoseconds>>(times: I) -> Nanoseconds {
        times.fold(Nanoseconds::ZERO, Add::add)
    }
}

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_finite() {
            return put(f, NONE);
        }
        let (scale, unit) = unit(*self);
        put(f, &format!("{} {unit}", Digits(self.0 / scale)))
    }
}

/// A time in the form of a clock: `41.2 s`, `2 min 7 s`, `1 h 2 min`. Below a minute it prints as
/// [`Nanoseconds`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elapsed(pub Nanoseconds);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.seconds().round();
        let text = match seconds {
            _ if !self.0.is_finite() || seconds < 60.0 => self.0.to_string(),
            seconds if seconds < 3_600.0 => {
                format!(
                    "{:.0} min {:.0} s",
                    (seconds / 60.0).floor(),
                    seconds % 60.0
                )
            }
            seconds => {
                let minutes = (seconds / 60.0).round();
                format!(
                    "{:.0} h {:.0} min",
                    (minutes / 60.0).floor(),
                    minutes % 60.0
                )
            }
        };
        put(f, &text)
    }
}

/// The unit that fits a time, with its length in nanoseconds. Limits are lower by half a digit, so
/// that 999.96 ns prints as 1.00 µs.
fn unit(time: Nanoseconds) -> (f64, &'static str) {
    match time.0.abs() {
        ns if ns < 999.95 => (1.0, "ns"),
        ns if ns < 999.95e3 => (1e3, "µs"),
        ns if ns < 999.95e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// The times before and after: `50.3 → 277.0 µs`.
pub fn from_to(base: Nanoseconds, head: Nanoseconds) -> String {
    pair(base, ARROW, head)
}

/// A part of a time: `153.0 of 216.0 µs`.
pub fn part_of(part: Nanoseconds, whole: Nanoseconds) -> String {
    pair(part, "of", whole)
}

/// Two times, with a single unit if both have the same.
fn pair(one: Nanoseconds, word: &str, other: Nanoseconds) -> String {
    let ((scale, unit_of_one), (_, unit_of_other)) = (unit(one), unit(other));
    let bare = |time: Nanoseconds| {
        if time == Nanoseconds::ZERO {
            "0".to_owned()
        } else {
            time.to_string()
        }
    };
    let same = unit_of_one == unit_of_other && one.is_finite() && other.is_finite();
    if same && one != Nanoseconds::ZERO && other != Nanoseconds::ZERO {
        format!("{} {word} {other}", Digits(one.0 / scale))
    } else {
        format!("{} {word} {}", bare(one), bare(other))
    }
}

/// A size: `512 B`, `1.50 MiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The largest size that is accepted from a file or a worker: 1 PiB, more than any machine has.
    pub const MAX: Bytes = Bytes(1 << 50);

    /// A sentence about a size that is too large, if it is. Sizes come from outside: an impossible
    /// one is refused or reported as unknown, and never printed like a real one.
    pub fn objection(self, name: &str) -> Option<String> {
        (self > Bytes::MAX).then(|| format!("{name} is {} bytes: no machine has so many", self.0))
    }

    /// The size in GiB, for several sizes that share a unit.
    pub fn gib(self) -> f64 {
        self.0 as f64 / f64::from(1 << 30)
    }
}

impl Add for Bytes {
    type Output = Bytes;

    /// Saturates, since sizes come from outside.
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

/// Floating-point operations over time, in TFLOP/s. Prints with a fitting prefix and without
/// `FLOP/s`: `12.4 T`, `193.4 G`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Rate(pub f64);

quantity!(Rate);

impl Rate {
    /// The rate of `flops` operations in a time. Operations in a nanosecond are GFLOP/s, of which a
    /// thousand make a TFLOP/s.
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
