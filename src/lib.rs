//! regatta: a performance-regression harness for attention kernels.
//!
//! Data flows one way: suite → plan → workers → run → judgement → report.
//! Each module below is a room of `docs/ARCHITECTURE.md`; a module imports only
//! from those above it in this list (`tests/layering/` holds it to that).

mod cache;
mod input;
mod last_words;

pub use regatta_worker::{attention, units};

pub mod machine;

pub mod suite;
pub mod worker;

pub mod kernels;

pub mod variants;

pub mod record;

pub mod measure;

pub mod judge;

pub mod report;

pub mod verdicts;

pub mod commands;

#[doc(hidden)]
pub mod fuzzing;
