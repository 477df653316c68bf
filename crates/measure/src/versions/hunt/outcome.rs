//! What came of comparing two versions, as it is kept.

use serde::{Deserialize, Serialize};

use crate::versions::search::Reading;
use regatta_core::suite::rules::Metric;
use regatta_judge::judgement::{Judgement, MetricRow, Row};
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// A comparison that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// What was compared with, as `regatta compare` takes it.
    pub base: String,
    /// What was tried.
    pub head: String,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Both sides were measured.
    Measured {
        /// One a case.
        cases: Vec<CaseReading>,
    },
    /// One side cannot be made, built or run.
    Unusable {
        /// Which.
        side: Side,
        /// Why, in a line.
        reason: String,
    },
}

/// A side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// What is compared with.
    Base,
    /// What is tried.
    Head,
}

/// One case of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseReading {
    /// Which.
    pub case: CaseId,
    /// Head against base; `None` where it was not measured on both sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// The base's median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_ns: Option<Nanoseconds>,
    /// The head's median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_ns: Option<Nanoseconds>,
    /// The change that this comparison would have called in 95 of 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees: Option<Share>,
    /// Its first cause, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CaseReading {
    /// How large its change is either way, as a logarithm; 0 without one.
    pub fn size(&self) -> f64 {
        let usable = self.reading.filter(Reading::is_usable);
        usable.map_or(0.0, |reading| reading.ratio.0.ln().abs())
    }
}

impl Outcome {
    /// The case whose change is largest.
    pub fn largest(&self) -> Option<&CaseReading> {
        let measured = self.cases().iter().filter(|of| of.reading.is_some());
        measured.max_by(|a, b| a.size().total_cmp(&b.size()))
    }

    /// Why the first case that has no time has none.
    pub fn first_reason(&self) -> Option<&str> {
        self.cases().iter().find_map(|of| of.reason.as_deref())
    }

    /// Its cases; none where a side is unusable.
    pub fn cases(&self) -> &[CaseReading] {
        match self {
            Outcome::Measured { cases } => cases,
            Outcome::Unusable { .. } => &[],
        }
    }
}

impl Tried {
    /// Its cases; none where a side is unusable.
    pub fn cases(&self) -> &[CaseReading] {
        self.outcome.cases()
    }

    /// What it says of a case.
    pub fn reading(&self, case: &CaseId) -> Option<&CaseReading> {
        self.cases().iter().find(|of| of.case == *case)
    }

    /// Why the version that was tried is passed over; `None` where it is not.
    pub fn why_skipped(&self, case: Option<&CaseId>) -> Option<String> {
        if let Outcome::Unusable { reason, .. } = &self.outcome {
            return Some(reason.clone());
        }
        let found = case.and_then(|case| self.reading(case));
        let usable = |of: &CaseReading| of.reading.is_some_and(|reading| reading.is_usable());
        match (found, case) {
            (Some(of), _) if usable(of) => None,
            (Some(of), _) => Some(match &of.reason {
                Some(reason) => reason.clone(),
                None => format!("{} has no time that can be compared", of.case.0),
            }),
            (None, Some(case)) => Some(format!("it has no case {}", case.0)),
            (None, None) => {
                let why = self.outcome.first_reason().unwrap_or("it has no case");
                Some(format!("no case was measured: {why}"))
            }
        }
    }
}

/// What a judgement says of each case by a metric.
pub fn readings(judgement: &Judgement, metric: Metric) -> Vec<CaseReading> {
    let reading = |row: &Row| {
        let of = row.metric(metric);
        let none = || format!("no {} of {} is known", metric.text(), row.case.0);
        CaseReading {
            case: row.case.clone(),
            reading: of.and_then(reading),
            base_ns: of.map(|of| Nanoseconds(of.base)),
            head_ns: of.map(|of| Nanoseconds(of.head)),
            sees: of.and_then(|of| of.change.detectable),
            cause: row.findings.first().map(ToString::to_string),
            reason: match of {
                Some(of) => of.reason.clone(),
                None => Some(row.reason.clone().unwrap_or_else(none)),
            },
        }
    };
    judgement.rows.iter().map(reading).collect()
}

fn reading(of: &MetricRow) -> Option<Reading> {
    let change = &of.change;
    let reading = Reading {
        ratio: change.ratio,
        low: change.low?,
        high: change.high?,
        word: of.word,
    };
    (reading.ratio > Ratio(0.0)).then_some(reading)
}
