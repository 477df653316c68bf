//! The `cuda` worker: our own kernels (`kernels/`) on a GPU, or those of somebody's file (`own`).
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
pub mod kernels;
mod own;
mod plan;
mod reference;
mod samples;
mod worker;

pub use own::{OwnKernels, source};
pub use plan::{Limits, Offer, PlanRequest};
pub use worker::CudaWorker;

/// The name of the worker of our own kernels.
pub const NAME: &str = "cuda";
