//! The `cuda` worker: our own kernels (`kernels/`) on a GPU.
//!
//! `plan` says what a variant launches for a problem, and knows no device beyond a
//! few numbers: all of it is tested without a GPU. `case` makes that real, and
//! `check` holds the results to a float64 reference on the device.

mod activity;
mod argument;
mod case;
mod check;
mod driver;
mod error;
mod launch;
mod memory;
mod plan;
mod reference;
mod samples;
mod view;
mod worker;

pub use worker::{CudaWorker, NAME};
