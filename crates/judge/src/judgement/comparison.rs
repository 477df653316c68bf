//! One comparison of two sides, and its words.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Word;
use regatta_worker::units::{Ratio, Share};

/// Two sides compared: of a metric, a case beside the one it is demanded to keep up with, runs of
/// two traces, or two levels of a history. The one estimate and interval that every format shows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The verdict; inconclusive where nothing is shown.
    pub word: Word,
    /// Head over base; 1.10: 10 % slower.
    pub ratio: Ratio,
    /// Lower end of its 90 % interval; `None` where there are too few invocations for one.
    pub low: Option<Ratio>,
    /// Upper end.
    pub high: Option<Ratio>,
    /// Smallest relative change that counts, the least amount included.
    pub threshold: Share,
    /// Change that all looks of a gate would detect in 95 of 100; `None` without pairs to compute
    /// it from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable: Option<Share>,
    /// True where it may be worse, and nothing decided it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_worse: bool,
    /// True where more invocations could decide it.
    #[serde(skip)]
    pub open: bool,
    /// True where CPU time decided in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_cpu_time: bool,
    /// Invocations of base and head that decided; of a trace or a history, runs.
    pub invocations: (u32, u32),
    /// True where they were measured in pairs.
    pub paired: bool,
}

impl Comparison {
    /// A comparison of so many values a side, without an interval.
    pub fn new(word: Word, ratio: Ratio, threshold: Share, counts: (usize, usize)) -> Comparison {
        Comparison {
            word,
            ratio,
            low: None,
            high: None,
            threshold,
            detectable: None,
            may_be_worse: false,
            open: false,
            by_cpu_time: false,
            invocations: (counts.0 as u32, counts.1 as u32),
            paired: false,
        }
    }

    /// The same with the ends of its interval: logarithms, infinite for too few values.
    pub fn within(self, low: f64, high: f64) -> Comparison {
        let is_known = low.is_finite() && high.is_finite();
        let end = |log: f64| is_known.then(|| Ratio(log.exp()));
        Comparison {
            low: end(low),
            high: end(high),
            ..self
        }
    }

    /// The same of a head that takes so many times as long, and may.
    pub fn scaled(self, by: Ratio) -> Comparison {
        let share = |change: Share| (Ratio::grown_by(change) * by).growth();
        Comparison {
            ratio: self.ratio * by,
            low: self.low.map(|low| low * by),
            high: self.high.map(|high| high * by),
            threshold: share(self.threshold),
            detectable: self.detectable.map(share),
            ..self
        }
    }

    /// The same with another's estimate, and what is detectable beside it.
    pub fn with_estimate_of(self, other: Comparison) -> Comparison {
        Comparison {
            ratio: other.ratio,
            low: other.low,
            high: other.high,
            detectable: other.detectable,
            ..self
        }
    }

    /// The largest ratio within the threshold.
    pub fn limit(&self) -> Ratio {
        Ratio::grown_by(self.threshold)
    }

    /// True where it is shown that a side changed.
    pub fn has_moved(&self) -> bool {
        matches!(self.word, Word::Regressed | Word::Improved)
    }

    /// True where the interval lies above a ratio.
    pub fn is_above(&self, ratio: Ratio) -> bool {
        self.low.is_some_and(|low| low > ratio)
    }

    /// True where the interval does not reach beyond a ratio.
    pub fn is_at_most(&self, ratio: Ratio) -> bool {
        self.high.is_some_and(|high| high <= ratio)
    }

    /// The interval, in the unit of its estimate: `[+10.1 %, +14.2 %]`.
    pub fn interval(&self) -> Option<String> {
        Some(self.ratio.interval(self.low?, self.high?))
    }

    /// The change in some words and its interval: `12.3 % slower [+10.1 %, +14.2 %]`.
    pub fn with_interval(&self, mut text: String) -> String {
        if let Some(interval) = self.interval() {
            text += &format!(" {interval}");
        }
        text
    }

    /// The interval in a sentence: `between -1.0 and +2.9 %`.
    pub fn between(&self) -> String {
        let percent = |ratio: Ratio| 100.0 * ratio.growth().0;
        match self.low.zip(self.high) {
            Some((low, high)) => {
                format!("between {:+.1} and {:+.1} %", percent(low), percent(high))
            }
            None => format!(
                "about {:+.1} %, by too few invocations for an interval",
                percent(self.ratio)
            ),
        }
    }
}

impl fmt::Display for Comparison {
    /// The change with its interval: `+12.3 % [+10.1 %, +14.2 %]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_interval(self.ratio.to_string()))
    }
}
