//! What a trace says: where the time went, what repeats, and what changed between two.
//!
//! A trace is one run of one program with a profiler attached: its structure is exact, its
//! times are an indication, and held to a high floor. The times of several runs of each side
//! have a floor of their own ([`Runs`]).

mod analysis;
mod compare;
mod runs;

pub use analysis::{Analysis, analyse};
pub use compare::{Comparison, compare};
pub use runs::{FEWEST, FLOOR, LEAST, Runs, RunsOf, apart_told, runs_of, times_of};

#[cfg(test)]
mod tests;
