//! What is judged beside the device's time.

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::change::Change;
use super::word::Word;
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Action;
use regatta_worker::units::{Nanoseconds, from_to};

/// One metric of a case beside its device time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MetricRow {
    /// Which.
    pub metric: Metric,
    /// What is said of it.
    pub word: Word,
    /// Why, where the word alone does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a regression of it does to the verdict.
    pub action: Action,
    /// True when it is slower beyond the floor, as it looks, and nothing decided it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looks_worse: bool,
    /// True when more invocations could decide it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Median of the base.
    pub base_ns: Nanoseconds,
    /// Median of the head.
    pub head_ns: Nanoseconds,
    /// Head against base.
    pub change: Change,
    /// Where its change went, where both sides tell what it is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
}

impl MetricRow {
    /// True when it got worse, and the suite fails for it.
    pub fn fails(&self) -> bool {
        self.word == Word::Regressed && self.action == Action::Fail
    }

    /// True when it got worse, and the suite wants to know.
    pub fn warns(&self) -> bool {
        self.word == Word::Regressed && self.action == Action::Warn
    }

    /// The same as [`changed`](MetricRow::changed), and where that went, where known.
    pub fn told(&self) -> String {
        let account = self.account.as_ref();
        let account = account.map_or(String::new(), |account| format!(": {account}"));
        self.changed() + &account
    }

    /// `host time 52.1 → 352.4 µs, 6.76 times as long`.
    pub fn changed(&self) -> String {
        format!(
            "{} {}, {} times as long",
            self.metric.text(),
            from_to(self.base_ns, self.head_ns),
            (self.head_ns / self.base_ns).times(),
        )
    }
}
