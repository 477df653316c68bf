//! The one boundary: the harness process never runs the code under test.
//!
//! Every variant runs in a worker process that speaks [`protocol`]. [`host`] is
//! the harness's side of it, [`serve`] the worker's, [`check`] holds a worker of
//! somebody else's to the protocol.

pub mod descendants;
pub mod gpu_clock;
pub mod host;
pub mod protocol;
pub mod python;
pub mod serve;
mod state;
