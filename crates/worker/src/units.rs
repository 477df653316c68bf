//! Times, ratios, shares and sizes as types, which code computes with, files store, and reports
//! print in one style. Times are in `µs`, a change is printed as `before → after`, a factor as
//! `2.01x`.
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
//! In a file each is a number (`serde(transparent)`). In arithmetic each has a unit: two times give
//! a [`Ratio`], a time and a ratio give a time, and two times cannot be multiplied. Their numbers
//! are public (`time.0`) for other formulas.
//!
//! This module imports no other one of this crate. Every type prints something for every value:
//! [`NONE`] for a missing number. A width pads; only [`Share`] uses a precision.

use std::fmt;

/// A number with a unit: the common interface of this module's types.
///
/// For statistics whose result has the unit of their values, such as a median. Those whose result
/// has none take plain numbers ([`numbers`]).
pub trait Dimensioned: Copy {
    /// A quantity of `number` units.
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

/// The default of counts that files and messages leave out if they are 1.
pub fn one() -> u32 {
    1
}

/// True for a count of 1.
pub fn is_one(count: &u32) -> bool {
    *count == 1
}

/// Several quantities of one unit: `quantities::<Nanoseconds>([1.0, 2.0])`.
pub fn quantities<Q: Dimensioned>(numbers: impl IntoIterator<Item = f64>) -> Vec<Q> {
    numbers.into_iter().map(Q::from_number).collect()
}

/// Plain numbers, for computations without a unit.
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
            /// False for infinities and NaN.
            pub fn is_finite(self) -> bool {
                self.0.is_finite()
            }

            /// A total order of all values, including NaN.
            pub fn total_cmp(&self, other: &$name) -> std::cmp::Ordering {
                self.0.total_cmp(&other.0)
            }

            /// The smaller one; ignores NaN.
            pub fn min(self, other: $name) -> $name {
                $name(self.0.min(other.0))
            }

            /// The larger one; ignores NaN.
            pub fn max(self, other: $name) -> $name {
                $name(self.0.max(other.0))
            }

            /// The absolute value.
            pub fn abs(self) -> $name {
                $name(self.0.abs())
            }
        }
    };
}

/// Operators between two quantities, or a quantity and a number. Each row has the left type, the
/// operator's trait, method and sign, the right type, and the type of the result.
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

/// The sign between the value before and the value after, everywhere.
pub const ARROW: &str = "→";

/// A number with at least three digits: `2.64`, `52.8`, `118.6`, `4096`.
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

/// Pads a text to the formatter's width. `Formatter::pad` would cut it at the precision, which is a
/// number of decimal places here.
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
