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
    let (scale, unit) = unit(ns);
    format!("{} {unit}", factor(ns / scale))
}

/// What was and what is, in nanoseconds: `50.3 -> 277 us`.
pub fn from_to(base: f64, head: f64) -> String {
    pair(base, "->", head)
}

/// A part of a time, in nanoseconds: `153 of 216 us`.
pub fn part_of(part: f64, whole: f64) -> String {
    pair(part, "of", whole)
}

/// Two times with one unit, where they have the same.
fn pair(one: f64, word: &str, other: f64) -> String {
    let ((scale, unit_of_one), (_, unit_of_other)) = (unit(one), unit(other));
    if one == 0.0 {
        format!("0 {word} {}", time(other))
    } else if other == 0.0 {
        format!("{} {word} 0", time(one))
    } else if unit_of_one == unit_of_other {
        format!("{} {word} {}", factor(one / scale), time(other))
    } else {
        format!("{} {word} {}", time(one), time(other))
    }
}

fn unit(ns: f64) -> (f64, &'static str) {
    match ns.abs() {
        t if t >= 1e9 => (1e9, "s"),
        t if t >= 1e6 => (1e6, "ms"),
        t if t >= 1e3 => (1e3, "us"),
        _ => (1.0, "ns"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_times_share_their_unit() {
        assert_eq!(from_to(50_300.0, 277_000.0), "50.3 -> 277 us");
        assert_eq!(from_to(2_600_000.0, 50.0), "2.60 ms -> 50.0 ns");
        assert_eq!(part_of(0.0, 28_000.0), "0 of 28.0 us");
        assert_eq!(part_of(153_000.0, 216_000.0), "153 of 216 us");
        assert_eq!(from_to(400.0, 0.0), "400 ns -> 0");
    }
}
