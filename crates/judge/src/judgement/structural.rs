//! What was counted and is no more, and limits on structure.

use serde::{Deserialize, Serialize};

use super::Word;

use regatta_core::suite::structural::{Limit, Quantity};
use regatta_worker::attention::CaseId;

/// A metric, parameter or part of the structure that the base reports and the head does not:
/// whether it changed is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Uncounted {
    /// `launches`, a figure of them (`local memory`), or the name of a count, metric or parameter.
    pub name: String,
    /// The base's figure, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Why the head does not tell it, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True where both sides tell it and nobody knows whether it is more: `reason` says of what.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inconclusive: bool,
}

impl Uncounted {
    /// `in the base and not in the head: launches (2), allocations (3): the census failed`.
    pub fn sentence(all: &[Uncounted]) -> Option<String> {
        const NAMED: usize = 6;
        let (inconclusive, all): (Vec<&Uncounted>, Vec<&Uncounted>) =
            all.iter().partition(|one| one.inconclusive);
        let open = inconclusive.iter().find_map(|one| one.reason.clone());
        let Some(first) = all.first() else {
            return open;
        };
        let named = all.iter().take(NAMED).map(|one| match one.before {
            Some(before) => format!("{} ({before})", one.name),
            None => one.name.clone(),
        });
        let mut text = format!(
            "in the base and not in the head: {}",
            named.collect::<Vec<_>>().join(", ")
        );
        if all.len() > NAMED {
            text += &format!(" and {} more", all.len() - NAMED);
        }
        let reason = all.iter().find_map(|one| one.reason.as_ref());
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            let whole = all.len() == 1 || first.reason.as_ref() == Some(reason);
            let about = all.iter().find(|one| one.reason.is_some());
            let about = about.map_or("", |one| one.name.as_str());
            text += &match whole {
                true => format!(": {reason}"),
                false => format!("; {about}: {reason}"),
            };
        }
        text += &open.map_or_else(String::new, |open| format!("; {open}"));
        Some(text)
    }
}

/// One case of a limit on structure, or one build of a limit on that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LimitResult {
    /// The limit's name.
    pub name: String,
    /// The case; `None` where it is on a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<CaseId>,
    /// What was built, where it is on a build and one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<String>,
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
    /// Same: it is met. Regressed: it is violated. Missing: nobody knows.
    pub word: Word,
    /// What the value was read off, or why there is none.
    pub reason: Option<String>,
}

impl LimitResult {
    /// Compares a value with a limit, of no case and no build yet.
    pub fn new(limit: &Limit, value: Option<f64>, reason: Option<String>) -> LimitResult {
        LimitResult {
            name: limit.name.clone(),
            case: None,
            built: None,
            count: limit.count.clone(),
            at_least: limit.at_least,
            at_most: limit.at_most,
            value,
            word: match value {
                None => Word::Missing,
                Some(value) if limit.allows(value) => Word::Same,
                Some(_) => Word::Regressed,
            },
            reason,
        }
    }

    /// What is held to it: a case, or what was built.
    pub fn subject(&self) -> String {
        match (&self.case, &self.built) {
            (Some(case), _) => case.0.clone(),
            (None, Some(built)) => format!("the build of {built}"),
            (None, None) => "the build".to_owned(),
        }
    }

    /// `sm_fill is 0.008, at least 0.5 is allowed`.
    pub fn sentence(&self) -> String {
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
