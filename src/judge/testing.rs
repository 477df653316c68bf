//! Sides made by hand, for the judge's own tests.

pub use crate::record::testing::*;
