//! What a trace says: where the time went, what repeats, and what changed between two.
//!
//! A trace is one run of one program with a profiler attached: its structure is exact, its
//! times are an indication. Nothing here calls a time regressed beyond doubt.

mod analysis;
mod compare;

pub use analysis::{Analysis, analyse};
pub use compare::{Comparison, FLOOR, compare};

#[cfg(test)]
mod tests;
