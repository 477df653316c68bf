//! Lists of cases as the judge's sentences write them. Figures are those of
//! [`crate::units`]; here they are for causes and traces, whose times are plain numbers yet.

use crate::attention::CaseId;
use crate::units::{self, Nanoseconds, Ratio, Share};

pub use crate::units::counted as count;

/// [`Ratio::told`].
pub fn change(ratio: f64) -> String {
    Ratio(ratio).told().to_string()
}

/// [`Share`].
pub fn percent(fraction: f64) -> String {
    Share(fraction).to_string()
}

/// [`Nanoseconds`].
pub fn time(ns: f64) -> String {
    Nanoseconds(ns).to_string()
}

/// [`units::from_to`].
pub fn from_to(base_ns: f64, head_ns: f64) -> String {
    units::from_to(Nanoseconds(base_ns), Nanoseconds(head_ns))
}

/// [`units::part_of`].
pub fn part_of(part_ns: f64, whole_ns: f64) -> String {
    units::part_of(Nanoseconds(part_ns), Nanoseconds(whole_ns))
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
