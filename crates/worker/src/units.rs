//! Times, ratios, shares and sizes as types: what is held, computed with, kept in files and
//! printed, in one style everywhere. Times are in `µs`, a change goes from what was `→` to
//! what is, a factor is `2.01x`.
//!
//! | type | is | prints |
//! |---|---|---|
//! | [`Nanoseconds`] | a time | `118.6 µs` |
//! | [`Elapsed`] | a time as read off a watch | `2 min 7 s` |
//! | [`Ratio`] | one time over another | `+12.3 %`, `2.01x slower` |
//! | [`Share`] | a part of a whole, or a change relative to what was | `1.8 %` |
//! | [`Probability`] | a p | `0.0079`, `< 0.0001` |
//! | [`Rate`] | work over time | `12.4 T` |
//! | [`Bytes`] | a size | `1.50 MiB` |
//! | [`Digits`] | a number without a unit | `52.8` |
//!
//! Each is a number in a file (`serde(transparent)`), and a number of its unit to the
//! arithmetic: two times make a [`Ratio`], a time and a ratio a time, and two times are
//! never multiplied. Their numbers are public (`time.0`), for formulas of their own.
//!
//! A leaf: it imports nothing of ours. Every figure prints something for every value:
//! [`NONE`] for a missing number. A width pads, and a precision is heeded by
//! [`Share`] alone.

use std::fmt;

/// A number with a unit: what the types of this module have in common.
///
/// For statistics whose result is in the unit of their values, such as a median. Those
/// without one take plain numbers ([`numbers`]).
pub trait Dimensioned: Copy {
    /// So many of the unit.
    fn from_number(number: f64) -> Self;

    /// The number of units.
    fn number(self) -> f64;
}

impl Dimensioned for f64 {
    fn from_number(number: f64) -> f64 {
        number
    }

    fn number(self) -> f64 {
        self
    }
}

/// True for a count of 0, which files leave out.
pub fn is_zero<N: Default + PartialEq>(count: &N) -> bool {
    *count == N::default()
}

/// The default of counts that files and messages leave out where they are 1.
pub fn one() -> u32 {
    1
}

/// True for a count of 1.
pub fn is_one(count: &u32) -> bool {
    *count == 1
}

/// So many of a unit each: `quantities::<Nanoseconds>([1.0, 2.0])`.
pub fn quantities<Q: Dimensioned>(numbers: impl IntoIterator<Item = f64>) -> Vec<Q> {
    numbers.into_iter().map(Q::from_number).collect()
}

/// Plain numbers, for what is computed without a unit.
pub fn numbers<Q: Dimensioned>(quantities: &[Q]) -> Vec<f64> {
    quantities
        .iter()
        .map(|quantity| quantity.number())
        .collect()
}

/// The operations of every floating-point quantity.
macro_rules! quantity {
    ($name:ident) => {
        impl $crate::units::Dimensioned for $name {
            fn from_number(number: f64) -> $name {
                $name(number)
            }

            fn number(self) -> f64 {
                self.0
            }
        }

        impl $name {
            /// True for what is neither infinite nor no number.
            pub fn is_finite(self) -> bool {
                self.0.is_finite()
            }

            /// An order of all values, NaN included.
            pub fn total_cmp(&self, other: &$name) -> std::cmp::Ordering {
                self.0.total_cmp(&other.0)
            }

            /// The smaller one; NaN counts for nothing.
            pub fn min(self, other: $name) -> $name {
                $name(self.0.min(other.0))
            }

            /// The larger one; NaN counts for nothing.
            pub fn max(self, other: $name) -> $name {
                $name(self.0.max(other.0))
            }

            /// The size without a sign.
            pub fn abs(self) -> $name {
                $name(self.0.abs())
            }
        }
    };
}

/// The results of two quantities, or a quantity and a number: each row a type, an operator by its
/// trait, method and sign, what stands behind it, and the result.
macro_rules! operators {
    ($($left:ident $trait:ident $method:ident $sign:tt $right:ty = $result:ident;)+) => {$(
        impl std::ops::$trait<$right> for $left {
            type Output = $result;

            fn $method(self, other: $right) -> $result {
                use $crate::units::Dimensioned;
                $result(self.number() $sign other.number())
            }
        }
    )+};
}

mod ratio;
mod time;

pub use ratio::{Probability, Ratio, Share};
pub use time::{Bytes, Elapsed, Nanoseconds, Rate, from_to, part_of};

/// The text for a missing number.
pub const NONE: &str = "–";

/// Between what was and what is, everywhere.
pub const ARROW: &str = "→";

/// A number with three digits or more: `2.64`, `52.8`, `118.6`, `4096`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Digits(pub f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0.abs() {
            _ if !self.0.is_finite() => NONE.to_owned(),
            0.0 => "0".to_owned(),
            size if size < 0.005 => format!("{:.1e}", self.0),
            size if size < 9.995 => format!("{:.2}", self.0),
            size if size < 999.95 => format!("{:.1}", self.0),
            _ => format!("{:.0}", self.0),
        };
        put(f, &text)
    }
}

/// `1 case`, `2 cases`.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Writes a figure as wide as it is asked for. `Formatter::pad` would cut it off at the
/// precision, which is a number of decimal places here.
fn put(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let missing = f.width().unwrap_or(0).saturating_sub(text.chars().count());
    let before = match f.align() {
        Some(fmt::Alignment::Right) => missing,
        Some(fmt::Alignment::Center) => missing / 2,
        Some(fmt::Alignment::Left) | None => 0,
    };
    let after = missing - before;
    write!(f, "{:before$}{text}{:after$}", "", "")
}

#[cfg(test)]
mod tests;
