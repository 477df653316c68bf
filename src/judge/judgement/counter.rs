//! What hardware counted of a kernel on both sides.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::{METRICS, Sides};
use crate::units::{ARROW, Share};

/// A hardware counter of a kernel, before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CounterChange {
    /// Its name in CUPTI.
    pub metric: String,
    /// What people call it.
    pub words: String,
    /// What its values are.
    pub kind: CounterKind,
    /// What was counted.
    pub values: Sides<f64>,
}

/// What the values of a counter are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CounterKind {
    /// Instructions of all launches of a call.
    Instructions,
    /// Percent of the most there can be, the mean of its launches.
    Percent,
    /// How much or how often, the mean of its launches.
    Amount,
}

impl CounterChange {
    /// How much more is executed, beyond a thousandth: less explains no time.
    pub fn more_work(&self) -> Option<Share> {
        let executed = self.metric == METRICS[0].name && self.values.base > 0.0;
        let more = self.values.head / self.values.base - 1.0;
        (executed && more > 0.001).then_some(Share(more))
    }
}

impl fmt::Display for CounterChange {
    /// `same instructions`, `instructions +1.0 %`, `SM cycles active 98.2 → 0.65 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, Sides { base, head }) = (&self.words, &self.values);
        if base == head {
            return write!(f, "same {words}");
        }
        match self.kind {
            CounterKind::Percent => {
                write!(f, "{words} {} {ARROW} {} %", percent(*base), percent(*head))
            }
            CounterKind::Instructions if *base > 0.0 => {
                write!(f, "{words} {:+.1} %", 100.0 * (head / base - 1.0))
            }
            CounterKind::Instructions => write!(f, "{words} {base:.0} {ARROW} {head:.0}"),
            CounterKind::Amount => write!(f, "{words} {base:.3e} {ARROW} {head:.3e}"),
        }
    }
}

/// Three digits, at most two of them behind the point.
fn percent(value: f64) -> String {
    match value.abs() {
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
