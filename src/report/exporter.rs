//! What a report is made of, and what makes one.

use crate::judge::judgement::Judgement;
use crate::record::side::Side;
use crate::record::types::Run;

/// Everything a report shows.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// What is said of the run.
    pub judgement: &'a Judgement,
    /// The run itself, for its samples.
    pub head: &'a Run,
    /// What it was held against, if anything.
    pub base: Option<&'a Side>,
}

/// One rendered file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What it is called in a report's directory.
    pub name: &'static str,
    /// What is in it.
    pub text: String,
}

/// Why a report could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A table could not be written.
    #[error("cannot write the table {name}: {problem}")]
    Table {
        /// The document.
        name: &'static str,
        /// What the writer said.
        problem: String,
    },
    /// The page could not be filled in.
    #[error("cannot fill in the page: {0}")]
    Page(#[from] minijinja::Error),
    /// The judgement could not be written as JSON.
    #[error("cannot write the judgement as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Renders reports in one format.
pub(super) trait Exporter {
    /// The documents of a report, the one that matters most first.
    fn export(&self, report: &Report) -> Result<Vec<Document>, RenderError>;
}
