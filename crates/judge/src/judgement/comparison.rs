//! The comparison of two sides, and its text.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Word;
use regatta_worker::units::{Ratio, Share};

/// The comparison of two sides: by a metric, of a case with the reference of an expectation, of the
/// runs of two traces, or of two levels of a history. It has the one estimate and interval that
/// every format shows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The verdict; `Inconclusive` where the values decide nothing.
    pub word: Word,
    /// Head over base: 1.10 means 10 % slower.
    pub ratio: Ratio,
    /// The lower end of the 90 % interval; `None` with too few invocations for one.
    pub low: Option<Ratio>,
    /// The upper end of the 90 % interval.
    pub high: Option<Ratio>,
    /// The smallest relative change that counts. It already contains the metric's least absolute
    /// change.
    pub threshold: Share,
    /// The change that a gate with all its looks would detect in 95 of 100 repetitions; `None`
    /// without pairs to compute it from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable: Option<Share>,
    /// True where the head may be worse, and nothing decided it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_worse: bool,
    /// True where more invocations could decide it.
    #[serde(skip)]
    pub open: bool,
    /// True where CPU time decided in place of the metric itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_cpu_time: bool,
    /// The numbers of invocations of base and head that were compared; for a trace or a history, of
    /// runs.
    pub invocations: (u32, u32),
    /// True where the values were measured in pairs.
    pub paired: bool,
}

impl Comparison {
    /// A comparison without an interval; `counts` are the numbers of values of base and head.
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

    /// Sets the ends of the interval, given as logarithms; infinite ends mean too few values.
    pub fn within(self, low: f64, high: f64) -> Comparison {
        let is_known = low.is_finite() && high.is_finite();
        let end = |log: f64| is_known.then(|| Ratio(log.exp()));
        Comparison {
            low: end(low),
            high: end(high),
            ..self
        }
    }

    /// Scales estimate, interval and threshold: the head takes `by` times as long, and may.
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

    /// Takes estimate, interval and detectable change from `other`.
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

    /// True where a change is shown, for the worse or the better.
    pub fn has_moved(&self) -> bool {
        matches!(self.word, Word::Regressed | Word::Improved)
    }

    /// True where the whole interval lies above `ratio`.
    pub fn is_above(&self, ratio: Ratio) -> bool {
        self.low.is_some_and(|low| low > ratio)
    }

    /// True where the interval does not reach beyond `ratio`.
    pub fn is_at_most(&self, ratio: Ratio) -> bool {
        self.high.is_some_and(|high| high <= ratio)
    }

    /// The interval, in the form of the estimate: `[+10.1 %, +14.2 %]`.
    pub fn interval(&self) -> Option<String> {
        Some(self.ratio.interval(self.low?, self.high?))
    }

    /// `text`, followed by the interval: `12.3 % slower [+10.1 %, +14.2 %]`.
    pub fn with_interval(&self, mut text: String) -> String {
        if let Some(interval) = self.interval() {
            text += &format!(" {interval}");
        }
        text
    }

    /// The interval as part of a sentence: `between -1.0 and +2.9 %`.
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
