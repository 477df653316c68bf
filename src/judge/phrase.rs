//! Figures as the judge's sentences write them.

use crate::attention::CaseId;

/// `12.3 % slower`, `4.0 % faster`, `3.42 times as long`, for a ratio of head to base.
pub fn change(ratio: f64) -> String {
    if ratio >= 2.0 {
        format!("{} times as long", factor(ratio))
    } else if ratio >= 1.0 {
        format!("{} slower", percent(ratio - 1.0))
    } else {
        format!("{} faster", percent(1.0 - ratio))
    }
}

/// A fraction as `12.3 %`.
pub fn percent(fraction: f64) -> String {
    format!("{:.1} %", fraction * 100.0)
}

/// A ratio with three digits that count: `1.07`, `34.7`, `104`.
pub fn factor(ratio: f64) -> String {
    let digits = match ratio.abs() {
        r if r >= 100.0 => 0,
        r if r >= 10.0 => 1,
        _ => 2,
    };
    format!("{ratio:.digits$}")
}

/// A probability with two digits that count.
pub fn probability(p: f64) -> String {
    if p < 0.001 {
        format!("{p:.1e}")
    } else {
        format!("{p:.3}")
    }
}

/// Nanoseconds in the unit that suits them.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        t if t >= 1e9 => (ns / 1e9, "s"),
        t if t >= 1e6 => (ns / 1e6, "ms"),
        t if t >= 1e3 => (ns / 1e3, "us"),
        _ => (ns, "ns"),
    };
    format!("{} {unit}", factor(value))
}

/// `1 case`, `2 cases`.
pub fn count(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
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
