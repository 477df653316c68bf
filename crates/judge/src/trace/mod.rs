//! The meaning of a trace: its time by kind, its repetition, and the changes between two.
//!
//! A trace is one run of one program with a profiler attached: its structure is exact, its
//! times are an indication, and held to a high threshold. The times of several runs of each side
//! are judged by the rule ([`Runs`]).

mod compare;
mod runs;

pub use compare::{TraceComparison, compare};
pub use runs::{FEWEST, MIN_THRESHOLD, Runs, RunsOf, THRESHOLD, apart_sentence, runs_of, times_of};

use serde::Serialize;

use crate::causes::{OneTrace, standing_out};
use crate::judgement::Finding;
use regatta_core::machine::{
    Recorded, Recording, SteadyPart, Summary, calls, in_steady, steady, summarise,
};

/// A trace, analysed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// Everything that was recorded.
    pub whole: Summary,
    /// The part that repeats, where one does.
    pub steady: Option<SteadyPart>,
    /// Findings in that part, or else in the whole trace; the most important first.
    pub findings: Vec<Finding>,
}

/// Analyses a recording.
pub fn analyse(recording: &Recording) -> Analysis {
    let all: Vec<&Recorded> = recording.operations.iter().collect();
    let whole = summarise(recording, &all, calls(recording));
    let steady = steady(recording).map(|steady| {
        let calls = in_steady(recording, &steady);
        let summary = summarise(recording, &steady.operations(recording), calls);
        SteadyPart { steady, summary }
    });
    Analysis {
        findings: standing_out(&OneTrace::new(recording, &whole, steady.as_ref())),
        whole,
        steady,
    }
}

#[cfg(test)]
mod tests;
