//! The input of a report, its errors, and what all pages share.

use std::borrow::Cow;
use std::io::{self, Write};

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use regatta_core::record::RecordError;
use regatta_core::record::entries::Entries;
use regatta_core::record::side::Side;
use regatta_core::record::types::Run;
use regatta_judge::judgement::Judgement;

/// Everything a report shows.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The judgement of the run.
    pub judgement: &'a Judgement,
    /// Under what the run was measured; its entries may be elsewhere.
    pub head: &'a Run,
    /// The run, reduced as the judge saw it.
    pub side: Cow<'a, Side>,
    /// Its entries, for their samples.
    pub entries: Entries<'a>,
    /// What it was compared with, if anything.
    pub base: Option<&'a Side>,
}

impl<'a> Report<'a> {
    /// The report of a run that holds its entries.
    pub fn new(judgement: &'a Judgement, head: &'a Run, base: Option<&'a Side>) -> Report<'a> {
        Report {
            judgement,
            head,
            side: Cow::Owned(Side::from_run("head", head)),
            entries: Entries::Held(head),
            base,
        }
    }
}

/// One rendered file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedFile {
    /// What it is called in a report's directory.
    pub name: &'static str,
    /// Its text.
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
        /// The writer's error.
        problem: String,
    },
    /// The page could not be filled in.
    #[error("cannot fill in the page: {0}")]
    Page(#[from] minijinja::Error),
    /// A figure does not fit its own data.
    #[error("cannot draw a figure: {0}")]
    Figure(String),
    /// The judgement could not be written as JSON.
    #[error("cannot write the judgement as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The run's file, which holds its samples, cannot be read any more.
    #[error("cannot read the samples again: {0}")]
    Samples(#[from] RecordError),
    /// What the report goes to takes no more.
    #[error("{0}")]
    Output(#[from] io::Error),
}

/// Writes the document of this name, as it is made.
pub(super) type Writer = fn(&Report, &str, &mut dyn Write) -> Result<(), RenderError>;

/// The style of every page.
pub(super) const STYLE: &str = include_str!("html/style.css");

/// An environment in which what is not there is an error, and that has what pages share.
///
/// # Errors
/// When that does not parse.
pub(super) fn environment<'t>() -> Result<Environment<'t>, RenderError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("breakable", breakable);
    environment.add_template("shared.html", include_str!("html/shared.html"))?;
    Ok(environment)
}

/// A page from its template. What comes from outside is text in it.
///
/// # Errors
/// When the template does not fit its data.
pub(super) fn rendered(template: &str, view: impl Serialize) -> Result<String, RenderError> {
    let mut environment = environment()?;
    environment.add_template("page.html", template)?;
    Ok(environment.get_template("page.html")?.render(Serde(view))?)
}

/// An id with leave to break a line after its separators, and nowhere else.
fn breakable(id: &str) -> minijinja::Value {
    let mut out = String::new();
    for c in id.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            ',' | ':' => {
                out.push(c);
                out.push_str("<wbr>");
            }
            c => out.push(c),
        }
    }
    minijinja::Value::from_safe_string(out)
}
