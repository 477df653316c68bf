//! Numbers as people read them. Every one of them prints something for every
//! value: `–` where there is no number to print.

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
        // The limits lie half a digit lower, so that 999.96 ns reads 1.00 µs.
        let (value, unit) = match self.0.abs() {
            ns if ns < 999.95 => (self.0, "ns"),
            ns if ns < 999.95e3 => (self.0 / 1e3, "µs"),
            ns if ns < 999.95e6 => (self.0 / 1e6, "ms"),
            _ => (self.0 / 1e9, "s"),
        };
        f.pad(&format!("{} {unit}", Digits(value)))
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
/// or `3.1x faster` beyond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioChange(pub f64);

impl fmt::Display for RatioChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            ratio if !ratio.is_finite() || ratio <= 0.0 => NONE.to_owned(),
            ratio if ratio >= 2.0 => format!("{ratio:.1}x slower"),
            ratio if ratio <= 0.5 => format!("{:.1}x faster", 1.0 / ratio),
            ratio => signed_percent(100.0 * (ratio - 1.0)),
        };
        f.pad(&text)
    }
}

/// An interval of [`RatioChange`]: `[+10.1 %, +14.2 %]`, `[101.9x, 103.1x]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioInterval(pub f64, pub f64);

impl fmt::Display for RatioInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RatioInterval(low, high) = *self;
        if !low.is_finite() || !high.is_finite() || low <= 0.0 {
            return f.pad(NONE);
        }
        let text = if low >= 2.0 {
            format!("[{low:.1}x, {high:.1}x]")
        } else if high <= 0.5 {
            format!("[{:.1}x, {:.1}x]", 1.0 / high, 1.0 / low)
        } else {
            let [low, high] = [low, high].map(|ratio| signed_percent(100.0 * (ratio - 1.0)));
            format!("[{low}, {high}]")
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
        assert_eq!(read(0.32), "3.1x faster");
        assert_eq!(read(0.0), "–");
        assert_eq!(read(f64::NAN), "–");
        assert_eq!(RatioInterval(0.97, 1.04).to_string(), "[-3.0 %, +4.0 %]");
        assert_eq!(RatioInterval(101.9, 103.1).to_string(), "[101.9x, 103.1x]");
        assert_eq!(RatioInterval(0.0, f64::NAN).to_string(), "–");
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
