//! The one boundary: the harness process never runs the code under test.
//!
//! Every variant runs in a worker process that speaks [`protocol`]. [`host`] is
//! the harness's side of it, [`serve`] the worker's. [`program`] starts a process of
//! somebody else's so that nothing it starts outlives it or the harness.

mod channel;
pub mod descendants;
mod error;
mod forked;
mod forks;
pub mod gpu_clock;
pub mod host;
pub mod launch;
mod log;
mod order;
pub mod program;
pub mod python;
pub mod supervisor;

pub use regatta_worker::{protocol, serve};
