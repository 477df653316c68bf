//! Figures as the judge's sentences write them: those of [`crate::units`].

use crate::attention::CaseId;
use crate::units::{Digits, Factor, Percent, Probability, ShortTime};

pub use crate::units::{counted as count, from_to, part_of};

/// `12.3 % slower`, `4.0 % faster`, `3.42x slower`, for a ratio of head to base.
pub fn change(ratio: f64) -> String {
    if ratio >= 1.9995 {
        format!("{} slower", Factor(ratio))
    } else if ratio >= 1.0 {
        format!("{} slower", percent(ratio - 1.0))
    } else if ratio > 0.5 {
        format!("{} faster", percent(1.0 - ratio))
    } else {
        format!("{} faster", Factor(1.0 / ratio))
    }
}

/// A fraction as `12.3 %`.
pub fn percent(fraction: f64) -> String {
    Percent(fraction).to_string()
}

/// A ratio with three digits that count: `1.07`, `34.7`, `104.2`.
pub fn factor(ratio: f64) -> String {
    Digits(ratio).to_string()
}

/// A probability with two digits that count.
pub fn probability(p: f64) -> String {
    Probability(p).to_string()
}

/// Nanoseconds in the unit that suits them.
pub fn time(ns: f64) -> String {
    ShortTime(ns).to_string()
}

/// The first few cases by name, the others by number.
pub fn list<'a>(cases: impl IntoIterator<Item = &'a CaseId>) -> String {
    const NAMED: usize = 3;
    let all: Vec<&CaseId> = cases.into_iter().collect();
    let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    let text = named.join("; ");
    match all.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_percentage_until_it_is_a_factor() {
        assert_eq!(change(1.123), "12.3 % slower");
        assert_eq!(change(0.96), "4.0 % faster");
        assert_eq!(change(2.0), "2.00x slower");
        assert_eq!(change(0.25), "4.00x faster");
    }
}
