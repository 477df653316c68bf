//! Times.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ARROW, Digits, NONE, Ratio, Share, put};

/// A time. Prints three or four digits and the unit that fits: `118.6 µs`, `2.64 ms`.
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

    /// No time at all.
    pub const ZERO: Nanoseconds = Nanoseconds(0.0);

    /// So many seconds.
    pub fn of_seconds(seconds: f64) -> Nanoseconds {
        Nanoseconds(seconds * 1e9)
    }

    /// What part of `whole` it is.
    pub fn share_of(self, whole: Nanoseconds) -> Share {
        Share(self.0 / whole.0)
    }

    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 / 1e9
    }
}

impl Nanoseconds {
    /// A difference with its sign: `+3.20 µs`.
    pub fn signed(self) -> String {
        match self.0 < 0.0 {
            true => format!("-{}", Nanoseconds(-self.0)),
            false => format!("+{self}"),
        }
    }

    /// A part of a difference, with its sign, in the unit and to the decimal place of the
    /// whole: `+1.70` of `+3.20 µs`.
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

impl Add for Nanoseconds {
    type Output = Nanoseconds;

    fn add(self, other: Nanoseconds) -> Nanoseconds {
        Nanoseconds(self.0 + other.0)
    }
}

impl AddAssign for Nanoseconds {
    fn add_assign(&mut self, other: Nanoseconds) {
        *self = *self + other;
    }
}

impl Sub for Nanoseconds {
    type Output = Nanoseconds;

    fn sub(self, other: Nanoseconds) -> Nanoseconds {
        Nanoseconds(self.0 - other.0)
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

impl Mul<f64> for Nanoseconds {
    type Output = Nanoseconds;

    fn mul(self, times: f64) -> Nanoseconds {
        Nanoseconds(self.0 * times)
    }
}

impl Div<f64> for Nanoseconds {
    type Output = Nanoseconds;

    fn div(self, parts: f64) -> Nanoseconds {
        Nanoseconds(self.0 / parts)
    }
}

/// How many times as long.
impl Div for Nanoseconds {
    type Output = Ratio;

    fn div(self, other: Nanoseconds) -> Ratio {
        Ratio(self.0 / other.0)
    }
}

impl Mul<Ratio> for Nanoseconds {
    type Output = Nanoseconds;

    fn mul(self, ratio: Ratio) -> Nanoseconds {
        self * ratio.0
    }
}

impl Div<Ratio> for Nanoseconds {
    type Output = Nanoseconds;

    fn div(self, ratio: Ratio) -> Nanoseconds {
        self / ratio.0
    }
}

/// A part of a time.
impl Mul<Share> for Nanoseconds {
    type Output = Nanoseconds;

    fn mul(self, share: Share) -> Nanoseconds {
        self * share.0
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

/// A time as it is read off a watch: `41.2 s`, `2 min 7 s`, `1 h 2 min`. Below a minute it is
/// printed as [`Nanoseconds`] are.
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

/// The unit that fits a time, in nanoseconds. The limits lie half a digit lower, so that
/// 999.96 ns reads 1.00 µs.
fn unit(time: Nanoseconds) -> (f64, &'static str) {
    match time.0.abs() {
        ns if ns < 999.95 => (1.0, "ns"),
        ns if ns < 999.95e3 => (1e3, "µs"),
        ns if ns < 999.95e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// What was and what is: `50.3 → 277.0 µs`.
pub fn from_to(base: Nanoseconds, head: Nanoseconds) -> String {
    pair(base, ARROW, head)
}

/// A part of a time: `153.0 of 216.0 µs`.
pub fn part_of(part: Nanoseconds, whole: Nanoseconds) -> String {
    pair(part, "of", whole)
}

/// Two times with one unit, where they have the same.
fn pair(one: Nanoseconds, word: &str, other: Nanoseconds) -> String {
    let ((scale, unit_of_one), (_, unit_of_other)) = (unit(one), unit(other));
    let bare = |time: Nanoseconds| match time == Nanoseconds::ZERO {
        true => "0".to_owned(),
        false => time.to_string(),
    };
    let same = unit_of_one == unit_of_other && one.is_finite() && other.is_finite();
    if same && one != Nanoseconds::ZERO && other != Nanoseconds::ZERO {
        format!("{} {word} {other}", Digits(one.0 / scale))
    } else {
        format!("{} {word} {}", bare(one), bare(other))
    }
}
