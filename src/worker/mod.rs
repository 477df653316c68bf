//! The one boundary: the harness process never runs the code under test.
//!
//! Every variant runs in a worker process that speaks [`protocol`]; [`serve`]
//! is the worker's side of it.

pub mod protocol;
pub mod serve;
