//! Numbers as people read them: the same here and in the judge's sentences.

pub use crate::units::*;
