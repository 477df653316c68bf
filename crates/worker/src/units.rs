//! Numbers as people read them: the one vocabulary of units, arrows and factors, of the
//! judge's sentences and of every report. Times are in `µs`, a change goes from what was
//! `→` to what is, a factor is `2.01x`.
//!
//! A leaf: it imports nothing. Every figure prints something for every value:
//! `–` where there is no number to print.

use std::fmt;

/// What stands where there is no number.
pub const NONE: &str = "–";

/// A time in nanoseconds with three or four digits and the unit that fits:
/// `118.6 µs`, `2.64 ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShortTime(pub f64);

impl fmt::Display for ShortTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_finite() {
            return f.pad(NONE);
        }
        let (scale, unit) = unit(self.0);
        f.pad(&format!("{} {unit}", Digits(self.0 / scale)))
    }
}

/// The unit that fits a time, in nanoseconds. The limits lie half a digit lower, so that
/// 999.96 ns reads 1.00 µs.
fn unit(ns: f64) -> (f64, &'static str) {
    match ns.abs() {
        ns if ns < 999.95 => (1.0, "ns"),
        ns if ns < 999.95e3 => (1e3, "µs"),
        ns if ns < 999.95e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// Between what was and what is, everywhere.
pub const ARROW: &str = "→";

/// What was and what is, in nanoseconds: `50.3 → 277.0 µs`.
pub fn from_to(base: f64, head: f64) -> String {
    pair(base, ARROW, head)
}

/// A part of a time, in nanoseconds: `153.0 of 216.0 µs`.
pub fn part_of(part: f64, whole: f64) -> String {
    pair(part, "of", whole)
}

/// Two times with one unit, where they have the same.
fn pair(one: f64, word: &str, other: f64) -> String {
    let ((scale, unit_of_one), (_, unit_of_other)) = (unit(one), unit(other));
    let bare = |ns: f64| match ns == 0.0 {
        true => "0".to_owned(),
        false => ShortTime(ns).to_string(),
    };
    let same = unit_of_one == unit_of_other && one.is_finite() && other.is_finite();
    if same && one != 0.0 && other != 0.0 {
        format!("{} {word} {}", Digits(one / scale), ShortTime(other))
    } else {
        format!("{} {word} {}", bare(one), bare(other))
    }
}

/// A share as a percentage with two places: `0.33 %`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_finite() {
            true => f.pad(&format!("{:.2} %", self.0 * 100.0)),
            false => f.pad(NONE),
        }
    }
}

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
        f.pad(&text)
    }
}

/// A rate in TFLOP/s with the unit that fits, without its `FLOP/s`: `12.4 T`,
/// `193.4 G`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0.abs() {
            tera if !tera.is_finite() => return f.pad(NONE),
            tera if tera < 0.999_95e-3 => (self.0 * 1e6, "M"),
            tera if tera < 0.999_95 => (self.0 * 1e3, "G"),
            _ => (self.0, "T"),
        };
        f.pad(&format!("{} {unit}", Digits(value)))
    }
}

/// Head over base as a change: `+12.3 %` below a factor of two, `102.5x slower`
/// or `3.10x faster` beyond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioChange(pub f64);

impl fmt::Display for RatioChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match Unit::of(self.0) {
            None => NONE.to_owned(),
            Some(Unit::Slower) => format!("{} slower", Factor(self.0)),
            Some(Unit::Faster) => format!("{} faster", Factor(1.0 / self.0)),
            Some(Unit::Percent) => signed_percent(100.0 * (self.0 - 1.0)),
        };
        f.pad(&text)
    }
}

/// In what a change is told, and the interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Percent,
    Slower,
    Faster,
}

impl Unit {
    /// The unit of a change; `None` where it is none. It is chosen by what is printed, so
    /// that nothing reads `+100.0 %` on one line and `2.00x slower` on the next.
    fn of(ratio: f64) -> Option<Unit> {
        match ratio {
            ratio if !ratio.is_finite() || ratio <= 0.0 => None,
            ratio if ratio >= 1.9995 => Some(Unit::Slower),
            ratio if ratio <= 0.5 => Some(Unit::Faster),
            _ => Some(Unit::Percent),
        }
    }
}

/// The interval of an estimated ratio, in the unit that [`RatioChange`] gives the estimate:
/// `[+10.1 %, +14.2 %]`, `[101.9x, 103.1x]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioInterval {
    /// The estimate.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl fmt::Display for RatioInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RatioInterval { ratio, low, high } = *self;
        let text = match Unit::of(ratio) {
            _ if !low.is_finite() || !high.is_finite() || low <= 0.0 => NONE.to_owned(),
            None => NONE.to_owned(),
            Some(Unit::Slower) => format!("[{}, {}]", Factor(low), Factor(high)),
            Some(Unit::Faster) => format!("[{}, {}]", Factor(1.0 / high), Factor(1.0 / low)),
            Some(Unit::Percent) => {
                let [low, high] = [low, high].map(|ratio| signed_percent(100.0 * (ratio - 1.0)));
                format!("[{low}, {high}]")
            }
        };
        f.pad(&text)
    }
}

/// `+12.3 %`, `0.0 %`, `-0.4 %`, with a true minus sign left to prose: scripts
/// and terminals want the hyphen.
fn signed_percent(percent: f64) -> String {
    // Never `-0.0 %`.
    let rounded = (percent * 10.0).round() / 10.0 + 0.0;
    if rounded == 0.0 {
        "0.0 %".to_owned()
    } else {
        format!("{rounded:+.1} %")
    }
}

/// A factor that is compared with a limit: `1.04x`, `12.3x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor(pub f64);

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() {
            f.pad(&format!("{}x", Digits(self.0)))
        } else {
            f.pad(NONE)
        }
    }
}

/// A fraction as a percentage: `1.8 %`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() {
            f.pad(&format!("{:.1} %", 100.0 * self.0))
        } else {
            f.pad(NONE)
        }
    }
}

/// A probability: `0.0002`, `< 0.0001`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probability(pub f64);

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            p if !p.is_finite() => NONE.to_owned(),
            p if p < 0.0001 => "< 0.0001".to_owned(),
            p if p < 0.01 => format!("{p:.4}"),
            // A p of 0.049 is on one side of a limit, and 0.05 on it.
            p if p < 0.1 => format!("{p:.3}"),
            p => format!("{p:.2}"),
        };
        f.pad(&text)
    }
}

/// A size in bytes: `512 B`, `1.50 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

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
        f.pad(&text)
    }
}

/// `1 case`, `2 cases`.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_the_unit_that_fits() {
        let read = |ns| ShortTime(ns).to_string();
        assert_eq!(read(118_600.0), "118.6 µs");
        assert_eq!(read(2_640_000.0), "2.64 ms");
        assert_eq!(read(52_780.0), "52.8 µs");
        assert_eq!(read(999.96), "1.00 µs");
        assert_eq!(read(104e9), "104.0 s");
        assert_eq!(read(0.0), "0 ns");
        assert_eq!(read(f64::NAN), "–");
        assert_eq!(read(f64::INFINITY), "–");
    }

    #[test]
    fn changes_are_percentages_until_they_are_factors() {
        let read = |ratio| RatioChange(ratio).to_string();
        assert_eq!(read(1.123), "+12.3 %");
        assert_eq!(read(0.877), "-12.3 %");
        assert_eq!(read(0.9999), "0.0 %");
        assert_eq!(read(102.5), "102.5x slower");
        assert_eq!(read(0.32), "3.12x faster");
        assert_eq!(read(371.7 / 184.8), "2.01x slower");
        assert_eq!(read(0.0), "–");
        assert_eq!(read(f64::NAN), "–");
    }

    #[test]
    fn an_interval_is_in_the_unit_of_its_estimate() {
        let read = |ratio, low, high| RatioInterval { ratio, low, high }.to_string();
        assert_eq!(read(1.01, 0.97, 1.04), "[-3.0 %, +4.0 %]");
        assert_eq!(read(102.5, 101.9, 103.1), "[101.9x, 103.1x]");
        assert_eq!(read(2.2, 1.858, 2.761), "[1.86x, 2.76x]");
        assert_eq!(read(1.9, 1.5, 2.4), "[+50.0 %, +140.0 %]");
        assert_eq!(read(0.4, 0.25, 0.625), "[1.60x, 4.00x]");
        assert_eq!(read(1.0, 0.0, f64::NAN), "–");
    }

    #[test]
    fn two_times_share_their_unit() {
        assert_eq!(from_to(50_300.0, 277_000.0), "50.3 → 277.0 µs");
        assert_eq!(from_to(2_600_000.0, 50.0), "2.60 ms → 50.0 ns");
        assert_eq!(part_of(0.0, 28_000.0), "0 of 28.0 µs");
        assert_eq!(part_of(153_000.0, 216_000.0), "153.0 of 216.0 µs");
        assert_eq!(from_to(400.0, 0.0), "400.0 ns → 0");
        assert_eq!(from_to(400.0, f64::NAN), "400.0 ns → –");
    }

    #[test]
    fn sizes_and_chances_read_well() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes(1_572_864).to_string(), "1.50 MiB");
        assert_eq!(Probability(0.00001).to_string(), "< 0.0001");
        assert_eq!(Probability(0.0079).to_string(), "0.0079");
        assert_eq!(Percent(0.018).to_string(), "1.8 %");
        assert_eq!(Factor(12.34).to_string(), "12.3x");
        assert_eq!(counted(1, "case"), "1 case");
        assert_eq!(counted(0, "case"), "0 cases");
    }
}
