//! Sides made by hand, for the judge's own tests.

pub use regatta_core::record::testing::*;
