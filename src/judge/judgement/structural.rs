//! What the judge says of structure.

use serde::{Deserialize, Serialize};

use super::Held;
use crate::attention::CaseId;
use crate::suite::structural::{Action, Kind, Quantity};

/// An exact difference between the structures of two calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StructuralChange {
    /// Its kind.
    pub kind: Kind,
    /// Whether it is for the worse.
    pub direction: Direction,
    /// The kernel, count or parameter, shortened.
    pub name: String,
    /// The base's figure.
    pub before: String,
    /// The head's figure.
    pub after: String,
    /// How the suite takes it.
    pub action: Action,
}

impl std::fmt::Display for StructuralChange {
    /// `grid 157x1x1 -> 1x1x1 of fmha_cutlassB`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, name) = (self.kind.text(), &self.name);
        write!(f, "{kind} {} -> {}", self.before, self.after)?;
        // A replaced kernel is named by what it became, `threads` by its kind.
        if self.kind != Kind::KernelReplaced && name != kind {
            write!(f, " of {name}")?;
        }
        Ok(())
    }
}

/// Whether a change of structure is for the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// It can only cost.
    Worse,
    /// It can only help.
    Better,
    /// It may do either.
    Other,
}

/// One case held to a limit on its structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// The limit's name.
    pub name: String,
    /// The case held to it.
    pub case: CaseId,
    /// What is limited.
    pub count: Quantity,
    /// Smallest allowed value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Largest allowed value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// What it is; `None` when nobody knows.
    pub value: Option<f64>,
    /// What came of it: never inconclusive.
    pub held: Held,
    /// What the value was read off, or why there is none.
    pub reason: Option<String>,
}

impl LimitResult {
    /// `sm_fill is 0.008, at least 0.5 is allowed`.
    pub fn told(&self) -> String {
        // Three decimals tell one of 132 multiprocessors; whole counts have none.
        let figure = |value: f64| match value.fract() == 0.0 {
            true => format!("{value}"),
            false => format!("{value:.3}"),
        };
        let value = self.value.map_or("unknown".to_owned(), figure);
        let bounds = [("at least", self.at_least), ("at most", self.at_most)];
        let bounds = bounds
            .into_iter()
            .filter_map(|(word, bound)| Some(format!("{word} {}", figure(bound?))));
        let bounds: Vec<String> = bounds.collect();
        format!(
            "{} is {value}, {} is allowed",
            self.count,
            bounds.join(" and ")
        )
    }
}
