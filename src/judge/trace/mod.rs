//! What a trace says: where the time went, what repeats, and what changed between two.
//!
//! A trace is one run of one program with a profiler attached: its structure is exact, its
//! times are an indication. Nothing here calls a time regressed beyond doubt.

mod align;
mod changes;
mod compare;
mod findings;
mod idle;
mod steady;
mod summary;

pub use changes::{Became, KernelChange};
pub use compare::{Comparison, FLOOR, Scope, SideFigures, Sides, compare};
pub use idle::{Idle, gaps_of};
pub use steady::{Steady, steady};
pub use summary::{CopyRow, KernelRow, Shape, Summary, summarise};

pub use super::causes::launches::short;

use serde::Serialize;

use crate::record::trace::{Operation, Recording};

/// A trace, analysed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// Everything that was recorded.
    pub whole: Summary,
    /// The part that repeats, where one does.
    pub steady: Option<SteadyPart>,
}

/// The part of a trace that repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SteadyPart {
    /// Where it is.
    #[serde(flatten)]
    pub steady: Steady,
    /// What happened in it, over all its repetitions.
    pub summary: Summary,
}

/// Analyses a recording.
pub fn analyse(recording: &Recording) -> Analysis {
    let all: Vec<&Operation> = recording.operations.iter().collect();
    Analysis {
        whole: summarise(recording, &all, None),
        steady: steady(recording).map(|steady| SteadyPart {
            summary: summarise(
                recording,
                &steady.operations(recording),
                Some((steady.from_ns, steady.to_ns)),
            ),
            steady,
        }),
    }
}

#[cfg(test)]
mod tests;
