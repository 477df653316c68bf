//! Ratios, shares and probabilities.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Digits, NONE, put};

/// One time over another, the head's over the base's: 1.10 is 10 % slower.
///
/// Prints as a change: `+12.3 %` below a factor of two, `102.5x slower` or `3.10x faster` beyond.
/// [`Ratio::in_words`] is the form for a sentence, [`Ratio::times`] the multiple, and
/// [`Ratio::factor`] the form to compare with a limit.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Ratio(pub f64);

quantity!(Ratio);

impl Ratio {
    /// Equal times.
    pub const ONE: Ratio = Ratio(1.0);

    /// The ratio for a change: 1.05 for 5 %.
    pub fn grown_by(change: Share) -> Ratio {
        Ratio(1.0 + change.0)
    }

    /// The change for a ratio: 5 % for 1.05.
    pub fn growth(self) -> Share {
        Share(self.0 - 1.0)
    }

    /// The base's time over the head's.
    pub fn inverse(self) -> Ratio {
        Ratio(1.0 / self.0)
    }

    /// The multiple, for sentences such as `2.30 times as long`.
    pub fn times(self) -> Digits {
        Digits(self.0)
    }

    /// A factor to compare with a limit: `1.04x`, `12.3x`.
    pub fn factor(self) -> String {
        if self.is_finite() {
            format!("{}x", self.times())
        } else {
            NONE.to_owned()
        }
    }

    /// The interval around the ratio, in the unit in which the ratio prints: `[+10.1 %, +14.2 %]`,
    /// `[101.9x, 103.1x]`.
    pub fn interval(self, low: Ratio, high: Ratio) -> String {
        match Unit::choose(self) {
            _ if !low.is_finite() || !high.is_finite() || low.0 <= 0.0 => NONE.to_owned(),
            None => NONE.to_owned(),
            Some(Unit::Slower) => format!("[{}, {}]", low.factor(), high.factor()),
            Some(Unit::Faster) => {
                let [high, low] = [high, low].map(|ratio| ratio.inverse().factor());
                format!("[{high}, {low}]")
            }
            Some(Unit::Percent) => {
                format!("[{}, {}]", signed(low.growth()), signed(high.growth()))
            }
        }
    }

    /// The change of a time for a sentence: `12.3 % slower`, `4.0 % faster`, `3.42x slower`.
    /// Columns of figures have a sign instead.
    pub fn in_words(self) -> String {
        self.change(["slower", "faster"])
    }

    /// The change of an amount for a sentence: `12.3 % more`.
    pub fn in_amounts(self) -> String {
        self.change(["more", "less"])
    }

    fn change(self, [longer, shorter]: [&str; 2]) -> String {
        match Unit::choose(self) {
            None => NONE.to_owned(),
            Some(Unit::Slower) => format!("{} {longer}", self.factor()),
            Some(Unit::Faster) => format!("{} {shorter}", self.inverse().factor()),
            Some(Unit::Percent) if self >= Ratio::ONE => format!("{} {longer}", self.growth()),
            Some(Unit::Percent) => format!("{} {shorter}", Share(1.0 - self.0)),
        }
    }
}

operators! {
    Ratio Mul mul * Ratio = Ratio;
    Ratio Mul mul * f64 = Ratio;
    Ratio Div div / Ratio = Ratio;
    Ratio Div div / f64 = Ratio;
    Share Add add + Share = Share;
    Share Sub sub - Share = Share;
    Share Mul mul * Share = Share;
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match Unit::choose(*self) {
            None => NONE.to_owned(),
            Some(Unit::Percent) => signed(self.growth()),
            Some(_) => self.in_words(),
        };
        put(f, &text)
    }
}

/// The unit of a change, and of the interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Percent,
    Slower,
    Faster,
}

impl Unit {
    /// The unit of a change; `None` if the ratio is not a positive number. Decided by the printed
    /// text, so that `+100.0 %` does not appear beside `2.00x slower`.
    fn choose(ratio: Ratio) -> Option<Unit> {
        match ratio.0 {
            ratio if !ratio.is_finite() || ratio <= 0.0 => None,
            ratio if ratio >= 1.9995 => Some(Unit::Slower),
            ratio if ratio <= 0.5 => Some(Unit::Faster),
            _ => Some(Unit::Percent),
        }
    }
}

/// `+12.3 %`, `0.0 %`, `-0.4 %`, with a hyphen as the minus sign, which scripts and terminals
/// expect.
fn signed(change: Share) -> String {
    // Never prints `-0.0 %`.
    let rounded = (100.0 * change.0 * 10.0).round() / 10.0 + 0.0;
    if rounded == 0.0 {
        "0.0 %".to_owned()
    } else {
        format!("{rounded:+.1} %")
    }
}

/// A part of a whole, or a relative change: 0.018 is 1.8 %.
///
/// Prints one decimal place, or the precision of the format: `{:.2}` for spreads, which are small.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Share(pub f64);

quantity!(Share);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(1);
        if self.is_finite() {
            put(f, &format!("{:.places$} %", 100.0 * self.0))
        } else {
            put(f, NONE)
        }
    }
}

/// A probability: `0.0002`, `< 0.0001`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Probability(pub f64);

quantity!(Probability);

impl Probability {
    /// The level of each of several tests, so that all together have this level (Bonferroni).
    pub fn among(self, tests: usize) -> Probability {
        Probability(self.0 / tests.max(1) as f64)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            p if !p.is_finite() => NONE.to_owned(),
            p if p < 0.0001 => "< 0.0001".to_owned(),
            p if p < 0.01 => format!("{p:.4}"),
            // Three decimals, so that 0.049 does not print as 0.05, the usual limit.
            p if p < 0.1 => format!("{p:.3}"),
            p => format!("{p:.2}"),
        };
        put(f, &text)
    }
}
