//! One thing that was looked at, and what became of it.

use owo_colors::Style;
use serde::Serialize;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Check {
    /// What was looked at.
    pub(super) what: String,
    /// What it is called in its group.
    #[serde(skip)]
    pub(super) name: String,
    /// How it is.
    pub(super) state: CheckState,
    /// What was found.
    pub(super) detail: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) fix: String,
}

impl Check {
    /// Something that its group calls as it is called, and that needs nothing.
    pub(super) fn new(what: &str, state: CheckState, detail: impl Into<String>) -> Check {
        Check {
            what: what.to_owned(),
            name: what.to_owned(),
            state,
            detail: detail.into(),
            fix: String::new(),
        }
    }

    /// The same, called otherwise in its group.
    pub(super) fn called(mut self, name: &str) -> Check {
        name.clone_into(&mut self.name);
        self
    }

    /// The same, with what would help.
    pub(super) fn helped_by(mut self, fix: impl Into<String>) -> Check {
        self.fix = fix.into();
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum CheckState {
    /// It works.
    Ok,
    /// It is not here, and need not be.
    Absent,
    /// It did not answer in the time that is given here.
    Slow,
    /// It should work and does not.
    Broken,
}

impl CheckState {
    pub(super) fn mark(self) -> &'static str {
        match self {
            CheckState::Ok => "ok",
            CheckState::Absent => "absent",
            CheckState::Slow => "slow",
            CheckState::Broken => "BROKEN",
        }
    }

    pub(super) fn style(self) -> Style {
        match self {
            CheckState::Ok => Style::new().green(),
            CheckState::Absent => Style::new().dimmed(),
            CheckState::Slow => Style::new().yellow(),
            CheckState::Broken => Style::new().red().bold(),
        }
    }
}
