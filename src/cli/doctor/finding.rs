//! One thing that was looked at, and what became of it.

use owo_colors::Style;
use serde::Serialize;

/// One thing that was looked at.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(in crate::cli) struct Finding {
    /// What was looked at.
    pub(super) what: String,
    /// What it is called in its group.
    #[serde(skip)]
    pub(super) name: String,
    /// How it is.
    pub(super) state: State,
    /// What was found.
    pub(super) detail: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum State {
    /// It works.
    Ok,
    /// It is not here, and need not be.
    Absent,
    /// It did not answer in the time that is given here.
    Slow,
    /// It should work and does not.
    Broken,
}

impl State {
    pub(super) fn mark(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Absent => "absent",
            State::Slow => "slow",
            State::Broken => "BROKEN",
        }
    }

    pub(super) fn style(self) -> Style {
        match self {
            State::Ok => Style::new().green(),
            State::Absent => Style::new().dimmed(),
            State::Slow => Style::new().yellow(),
            State::Broken => Style::new().red().bold(),
        }
    }
}
