//! The built-in operator: attention problems, what they cost, and what they should give.
//!
//! An [`Attention`] is one attention computation, or one [`Projection`] around it.

pub mod axes;
pub mod inputs;
mod mask;
mod problem;
mod projection;
pub mod reference;
pub mod tolerance;
mod values;
pub mod work;

pub use mask::{Align, Mask};
pub use problem::{Attention, Point};
pub use projection::{Projection, ProjectionKind, Sizes};
pub use values::{Direction, Layout, Varlen};
