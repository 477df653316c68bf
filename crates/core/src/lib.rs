//! The records of regatta: suites and their plans, runs, baselines, traces.
//!
//! Nothing here starts a process, reads a clock or decides anything. Times are nanoseconds, and an
//! unknown value is absent, never 0.

pub mod cache;
pub mod checksum;
pub mod input;
pub mod last_words;
pub mod locked;
pub mod machine;
pub mod metric;
pub mod output;
pub mod record;
pub mod secrets;
pub mod suite;
pub mod temporary;
pub mod text;
