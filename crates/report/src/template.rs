//! What pages of one template have in common.

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::RenderError;

/// The style of every page.
pub(super) const STYLE: &str = include_str!("html/style.css");

/// The same, with the colours of timelines.
pub(super) const COLOURED: [&str; 2] = [STYLE, include_str!("html/timeline.css")];

/// An environment in which what is not there is an error, and that has what pages share.
///
/// # Errors
/// When that does not parse.
pub(super) fn environment<'t>() -> Result<Environment<'t>, RenderError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
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
