//! Analyses a trace: its time by kind, its repetition, and the changes between two traces.
//!
//! A trace is a single run of a program with a profiler attached. Its structure is exact; its times
//! are only an indication, and judged with a high threshold. If each side has several runs, their
//! times are judged by the rule ([`Runs`]).

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

/// The analysis of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The figures of the whole recording.
    pub whole: Summary,
    /// The part that repeats, if there is one.
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
