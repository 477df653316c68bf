//! The domain: attention problems, what they cost, and what they should give.
//!
//! Depends on no other module. A [`Attention`] is one attention computation, or one [`Projection`] around
//! it; a [`Case`] is a variant (one implementation) on a problem with parameters.

pub mod axes;
mod case;
pub mod inputs;
mod mask;
mod params;
mod problem;
mod projection;
pub mod reference;
pub mod tolerance;
mod values;
pub mod work;

pub use axes::FACETS;
pub use case::{Case, CaseId};
pub use mask::{Align, Mask};
pub use params::{AUTO, NAME_RULE, ParamValue, Params, VariantId, is_name, parameter_name};
pub use problem::{Attention, Point};
pub use projection::{Projection, ProjectionKind, Sizes};
pub use values::{Direction, Dtype, LONGEST_AXIS, Layout, Varlen};

/// A text that is not what it should be; the message says what is wrong and
/// what may stand there instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> ParseError {
        ParseError(message.into())
    }

    /// `text` is not one of the names a `what` can have.
    pub fn one_of<'a>(what: &str, text: &str, names: impl Iterator<Item = &'a str>) -> ParseError {
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        ParseError(format!(
            "`{text}` is not a {what}; use {}",
            names.join(", ")
        ))
    }
}
